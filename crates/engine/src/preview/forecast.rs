//! How long it would take, by how long it took: the base run's steps, or those of the last few runs of the workflow.

use std::collections::HashMap;

use milepost_core::id::RunId;
use milepost_core::plan::{Plan, StepIndex};
use milepost_core::run::{StepOutlook, StepPreview, WhyRun};
use milepost_core::status::StepStatus;
use milepost_store::rows::{RunFilter, StepRow};

use crate::engine::Engine;
use crate::error::EngineError;

/// So many of the newest runs of a workflow are looked at.
const RUNS: u32 = 3;

pub(super) struct Forecast {
    steps: HashMap<StepIndex, u64>,
    /// None where nothing is known of what runs.
    pub(super) longest_ms: Option<u64>,
    pub(super) work_ms: u64,
    pub(super) unpredicted: u32,
}

impl Forecast {
    pub(super) async fn of(
        engine: &Engine,
        plan: &Plan,
        steps: &[StepPreview],
        saved: &HashMap<StepIndex, u64>,
        base: Option<RunId>,
    ) -> Result<Forecast, EngineError> {
        let would_run: Vec<&StepPreview> = steps.iter().filter(|step| may_run(step)).collect();
        let mut open: HashMap<&str, StepIndex> =
            would_run.iter().map(|step| (&*plan.step(step.step).id, step.step)).collect();
        let mut took = HashMap::with_capacity(open.len());
        if !open.is_empty() {
            engine.freshen_lists().await;
        }
        let mut sources = Vec::from_iter(base);
        let mut listed = false;
        while !open.is_empty() {
            let Some(run) = sources.pop() else {
                if std::mem::replace(&mut listed, true) {
                    break;
                }
                let filter = RunFilter { workflow: Some(plan.name.to_string()), limit: RUNS, ..RunFilter::default() };
                sources = engine.store.list_runs(engine.org, &filter).await?.iter().rev().map(|row| row.run).collect();
                continue;
            };
            let ids: Vec<String> = open.keys().map(|id| (*id).to_owned()).collect();
            for row in engine.store.steps_by_id(engine.org, run, &ids).await? {
                if let Some((index, ms)) = open.get(&*row.step_id).copied().zip(duration(&row)) {
                    open.remove(&*row.step_id);
                    took.insert(index, ms);
                }
            }
        }
        Ok(Forecast::put_together(plan, &would_run, saved, took))
    }

    fn put_together(
        plan: &Plan,
        would_run: &[&StepPreview],
        saved: &HashMap<StepIndex, u64>,
        mut took: HashMap<StepIndex, u64>,
    ) -> Forecast {
        for step in would_run {
            let Some(items) = step.items else { continue };
            // As much of it as of its items, and no less than one that is there took: the last time may have reused most.
            let one = saved.get(&step.step).and_then(|ms| ms.checked_div(u64::from(items.reuse)));
            let all = took
                .get(&step.step)
                .map(|ms| ms * u64::from(items.run + items.unknown) / u64::from(items.total.max(1)));
            if let Some(ms) = all.max(one) {
                took.insert(step.step, ms);
            }
        }
        let mut ends = vec![0_u64; plan.steps.len()];
        for index in &plan.order {
            let begins = plan.step(*index).depends_on.iter().map(|before| ends[*before as usize]).max();
            ends[*index as usize] = begins.unwrap_or(0) + took.get(index).copied().unwrap_or(0);
        }
        let known = would_run.is_empty() || !took.is_empty();
        Forecast {
            longest_ms: known.then(|| ends.iter().copied().max().unwrap_or(0)),
            work_ms: took.values().sum(),
            unpredicted: (would_run.len() - took.len()) as u32,
            steps: took,
        }
    }

    pub(super) fn step(&self, step: StepIndex) -> Option<u64> {
        self.steps.get(&step).copied()
    }
}

/// What is not known yet counts as if it ran.
pub(super) fn may_run(step: &StepPreview) -> bool {
    match &step.outlook {
        StepOutlook::Runs(why) => *why != WhyRun::NoItems,
        StepOutlook::Unknown(_) => true,
        StepOutlook::Reused { .. } | StepOutlook::Fails(_) | StepOutlook::Skipped(_) => false,
    }
}

/// Only what succeeded tells how long it takes.
fn duration(row: &StepRow) -> Option<u64> {
    let ended = row.ended_at.filter(|_| row.status == StepStatus::Completed)?;
    Some(ended.ms_since(row.started_at?))
}
