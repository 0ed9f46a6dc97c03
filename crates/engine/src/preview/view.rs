//! What a run would do, as somebody outside sees it.

use std::collections::HashMap;

use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::plan::{Plan, StepIndex};
use milepost_core::run::{ItemsPreview, StepOutlook, StepPreview, WhyRun};
use serde::Serialize;

use super::forecast::Forecast;

/// What a run would do.
#[derive(Clone, Debug, Serialize)]
pub struct PlanView {
    pub workflow: String,
    pub workflow_version: String,
    /// The run that it would be an update of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_run_id: Option<RunId>,
    /// Every step after all that it depends on.
    pub steps: Vec<PlannedStep>,
    pub counts: PlanCounts,
    /// From the start to the end: the longest way through what runs, as long as it took the last time. What is not known yet
    /// counts as if it ran. None where nothing is known of what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ms: Option<u64>,
    /// All that runs, added up.
    pub work_ms: u64,
    /// So long it took to make the results that are used.
    pub saved_ms: u64,
    /// Steps that run, and of which nobody knows how long they take.
    pub unpredicted: u32,
}

#[derive(Clone, Debug, Serialize)]
pub struct PlannedStep {
    pub step_id: String,
    pub skill: String,
    pub decision: StepDecision,
    /// A stable word: `no_cache`, `run_only`, `no_result`, `rebuild`, `no_items`, `fails`, `cached`, `condition`,
    /// `upstream_failed` or `upstream`.
    pub reason: &'static str,
    /// The same as a sentence, where it says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Those whose outputs decide, a few of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<String>,
    /// Of a `foreach` step whose list is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<PlannedItems>,
    /// Where nothing that is unknown is part of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_key: Option<Digest>,
    /// How long it took the last time, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicted_ms: Option<u64>,
    /// How long the results took to make that are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_ms: Option<u64>,
}

/// The items of a step, by decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PlannedItems {
    pub total: u32,
    pub run: u32,
    pub reuse: u32,
    pub unknown: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StepDecision {
    Run,
    /// The result of an earlier run is used.
    Reuse,
    /// Only the outputs of other steps will tell.
    Unknown,
    /// Its condition is not true, or what it depends on fails.
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

impl PlanView {
    pub(super) fn of(
        plan: &Plan,
        previews: Vec<StepPreview>,
        saved: &HashMap<StepIndex, u64>,
        reasons: &HashMap<StepIndex, String>,
        forecast: &Forecast,
        base: Option<RunId>,
    ) -> PlanView {
        let mut counts = PlanCounts::default();
        let mut steps = Vec::with_capacity(previews.len());
        for preview in previews {
            let index = preview.step;
            let mut step = PlannedStep::of(plan, preview, reasons.get(&index));
            step.predicted_ms = forecast.step(index);
            step.saved_ms = saved.get(&index).copied();
            counts.count(step.decision);
            steps.push(step);
        }
        PlanView {
            workflow: plan.name.to_string(),
            workflow_version: plan.version.to_string(),
            base_run_id: base,
            steps,
            counts,
            predicted_ms: forecast.longest_ms,
            work_ms: forecast.work_ms,
            saved_ms: saved.values().sum(),
            unpredicted: forecast.unpredicted,
        }
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
    fn of(plan: &Plan, preview: StepPreview, changed: Option<&String>) -> PlannedStep {
        let step = plan.step(preview.step);
        let mut upstream = Vec::new();
        let said = |text: &str| Some(text.to_owned());
        let (decision, reason, message) = match preview.outlook {
            StepOutlook::Runs(WhyRun::NoResult) if let Some(items) = preview.items => {
                let without = items.run + items.unknown;
                let message = format!("{without} of {} items without a result", items.total);
                (StepDecision::Run, "no_result", Some(message))
            }
            StepOutlook::Runs(why) => {
                let (reason, message) = why_it_runs(why, changed);
                (StepDecision::Run, reason, message)
            }
            StepOutlook::Reused { .. } => (StepDecision::Reuse, "cached", None),
            StepOutlook::Fails(why) => (StepDecision::Run, "fails", Some(format!("it will fail: {why}"))),
            StepOutlook::Skipped(reason) if reason.satisfies() => {
                (StepDecision::Skip, "condition", said("its condition is not true"))
            }
            StepOutlook::Skipped(_) => {
                (StepDecision::Skip, "upstream_failed", said("a step that it depends on will fail"))
            }
            StepOutlook::Unknown(on) => {
                upstream = on.iter().map(|step| plan.step(*step).id.to_string()).collect();
                (StepDecision::Unknown, "upstream", Some(format!("known after {}", upstream.join(", "))))
            }
        };
        PlannedStep {
            step_id: step.id.to_string(),
            skill: step.skill.to_string(),
            decision,
            reason,
            message,
            upstream,
            items: preview.items.map(PlannedItems::from),
            input_hash: preview.input_hash,
            cache_key: preview.cache_key,
            predicted_ms: None,
            saved_ms: None,
        }
    }
}

fn why_it_runs(why: WhyRun, changed: Option<&String>) -> (&'static str, Option<String>) {
    let said = |text: &str| Some(text.to_owned());
    match why {
        WhyRun::NotKept => ("no_cache", said("its results are not kept")),
        WhyRun::RunOnly => ("run_only", said("its results serve one run only")),
        WhyRun::NoResult => ("no_result", changed.cloned().or_else(|| said("there is no result of this input"))),
        WhyRun::Rebuilt => ("rebuild", said("rebuilt on request")),
        WhyRun::NoItems => ("no_items", said("its list is empty")),
    }
}

impl From<ItemsPreview> for PlannedItems {
    fn from(items: ItemsPreview) -> PlannedItems {
        let ItemsPreview { total, run, reuse, unknown } = items;
        PlannedItems { total, run, reuse, unknown }
    }
}
