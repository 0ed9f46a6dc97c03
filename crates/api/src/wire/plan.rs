//! What a run would do.

use milepost_engine::{PlanView, PlannedStep};
use serde::Serialize;
use utoipa::ToSchema;

/// What a run would do; nothing is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Plan {
    workflow: String,
    workflow_version: String,
    /// Every step after all that it depends on.
    steps: Vec<Planned>,
    counts: Counts,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Planned {
    step_id: String,
    skill: String,
    /// `run`, `reuse`, `unknown` (only the run itself will tell) or `skip` (its condition is false).
    decision: String,
    /// A stable word for programs.
    reason: String,
    message: String,
    /// Where the payload alone decides the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    input_hash: Option<String>,
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
            steps: view.steps.into_iter().map(Planned::from).collect(),
            counts: Counts { run: counts.run, reuse: counts.reuse, unknown: counts.unknown, skip: counts.skip },
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
            input_hash: step.input_hash.map(|hash| hash.to_string()),
        }
    }
}
