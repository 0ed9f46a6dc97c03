//! Reading one run: as it is, or as it was after any of its events.
//!
//! The projection may be a moment behind, so the log after it is read with it: a caller sees its own write. As a rule one
//! call to the store is all it takes.
//!
//! **Invariant:** a run whose log has a gap is shown as it was before, and says from where on it is stale.

use std::sync::Arc;

use milepost_core::codec;
use milepost_core::event::StepRef;
use milepost_core::id::{OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_core::record::EventRow;
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::rows::{ArtifactRow, HeadRow};

use crate::artifacts::{ArtifactView, all};
use crate::engine::{Engine, gap_now};
use crate::error::EngineError;
use crate::plans::Plans;
use crate::projector::{CaughtUp, Projection, catch_up, followed};
use crate::room::{Held, Place, Room};
use crate::view::{
    Carried, DEFINITION, RunSummary, RunView, Stale, StepView, StuckView, over_with, run_view, step_view,
    unseen_run_view,
};

/// Outputs that are read at once.
const OUTPUTS: usize = 64;
/// How often a value is in memory while an answer is made: read, as part of a list, as part of the run's output, and as text.
const COPIES: usize = 6;

impl Engine {
    /// A run as it is now.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    pub async fn run(&self, run: RunId) -> Result<RunView, EngineError> {
        Ok(self.run_held(run).await?.it)
    }

    /// The same with the room that it takes, for those who answer many at once.
    ///
    /// # Errors
    /// As [`Engine::run`]; or there was no room for a while.
    pub async fn run_held(&self, run: RunId) -> Result<Held<RunView>, EngineError> {
        self.reader().now(self.org, run).await
    }

    /// A run as it was after its event `seq`.
    ///
    /// # Errors
    /// There is no such run, it has no such event, or it cannot be read.
    pub async fn run_at(&self, run: RunId, seq: u64) -> Result<RunView, EngineError> {
        Ok(self.run_at_held(run, seq).await?.it)
    }

    /// The same with the room that it takes.
    ///
    /// # Errors
    /// As [`Engine::run_at`]; or there was no room for a while.
    pub async fn run_at_held(&self, run: RunId, seq: u64) -> Result<Held<RunView>, EngineError> {
        self.reader().at(self.org, run, seq).await
    }

    /// A run as it is now, without its steps, payload and output: what a list shows of it.
    ///
    /// # Errors
    /// There is no such run, or it cannot be read.
    pub async fn summary(&self, run: RunId) -> Result<RunSummary, EngineError> {
        self.reader().summary(self.org, run).await
    }

    /// One step of a run whose head was read, as it is now.
    pub(crate) async fn step_now(
        &self,
        head: &HeadRow,
        plan: &Arc<Plan>,
        step: StepRef,
    ) -> Result<StepView, EngineError> {
        self.reader().step(head, plan, step).await
    }

    fn reader(&self) -> Reader<'_> {
        Reader { store: &*self.store, plans: &self.plans, room: &self.room }
    }
}

/// A run as it is now. Needs no engine.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub async fn read_run(
    store: &Arc<dyn Store>,
    blobs: Option<Blobs>,
    org: OrgId,
    run: RunId,
) -> Result<RunView, EngineError> {
    let plans = Plans::of_store(store, blobs);
    let room = Room::new(usize::MAX);
    Ok(Reader { store: &**store, plans: &plans, room: &room }.now(org, run).await?.it)
}

struct Reader<'a> {
    store: &'a dyn Store,
    plans: &'a Plans,
    /// What answers take while they are made.
    room: &'a Room,
}

impl Reader<'_> {
    async fn now(&self, org: OrgId, run: RunId) -> Result<Held<RunView>, EngineError> {
        let rows = self.store.read_run(org, run).await?.ok_or(EngineError::NoSuchRun(run))?;
        let mut carried = Carried::default();
        if rows.head.stuck.is_some() {
            rows.carrying.iter().for_each(|row| keep(&mut carried, row));
            let projection = match rows.projection {
                Some((snapshot, steps)) => Projection::whole(snapshot, steps),
                None => {
                    let (name, version) = (&rows.head.workflow, &rows.head.workflow_version);
                    let plan = Plan::unseen(rows.head.plan_hash, name.as_str().into(), version.as_str().into());
                    Projection::of_head(&rows.head, &plan)
                }
            };
            let projection = projection.ended_as(&rows.head);
            let Some(mut view) = unseen_run_view(&projection, &carried, &rows.artifacts) else {
                return Err(EngineError::NoSuchRun(run));
            };
            view.summary.stuck = stuck_of(&rows.head);
            return Ok(Held { it: view, place: Place::default() });
        }
        let plan = self.plans.by_hash(org, rows.head.plan_hash).await?;
        rows.carrying.iter().chain(&rows.tail).for_each(|row| keep(&mut carried, row));
        let projected = rows.projection.map(|(snapshot, steps)| Projection::whole(snapshot, steps));
        let CaughtUp { projection, gap } = followed(projected.unwrap_or_default(), org, run, &plan, &rows.tail);
        let mut read = match gap {
            Some(_) => CaughtUp { projection, gap },
            None => {
                self.read_on(&rows.head, &plan, projection, rows.head.last_seq, |row| keep(&mut carried, row)).await?
            }
        };
        if read.gap.is_none() && rows.events < rows.head.last_seq {
            // What is shown was projected before the gap came: it is right, and the log behind it is not whole.
            read.gap = Some(self.store.first_missing(org, run).await?).filter(|seq| *seq <= rows.head.last_seq);
        }
        self.note(&rows.head, rows.stale_from, read.gap).await;
        self.view(&rows.head, &plan, read, carried, &rows.artifacts).await
    }

    async fn at(&self, org: OrgId, run: RunId, seq: u64) -> Result<Held<RunView>, EngineError> {
        let head = self.head(org, run).await?;
        if seq == 0 || seq > head.last_seq {
            return Err(EngineError::NoSuchEvent { run, seq, last_seq: head.last_seq });
        }
        let plan = self.plans.by_hash(org, head.plan_hash).await?;
        let (mut carried, mut then) = (Carried::default(), plan.hash);
        let see = |row: &EventRow| {
            keep(&mut carried, row);
            if let Ok(Some(hash)) = codec::plan_from(row) {
                then = hash;
            }
        };
        let read = self.read_on(&head, &plan, Projection::default(), seq, see).await?;
        let plan = self.plans.by_hash(org, then).await?;
        let until = read.gap.map_or(seq, |gap| gap - 1);
        let artifacts = all(self.store, org, run, None, until).await?;
        let mut view = self.view(&head, &plan, read, carried, &artifacts).await?;
        view.it.summary.steps_total = plan.steps_total();
        Ok(view)
    }

    async fn summary(&self, org: OrgId, run: RunId) -> Result<RunSummary, EngineError> {
        let head = self.head(org, run).await?;
        let projection = self.store.snapshot(org, run).await?.map(Projection::partial).unwrap_or_default();
        let mut stale_from = self.store.stale_runs(org, &[run]).await?.first().map(|(_, seq)| *seq);
        let mut projection = projection;
        if head.stuck.is_some() {
            projection = projection.ended_as(&head);
        } else if projection.last_seq() < head.last_seq {
            let plan = self.plans.by_hash(org, head.plan_hash).await?;
            let read = self.read_on(&head, &plan, projection, head.last_seq, |_| {}).await?;
            stale_from = read.gap.or(stale_from);
            projection = match read.projection.snapshot() {
                Some(_) => read.projection,
                None => Projection::of_head(&head, &plan),
            };
        }
        if let Some(noted) = stale_from.filter(|noted| *noted <= projection.last_seq()) {
            stale_from = gap_now(self.store, org, run, noted).await?;
        }
        match projection.snapshot() {
            Some(snapshot) => {
                Ok(RunSummary { stuck: stuck_of(&head), stale: Stale::at(stale_from), ..RunSummary::from(snapshot) })
            }
            None => Err(EngineError::NoSuchRun(run)),
        }
    }

    async fn step(&self, head: &HeadRow, plan: &Arc<Plan>, step: StepRef) -> Result<StepView, EngineError> {
        let name = step.name(plan);
        let mut projection = Projection::default();
        if let Some(snapshot) = self.store.snapshot(head.org, head.run).await? {
            projection = Projection::partial(snapshot);
            let mut names = vec![name.clone()];
            names.extend(step.item.map(|_| StepRef::whole(step.step).name(plan)));
            projection.add(self.store.steps_by_id(head.org, head.run, &names).await?);
        }
        let mut carried = Carried::default();
        let read = self.read_on(head, plan, projection, head.last_seq, |row| keep(&mut carried, row)).await?;
        let projection = read.projection;
        let row = projection.steps().get(&name);
        if let Some(seq) = row.and_then(|row| row.output_seq).filter(|seq| !carried.has(*seq)) {
            let rows = self.store.events_at(head.org, head.run, &[seq]).await?;
            rows.iter().for_each(|row| keep(&mut carried, row));
        }
        let ended = projection.snapshot().is_some_and(|snapshot| snapshot.status.is_terminal());
        let whole = projection.steps().get(&StepRef::whole(step.step).name(plan));
        let over = ended.then(|| over_with(whole.filter(|_| step.item.is_some())));
        let artifacts = all(self.store, head.org, head.run, Some(name.clone()), u64::MAX).await?;
        let artifacts = artifacts.iter().map(ArtifactView::from).collect();
        Ok(StepView { artifacts, ..step_view(plan, step, row, &carried, over) })
    }

    async fn head(&self, org: OrgId, run: RunId) -> Result<HeadRow, EngineError> {
        self.store.head(org, run).await?.ok_or(EngineError::NoSuchRun(run))
    }

    /// The run where its log was read to.
    async fn view(
        &self,
        head: &HeadRow,
        plan: &Arc<Plan>,
        read: CaughtUp,
        mut carried: Carried,
        artifacts: &[ArtifactRow],
    ) -> Result<Held<RunView>, EngineError> {
        let CaughtUp { mut projection, gap } = read;
        if projection.snapshot().is_none() {
            // It was forgotten while it was being read, or its first event is missing.
            projection = Projection::of_head(&self.head(head.org, head.run).await?, plan);
        }
        let place = self.read_carried(head, &projection, &mut carried).await?;
        match run_view(plan, &projection, &carried, artifacts) {
            Some(mut it) => {
                it.summary.stale = Stale::at(gap);
                Ok(Held { it, place })
            }
            None => Err(EngineError::NoSuchRun(head.run)),
        }
    }

    async fn read_on(
        &self,
        head: &HeadRow,
        plan: &Arc<Plan>,
        projection: Projection,
        until: u64,
        see: impl FnMut(&EventRow),
    ) -> Result<CaughtUp, EngineError> {
        let plan = plan.clone();
        let mut read = catch_up(self.store, self.plans, (head.org, head.run), plan, projection, until, see).await?;
        let last = read.projection.last_seq();
        if last < until {
            // The log has a gap or ends too early, unless the run was forgotten meanwhile.
            self.head(head.org, head.run).await?;
            read.gap = read.gap.or(Some(last + 1));
        }
        Ok(read)
    }

    /// Sees to it that lists say the same of a run's log. What cannot be written now is when it is read again.
    async fn note(&self, head: &HeadRow, noted: Option<u64>, gap: Option<u64>) {
        if noted != gap
            && let Err(error) = self.store.mark_stale(head.org, head.run, gap).await
        {
            tracing::debug!(run = %head.run, %error, "it could not be noted whether its log is whole");
        }
    }

    /// The payload and the outputs, where they were not on the way: as many as an answer shows. Answers the room for it.
    async fn read_carried(
        &self,
        head: &HeadRow,
        projection: &Projection,
        carried: &mut Carried,
    ) -> Result<Place, EngineError> {
        let mut place = Place::default();
        self.room.grow(&mut place, COPIES * carried.bytes()).await?;
        let outputs = projection.steps().values().filter_map(|step| step.output_seq);
        let seqs: Vec<u64> = [1].into_iter().chain(outputs).filter(|seq| !carried.has(*seq)).collect();
        for page in seqs.chunks(OUTPUTS) {
            if carried.is_full() {
                page.iter().for_each(|seq| carried.omit(*seq));
                continue;
            }
            let rows = self.store.events_at(head.org, head.run, page).await?;
            rows.iter().for_each(|row| keep(carried, row));
            self.room.grow(&mut place, COPIES * carried.bytes()).await?;
        }
        Ok(place)
    }
}

fn stuck_of(head: &HeadRow) -> Option<StuckView> {
    head.stuck.as_ref().filter(|_| !head.status.is_terminal()).map(StuckView::from)
}

/// Keeps the value that a row carries, if it carries one that a view shows.
fn keep(carried: &mut Carried, row: &EventRow) {
    if matches!(&*row.event_type, "StepCompleted" | "StepSkipped" | "RunQueued")
        && let Ok(value) = codec::carried_value(row)
    {
        if value.is_none()
            && let Some(blob) = codec::carried_blob(row)
        {
            carried.keep_blob(row.seq, blob);
        }
        carried.keep(row.seq, value);
    }
    if row.event_type == "RunQueued"
        && let Ok(definition) = codec::carried_definition(row)
    {
        carried.keep(DEFINITION, definition);
    }
}
