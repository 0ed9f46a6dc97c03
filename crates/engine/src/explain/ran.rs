//! Why a step was run: its results are not kept, somebody wanted it, it never ran before, or something changed.

use milepost_core::difference::{differences, in_words};
use milepost_core::event::{Body, StepRef};
use milepost_core::hash::Digest;
use milepost_core::json::Json;
use milepost_core::plan::CacheScope;
use milepost_core::run::ItemCounts;
use milepost_core::status::StepStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::PreimageRow;

use super::nearest::{Nearest, Past};
use super::{Explanation, NearestKey, Subject};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::Lane;

impl Engine {
    pub(super) async fn explain_start(&self, subject: &Subject, told: &mut Explanation) -> Result<(), EngineError> {
        let verb = if told.decision == "running" { "runs" } else { "ran" };
        let Some((began, started)) = subject.started() else {
            told.reason = "failed_early";
            let error = subject.view.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
            told.message = format!("it failed before it could begin: {error}");
            return Ok(());
        };
        if started.items.is_some() {
            explain_items(subject, told);
            return Ok(());
        }
        let Some(key) = started.cache_key else {
            told.reason = "not_cached";
            told.message = format!("{verb} because its results are not kept; `cache: {{enabled: true}}` keeps them");
            return Ok(());
        };
        told.cache_key = Some(key);
        told.preimage = self.store.cache().preimage(self.org, key).await?;
        if subject.state.is_rebuilt(subject.step.step) {
            told.reason = "rebuild";
            told.message = format!("{verb} because somebody wanted it rebuilt, whatever is kept");
            return Ok(());
        }
        let Some(preimage) = told.preimage.clone() else {
            told.reason = "changed";
            told.message =
                format!("{verb} because there was no result under its key; what that is made of is forgotten");
            return Ok(());
        };
        let past = self.past_of_start(subject, key, &preimage).await?;
        match (past.same, past.nearest) {
            (Some(same), _) => {
                told.reason = "no_result";
                let why = self.why_nothing_was_left(subject, &same, began.at).await?;
                told.message = format!("{verb} because {why}");
                told.nearest = Some(nearest_key(subject, &same));
            }
            (None, Some(nearest)) => {
                told.reason = "changed";
                let changed = self.with_definitions(subject, &nearest).await?;
                told.message = format!("{verb} because {}", in_words(&changed));
                told.nearest = Some(nearest_key(subject, &nearest.row));
                told.tell(changed);
            }
            (None, None) => {
                told.reason = "first";
                told.message = format!("{verb} because it never ran before, as far as is known");
            }
        }
        Ok(())
    }

    /// The base run's key of this step comes first; else the most alike of the last few.
    async fn past_of_start(&self, subject: &Subject, key: Digest, preimage: &Json) -> Result<Past, EngineError> {
        if let Some(base) = self.base_key(subject).await? {
            let (before, now) = (base.preimage.clone(), preimage.clone());
            let compare = move || differences(&before.to_value(), &now.to_value());
            let bytes = base.preimage.len() + preimage.len();
            let differences = self.work().sized(Lane::Documents, bytes, compare).await?;
            let nearest = Nearest { differences, row: base };
            return Ok(match nearest.row.key == key {
                true => Past { same: Some(nearest.row), nearest: None },
                false => Past { same: None, nearest: Some(nearest) },
            });
        }
        let mut past = self.past_of(&subject.plan.name, subject.step_id(), preimage).await?;
        // What this run itself began with is not its past.
        past.same = past.same.filter(|row| row.run != subject.head.run);
        Ok(past)
    }

    /// What the step began with in the base run. An item's place in a list says nothing.
    async fn base_key(&self, subject: &Subject) -> Result<Option<PreimageRow>, EngineError> {
        let Some(base) = subject.head.base_run.filter(|_| subject.step.item.is_none()) else { return Ok(None) };
        let Some(head) = self.store.head(self.org, base).await? else { return Ok(None) };
        let plan = self.plans.by_hash(self.org, head.plan_hash).await?;
        let Some(step) = plan.find(subject.step_id()).map(StepRef::whole) else { return Ok(None) };
        let key = self.events_of(&head, &plan, step).await?.iter().rev().find_map(|event| match &event.body {
            Body::StepStarted(started) => started.cache_key.map(|key| (key, event.at)),
            Body::StepReused(reused) => Some((reused.key, event.at)),
            _ => None,
        });
        let Some((key, created_at)) = key else { return Ok(None) };
        let preimage = self.store.cache().preimage(self.org, key).await?;
        Ok(preimage.map(|preimage| PreimageRow { key, run: base, created_at, preimage }))
    }

    /// The step began with the very same before. What became of that?
    async fn why_nothing_was_left(
        &self,
        subject: &Subject,
        same: &PreimageRow,
        began: Timestamp,
    ) -> Result<String, EngineError> {
        if subject.plan.step(subject.step.step).cache.scope == CacheScope::RunOnly {
            return Ok("its results serve only the run that made them".to_owned());
        }
        let of = format!("run {}, which began with the same,", same.run);
        let rows = self.store.steps_by_id(self.org, same.run, std::slice::from_ref(&subject.view.step_id)).await?;
        let ended_before = |at: Option<Timestamp>| at.is_some_and(|at| at <= began);
        Ok(match rows.first() {
            Some(row) if row.status == StepStatus::Completed && ended_before(row.ended_at) => {
                format!("the result of {of} was evicted")
            }
            Some(row) if row.status == StepStatus::Failed => format!("{of} left no result: it failed there"),
            Some(_) => format!("{of} had no result yet"),
            None => format!("{of} left no result, or it was evicted"),
        })
    }
}

fn nearest_key(subject: &Subject, row: &PreimageRow) -> NearestKey {
    NearestKey {
        cache_key: row.key,
        run_id: row.run,
        of_base_run: subject.head.base_run == Some(row.run),
        began_at: Some(row.created_at),
    }
}

/// A `foreach` step has no key: its items have.
fn explain_items(subject: &Subject, told: &mut Explanation) {
    told.reason = "items";
    let ItemCounts { total, completed, skipped, failed, .. } =
        subject.state.item_counts(subject.step).unwrap_or_default();
    let first = subject.view.step_id.clone();
    told.message = match told.cache_enabled {
        true => format!(
            "each of its {total} items has a key of its own: {completed} ran, {skipped} were reused or skipped, {failed} failed; ask for one, such as `{first}[0]`"
        ),
        false => format!("its {total} items ran because their results are not kept"),
    };
}
