//! Plain paths (`payload.a.b[0]`, `steps.x.output['k']`, `item`): walked over the JSON itself, without minijinja.
//!
//! **Invariant:** a walk finds what minijinja's strict lookups would find, missing values included.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::{EvalError, Scope};
use crate::plan::StepIndex;

/// Where a path starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Root {
    Payload,
    Run,
    Item,
    Index,
    /// The output of a step.
    Step(StepIndex),
    /// What a step left.
    Artifacts(StepIndex),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Segment {
    Key(String),
    /// Negative: from the end.
    Index(i64),
}

/// A path as it was written, ready to walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) text: String,
    pub(super) root: Root,
    pub(super) segments: Vec<Segment>,
}

/// What stands at the end of a path.
#[derive(Debug)]
pub(super) enum Found<'a> {
    Value(Cow<'a, Value>),
    /// The last segment is not there: an error, unless something like `default` catches it.
    Undefined,
    /// An earlier segment is not there: always an error.
    Broken(EvalError),
}

impl Path {
    pub(super) fn walk<'a>(&self, scope: &Scope<'a>) -> Found<'a> {
        let start = match self.start(scope) {
            Ok(start) => start,
            Err(error) => return Found::Broken(error),
        };
        let mut at = start;
        for (i, segment) in self.segments.iter().enumerate() {
            if let (Value::String(text), Segment::Index(_)) = (&*at, segment)
                && let Err(error) = scope.budget.try_pay_work(text.len())
            {
                return Found::Broken(error);
            }
            at = match (step(&at, segment), i + 1 == self.segments.len()) {
                (Some(next), _) => next,
                (None, true) => return Found::Undefined,
                (None, false) => return Found::Broken(self.missing(i)),
            };
        }
        Found::Value(at)
    }

    fn start<'a>(&self, scope: &Scope<'a>) -> Result<Cow<'a, Value>, EvalError> {
        let found = match (self.root(scope), self.root, scope.index) {
            (Some(root), ..) => Some(Cow::Borrowed(&**root)),
            (None, Root::Index, Some(index)) => Some(Cow::Owned(Value::from(index))),
            _ => None,
        };
        found.ok_or_else(|| EvalError::new(format!("`{}` is not available here", self.text)))
    }

    /// The value that the path starts at; `None` for an index, and for what is not there.
    pub(super) fn root<'a>(&self, scope: &Scope<'a>) -> Option<&'a Arc<Value>> {
        match self.root {
            Root::Payload => Some(scope.payload),
            Root::Run => Some(scope.run),
            Root::Item => scope.item,
            Root::Index => None,
            Root::Artifacts(step) => scope.steps.artifacts(step),
            Root::Step(step) => scope.steps.output(step),
        }
    }

    /// The error for a path whose last segment is not there.
    pub(super) fn undefined(&self) -> EvalError {
        EvalError::new(format!("`{}` is undefined", self.text))
    }

    fn missing(&self, segment: usize) -> EvalError {
        let name = match &self.segments[segment] {
            Segment::Key(key) => key.clone(),
            Segment::Index(index) => index.to_string(),
        };
        EvalError::new(format!("`{}` is undefined: there is no `{name}`", self.text))
    }
}

fn step<'a>(at: &Cow<'a, Value>, segment: &Segment) -> Option<Cow<'a, Value>> {
    match at {
        Cow::Borrowed(value) => step_into(value, segment),
        Cow::Owned(value) => step_into(value, segment).map(|found| Cow::Owned(found.into_owned())),
    }
}

pub(super) fn step_into<'a>(value: &'a Value, segment: &Segment) -> Option<Cow<'a, Value>> {
    match (value, segment) {
        (Value::Object(map), Segment::Key(key)) => map.get(key).map(Cow::Borrowed),
        (Value::Array(items), Segment::Index(index)) => items.get(position(*index, items.len())?).map(Cow::Borrowed),
        (Value::String(text), Segment::Index(index)) => {
            let place =
                if *index < 0 { position(*index, text.chars().count())? } else { usize::try_from(*index).ok()? };
            let found = text.chars().nth(place)?;
            Some(Cow::Owned(Value::String(found.to_string())))
        }
        _ => None,
    }
}

fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}
