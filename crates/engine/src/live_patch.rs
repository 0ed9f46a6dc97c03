//! Live patches: the definition of a run is changed while it runs.
//!
//! The plan that a patch makes is stored first, by its content; then the run is told to follow it, and the compare-and-swap
//! of its head makes that one step. When the run has got another plan meanwhile, the operations are applied to that one.

use std::sync::Arc;

use milepost_core::codec;
use milepost_core::document::{self, Loaded};
use milepost_core::event::{Body, Patched};
use milepost_core::id::{RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::plan::{Plan, StepIndex};
use milepost_core::run::{Command, PatchEffects, PatchRun, Rejection, RejectionKind, RunState};
use milepost_core::status::RunStatus;
use milepost_core::text;
use milepost_store::rows::HeadRow;
use serde::Serialize;
use serde_json::Value;

use crate::committer::{RequestKind, restore};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::{Lane, weight};

/// Each time somebody else's patch came first.
const TRIES: usize = 50;
const PAGE: u32 = 200;
/// What is noted of a run for which a patch is prepared: the same as when it is decided.
const PATCH: &str = "patch";

/// How a run is to be patched.
#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    /// What has ended may be changed, and runs again with all that saw its result.
    pub rerun: bool,
    /// Only if the run's last event is still this one.
    pub if_seq: Option<u64>,
    pub message: Option<String>,
    /// Who asks for it.
    pub by: Option<String>,
    /// The same patch sent twice is one patch; without an id it has one of its own.
    pub patch_id: Option<SignalId>,
}

impl PatchOptions {
    fn check(&self, most_chars: usize) -> Result<(), Rejection> {
        text::check_remark("the message", self.message.as_deref())?;
        self.by
            .as_deref()
            .map_or(Ok(()), |by| text::check_name("the name of who patches it", by, most_chars, "bad_actor"))
    }
}

/// What a patch means for the steps of a run, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepLists {
    /// Stay as they are.
    pub kept: Vec<String>,
    pub new: Vec<String>,
    pub changed: Vec<String>,
    /// Go before they had ended.
    pub removed: Vec<String>,
    /// Go after they had: their events stay, nobody sees their output any more.
    pub orphaned: Vec<String>,
    /// Had ended, and run again.
    pub rerun: Vec<String>,
}

/// What a patch would do.
#[derive(Clone, Debug, Serialize)]
pub struct PatchPreview {
    pub run_id: RunId,
    /// Whether the run would take it as it stands.
    pub fits: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refusal: Option<PatchRefusal>,
    #[serde(flatten)]
    pub steps: StepLists,
    /// The run's last event when it was looked at.
    pub last_event_seq: u64,
}

/// Why a run does not take a patch.
#[derive(Clone, Debug, Serialize)]
pub struct PatchRefusal {
    pub code: &'static str,
    pub message: String,
}

/// A patch that is in force.
#[derive(Clone, Debug, Serialize)]
pub struct PatchedRun {
    pub run_id: RunId,
    pub patch_id: SignalId,
    pub status: RunStatus,
    /// The patch had been taken before; nothing was written now.
    pub existing: bool,
    #[serde(flatten)]
    pub steps: StepLists,
    /// The run's last event when it was written.
    pub last_event_seq: u64,
}

impl Engine {
    /// Changes the definition of a run from here on: RFC 6902 operations on its document. Returns when that is on disk.
    ///
    /// # Errors
    /// An operation does not fit, the result has problems, or the run does not take it: a step that it changes has begun.
    pub async fn patch_run(&self, run: RunId, ops: &Value, options: PatchOptions) -> Result<PatchedRun, EngineError> {
        options.check(self.limits().name_chars)?;
        let id = options.patch_id.unwrap_or_else(|| SignalId(uuid::Uuid::now_v7()));
        for _ in 0..TRIES {
            let head = self.head(run).await?;
            if let Some(taken) = self.taken_before(&head, &options).await? {
                return Ok(taken);
            }
            check_head(&head, &options)?;
            let preparing = self.care.prepare(self.org, run, PATCH).await;
            let before = self.plans.by_hash(self.org, head.plan_hash).await?;
            let loaded = self.patch_plan(&before, ops).await?;
            self.check_patch_skills(&before, &loaded.plan)?;
            let plan = self.plans.add(self.org, loaded).await?;
            drop(preparing);
            let patch = PatchRun { ops: Some(Json::of(ops)), ..new_patch(id, plan, &options) };
            match self.send_patch(&head, patch).await {
                Err(error) if has_moved(&error) => {}
                answer => return answer,
            }
        }
        Err(busy())
    }

    /// What a patch would do to the run as it stands. Nothing is stored.
    ///
    /// # Errors
    /// There is no such run, an operation does not fit, or the result has problems.
    pub async fn preview_patch(&self, run: RunId, ops: &Value, rerun: bool) -> Result<PatchPreview, EngineError> {
        let _preparing = self.care.prepare(self.org, run, PATCH).await;
        let state = self.state_of(run).await?;
        let loaded = self.patch_plan(&state.plan, ops).await?;
        self.check_patch_skills(&state.plan, &loaded.plan)?;
        let bytes = loaded.canonical.len();
        let options = PatchOptions { rerun, ..PatchOptions::default() };
        let patch = new_patch(SignalId(uuid::Uuid::nil()), Arc::new(loaded.plan), &options);
        let last_event_seq = state.last_seq;
        let weigh = move || {
            let (effects, refused) = state.preview_patch(&patch);
            (StepLists::of(&effects, &patch.plan), refused)
        };
        let (steps, refused) = self.work().run(Lane::Documents, bytes, weigh).await?;
        Ok(PatchPreview {
            run_id: run,
            fits: refused.is_none(),
            refusal: refused.map(|Rejection { code, message, .. }| PatchRefusal { code, message }),
            steps,
            last_event_seq,
        })
    }

    /// Takes a patch back, the newest one unless it is said which: the run follows the document that it had before.
    ///
    /// # Errors
    /// There is none, or steps that it added or changed have begun.
    pub async fn undo_patch(
        &self,
        run: RunId,
        undone: Option<SignalId>,
        options: PatchOptions,
    ) -> Result<PatchedRun, EngineError> {
        options.check(self.limits().name_chars)?;
        let id = options.patch_id.unwrap_or_else(|| SignalId(uuid::Uuid::now_v7()));
        for _ in 0..TRIES {
            let head = self.head(run).await?;
            if let Some(taken) = self.taken_before(&head, &options).await? {
                return Ok(taken);
            }
            check_head(&head, &options)?;
            let preparing = self.care.prepare(self.org, run, PATCH).await;
            let state = self.state_of(run).await?;
            let Some((newest, before)) = state.newest_patch() else {
                let message = "the run has no patch that could be undone".to_owned();
                return Err(Rejection { kind: RejectionKind::NotFound, code: "unknown_patch", message }.into());
            };
            let former = self.plans.text(self.org, before).await?;
            let (bytes, now) = (former.len(), state.plan.clone());
            let unpatch = move || document::unpatch_run(&now, &former);
            let loaded = self.work().run(Lane::Stored, bytes, unpatch).await??;
            let plan = self.plans.add(self.org, loaded).await?;
            drop(preparing);
            let patch = PatchRun { undoes: Some(undone.unwrap_or(newest)), ..new_patch(id, plan, &options) };
            match self.send_patch(&head, patch).await {
                Err(error) if has_moved(&error) => {}
                answer => return answer,
            }
        }
        Err(busy())
    }

    /// A plan as somebody would start it: one that a patch made has numbers of its own, which are nothing to other runs.
    pub(crate) async fn unnumbered(&self, plan: Arc<Plan>) -> Result<Arc<Plan>, EngineError> {
        if plan.after.is_none() {
            return Ok(plan);
        }
        let text = self.plans.text(self.org, plan.hash).await?;
        let bytes = text.len();
        let load = move || {
            let canonical = document::without_numbers(&text)?;
            let plan = document::load_stored(&canonical).map_err(EngineError::Invalid)?;
            Ok::<_, EngineError>(Loaded { hash: plan.hash, canonical, plan })
        };
        let loaded = self.work().run(Lane::Stored, bytes, load).await??;
        self.plans.add(self.org, loaded).await
    }

    async fn patch_plan(&self, before: &Arc<Plan>, ops: &Value) -> Result<Loaded, EngineError> {
        let text = self.plans.text(self.org, before.hash).await?;
        let (bytes, before, ops, limits) =
            (text.len() + weight(ops), before.clone(), ops.clone(), self.limits().clone());
        let patch = move || document::patch_run(&before, &text, &ops, &limits);
        Ok(self.work().sized(Lane::Documents, bytes, patch).await??)
    }

    async fn state_of(&self, run: RunId) -> Result<RunState, EngineError> {
        let loaded = self.store.load_runs(&[(self.org, run)]).await?;
        restore(loaded.first().ok_or(EngineError::NoSuchRun(run))?, &self.plans).await
    }

    async fn send_patch(&self, head: &HeadRow, patch: PatchRun) -> Result<PatchedRun, EngineError> {
        let (id, org, run) = (patch.id, self.org, head.run);
        self.plans.keep_for(org, run, &[head.plan_hash, patch.plan.hash]).await?;
        let command = Command::Patch(Box::new(patch));
        let accepted = self.inbox.ask(RequestKind::Command { org, run, command }).await?;
        let after = if accepted.existing { 0 } else { head.last_seq };
        let patched = self.find_patch(head, id, after).await?;
        let patched = patched.ok_or_else(|| EngineError::Corrupt {
            run,
            reason: format!("patch {id} was taken and is not in its log"),
        })?;
        Ok(PatchedRun {
            run_id: run,
            patch_id: id,
            status: accepted.status,
            existing: accepted.existing,
            steps: self.lists_of(&patched).await?,
            last_event_seq: accepted.last_seq,
        })
    }

    /// A patch that was sent before is as it was then, however far the run has come since.
    async fn taken_before(&self, head: &HeadRow, options: &PatchOptions) -> Result<Option<PatchedRun>, EngineError> {
        let Some(id) = options.patch_id else { return Ok(None) };
        let Some(patched) = self.find_patch(head, id, 0).await? else { return Ok(None) };
        let (status, last_event_seq) = (head.status, head.last_seq);
        let steps = self.lists_of(&patched).await?;
        Ok(Some(PatchedRun { run_id: head.run, patch_id: id, status, existing: true, steps, last_event_seq }))
    }

    /// The event of a patch, looked for in the log.
    async fn find_patch(&self, head: &HeadRow, id: SignalId, mut after: u64) -> Result<Option<Patched>, EngineError> {
        loop {
            let rows = self.store.events(head.org, head.run, after, PAGE).await?;
            if let Some(row) = rows.iter().find(|row| row.signal == Some(id) && row.event_type == "RunPatched") {
                let corrupt =
                    |error: codec::Unreadable| EngineError::Corrupt { run: head.run, reason: error.to_string() };
                let Some((_, hash)) = codec::patched_plans(row).map_err(corrupt)? else { return Ok(None) };
                let plan = self.plans.by_hash(head.org, hash).await?;
                return match codec::decode(row, &plan).map_err(corrupt)?.body {
                    Body::RunPatched(patched) => Ok(Some(*patched)),
                    _ => Ok(None),
                };
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE as usize => after = last.seq,
                _ => return Ok(None),
            }
        }
    }

    async fn lists_of(&self, patched: &Patched) -> Result<StepLists, EngineError> {
        let plan = self.plans.by_hash(self.org, patched.plan).await?;
        let steps = |back: &[milepost_core::event::SetBack]| back.iter().map(|back| back.step).collect::<Vec<_>>();
        let (added, changed, rerun) = (&patched.added, &patched.changed, steps(&patched.rerun));
        let touched = |step: &StepIndex| added.contains(step) || changed.contains(step) || rerun.contains(step);
        let kept: Vec<StepIndex> = plan.order.iter().copied().filter(|step| !touched(step)).collect();
        let mut removed = steps(&patched.removed);
        removed.retain(|step| !patched.orphaned.contains(step));
        Ok(StepLists {
            kept: ids(&plan, &kept),
            new: ids(&plan, added),
            changed: ids(&plan, changed),
            removed: ids(&plan, &removed),
            orphaned: ids(&plan, &patched.orphaned),
            rerun: ids(&plan, &rerun),
        })
    }
}

impl StepLists {
    fn of(effects: &PatchEffects, plan: &Plan) -> StepLists {
        StepLists {
            kept: ids(plan, &effects.kept),
            new: ids(plan, &effects.added),
            changed: ids(plan, &effects.changed),
            removed: ids(plan, &effects.removed),
            orphaned: ids(plan, &effects.orphaned),
            rerun: ids(plan, &effects.rerun),
        }
    }
}

fn ids(plan: &Plan, steps: &[StepIndex]) -> Vec<String> {
    let mut ids: Vec<String> = steps.iter().map(|step| plan.step(*step).id.to_string()).collect();
    ids.sort_unstable();
    ids
}

/// What can be told at once, before a plan is stored for nothing; the run's own word counts.
fn check_head(head: &HeadRow, options: &PatchOptions) -> Result<(), EngineError> {
    if head.status.is_terminal() {
        let message = format!("the run is {} and cannot be patched any more", head.status);
        return Err(Rejection { kind: RejectionKind::Conflict, code: "run_ended", message }.into());
    }
    match options.if_seq.filter(|expected| *expected != head.last_seq) {
        Some(expected) => Err(EngineError::Moved { run: head.run, expected, last_seq: head.last_seq }),
        None => Ok(()),
    }
}

fn new_patch(id: SignalId, plan: Arc<Plan>, options: &PatchOptions) -> PatchRun {
    PatchRun {
        id,
        plan,
        ops: None,
        rerun: options.rerun,
        message: options.message.clone(),
        actor: options.by.clone(),
        undoes: None,
        expected_seq: options.if_seq,
    }
}

/// Somebody else's patch came first.
fn has_moved(error: &EngineError) -> bool {
    matches!(error, EngineError::Rejected(rejection) if rejection.code == Rejection::PLAN_MOVED)
}

fn busy() -> EngineError {
    let message = "others patch the run all the time; try again later".to_owned();
    Rejection { kind: RejectionKind::Limited, code: "too_many_patches", message }.into()
}
