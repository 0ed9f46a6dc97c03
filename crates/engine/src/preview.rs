//! What a run would do, for those who want to know before they start it. Nothing is stored.

use std::sync::Arc;

use milepost_core::change::ChangeRequest;
use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::plan::Plan;
use milepost_core::run::{StepOutlook, StepPreview};
use serde::Serialize;

use crate::engine::{Engine, NewRun};
use crate::error::EngineError;

/// What a run would do.
#[derive(Clone, Debug, Serialize)]
pub struct PlanView {
    pub workflow: String,
    pub workflow_version: String,
    /// Every step after all that it depends on.
    pub steps: Vec<PlannedStep>,
    pub counts: PlanCounts,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedStep {
    pub step_id: String,
    pub skill: String,
    pub decision: StepDecision,
    /// A stable word: `no_cache`, `cache`, `fails`, `condition` or `depends_on_run`.
    pub reason: &'static str,
    /// The same as a sentence.
    pub message: String,
    /// Where the payload alone decides the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Digest>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepDecision {
    Run,
    /// The result of an earlier run is used. Not told so far: results are looked up when a step is ready.
    Reuse,
    /// Only the run itself will tell.
    Unknown,
    /// Its condition is not true.
    Skip,
}

impl StepDecision {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            StepDecision::Run => "run",
            StepDecision::Reuse => "reuse",
            StepDecision::Unknown => "unknown",
            StepDecision::Skip => "skip",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PlanCounts {
    pub run: u32,
    pub reuse: u32,
    pub unknown: u32,
    pub skip: u32,
}

impl Engine {
    /// What a run of this plan would do, after all checks that a start makes (but for room under its concurrency key,
    /// which is known only at the start).
    ///
    /// # Errors
    /// What `start_plan` would answer.
    pub async fn plan_run(&self, plan: &Arc<Plan>, new: NewRun) -> Result<PlanView, EngineError> {
        let starting = self.starting(plan, new)?;
        Ok(PlanView::of(plan, starting.preview(self.limits())))
    }

    /// What an update run would do.
    ///
    /// # Errors
    /// What `update` would answer.
    pub async fn plan_update(
        &self,
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
        new: NewRun,
    ) -> Result<PlanView, EngineError> {
        let update = self.prepare(base, plan, changes, new).await?;
        self.plan_run(&update.plan, update.new).await
    }
}

impl PlanView {
    fn of(plan: &Plan, previews: Vec<StepPreview>) -> PlanView {
        let steps: Vec<PlannedStep> = previews.into_iter().map(|preview| PlannedStep::of(plan, preview)).collect();
        let mut counts = PlanCounts::default();
        for step in &steps {
            counts.count(step.decision);
        }
        PlanView { workflow: plan.name.to_string(), workflow_version: plan.version.to_string(), steps, counts }
    }
}

impl PlanCounts {
    fn count(&mut self, decision: StepDecision) {
        *match decision {
            StepDecision::Run => &mut self.run,
            StepDecision::Reuse => &mut self.reuse,
            StepDecision::Unknown => &mut self.unknown,
            StepDecision::Skip => &mut self.skip,
        } += 1;
    }
}

impl PlannedStep {
    fn of(plan: &Plan, preview: StepPreview) -> PlannedStep {
        let step = plan.step(preview.step);
        let (decision, reason, message) = match preview.outlook {
            StepOutlook::Runs if step.cache.enabled => {
                (StepDecision::Unknown, "cache", "it runs unless its result is kept from an earlier run".to_owned())
            }
            StepOutlook::Runs => (StepDecision::Run, "no_cache", "its results are not kept, so it runs".to_owned()),
            StepOutlook::Fails(why) => (StepDecision::Run, "fails", format!("it will fail: {why}")),
            StepOutlook::Skipped => (StepDecision::Skip, "condition", "its condition is not true".to_owned()),
            StepOutlook::Unknown => {
                let message = "its condition, or the list it goes over, is known only while the run is under way";
                (StepDecision::Unknown, "depends_on_run", message.to_owned())
            }
        };
        PlannedStep {
            step_id: step.id.to_string(),
            skill: step.skill.to_string(),
            decision,
            reason,
            message,
            input_hash: preview.input_hash,
        }
    }
}
