//! Rows of the artifacts that events record.

use std::sync::Arc;

use milepost_core::event::Event;
use milepost_core::id::RunId;
use milepost_core::plan::Plan;
use milepost_store::rows::{ArtifactPosition, ArtifactRow};

pub(super) fn rows(events: &[Event], run: RunId, plan: &Plan) -> Vec<ArtifactRow> {
    events.iter().flat_map(|event| rows_of(event, run, plan)).collect()
}

fn rows_of(event: &Event, run: RunId, plan: &Plan) -> Vec<ArtifactRow> {
    let (artifacts, step) = event.artifacts();
    if artifacts.is_empty() {
        return Vec::new();
    }
    let step_id: Option<Arc<str>> = step.map(|step| step.name(plan).into());
    let skill = step.map(|step| plan.step(step.step).skill.clone());
    let row = |(place, artifact): (u32, _)| ArtifactRow {
        run,
        position: ArtifactPosition { seq: event.seq, place },
        step_id: step_id.clone(),
        skill: skill.clone(),
        artifact: Clone::clone(artifact),
        created_at: event.at,
    };
    (0..).zip(artifacts).map(row).collect()
}
