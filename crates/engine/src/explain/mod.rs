//! Why a step ran, was reused or waits. Reads the log, what keys are made of, and what stands in line; changes nothing.

mod definition;
mod nearest;
mod ran;
mod turn;
mod view;
mod waits;

use std::sync::Arc;

use milepost_core::event::{Body, Event, Reused, Started, StepRef};
use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::plan::{Action, Plan};
use milepost_core::run::RunState;
use milepost_core::status::{SkipReason, StepStatus};
use milepost_store::rows::{HeadRow, ResultFilter};

use crate::committer::restore;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::view::StepView;
pub use view::{Explanation, NearestKey, ResultOrigin, Wait};

/// A step that is to be explained.
struct Subject {
    head: HeadRow,
    state: RunState,
    plan: Arc<Plan>,
    step: StepRef,
    view: StepView,
    events: Vec<Event>,
}

impl Subject {
    /// How its last attempt began.
    fn started(&self) -> Option<(&Event, &Started)> {
        self.events.iter().rev().find_map(|event| match &event.body {
            Body::StepStarted(started) => Some((event, started)),
            _ => None,
        })
    }

    fn reused(&self) -> Option<&Reused> {
        self.events.iter().rev().find_map(|event| match &event.body {
            Body::StepReused(reused) => Some(&**reused),
            _ => None,
        })
    }

    /// The id that keys have: an item has that of its step.
    fn step_id(&self) -> &str {
        &self.plan.step(self.step.step).id
    }

    fn is_kept(&self) -> bool {
        let planned = self.plan.step(self.step.step);
        planned.cache.enabled && planned.action == Action::Task
    }
}

impl Engine {
    /// Why a step ran or was reused, or what it waits for.
    ///
    /// # Errors
    /// There is no such run or no such step, or the run cannot be read.
    pub async fn explain(&self, run: RunId, step_id: &str) -> Result<Explanation, EngineError> {
        let subject = self.subject(run, step_id).await?;
        let mut told = Explanation {
            run_id: run,
            step_id: subject.view.step_id.clone(),
            skill: subject.view.skill.clone(),
            status: subject.view.status,
            skip_reason: subject.view.skip_reason,
            decision: "waiting",
            reason: "",
            message: String::new(),
            cache_enabled: subject.is_kept(),
            cache_key: None,
            preimage: None,
            result: None,
            nearest: None,
            differences: Vec::new(),
            more_differences: 0,
            waits: self.waits(&subject).await?,
        };
        match subject.view.status {
            StepStatus::Skipped if subject.view.skip_reason == Some(SkipReason::CacheHit) => {
                self.explain_reuse(&subject, &mut told).await?;
            }
            StepStatus::Skipped => explain_skip(&subject, &mut told),
            StepStatus::Completed | StepStatus::Failed => {
                told.decision = "ran";
                self.explain_start(&subject, &mut told).await?;
            }
            StepStatus::Running => {
                told.decision = "running";
                self.explain_start(&subject, &mut told).await?;
                if let Some(wait) = told.waits.first() {
                    told.message = format!("{}; {}", told.message, wait.message);
                }
            }
            StepStatus::Pending => explain_wait(&mut told),
        }
        Ok(told)
    }

    async fn subject(&self, run: RunId, step_id: &str) -> Result<Subject, EngineError> {
        let loaded = self.store.load_runs(&[(self.org, run)]).await?;
        let loaded = loaded.into_iter().next().ok_or(EngineError::NoSuchRun(run))?;
        let state = restore(&loaded, &self.plans).await?;
        let (plan, step) = (state.plan.clone(), state.find_step(step_id)?);
        let view = self.step_now(&loaded.head, &plan, step).await?;
        let events = self.events_of(&loaded.head, &plan, step).await?;
        Ok(Subject { head: loaded.head, state, plan, step, view, events })
    }

    async fn explain_reuse(&self, subject: &Subject, told: &mut Explanation) -> Result<(), EngineError> {
        (told.decision, told.reason) = ("reused", "cached");
        let Some(reused) = subject.reused() else { return Ok(()) };
        told.cache_key = Some(reused.key);
        told.preimage = self.store.cache().preimage(self.org, reused.key).await?;
        let (created_at, duration_ms) = self.made(reused.key, (reused.run, reused.seq)).await?;
        let when = created_at.map(|at| format!(" at {at}")).unwrap_or_default();
        told.message =
            format!("it has the result that run {} made{when}: nothing that it depends on changed", reused.run);
        told.result = Some(ResultOrigin { run_id: reused.run, run_seq: reused.seq, created_at, duration_ms });
        Ok(())
    }

    /// When a result was made, and how long that took, as far as it is known.
    async fn made(
        &self,
        key: Digest,
        producer: (RunId, u64),
    ) -> Result<(Option<milepost_core::time::Timestamp>, Option<u64>), EngineError> {
        let rows = self.store.cache().results(self.org, &ResultFilter::Key(key), None, 10).await?;
        if let Some(row) = rows.iter().find(|row| row.producer == producer) {
            return Ok((Some(row.created_at), Some(row.duration_ms)));
        }
        let events = self.store.events_at(self.org, producer.0, &[producer.1]).await?;
        Ok((events.first().map(|event| event.emitted_at), None))
    }
}

fn explain_skip(subject: &Subject, told: &mut Explanation) {
    let reason = subject.view.skip_reason;
    told.decision = "skipped";
    told.reason = reason.map_or("cancelled", SkipReason::as_str);
    told.message = match reason {
        Some(SkipReason::Condition) => "its condition was not true".to_owned(),
        Some(SkipReason::UpstreamFailed) => "a step that it depends on did not end well".to_owned(),
        Some(SkipReason::Operator) => "somebody had it skipped, or a step that it depends on".to_owned(),
        Some(SkipReason::RunStopped) => "the run ended before its turn came".to_owned(),
        Some(SkipReason::Removed) => "a patch took it out of the run".to_owned(),
        _ => "the run ended first".to_owned(),
    };
}

fn explain_wait(told: &mut Explanation) {
    (told.reason, told.message) = match told.waits.first() {
        Some(wait) => (wait.kind, wait.message.clone()),
        None => ("run_ended", "the run ended before its turn came".to_owned()),
    };
}
