//! What a run would do, as far as its payload tells: for those who want to know before they start it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Starting;
use super::evaluate::{Input, list_of};
use crate::expression::{Scope, StepOutputs};
use crate::hash::Digest;
use crate::limits::Limits;
use crate::plan::{Plan, PlanStep, StepIndex};

/// What would become of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPreview {
    pub step: StepIndex,
    pub outlook: StepOutlook,
    /// Of the input, where the payload alone decides it.
    pub input_hash: Option<Digest>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutlook {
    Runs,
    /// It would run into this.
    Fails(String),
    /// Its condition is not true.
    Skipped,
    /// Its condition, or the list it goes over, depends on what is known only while the run is under way.
    Unknown,
}

impl Starting {
    /// What would become of each step, in the order of the plan.
    #[must_use]
    pub fn preview(&self, limits: &Limits) -> Vec<StepPreview> {
        let mut previewing =
            Previewing { plan: &self.plan, payload: self.request.payload.to_value(), known: Known::default(), limits };
        self.plan.order.iter().map(|step| previewing.look_at(*step)).collect()
    }
}

struct Previewing<'a> {
    plan: &'a Plan,
    payload: Value,
    known: Known,
    limits: &'a Limits,
}

/// The steps whose outputs are known beforehand: those that are skipped, whose output is `null`.
#[derive(Default)]
struct Known(BTreeSet<StepIndex>);

impl StepOutputs for Known {
    fn output(&self, step: StepIndex) -> Option<&Value> {
        self.0.contains(&step).then_some(&Value::Null)
    }
}

impl Previewing<'_> {
    fn look_at(&mut self, step: StepIndex) -> StepPreview {
        let planned = self.plan.step(step);
        let outlook = self.outlook(planned);
        if outlook == StepOutlook::Skipped {
            self.known.0.insert(step);
            return StepPreview { step, outlook, input_hash: None };
        }
        match self.input_hash(planned) {
            Err(reason) if outlook == StepOutlook::Runs => {
                StepPreview { step, outlook: StepOutlook::Fails(reason), input_hash: None }
            }
            hash => StepPreview { step, outlook, input_hash: hash.ok().flatten() },
        }
    }

    fn outlook(&self, planned: &PlanStep) -> StepOutlook {
        if let Some(when) = &planned.when {
            if when.sees_run() || !self.knows(when.steps()) {
                return StepOutlook::Unknown;
            }
            match self.scoped(|scope| when.truthy(scope)) {
                Ok(true) => {}
                Ok(false) => return StepOutlook::Skipped,
                Err(error) => return StepOutlook::Fails(error.message),
            }
        }
        let Some(foreach) = &planned.foreach else { return StepOutlook::Runs };
        if foreach.sees_run() || !self.knows(foreach.steps()) {
            return StepOutlook::Unknown;
        }
        let list = self.scoped(|scope| foreach.evaluate(scope)).map_err(|error| error.message);
        match list.and_then(|list| list_of(list, self.limits).map_err(|error| error.message)) {
            Ok(_) => StepOutlook::Runs,
            Err(reason) => StepOutlook::Fails(reason),
        }
    }

    /// `None` where it depends on more than the payload. Each item of a `foreach` step has an input of its own.
    fn input_hash(&self, planned: &PlanStep) -> Result<Option<Digest>, String> {
        let template = &planned.input;
        if planned.foreach.is_some() || template.sees_run() || !self.knows(template.steps()) {
            return Ok(None);
        }
        let value = self.scoped(|scope| template.render(scope)).map_err(|error| error.message)?;
        Input::of(value, self.limits).map(|input| Some(input.hash)).map_err(|error| error.message)
    }

    fn knows(&self, steps: &[StepIndex]) -> bool {
        steps.iter().all(|step| self.known.0.contains(step))
    }

    fn scoped<T>(&self, work: impl FnOnce(&Scope<'_>) -> T) -> T {
        // What looks at the run is not evaluated.
        let run = json!({});
        work(&Scope {
            payload: &self.payload,
            run: &run,
            steps: &self.known,
            item: None,
            index: None,
            fuel: self.limits.expression_fuel,
        })
    }
}
