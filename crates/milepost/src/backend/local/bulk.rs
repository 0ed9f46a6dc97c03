//! One word to many runs of a database, as a server does it.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::status::{RunStatus, StepStatus};
use serde_json::{Value, json};

use super::Local;
use crate::backend::{Action, BulkOrder, NewSignal, RunFilter};
use crate::wire::{Bulk, Said};

const DEFAULT_LIMIT: u32 = 1000;
const PAGE: u32 = 500;
/// Refusals told one by one; the rest are counted.
const TOLD: usize = 100;

#[derive(Default)]
struct Outcome {
    accepted: u64,
    rejected: Vec<Value>,
    rejected_count: u64,
}

impl Local {
    pub(in crate::backend) async fn bulk(&self, order: &BulkOrder) -> anyhow::Result<Said<Bulk>> {
        let limit = order.limit.unwrap_or(DEFAULT_LIMIT) as usize;
        let mut meant = self.meant(order, limit + 1).await?;
        let more = meant.len() > limit;
        meant.truncate(limit);
        let outcome = if order.dry_run { Outcome::default() } else { self.tell_all(order, &meant).await? };
        Said::of(&json!({
            "action": order.action,
            "dry_run": order.dry_run,
            "matched": meant.len(),
            "accepted": outcome.accepted,
            "rejected": outcome.rejected,
            "rejected_count": outcome.rejected_count,
            "more": more,
        }))
    }

    /// The runs that fit and can take it, newest first. All are found before any is told: telling changes what fits.
    async fn meant(&self, order: &BulkOrder, limit: usize) -> anyhow::Result<Vec<RunId>> {
        let named = &order.filter.status;
        let all = if named.is_empty() { RunStatus::ALL } else { named };
        let status: Vec<RunStatus> = all.iter().copied().filter(|status| order.action.fits(*status)).collect();
        if status.is_empty() {
            return Ok(Vec::new());
        }
        let filter = RunFilter { status, ..order.filter.clone() };
        let (mut runs, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.list(&filter, cursor, PAGE).await?;
            runs.extend(page.items.iter().map(|run| run.value.run_id));
            cursor = page.next_cursor.as_deref().map(str::parse).transpose()?;
            if cursor.is_none() || runs.len() >= limit {
                runs.truncate(limit);
                return Ok(runs);
            }
        }
    }

    async fn tell_all(&self, order: &BulkOrder, runs: &[RunId]) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        for run in runs {
            match self.tell(order, *run).await {
                Ok(()) => outcome.accepted += 1,
                Err(error) => {
                    outcome.rejected_count += 1;
                    if outcome.rejected.len() < TOLD {
                        let code = crate::output::error::code(&error);
                        outcome.rejected.push(json!({ "run_id": run, "code": code, "message": error.to_string() }));
                    }
                }
            }
        }
        Ok(outcome)
    }

    async fn tell(&self, order: &BulkOrder, run: RunId) -> anyhow::Result<()> {
        let payload = order.reason.as_ref().map_or(json!({}), |reason| json!({ "reason": reason }));
        let signal = || NewSignal::new(order.action.signal(), Json::of(&payload));
        if order.action != Action::Retry {
            return self.signal(run, signal()).await.map(drop);
        }
        let view = self.show(run).await?.value;
        for step in view.steps.iter().filter(|step| step.status == StepStatus::Failed && !step.step_id.ends_with(']')) {
            self.signal(run, NewSignal { step_id: Some(step.step_id.clone()), ..signal() }).await?;
        }
        Ok(())
    }
}
