//! The work that the expression under way may still do, and what looking at values costs.
//!
//! **Invariant:** whoever goes over a value or copies it has paid before.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};

use minijinja::value::{Value, ValueKind};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;

use super::view::View;

/// Going over one item of a list takes as long as going over so many bytes of text, or more.
pub(super) const COST_OF_ITEM: usize = 8;
/// A map that is copied takes far more memory than its text has bytes.
const COST_OF_MAP: usize = 160;
/// Values are not looked at beyond this depth; no document, payload or expression makes such.
pub(super) const MAX_DEPTH: usize = 300;

thread_local! {
    static LEFT: Cell<u64> = const { Cell::new(0) };
    /// Something could not be paid for. What was made since then counts for nothing.
    static BROKE: Cell<bool> = const { Cell::new(false) };
    /// The right side of the last comparison, for the next one of a chain.
    static COMPARED: RefCell<Option<Value>> = const { RefCell::new(None) };
}

/// Does the work of one expression on this thread. Answers what it came to, and how much work it was.
pub(super) fn metered<T>(work: u64, evaluate: impl FnOnce() -> Result<T, Error>) -> (Result<T, Error>, u64) {
    LEFT.set(work);
    BROKE.set(false);
    let result = evaluate();
    COMPARED.set(None);
    let result = if BROKE.get() { Err(ErrorKind::OutOfFuel.into()) } else { result };
    let left = if BROKE.get() { 0 } else { LEFT.get() };
    (result, work - left)
}

pub(super) fn pay(cost: usize) -> Result<(), Error> {
    match LEFT.get().checked_sub(cost as u64) {
        Some(left) if !BROKE.get() => {
            LEFT.set(left);
            Ok(())
        }
        _ => {
            BROKE.set(true);
            Err(ErrorKind::OutOfFuel.into())
        }
    }
}

pub(super) fn set_compared(value: &Value) {
    COMPARED.set(Some(value.clone()));
}

pub(super) fn take_compared() -> Value {
    COMPARED.take().unwrap_or_default()
}

/// What going over a value once costs, without looking into its items.
pub(super) fn shallow(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value.len().unwrap_or(1).saturating_mul(COST_OF_ITEM),
        _ => 1,
    }
}

/// Pays for looking at all of a value, with the items of its items.
pub(super) fn pay_deep(value: &Value) -> Result<(), Error> {
    deep(value, 0)
}

fn deep(value: &Value, depth: usize) -> Result<(), Error> {
    check_depth(depth)?;
    if let Some(view) = value.downcast_object_ref::<View>() {
        return pay_json(view.json());
    }
    pay(COST_OF_ITEM)?;
    match value.kind() {
        ValueKind::String => pay(value.as_str().map_or(0, str::len)),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.try_for_each(|item| deep(&item, depth + 1)),
        ValueKind::Map => value.try_iter()?.try_for_each(|key| {
            deep(&key, depth + 1)?;
            deep(&value.get_item(&key)?, depth + 1)
        }),
        _ => Ok(()),
    }
}

fn pay_json(json: &Json) -> Result<(), Error> {
    all_of(json, 0)
}

/// Pays for a copy of a value.
pub(super) fn pay_copy(json: &Json) -> Result<(), Error> {
    all_of(json, COST_OF_MAP)
}

/// Pays for a map that is made.
pub(super) fn pay_map() -> Result<(), Error> {
    pay(COST_OF_MAP)
}

fn all_of(json: &Json, cost_of_map: usize) -> Result<(), Error> {
    pay(COST_OF_ITEM)?;
    match json {
        Json::String(text) => pay(text.len()),
        Json::Array(items) => items.iter().try_for_each(|item| all_of(item, cost_of_map)),
        Json::Object(map) => {
            pay(cost_of_map)?;
            map.iter().try_for_each(|(key, value)| {
                pay(COST_OF_ITEM + key.len())?;
                all_of(value, cost_of_map)
            })
        }
        _ => Ok(()),
    }
}

/// Pays for comparing two values: no more than the smaller of them costs, and not much less.
pub(super) fn pay_comparison(a: &Value, b: &Value) -> Result<(), Error> {
    pair(a, b, 0)
}

fn pair(a: &Value, b: &Value, depth: usize) -> Result<(), Error> {
    use ValueKind::{Iterable, Map, Seq, String};
    check_depth(depth)?;
    pay(COST_OF_ITEM)?;
    match (a.kind(), b.kind()) {
        (String, String) => pay(shallow(a).min(shallow(b))),
        (Seq | Iterable, Seq | Iterable) => {
            let (mut items, mut others) = (a.try_iter()?, b.try_iter()?);
            while let (Some(item), Some(other)) = (items.next(), others.next()) {
                pair(&item, &other, depth + 1)?;
            }
            Ok(())
        }
        (Map, Map) => {
            deep(a, depth)?;
            deep(b, depth)
        }
        _ => Ok(()),
    }
}

fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value of it is nested too deeply"));
    }
    Ok(())
}

/// The text of a value, paid for while it is written.
pub(super) fn paid_text(value: &Value) -> Result<String, Error> {
    struct Paying(String);
    impl fmt::Write for Paying {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            pay(text.len()).map_err(|_| fmt::Error)?;
            self.0.push_str(text);
            Ok(())
        }
    }
    let mut out = Paying(String::new());
    write!(out, "{value}").map_err(|_| Error::from(ErrorKind::OutOfFuel))?;
    Ok(out.0)
}
