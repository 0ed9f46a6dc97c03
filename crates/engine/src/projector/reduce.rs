//! Events to rows: what a run and its steps look like to somebody who asks.

use std::collections::{BTreeMap, BTreeSet};

use milepost_core::event::{Body, Event, Patched, SetBack, StepRef};
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::status::{RunStatus, SkipReason, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::rows::{HeadRow, ProjectionWrite, SnapshotRow, StepRow};

/// A run's rows, and which of them have changed since they were written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Projection {
    /// Where the stored projection stands.
    stored_seq: u64,
    snapshot: Option<SnapshotRow>,
    steps: BTreeMap<String, StepRow>,
    changed: BTreeSet<String>,
    /// Rows of steps that are not in `steps` may be stored.
    partial: bool,
    /// Rows of steps that were complete are stored and not in `steps`.
    dropped: bool,
}

impl Projection {
    /// A projection as it is stored, with all of its steps.
    pub(crate) fn whole(snapshot: SnapshotRow, steps: Vec<StepRow>) -> Projection {
        let steps = steps.into_iter().map(|step| (step.step_id.clone(), step)).collect();
        Projection { steps, partial: false, ..Projection::partial(snapshot) }
    }

    /// A projection as it is stored, whose steps are read when something happens to them.
    pub(crate) fn partial(snapshot: SnapshotRow) -> Projection {
        Projection {
            stored_seq: snapshot.last_event_seq,
            snapshot: Some(snapshot),
            partial: true,
            ..Projection::default()
        }
    }

    /// What is known of a run whose log lacks its first event.
    pub(crate) fn of_head(head: &HeadRow, plan: &Plan) -> Projection {
        let snapshot = SnapshotRow {
            org: head.org,
            run: head.run,
            workflow: head.workflow.clone(),
            workflow_version: head.workflow_version.clone(),
            status: head.status,
            last_event_seq: 0,
            request_id: head.request_id.clone(),
            base_run: head.base_run,
            parent_run: head.parent_run,
            priority: head.priority,
            steps_total: plan.steps_total(),
            steps_done: 0,
            steps_failed: 0,
            error: None,
            created_at: head.created_at,
            started_at: head.started_at,
            completed_at: head.completed_at,
            // The log would say it.
            submitted_by: None,
            updated_at: head.completed_at.or(head.started_at).unwrap_or(head.created_at),
            engine_node: None,
        };
        Projection { snapshot: Some(snapshot), ..Projection::default() }
    }

    /// The head of a parked run knows of its end before anybody has read its log so far.
    pub(crate) fn ended_as(mut self, head: &HeadRow) -> Projection {
        if let Some(snapshot) = self.snapshot.as_mut().filter(|_| head.status.is_terminal()) {
            snapshot.status = head.status;
            snapshot.completed_at = head.completed_at;
            snapshot.updated_at = head.completed_at.unwrap_or(snapshot.updated_at);
        }
        self
    }

    /// The steps that the events change and whose rows have to be read first.
    pub(crate) fn missing<'e>(&self, plan: &Plan, events: impl Iterator<Item = &'e Event>) -> Vec<String> {
        if !self.partial && !self.dropped {
            return Vec::new();
        }
        // Nothing but a patch goes back to what was complete.
        let events = events.filter(|event| self.partial || matches!(event.body, Body::RunPatched(_)));
        let names: BTreeSet<String> = events.flat_map(changed_by).map(|step| step.name(plan)).collect();
        names.into_iter().filter(|name| !self.steps.contains_key(name)).collect()
    }

    /// Takes in the rows that were `missing`; those that were not found do not exist yet.
    pub(crate) fn add(&mut self, found: Vec<StepRow>) {
        self.steps.extend(found.into_iter().map(|step| (step.step_id.clone(), step)));
    }

    pub(crate) fn last_seq(&self) -> u64 {
        self.snapshot.as_ref().map_or(0, |snapshot| snapshot.last_event_seq)
    }

    pub(crate) fn snapshot(&self) -> Option<&SnapshotRow> {
        self.snapshot.as_ref()
    }

    pub(crate) fn steps(&self) -> &BTreeMap<String, StepRow> {
        &self.steps
    }

    /// `None` while it has seen no event.
    pub(crate) fn to_write(&self, org: OrgId, run: RunId, release: bool) -> Option<ProjectionWrite> {
        let snapshot = self.snapshot.clone()?;
        let steps = self.changed.iter().filter_map(|id| self.steps.get(id)).cloned().collect();
        Some(ProjectionWrite { org, run, expected_seq: self.stored_seq, snapshot, steps, release })
    }

    /// The rows are stored. Steps that are complete need not be kept in mind; those that failed or were skipped may yet be
    /// tried again.
    pub(crate) fn written(&mut self) {
        self.stored_seq = self.last_seq();
        for id in std::mem::take(&mut self.changed) {
            if self.steps.get(&id).is_some_and(|step| step.status == StepStatus::Completed) {
                self.steps.remove(&id);
                self.dropped = true;
            }
        }
    }

    pub(crate) fn apply(&mut self, org: OrgId, run: RunId, plan: &Plan, event: &Event) {
        if let Body::RunQueued(queued) = &event.body {
            self.snapshot = Some(SnapshotRow {
                org,
                run,
                workflow: plan.name.to_string(),
                workflow_version: plan.version.to_string(),
                status: queued.status,
                last_event_seq: 0,
                request_id: queued.request_id.clone(),
                base_run: queued.base.as_ref().map(|base| base.run),
                parent_run: queued.parent.as_ref().map(|parent| parent.run),
                priority: queued.priority,
                steps_total: plan.steps_total(),
                steps_done: 0,
                steps_failed: 0,
                error: None,
                created_at: event.at,
                started_at: None,
                completed_at: None,
                submitted_by: queued.submitted_by.clone(),
                updated_at: event.at,
                engine_node: None,
            });
        }
        if let Some(step) = event.step {
            self.apply_step(plan, step, event);
        }
        if let Some(snapshot) = &mut self.snapshot {
            apply_run(snapshot, event);
            (snapshot.last_event_seq, snapshot.updated_at) = (event.seq, event.at);
        }
        match &event.body {
            Body::StepRetryScheduled { reset, .. } => {
                reset.iter().for_each(|step| self.change(plan, StepRef::whole(*step), open_again));
            }
            Body::StepsSkipped { steps } => {
                let skip = |row: &mut StepRow| {
                    row.end(StepStatus::Skipped, event.at);
                    row.skip_reason = Some(SkipReason::RunStopped);
                };
                steps.iter().for_each(|step| self.change(plan, StepRef::whole(*step), skip));
            }
            Body::RunPatched(patched) => self.apply_patch(plan, patched, event.at),
            _ => {}
        }
    }

    /// Steps that are gone keep their rows, marked as removed and not counted. So do items of steps that run again: they
    /// come anew, perhaps fewer.
    fn apply_patch(&mut self, plan: &Plan, patched: &Patched, at: Timestamp) {
        let gone = |row: &mut StepRow| {
            row.end(StepStatus::Skipped, at);
            row.skip_reason = Some(SkipReason::Removed);
            row.output_seq = None;
        };
        for back in &patched.removed {
            whole_and_items(back).for_each(|step| self.change(plan, step, gone));
        }
        for back in &patched.rerun {
            whole_and_items(back).skip(1).for_each(|step| self.change(plan, step, gone));
            self.change(plan, StepRef::whole(back.step), open_again);
        }
        patched.reset.iter().for_each(|step| self.change(plan, StepRef::whole(*step), open_again));
        for step in patched.added.iter().chain(&patched.changed) {
            let (step, skill) = (StepRef::whole(*step), &plan.step(*step).skill);
            if !self.steps.contains_key(&step.name(plan)) {
                continue;
            }
            self.change(plan, step, |row| {
                row.skill = skill.to_string();
                if row.skip_reason == Some(SkipReason::Removed) {
                    open_again(row);
                }
            });
        }
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.steps_total = patched.steps_total;
        }
    }

    fn apply_step(&mut self, plan: &Plan, step: StepRef, event: &Event) {
        self.change(plan, step, |row| {
            row.logical_attempt = event.logical_attempt;
            row.engine_attempt = event.engine_attempt;
            match &event.body {
                Body::StepStarted(started) => {
                    row.status = StepStatus::Running;
                    row.started_at = Some(event.at);
                    row.ended_at = None;
                    row.error = None;
                    row.skip_reason = None;
                    row.input_hash = started.input_hash.or(row.input_hash);
                }
                Body::StepCompleted { .. } => {
                    row.end(StepStatus::Completed, event.at);
                    row.output_seq = Some(event.seq);
                }
                Body::StepFailed { error } => {
                    row.end(StepStatus::Failed, event.at);
                    row.error = serde_json::to_string(error).ok().map(Json::trusted);
                }
                Body::StepSkipped { reason } => {
                    row.end(StepStatus::Skipped, event.at);
                    row.skip_reason = Some(*reason);
                }
                Body::StepReused(reused) => {
                    row.end(StepStatus::Skipped, event.at);
                    row.skip_reason = Some(SkipReason::CacheHit);
                    row.input_hash = Some(reused.input_hash);
                    row.output_seq = Some(event.seq);
                }
                Body::StepRetryScheduled { .. } => {
                    row.status = StepStatus::Pending;
                    row.ended_at = None;
                }
                _ => {}
            }
        });
    }

    /// Changes a step's row and keeps the run's counts in step.
    fn change(&mut self, plan: &Plan, step: StepRef, change: impl FnOnce(&mut StepRow)) {
        let id = step.name(plan);
        let row = self.steps.entry(id.clone()).or_insert_with(|| blank(&id, plan, step));
        let (before, was_done) = (row.status, is_done(row));
        change(row);
        let (after, done) = (row.status, is_done(row));
        self.changed.insert(id);
        if let Some(snapshot) = self.snapshot.as_mut().filter(|_| step.item.is_none()) {
            snapshot.steps_done = moved(snapshot.steps_done, was_done, done);
            let failed = |status| status == StepStatus::Failed;
            snapshot.steps_failed = moved(snapshot.steps_failed, failed(before), failed(after));
        }
    }
}

/// The steps whose rows an event changes.
fn changed_by(event: &Event) -> impl Iterator<Item = StepRef> {
    let (steps, patched) = match &event.body {
        Body::StepRetryScheduled { reset: steps, .. } | Body::StepsSkipped { steps } => (steps.as_slice(), None),
        Body::RunPatched(patched) => (patched.reset.as_slice(), Some(patched)),
        _ => (&[][..], None),
    };
    let back = patched.into_iter().flat_map(|patched| patched.removed.iter().chain(&patched.rerun));
    let others = patched.into_iter().flat_map(|patched| patched.added.iter().chain(&patched.changed));
    let whole = steps.iter().chain(others).map(|step| StepRef::whole(*step));
    event.step.into_iter().chain(whole).chain(back.flat_map(whole_and_items))
}

fn whole_and_items(back: &SetBack) -> impl Iterator<Item = StepRef> {
    let step = back.step;
    std::iter::once(StepRef::whole(step)).chain((0..back.items).map(move |item| StepRef::item(step, item)))
}

/// Has ended, and is part of the plan. What never began as the run stopped is not done.
fn is_done(row: &StepRow) -> bool {
    let left_out = matches!(row.skip_reason, Some(SkipReason::Removed | SkipReason::RunStopped));
    row.status.is_terminal() && !left_out
}

fn open_again(row: &mut StepRow) {
    row.status = StepStatus::Pending;
    row.skip_reason = None;
    row.ended_at = None;
    row.output_seq = None;
    row.error = None;
}

fn apply_run(snapshot: &mut SnapshotRow, event: &Event) {
    if let Body::RunStarted(Some(engine)) = &event.body {
        snapshot.engine_node = Some(engine.node);
    }
    let Some(status) = event.body.run_status() else { return };
    snapshot.status = status;
    if status == RunStatus::Running && snapshot.started_at.is_none() {
        snapshot.started_at = Some(event.at);
    }
    snapshot.completed_at = status.is_terminal().then_some(event.at);
    snapshot.error = match &event.body {
        Body::RunFailed { error } => serde_json::to_string(error).ok().map(Json::trusted),
        _ => None,
    };
}

fn moved(count: u32, before: bool, after: bool) -> u32 {
    match (before, after) {
        (false, true) => count + 1,
        (true, false) => count.saturating_sub(1),
        _ => count,
    }
}

fn blank(id: &str, plan: &Plan, step: StepRef) -> StepRow {
    StepRow {
        step_id: id.to_owned(),
        skill: plan.step(step.step).skill.to_string(),
        status: StepStatus::Pending,
        skip_reason: None,
        logical_attempt: 0,
        engine_attempt: 0,
        input_hash: None,
        output_seq: None,
        error: None,
        started_at: None,
        ended_at: None,
    }
}

trait End {
    fn end(&mut self, status: StepStatus, at: Timestamp);
}

impl End for StepRow {
    fn end(&mut self, status: StepStatus, at: Timestamp) {
        self.status = status;
        self.ended_at = Some(at);
        self.error = None;
    }
}
