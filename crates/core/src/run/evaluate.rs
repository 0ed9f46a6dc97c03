//! Expressions against a run: which values they see, and which are not at hand.

use std::sync::Arc;

use serde_json::{Value, json};

use super::facts::{List, MOST_READ, Unread};
use super::state::{Phase, RunState};
use crate::canonical;
use crate::event::{ErrorInfo, StepRef};
use crate::expression::{Budget, EvalError, Needs, Scope, StepOutputs, Template};
use crate::hash::Digest;
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::StepIndex;
use crate::secret::Placeholders;
use crate::status::SkipReason;
use crate::text::name_fault;

const EXPRESSION_FAILED: &str = "expression_failed";
const INPUT_TOO_LARGE: &str = "input_too_large";
const VALUES_TOO_LARGE: &str = "values_too_large";
const BAD_KEY: &str = "bad_concurrency_key";
/// What is rendered for a concurrency key; how long one may be is checked when it is there.
pub(super) const KEY_BYTES: usize = 64 * 1024;
/// An output that was too large for the log is gone from the blob store.
pub(super) const OUTPUT_LOST: &str = "output_lost";

/// Why an expression has no value now.
#[derive(Debug)]
pub(super) enum NoValue {
    /// Events whose content is not at hand.
    Missing(Vec<u64>),
    Failed(ErrorInfo),
}

impl NoValue {
    fn expression(message: String) -> NoValue {
        NoValue::Failed(ErrorInfo::fatal(EXPRESSION_FAILED, message))
    }

    fn of(error: EvalError, what: Rendered) -> NoValue {
        if !error.too_large {
            return NoValue::expression(error.message);
        }
        let (code, message) = match what {
            Rendered::Input => (
                INPUT_TOO_LARGE,
                format!("the input of this step: {}; pass a reference to the data instead", error.message),
            ),
            Rendered::Key => (BAD_KEY, format!("the concurrency key: {}", error.message)),
            Rendered::List => ("too_many_items", format!("the list of this foreach: {}; split it", error.message)),
        };
        NoValue::Failed(ErrorInfo::fatal(code, message))
    }
}

/// What expressions are evaluated for.
#[derive(Clone, Copy, Debug)]
enum Rendered {
    Input,
    Key,
    /// Of a `foreach`. It may be all that a step has returned, or all of the payload.
    List,
}

impl Rendered {
    fn budget(self, limits: &Limits) -> Budget {
        let bytes = match self {
            Rendered::Input => limits.input_bytes,
            Rendered::Key => KEY_BYTES,
            Rendered::List => limits.large_output_bytes.max(limits.payload_bytes).max(limits.document_bytes),
        };
        Budget::new(bytes, limits)
    }
}

/// What a concurrency key may be: a short text, a number or a boolean.
pub(super) fn key_text(value: &Value, limits: &Limits) -> Result<String, String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        other => return Err(format!("the concurrency key must be a text, this is {}", kind_of(other))),
    };
    // A key may be empty: it is a key as any other.
    match name_fault(&text, limits.name_chars).filter(|_| !text.is_empty()) {
        Some(fault) => Err(format!("the concurrency key {fault}")),
        None => Ok(text),
    }
}

/// Sorted by step.
#[derive(Default)]
struct Seen {
    outputs: Vec<(StepIndex, Arc<Value>)>,
    artifacts: Vec<(StepIndex, Arc<Value>)>,
}

impl StepOutputs for Seen {
    fn output(&self, step: StepIndex) -> Option<&Arc<Value>> {
        let found = self.outputs.binary_search_by_key(&step, |(index, _)| *index).ok()?;
        self.outputs.get(found).map(|(_, value)| value)
    }

    fn artifacts(&self, step: StepIndex) -> Option<&Arc<Value>> {
        let found = self.artifacts.binary_search_by_key(&step, |(index, _)| *index).ok()?;
        self.artifacts.get(found).map(|(_, value)| value)
    }
}

/// A resolved input: its canonical text, which is also what is hashed.
pub(super) struct Input {
    pub(super) value: Value,
    pub(super) json: Json,
    pub(super) hash: Digest,
    pub(super) placeholders: Placeholders,
}

impl Input {
    pub(super) fn of(value: Value, limits: &Limits) -> Result<Input, ErrorInfo> {
        let text = canonical::to_string(&value)
            .map_err(|error| ErrorInfo::fatal("bad_input", format!("the input of this step: {error}")))?;
        if text.len() > limits.input_bytes {
            return Err(ErrorInfo::fatal(
                INPUT_TOO_LARGE,
                format!(
                    "the input of this step has {} bytes, the limit is {}; pass a reference to the data instead",
                    text.len(),
                    limits.input_bytes
                ),
            ));
        }
        let hash = Digest::of(text.as_bytes());
        Ok(Input { value, json: Json::trusted(text), hash, placeholders: Placeholders::default() })
    }
}

impl RunState {
    /// Resolves a step's input.
    pub(super) fn input(&mut self, step: StepRef, limits: &Limits) -> Result<Input, NoValue> {
        let plan = self.plan.clone();
        let template = &plan.step(step.step).input;
        let value = match template.constant() {
            Some(value) => value.clone(),
            None => self.render(template, step, Rendered::Input, limits)?,
        };
        let placeholders = match template.has_placeholders() {
            true => self.placeholders_of(template, step, limits)?,
            false => Placeholders::default(),
        };
        let input = Input::of(value, limits).map_err(NoValue::Failed)?;
        self.scratch.spent += input.json.len() as u64;
        Ok(Input { placeholders, ..input })
    }

    fn placeholders_of(
        &mut self,
        template: &Template,
        step: StepRef,
        limits: &Limits,
    ) -> Result<Placeholders, NoValue> {
        if let Some(value) = template.constant() {
            return Ok(Placeholders::of(value));
        }
        let item = self.item_value(step, limits)?;
        let budget = Rendered::Input.budget(limits);
        self.with_scope(template.needs(), item.as_ref(), step.item, &budget, |scope| {
            template.placeholders(scope).map_err(|error| NoValue::of(error, Rendered::Input))
        })
    }

    /// The value of a step's concurrency key.
    pub(super) fn slot_key_of(&mut self, step: StepRef, key: &Template, limits: &Limits) -> Result<Arc<str>, NoValue> {
        let value = match key.constant() {
            Some(value) => value.clone(),
            None => self.render(key, step, Rendered::Key, limits)?,
        };
        key_text(&value, limits).map(Arc::from).map_err(|message| NoValue::Failed(ErrorInfo::fatal(BAD_KEY, message)))
    }

    fn render(
        &mut self,
        template: &Template,
        step: StepRef,
        what: Rendered,
        limits: &Limits,
    ) -> Result<Value, NoValue> {
        let item = self.item_value(step, limits)?;
        let budget = what.budget(limits);
        self.with_scope(template.needs(), item.as_ref(), step.item, &budget, |scope| {
            template.render(scope).map_err(|error| NoValue::of(error, what))
        })
    }

    pub(super) fn condition(&mut self, step: StepIndex, limits: &Limits) -> Result<bool, NoValue> {
        let plan = self.plan.clone();
        let Some(when) = &plan.step(step).when else { return Ok(true) };
        let budget = Rendered::Input.budget(limits);
        self.with_scope(when.needs(), None, None, &budget, |scope| {
            when.truthy(scope).map_err(|error| NoValue::expression(error.message))
        })
    }

    /// The list that a `foreach` step goes over.
    pub(super) fn items_of(&mut self, step: StepIndex, limits: &Limits) -> Result<List, NoValue> {
        let plan = self.plan.clone();
        let Some(foreach) = &plan.step(step).foreach else { return Ok(List::default()) };
        let budget = Rendered::List.budget(limits);
        let value = self.with_scope(foreach.needs(), None, None, &budget, |scope| {
            foreach.evaluate(scope).map_err(|error| NoValue::of(error, Rendered::List))
        })?;
        list_of(&value, limits).map_err(NoValue::Failed)
    }

    /// The item of a sub-step. The list is kept while its items are being handed out.
    fn item_value(&mut self, step: StepRef, limits: &Limits) -> Result<Option<Arc<Value>>, NoValue> {
        let Some(item) = step.item else { return Ok(None) };
        if !self.scratch.items.contains_key(&step.step) {
            let list = self.items_of(step.step, limits)?;
            self.scratch.items.insert(step.step, list);
        }
        let value = self.scratch.items.get(&step.step).and_then(|list| list.get(item as usize));
        value
            .map(|value| Some(Arc::new(value)))
            .ok_or_else(|| NoValue::expression(format!("the list of this foreach has no item {item} any more")))
    }

    fn with_scope<T>(
        &mut self,
        needs: &Needs,
        item: Option<&Arc<Value>>,
        index: Option<u32>,
        budget: &Budget,
        work: impl FnOnce(&Scope<'_>) -> Result<T, NoValue>,
    ) -> Result<T, NoValue> {
        let mut missing = Vec::new();
        let mut taken = 0;
        let payload = match self.scratch.facts.value(1, &mut taken) {
            Some(Ok(value)) => Some(value),
            Some(Err(Unread::TooLarge)) => return Err(values_too_large()),
            Some(Err(Unread::Meaningless(error))) => {
                return Err(NoValue::expression(format!("the payload cannot be read: {error}")));
            }
            None => {
                missing.push(1);
                None
            }
        };
        let mut seen = Seen::default();
        for step in &needs.outputs {
            let before = missing.len();
            let output = self.output_fact(*step, &mut missing);
            match output.and_then(|output| self.value_of(output, &mut taken)) {
                Some(Ok(value)) => seen.outputs.push((*step, value)),
                Some(Err(Unread::TooLarge)) => return Err(values_too_large()),
                Some(Err(Unread::Meaningless(error))) => {
                    let id = &self.plan.step(*step).id;
                    let message = format!("the output of step `{id}` cannot be read: {error}");
                    let code = if self.is_lost(*step) { OUTPUT_LOST } else { EXPRESSION_FAILED };
                    return Err(NoValue::Failed(ErrorInfo::fatal(code, message)));
                }
                None if missing.len() == before => {
                    let id = &self.plan.step(*step).id;
                    return Err(NoValue::expression(format!("step `{id}` has no output")));
                }
                None => {}
            }
        }
        for step in &needs.artifacts {
            let before = missing.len();
            match self.artifacts_value(*step, &mut missing) {
                Some(value) => seen.artifacts.push((*step, value)),
                None if missing.len() == before => {
                    let id = &self.plan.step(*step).id;
                    return Err(NoValue::expression(format!("step `{id}` has not ended well, so it has no artifacts")));
                }
                None => {}
            }
        }
        let Some(payload) = payload.filter(|_| missing.is_empty()) else { return Err(NoValue::Missing(missing)) };
        let run = self.run_value();
        let result = work(&Scope { payload: &payload, run, steps: &seen, item, index: index.map(u64::from), budget });
        self.scratch.spent += budget.spent();
        result
    }

    fn value_of(&mut self, output: Output, taken: &mut usize) -> Option<Result<Arc<Value>, Unread>> {
        match output {
            Output::Null => Some(Ok(Arc::new(Value::Null))),
            Output::Of(seq) => self.scratch.facts.value(seq, taken),
        }
    }

    /// The text of the output of a step that has ended well, or the events to read for it.
    pub(super) fn output_json(&mut self, step: StepIndex, missing: &mut Vec<u64>) -> Option<Json> {
        Some(match self.output_fact(step, missing)? {
            Output::Null => Json::null(),
            Output::Of(seq) => self.scratch.facts.json(seq)?.clone(),
        })
    }

    /// The output of a step that has ended well, or the events to read for it.
    fn output_fact(&mut self, step: StepIndex, missing: &mut Vec<u64>) -> Option<Output> {
        let state = self.steps[step as usize];
        match state.phase {
            Phase::Completed | Phase::Skipped(SkipReason::CacheHit) => {}
            Phase::Skipped(SkipReason::Condition) => return Some(Output::Null),
            _ => return None,
        }
        let seq = state.output_seq;
        if self.scratch.facts.has(seq) {
            return Some(Output::Of(seq));
        }
        let Some(items) = self.items.get(&step) else {
            missing.push(seq);
            return None;
        };
        let seqs: Vec<u64> = items.steps.iter().map(|item| item.output_seq).collect();
        let before = missing.len();
        missing.extend(seqs.iter().filter(|seq| **seq != 0 && !self.scratch.facts.has(**seq)));
        if missing.len() > before {
            return None;
        }
        match seqs.iter().find_map(|seq| self.scratch.facts.loss(*seq)).map(str::to_owned) {
            Some(loss) => self.learn_lost(seq, loss),
            None => {
                let list = self.join(&seqs);
                self.learn(seq, list);
            }
        }
        Some(Output::Of(seq))
    }

    /// Whether the output of a step is gone.
    pub(super) fn is_lost(&self, step: StepIndex) -> bool {
        self.scratch.facts.loss(self.steps[step as usize].output_seq).is_some()
    }

    fn join(&self, seqs: &[u64]) -> Json {
        let mut list = String::from("[");
        for seq in seqs {
            if list.len() > 1 {
                list.push(',');
            }
            // An item that the operator skipped has no output.
            list.push_str(self.scratch.facts.json(*seq).map_or("null", Json::as_str));
        }
        list.push(']');
        Json::trusted(list)
    }

    fn run_value(&self) -> &Arc<Value> {
        self.scratch.run_value.get_or_init(|| {
            Arc::new(json!({
                "id": self.run,
                "workflow": &*self.plan.name,
                "version": &*self.plan.version,
                "priority": self.priority,
                "created_at": self.created_at,
                "org": self.org.slug(),
                // The same by the name that other systems have for it.
                "tenant": self.org.slug(),
            }))
        })
    }
}

/// What a `foreach` goes over must be a list of bounded length.
pub(super) fn list_of(value: &Value, limits: &Limits) -> Result<List, ErrorInfo> {
    match value {
        Value::Array(items) if items.len() <= limits.foreach_items => Ok(List::of(items)),
        Value::Array(items) => Err(ErrorInfo::fatal(
            "too_many_items",
            format!("foreach yields {} items, the limit is {}; split the list", items.len(), limits.foreach_items),
        )),
        other => Err(ErrorInfo::fatal("not_a_list", format!("foreach must yield a list, this is {}", kind_of(other)))),
    }
}

/// Values are read where they take no more of the memory than one step may.
fn values_too_large() -> NoValue {
    NoValue::Failed(ErrorInfo::fatal(
        VALUES_TOO_LARGE,
        format!(
            "the values that the expressions of this step read take more than {} MiB of memory; let the steps before it \
             return less, or references to their data",
            MOST_READ >> 20
        ),
    ))
}

#[derive(Clone, Copy)]
enum Output {
    Null,
    Of(u64),
}

pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
