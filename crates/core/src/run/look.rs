//! Looking at a run from outside: its steps by name, the input that a step had, how its items stand. Changes nothing but
//! what the state has at hand.

use serde::Serialize;

use super::evaluate::NoValue;
use super::state::RunState;
use super::{Rejection, RejectionKind};
use crate::document::near::near_name;
use crate::event::StepRef;
use crate::hash::Digest;
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::status::StepStatus;

/// How many items of a `foreach` step stand how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ItemCounts {
    pub total: u32,
    pub pending: u32,
    pub running: u32,
    pub completed: u32,
    pub failed: u32,
    pub skipped: u32,
}

/// What a step was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedInput {
    pub json: Json,
    pub hash: Digest,
}

impl RunState {
    /// The step or item of this name.
    ///
    /// # Errors
    /// The run has none; the message says what it has.
    pub fn find_step(&self, name: &str) -> Result<StepRef, Rejection> {
        let parsed = StepRef::parse(name, &self.plan);
        if let Some(step) = parsed.filter(|step| self.step(*step).is_some()) {
            return Ok(step);
        }
        Err(match parsed {
            Some(StepRef { step, .. }) => not_found(name, &self.no_such_item(StepRef::whole(step))),
            None => unknown_step(name, &self.plan),
        })
    }

    fn no_such_item(&self, step: StepRef) -> String {
        let id = &self.plan.step(step.step).id;
        match self.items.get(&step.step).map(|items| items.steps.count()) {
            _ if self.plan.step(step.step).foreach.is_none() => {
                format!("; `{id}` has no `foreach`, so it has no items")
            }
            None => format!("; the items of `{id}` are known when it begins"),
            Some(0) => format!("; the list that `{id}` went over is empty"),
            Some(count) => format!("; `{id}` has {count} items, from `{id}[0]` to `{id}[{}]`", count - 1),
        }
    }

    #[must_use]
    pub fn step_status(&self, step: StepRef) -> Option<StepStatus> {
        self.step(step).map(|state| state.phase.status())
    }

    /// The input of a step, as it is when the step begins. `None`: it has none, as its expressions have no value, or as it
    /// is a whole `foreach` step, whose items have inputs.
    ///
    /// # Errors
    /// Sequence numbers of events whose content is not at hand.
    pub fn resolved_input(&mut self, step: StepRef, limits: &Limits) -> Result<Option<ResolvedInput>, Vec<u64>> {
        if step.item.is_none() && self.plan.step(step.step).foreach.is_some() {
            return Ok(None);
        }
        match self.input(step, limits) {
            Ok(input) => Ok(Some(ResolvedInput { json: input.json, hash: input.hash })),
            Err(NoValue::Missing(seqs)) => Err(seqs),
            Err(NoValue::Failed(_)) => Ok(None),
        }
    }

    /// What the values that it has at hand take of the memory once they are read.
    #[must_use]
    pub fn memory_of_values(&mut self) -> usize {
        self.scratch.facts.memory_of_all()
    }

    /// The output of a whole step that has ended well.
    ///
    /// # Errors
    /// Sequence numbers of events whose content is not at hand.
    pub fn step_output(&mut self, step: StepRef) -> Result<Option<Json>, Vec<u64>> {
        let mut missing = Vec::new();
        let output = self.output_json(step.step, &mut missing);
        if missing.is_empty() { Ok(output) } else { Err(missing) }
    }

    /// How the items of a `foreach` step stand; `None` for what has none. What is open in a run that has ended is skipped.
    #[must_use]
    pub fn item_counts(&self, step: StepRef) -> Option<ItemCounts> {
        if step.item.is_some() || self.plan.step(step.step).foreach.is_none() {
            return None;
        }
        let mut counts = ItemCounts::default();
        let items = self.items.get(&step.step).map_or(&[][..], |items| items.steps.as_slice());
        let over = self.status.is_terminal();
        for item in items {
            counts.total += 1;
            match item.phase.status() {
                StepStatus::Pending | StepStatus::Running if over => counts.skipped += 1,
                StepStatus::Pending => counts.pending += 1,
                StepStatus::Running => counts.running += 1,
                StepStatus::Completed => counts.completed += 1,
                StepStatus::Failed => counts.failed += 1,
                StepStatus::Skipped => counts.skipped += 1,
            }
        }
        Some(counts)
    }
}

/// A plan has no step of this name; the message says which one may be meant.
#[must_use]
pub fn unknown_step(name: &str, plan: &Plan) -> Rejection {
    let id = name.split('[').next().unwrap_or(name);
    let near = near_name(id, plan.steps.iter().map(|step| &*step.id));
    not_found(name, &near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default())
}

fn not_found(name: &str, hint: &str) -> Rejection {
    Rejection::new(RejectionKind::NotFound, "unknown_step", format!("the run has no step `{name}`{hint}"))
}
