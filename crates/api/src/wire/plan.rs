//! What a run would do.

use milepost_engine::{PlanView, PlannedItems, PlannedStep};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// What a run would do; nothing is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Plan {
    workflow: String,
    workflow_version: String,
    /// The run that it would be an update of.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_run_id: Option<Uuid>,
    /// Every step after all that it depends on.
    steps: Vec<Planned>,
    counts: Counts,
    /// From the start to the end: the longest way through what runs, as long as it took the last time. What is not known yet
    /// counts as if it ran. Left out where nothing is known of what runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_ms: Option<u64>,
    /// All that runs, added up.
    work_ms: u64,
    /// So long it took to make the results that are used.
    saved_ms: u64,
    /// Steps that run, and of which nobody knows how long they take.
    unpredicted: u32,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Planned {
    step_id: String,
    skill: String,
    /// `run`, `reuse`, `unknown` (only the outputs of other steps will tell) or `skip` (its condition is false, or what it
    /// depends on will fail).
    decision: String,
    /// A stable word for programs: `no_cache`, `run_only`, `no_result`, `rebuild`, `no_items` or `fails` for what runs,
    /// `cached`, `upstream`, `condition` or `upstream_failed`.
    reason: String,
    /// The same for people, where it says more.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// Steps whose outputs decide, a few of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    upstream: Vec<String>,
    /// Of a `foreach` step whose list is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<Items>,
    /// Where nothing that is unknown is part of the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_key: Option<String>,
    /// How long it took the last time, if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    predicted_ms: Option<u64>,
    /// How long the results took to make that are used.
    #[serde(skip_serializing_if = "Option::is_none")]
    saved_ms: Option<u64>,
}

/// The items of a step, by decision.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Items {
    total: u32,
    run: u32,
    reuse: u32,
    unknown: u32,
}

/// Steps by decision.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Counts {
    run: u32,
    reuse: u32,
    unknown: u32,
    skip: u32,
}

impl From<PlanView> for Plan {
    fn from(view: PlanView) -> Plan {
        let counts = view.counts;
        Plan {
            workflow: view.workflow,
            workflow_version: view.workflow_version,
            base_run_id: view.base_run_id.map(|run| run.0),
            steps: view.steps.into_iter().map(Planned::from).collect(),
            counts: Counts { run: counts.run, reuse: counts.reuse, unknown: counts.unknown, skip: counts.skip },
            predicted_ms: view.predicted_ms,
            work_ms: view.work_ms,
            saved_ms: view.saved_ms,
            unpredicted: view.unpredicted,
        }
    }
}

impl From<PlannedStep> for Planned {
    fn from(step: PlannedStep) -> Planned {
        Planned {
            step_id: step.step_id,
            skill: step.skill,
            decision: step.decision.as_str().to_owned(),
            reason: step.reason.to_owned(),
            message: step.message,
            upstream: step.upstream,
            items: step.items.map(Items::from),
            input_hash: step.input_hash.map(|hash| hash.to_string()),
            cache_key: step.cache_key.map(|key| key.to_string()),
            predicted_ms: step.predicted_ms,
            saved_ms: step.saved_ms,
        }
    }
}

impl From<PlannedItems> for Items {
    fn from(items: PlannedItems) -> Items {
        let PlannedItems { total, run, reuse, unknown } = items;
        Items { total, run, reuse, unknown }
    }
}
