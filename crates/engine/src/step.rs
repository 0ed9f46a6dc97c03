//! One step of a run, with all that its log says about it.

use milepost_core::codec;
use milepost_core::event::{ErrorInfo, Event, Started, StepRef};
use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::run::{Attempt, ItemCounts, RunState, attempts};
use milepost_core::status::StepStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::HeadRow;
use serde::Serialize;

use crate::committer::restore;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::reading::Reading;
use crate::view::StepView;

/// Events are read in pages of so many.
const PAGE: u32 = 200;

/// A step with its attempts.
#[derive(Clone, Debug, Serialize)]
pub struct StepDetail {
    #[serde(flatten)]
    pub step: StepView,
    pub depends_on: Vec<String>,
    /// What its expressions yield, worked out again: inputs are not stored, their hashes are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Json>,
    pub attempts: Vec<AttemptView>,
    /// Of a `foreach` step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items: Option<ItemCounts>,
}

/// One attempt of a step.
#[derive(Clone, Debug, Serialize)]
pub struct AttemptView {
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// `running`, `completed`, `failed` or `lost`.
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child_run_id: Option<RunId>,
    /// The signal that a `wait` step waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// When a timer ends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
}

impl From<Attempt> for AttemptView {
    fn from(attempt: Attempt) -> AttemptView {
        let Attempt { logical_attempt, engine_attempt, status, started, started_at, ended_at, error } = attempt;
        AttemptView {
            logical_attempt,
            engine_attempt,
            status: status.as_str(),
            worker: worker_of(&started),
            started_at,
            ended_at,
            duration_ms: started_at.zip(ended_at).map(|(from, to)| to.ms_since(from)),
            error,
            input_hash: started.input_hash,
            child_run_id: started.child,
            waits_for: started.waits_for,
            due_at: started.due_at,
        }
    }
}

/// Who has it: a worker by its name, or a node.
fn worker_of(started: &Started) -> Option<String> {
    let worker = started.lease.as_ref().map(|lease| lease.worker.to_string());
    worker.or_else(|| started.worker.map(|node| node.to_string()))
}

impl Engine {
    /// One step of a run, or one item of a `foreach` step, with its attempts and its input.
    ///
    /// # Errors
    /// There is no such run or no such step, or the run cannot be read.
    pub async fn step(&self, run: RunId, step_id: &str) -> Result<StepDetail, EngineError> {
        let loaded = self.store.load_runs(&[(self.org, run)]).await?;
        let loaded = loaded.into_iter().next().ok_or(EngineError::NoSuchRun(run))?;
        let mut state = restore(&loaded, &self.plans).await?;
        let plan = state.plan.clone();
        let step = state.find_step(step_id)?;
        let mut view = self.step_now(&loaded.head, &plan, step).await?;
        let mut reading = self.reading();
        if view.output.is_none() && view.output_blob.is_none() && view.status == StepStatus::Completed {
            view.output = reading.ask(&mut state, |state| state.step_output(step)).await?;
        }
        let input = self.input_of(&mut reading, &mut state, step, view.input_hash).await?;
        let events = self.events_of(&loaded.head, &plan, step).await?;
        let depends_on = plan.step(step.step).depends_on.iter().map(|step| plan.step(*step).id.to_string()).collect();
        Ok(StepDetail {
            step: view,
            depends_on,
            input,
            attempts: attempts(&events).into_iter().map(AttemptView::from).collect(),
            items: state.item_counts(step),
        })
    }

    pub(crate) fn reading(&self) -> Reading<'_> {
        Reading::new(&self.artifacts, &self.room, self.limits())
    }

    /// The input that a step began with. Shown only if it is certain to be the one: by its hash.
    async fn input_of(
        &self,
        reading: &mut Reading<'_>,
        state: &mut RunState,
        step: StepRef,
        recorded: Option<Digest>,
    ) -> Result<Option<Json>, EngineError> {
        let Some(recorded) = recorded else { return Ok(None) };
        let limits = self.limits().for_what_was_let_in();
        let input = reading.ask(state, |state| state.resolved_input(step, &limits)).await?;
        Ok(input.filter(|input| input.hash == recorded).map(|input| input.json))
    }

    pub(crate) async fn events_of(
        &self,
        head: &HeadRow,
        plan: &Plan,
        step: StepRef,
    ) -> Result<Vec<Event>, EngineError> {
        let name = step.name(plan);
        let (mut events, mut after) = (Vec::new(), 0);
        loop {
            let rows = self.store.step_events(head.org, head.run, &name, after, PAGE).await?;
            for row in &rows {
                let corrupt =
                    |error: codec::Unreadable| EngineError::Corrupt { run: head.run, reason: error.to_string() };
                events.push(codec::decode(row, plan).map_err(corrupt)?);
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE as usize => after = last.seq,
                _ => return Ok(events),
            }
        }
    }
}
