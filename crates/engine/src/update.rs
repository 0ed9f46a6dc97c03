//! Update runs: a run that was, with changes.
//!
//! Which of its steps need not run again is told by their keys, as in every run; those that are to be rebuilt run whatever
//! is kept.

use std::sync::Arc;

use milepost_core::cache::Trust;
use milepost_core::change::{ChangeRequest, apply_changes};
use milepost_core::codec;
use milepost_core::event::BaseRun;
use milepost_core::id::RunId;
use milepost_core::plan::{Plan, Rebuild};
use milepost_core::record::EventRow;

use crate::care::refuse_parked;
use crate::committer::Accepted;
use crate::engine::{Engine, NewRun};
use crate::error::EngineError;
use crate::work::Lane;

/// What an update run is made of.
pub(crate) struct Update {
    pub(crate) plan: Arc<Plan>,
    pub(crate) new: NewRun,
    pub(crate) base: BaseRun,
    pub(crate) rebuild: Option<Rebuild>,
}

impl Engine {
    /// Starts a run that goes back to another, in whatever status that is: with its payload, changed as the requests say.
    /// It has the base run's definition unless a newer one is given; what types of change there are stands in the
    /// definition that is run. The payload in `new` does not count.
    ///
    /// # Errors
    /// There is no such run, a change does not fit, or the run does not fit the plan.
    pub async fn update(
        &self,
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
        new: NewRun,
    ) -> Result<Accepted, EngineError> {
        match self.prepare(base, plan.clone(), changes.clone(), new.clone()).await {
            Ok(Update { plan: ran, new, base: from, rebuild }) => {
                let request = self.request_of(&ran, &new, Some((base, &changes)), plan.is_some());
                self.start_from(&ran, new, Some(from), rebuild, request).await
            }
            // A newer definition may not know the changes that the first request made with an older one.
            Err(error) => {
                let Some(plan) = plan else { return Err(error) };
                let request = self.request_of(&plan, &new, Some((base, &changes)), true);
                self.answer_as_before(&plan, request.as_deref(), error).await
            }
        }
    }

    pub(crate) async fn prepare(
        &self,
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
        new: NewRun,
    ) -> Result<Update, EngineError> {
        let head = self.head(base).await?;
        if head.stuck.is_some() && !head.status.is_terminal() {
            refuse_parked(&head)?;
        }
        let _preparing = self.care.prepare(self.org, base, "update").await;
        let first = self.first_event(base).await?;
        let corrupt = |reason: String| EngineError::Corrupt { run: base, reason };
        let (plan, trust) = match plan {
            Some(plan) => (plan, new.trust),
            None => {
                let plan = self.plans.by_hash(head.org, head.plan_hash).await?;
                // One that was patched no longer follows a tag.
                let trust = match plan.after {
                    None => codec::carried_trust(&first).map_err(|error| corrupt(error.to_string()))?,
                    Some(_) => Trust::Open,
                };
                (self.unnumbered(plan).await?, trust)
            }
        };
        let payload = codec::carried_value(&first).map_err(|error| corrupt(error.to_string()))?;
        let payload = payload.ok_or_else(|| corrupt("its first event has no payload".to_owned()))?;
        let bytes = payload.len() + changes.iter().map(|change| change.payload.len()).sum::<usize>();
        let types = changes.iter().map(|change| change.kind.clone()).collect();
        let apply = {
            let (plan, limits) = (plan.clone(), self.limits().clone());
            move || apply_changes(&plan, &payload, &changes, &limits)
        };
        let changed = self.work().sized(Lane::Payloads, bytes, apply).await??;
        let new = NewRun { payload: changed.payload, trust, ..new };
        Ok(Update { plan, new, base: BaseRun { run: base, changes: types }, rebuild: changed.rebuild })
    }

    async fn first_event(&self, run: RunId) -> Result<EventRow, EngineError> {
        let rows = self.store.events_at(self.org, run, &[1]).await?;
        rows.into_iter().next().ok_or(EngineError::LogGap { run, seq: 1 })
    }
}
