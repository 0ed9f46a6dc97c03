//! What the results of a plan's steps depend on beyond their runs: epochs, variables, versions of secrets.

use milepost_core::cache::Surroundings;
use milepost_core::id::OrgId;
use milepost_core::plan::{Plan, StepIndex};
use milepost_store::rows::EpochRow;

use crate::secrets::Secrets;

/// The steps whose results are kept and that are given variables or secrets.
pub(crate) fn surrounded(plan: &Plan) -> Vec<StepIndex> {
    let depends = |index: &StepIndex| {
        let step = plan.step(*index);
        step.cache.enabled && (!step.env.is_empty() || !step.secrets.is_empty())
    };
    plan.order.iter().copied().filter(depends).collect()
}

/// `steps` are those that are [`surrounded`].
pub(crate) async fn surroundings(
    secrets: &Secrets,
    org: OrgId,
    plan: &Plan,
    steps: &[StepIndex],
    epochs: Vec<EpochRow>,
) -> Surroundings {
    let mut surroundings = Surroundings::default();
    for EpochRow { step_id, epoch } in epochs {
        match step_id {
            None => surroundings.epoch = epoch,
            Some(step) => surroundings.steps.entry(step.into()).or_default().epoch = epoch,
        }
    }
    for index in steps {
        let step = plan.step(*index);
        let around = surroundings.steps.entry(step.id.clone()).or_default();
        around.env = secrets.env_hashes(step);
        around.secrets = secrets.versions(org, &step.secrets).await;
    }
    surroundings
}
