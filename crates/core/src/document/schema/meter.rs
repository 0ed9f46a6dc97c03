//! Payloads as the schema validator sees them: whatever it looks at is paid for.

use std::any::Any;
use std::borrow::Cow;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, SerdeJson, unique};
use serde_json::{Map, Number, Value};

use crate::patience;

/// What looking at a text costs besides its length: patterns and formats may read it.
const TEXT: u64 = 64;

/// What a name or a text of a list of them takes besides its bytes.
const NAME: usize = 64;

/// What a validation may spend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// Looks at parts of the payload.
    pub(super) looks: u64,
    /// Bytes that errors may own; nothing is counted where no errors are made.
    pub(super) bytes: Option<u64>,
    /// Bytes that one error takes.
    pub(super) error: u64,
    /// The value, by its address, that errors are given.
    pub(super) whole: Option<*const Value>,
}

thread_local! {
    /// What the validation that runs on this thread may do at all.
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { looks: 0, bytes: None, error: 0, whole: None }) };
    /// Looks that are left of it.
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// The budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spent;

/// Runs a validation that may spend so much.
///
/// The validator has no way to stop, so it is unwound. It keeps nothing across calls that could be half written.
///
/// # Errors
/// The budget was spent before the end.
pub(super) fn within<T>(budget: Budget, validation: impl FnOnce() -> T) -> Result<T, Spent> {
    BUDGET.set(budget);
    LOOKS.set(budget.looks);
    catch_unwind(AssertUnwindSafe(validation)).map_err(|cause| match cause.downcast::<Spent>() {
        Ok(spent) => *spent,
        Err(panic) => resume_unwind(panic),
    })
}

fn pay(price: u64) {
    match LOOKS.get().checked_sub(price) {
        Some(left) => LOOKS.set(left),
        None => stop(),
    }
}

fn pay_for(count: usize) {
    patience::look();
    pay(1 + count as u64);
}

/// Pays for what an error will own, before it does.
fn pay_bytes(price: impl FnOnce(&Budget) -> u64) {
    let budget = BUDGET.get();
    let Some(bytes) = budget.bytes else { return };
    match bytes.checked_sub(price(&budget)) {
        Some(left) => BUDGET.set(Budget { bytes: Some(left), ..budget }),
        None => stop(),
    }
}

fn stop() -> ! {
    resume_unwind(Box::new(Spent) as Box<dyn Any + Send>)
}

/// Payloads whose parts are paid for.
pub(super) struct Metered;

impl Json for Metered {
    type Node<'a> = Part<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    const KEYS_PER_LOOKUP: usize = SerdeJson::KEYS_PER_LOOKUP;

    fn prepare_key(key: &str) -> String {
        SerdeJson::prepare_key(key)
    }

    fn with_string_node<T>(buffer: &mut Value, text: &str, look: impl FnOnce(Part<'_>) -> T) -> T {
        pay_for(text.len());
        SerdeJson::with_string_node(buffer, text, |value| look(Part(value)))
    }
}

/// A part of a payload.
#[derive(Clone, Copy)]
pub(super) struct Part<'a>(pub(super) &'a Value);

impl<'a> Node<'a, Metered> for Part<'a> {
    type Object = Members<'a>;
    type Array = Elements<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        pay(1);
        self.0.as_object().map(Members)
    }

    fn as_array(&self) -> Option<Elements<'a>> {
        pay(1);
        self.0.as_array().map(|items| Elements(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str();
        pay(text.map_or(1, |text| TEXT + text.len() as u64));
        text.map(Cow::Borrowed)
    }

    fn as_number(&self) -> Option<&'a Number> {
        pay(1);
        self.0.as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        pay(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        pay(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        patience::look();
        pay(1);
        self.0.json_type()
    }

    fn string_length(&self) -> Option<u64> {
        pay_for(self.0.as_str().map_or(0, str::len));
        self.0.string_length()
    }

    fn equals_value(&self, expected: &Value) -> bool {
        pay_for(match (self.0, expected) {
            (Value::String(text), Value::String(_)) => text.len(),
            (Value::Array(items), Value::Array(_)) => size(items.iter()),
            (Value::Object(entries), Value::Object(_)) => size(entries.values()),
            _ => 0,
        });
        self.0.equals_value(expected)
    }

    /// Every error asks for the value that it is about, and copies it when it is one of several for the same value. So it is
    /// given none, but for the whole payload where the validator looks for a part of that.
    fn to_value(&self) -> Cow<'a, Value> {
        pay(1);
        let is_whole = BUDGET.get().whole.is_some_and(|whole| std::ptr::eq(whole, self.0));
        pay_bytes(|budget| budget.error + if is_whole { weight(self.0) } else { 0 });
        if is_whole { Cow::Borrowed(self.0) } else { Cow::Owned(Value::Null) }
    }

    fn identity(&self) -> Option<NodeIdentity> {
        pay(1);
        self.0.identity()
    }
}

/// The entries of an object.
pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, Metered> for Members<'a> {
    type Node = Part<'a>;
    type MemberName = &'a str;
    type MembersIter = std::iter::Map<serde_json::map::Iter<'a>, fn((&'a String, &'a Value)) -> (&'a str, Part<'a>)>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<Part<'a>> {
        pay(1);
        self.0.get(key).map(Part)
    }

    fn members(&self) -> Self::MembersIter {
        pay_for(self.0.len());
        // An error may list all of them.
        pay_bytes(|_| self.0.keys().map(|name| (NAME + name.len()) as u64).sum());
        self.0.iter().map(|(name, value)| (name.as_str(), Part(value)))
    }
}

/// The items of an array.
pub(super) struct Elements<'a>(&'a [Value]);

impl<'a> Array<'a, Metered> for Elements<'a> {
    type Node = Part<'a>;
    type ElementsIter = std::iter::Map<std::slice::Iter<'a, Value>, fn(&'a Value) -> Part<'a>>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Self::ElementsIter {
        pay_for(self.0.len());
        self.0.iter().map(Part)
    }

    fn is_unique(&self) -> bool {
        pay_for(size(self.0.iter()));
        unique::is_unique(self.0)
    }
}

/// How much there is to compare in some values.
fn size<'a>(values: impl Iterator<Item = &'a Value>) -> usize {
    let (mut size, mut open) = (0, values.collect::<Vec<_>>());
    while let Some(value) = open.pop() {
        size += 1;
        match value {
            Value::String(text) => size += text.len(),
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => open.extend(entries.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    size
}

/// Memory that a copy of a value takes, about.
pub(super) fn weight(value: &Value) -> u64 {
    let (mut bytes, mut open) = (0, vec![value]);
    while let Some(value) = open.pop() {
        bytes += NAME;
        match value {
            Value::String(text) => bytes += text.len(),
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => {
                bytes += entries.keys().map(|name| NAME + name.len()).sum::<usize>();
                open.extend(entries.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
    bytes as u64
}
