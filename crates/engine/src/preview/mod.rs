//! What a run would do, for those who want to know before they start it. Nothing is stored, and no hit is counted.
//!
//! The core goes through the run as it would decide it; here it is answered from what is kept, and what runs is given a
//! reason and a time.

mod forecast;
mod view;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use milepost_core::change::ChangeRequest;
use milepost_core::id::RunId;
use milepost_core::plan::{CacheScope, Plan, Rebuild, StepIndex};
use milepost_core::run::{Context, Lookup, Preview, Rejection, StepOutlook, StepPreview, WhyRun};
use milepost_store::rows::{FoundResult, ResultKey};
use tokio::runtime::Handle;

use crate::engine::{Engine, NewRun};
use crate::error::EngineError;
use crate::surroundings::{surrounded, surroundings};
use crate::work::Lane;
use forecast::{Forecast, may_run};
pub use view::{PlanCounts, PlanView, PlannedItems, PlannedStep, StepDecision};

/// What a step of a plan counts as, where work is measured by bytes.
const STEP_BYTES: usize = 256;
/// Of so many steps that miss a result it is looked for what changed.
const REASONS: usize = 10;

impl Engine {
    /// What a run of this plan would do, after all checks that a start makes (but for room under its concurrency key,
    /// which is known only at the start).
    ///
    /// # Errors
    /// What `start_plan` would answer.
    pub async fn plan_run(&self, plan: &Arc<Plan>, new: NewRun) -> Result<PlanView, EngineError> {
        self.foresee(plan, new, None, None).await
    }

    /// What an update run would do.
    ///
    /// # Errors
    /// What `update` would answer.
    pub async fn plan_update(
        &self,
        base: RunId,
        plan: Option<Arc<Plan>>,
        changes: Vec<ChangeRequest>,
        new: NewRun,
    ) -> Result<PlanView, EngineError> {
        let update = self.prepare(base, plan, changes, new).await?;
        self.foresee(&update.plan, update.new, update.rebuild, Some(base)).await
    }

    async fn foresee(
        &self,
        plan: &Arc<Plan>,
        new: NewRun,
        rebuild: Option<Rebuild>,
        base: Option<RunId>,
    ) -> Result<PlanView, EngineError> {
        let starting = self.starting(plan, new, rebuild).await?;
        let epochs = match plan.steps.iter().any(|step| step.cache.enabled) {
            true => self.store.cache().epochs(self.org, &plan.name).await?,
            false => Vec::new(),
        };
        let around = surroundings(self.secrets(), self.org, plan, &surrounded(plan), epochs).await;
        let (now, limits) = (self.clock.now(), self.limits().clone());
        let bytes = plan.steps.len() * STEP_BYTES;
        let begin = move || starting.preview(Arc::new(around), &Context::new(now, 0, &limits));
        let preview = self.work().run(Lane::Documents, bytes, begin).await??;
        let Foreseen { mut preview, saved, mut steps } = self.converse(preview, bytes).await?;
        let reasons = self.reasons(plan, &mut preview, &mut steps).await?;
        let forecast = Forecast::of(self, plan, &steps, &saved, base).await?;
        Ok(PlanView::of(plan, steps, &saved, &reasons, &forecast, base))
    }

    /// Has the preview ask for results until it has gone through the whole run.
    async fn converse(&self, preview: Preview, bytes: usize) -> Result<Foreseen, EngineError> {
        let asking = Asking { preview, asked: Vec::new(), saved: HashMap::new(), broken: None };
        let shared = Arc::new(Mutex::new(Some(asking)));
        let asker = {
            let shared = shared.clone();
            move |found| {
                let mut asking = shared.lock().expect("no holder of this lock panics");
                asking.as_mut().map(|asking| asking.next(found)).unwrap_or_default()
            }
        };
        // What is answered is worked out between two questions.
        let (store, org, runtime) = (self.store.clone(), self.org, Handle::current());
        let converse = move || {
            runtime.block_on(store.cache().converse(org, Box::new(asker)))?;
            let asking = shared.lock().expect("no holder of this lock panics").take().expect("nobody else takes it");
            if let Some(rejection) = asking.broken {
                return Err(rejection.into());
            }
            let Asking { mut preview, saved, .. } = asking;
            let steps = preview.steps();
            Ok(Foreseen { preview, saved, steps })
        };
        self.work().run(Lane::Documents, bytes, converse).await?
    }

    /// What changed since the last time, for the first few steps that have no result under their keys. Where that is only
    /// what steps leave that would run, they decide.
    async fn reasons(
        &self,
        plan: &Plan,
        preview: &mut Preview,
        steps: &mut [StepPreview],
    ) -> Result<HashMap<StepIndex, String>, EngineError> {
        let mut reasons = HashMap::new();
        let missed = |step: &StepPreview| {
            step.outlook == StepOutlook::Runs(WhyRun::NoResult) && step.items.is_none() && step.cache_key.is_some()
        };
        let missed: Vec<usize> =
            steps.iter().enumerate().filter(|(_, step)| missed(step)).map(|(at, _)| at).take(REASONS).collect();
        for at in missed {
            let step = steps[at].step;
            let Some(preimage) = preview.preimage(step) else { continue };
            let told = self.why_missed(&plan.name, &plan.step(step).id, &preimage).await?;
            let before: Vec<StepIndex> = told.without.iter().filter_map(|id| plan.find(id)).collect();
            let may_leave = |before: &StepIndex| steps.iter().any(|step| step.step == *before && may_run(step));
            if !before.is_empty() && before.iter().all(may_leave) {
                steps[at].outlook = StepOutlook::Unknown(before);
                steps[at].cache_key = None;
            } else {
                reasons.insert(step, told.words);
            }
        }
        Ok(reasons)
    }
}

/// A preview that went through the whole run.
struct Foreseen {
    steps: Vec<StepPreview>,
    preview: Preview,
    /// How long the results took to make that would be taken, by step.
    saved: HashMap<StepIndex, u64>,
}

/// A preview that asks for results.
struct Asking {
    preview: Preview,
    asked: Vec<Lookup>,
    saved: HashMap<StepIndex, u64>,
    broken: Option<Rejection>,
}

impl Asking {
    fn next(&mut self, found: Vec<Option<FoundResult>>) -> Vec<Vec<ResultKey>> {
        for (lookup, found) in std::mem::take(&mut self.asked).into_iter().zip(found) {
            if let Some(found) = &found {
                *self.saved.entry(lookup.step.step).or_default() += found.duration_ms;
            }
            self.preview.answer(lookup.step, found.and_then(FoundResult::cached));
        }
        match self.preview.ask() {
            Ok(asked) => self.asked = asked,
            Err(rejection) => self.broken = Some(rejection),
        }
        let run = self.preview.run();
        let places = |lookup: &Lookup| {
            let of = (lookup.scope == CacheScope::RunOnly).then_some(run);
            lookup.keys.iter().map(|key| ResultKey { key: *key, run: of }).collect()
        };
        self.asked.iter().map(places).collect()
    }
}
