//! Update runs: a run that was, with changes.
//!
//! Today an update run runs all its steps; what need not run again is known once results of steps are kept.

use std::sync::Arc;

use milepost_core::change::{ChangeRequest, apply_changes};
use milepost_core::codec;
use milepost_core::event::BaseRun;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::plan::Plan;

use crate::committer::Accepted;
use crate::engine::{Engine, NewRun};
use crate::error::EngineError;

/// What an update run is made of.
pub(crate) struct Update {
    pub(crate) plan: Arc<Plan>,
    pub(crate) new: NewRun,
    pub(crate) base: BaseRun,
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
        let update = self.prepare(base, plan, changes, new).await?;
        self.start_from(&update.plan, update.new, Some(update.base)).await
    }

    pub(crate) async fn prepare(
        &self,
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
        new: NewRun,
    ) -> Result<Update, EngineError> {
        let head = self.head(base).await?;
        let plan = match plan {
            Some(plan) => plan,
            None => self.unnumbered(self.plans.by_hash(head.org, head.plan_hash).await?).await?,
        };
        let payload = self.payload_of(base).await?;
        let changed = apply_changes(&plan, &payload, &changes, self.limits())?;
        let types = changes.into_iter().map(|change| change.kind).collect();
        let new = NewRun { payload: changed.payload, ..new };
        Ok(Update { plan, new, base: BaseRun { run: base, changes: types } })
    }

    async fn payload_of(&self, run: RunId) -> Result<Json, EngineError> {
        let rows = self.store.events_at(self.org, run, &[1]).await?;
        let first = rows.first().ok_or(EngineError::NoSuchRun(run))?;
        let corrupt = |reason: String| EngineError::Corrupt { run, reason };
        let payload = codec::carried_value(first).map_err(|error| corrupt(error.to_string()))?;
        payload.ok_or_else(|| corrupt("its first event has no payload".to_owned()))
    }
}
