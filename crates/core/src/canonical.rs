//! Canonical JSON (RFC 8785): one text per value, so that equal values have equal hashes for ever.
//!
//! **Invariant:** the text does not depend on the features other crates switch on in `serde_json`; golden vectors hold it.
//! Numbers with a fraction are formatted by `serde_json_canonicalizer`; all else is written here, where most bytes are.

use serde_json::{Map, Number, Value};

use crate::patience;

mod strict;

pub(crate) use strict::is_readable;
pub use strict::{Glance, StrictJsonError, check_strict, glance, parse_strict, parse_within};

/// The largest integer that every JSON reader keeps exactly: 2^53 − 1.
pub const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// Deeper values are refused whatever the limit says: writing and dropping them takes stack.
const MAX_DEPTH: usize = 512;

/// Why a value has no canonical form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotCanonical {
    #[error("the integer at `{path}` is beyond ±(2^53 − 1); send it as a string")]
    IntegerTooLarge { path: String },
    #[error("the value at `{path}` is nested deeper than {limit} levels")]
    TooDeep { path: String, limit: usize },
}

/// The canonical text of a value.
///
/// # Errors
/// The value holds an integer that JSON readers would round, or is nested absurdly deep.
pub fn to_string(value: &Value) -> Result<String, NotCanonical> {
    check_value(value, MAX_DEPTH)?;
    Ok(write(value))
}

/// Checks integers and depth. Containers inside containers count; a scalar has depth 0.
///
/// # Errors
/// Names the first place that breaks a rule.
pub fn check_value(value: &Value, max_depth: usize) -> Result<(), NotCanonical> {
    let limit = max_depth.min(MAX_DEPTH);
    check(value, limit).map_err(|Fault { reversed_path, integer }| {
        let path = reversed_path.iter().rev().map(|segment| pointer_segment(segment)).collect();
        if integer { NotCanonical::IntegerTooLarge { path } } else { NotCanonical::TooDeep { path, limit } }
    })
}

/// Values on all levels.
#[must_use]
pub fn count(value: &Value) -> usize {
    let (mut values, mut open) = (0, vec![value]);
    while let Some(next) = open.pop() {
        values += 1;
        match next {
            Value::Array(items) => open.extend(items),
            Value::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
    }
    values
}

/// Whether a key, on any level, has more bytes than that.
#[must_use]
pub fn has_longer_key(value: &Value, most: usize) -> bool {
    let mut open = vec![value];
    while let Some(next) = open.pop() {
        match next {
            Value::Array(items) => open.extend(items),
            Value::Object(entries) if entries.keys().any(|key| key.len() > most) => return true,
            Value::Object(entries) => open.extend(entries.values()),
            _ => {}
        }
    }
    false
}

/// `/` and the segment, escaped as RFC 6901 says.
pub(crate) fn pointer_segment(segment: &str) -> String {
    format!("/{}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Whether an integer is one that all readers keep.
pub(crate) fn is_safe(number: &Number) -> bool {
    match (number.as_u64(), number.as_i64()) {
        (Some(n), _) => n <= MAX_SAFE_INTEGER,
        (None, Some(n)) => n.unsigned_abs() <= MAX_SAFE_INTEGER,
        (None, None) => true,
    }
}

struct Fault {
    reversed_path: Vec<String>,
    integer: bool,
}

impl Fault {
    fn below(mut self, segment: impl ToString) -> Fault {
        self.reversed_path.push(segment.to_string());
        self
    }
}

fn check(value: &Value, depth_left: usize) -> Result<(), Fault> {
    let fault = |integer| Fault { reversed_path: Vec::new(), integer };
    match value {
        Value::Number(number) if !is_safe(number) => Err(fault(true)),
        Value::Array(_) | Value::Object(_) if depth_left == 0 => Err(fault(false)),
        Value::Array(items) => check_items(items, depth_left - 1),
        Value::Object(map) => check_map(map, depth_left - 1),
        _ => Ok(()),
    }
}

fn check_items(items: &[Value], depth_left: usize) -> Result<(), Fault> {
    items.iter().enumerate().try_for_each(|(i, item)| check(item, depth_left).map_err(|fault| fault.below(i)))
}

fn check_map(map: &Map<String, Value>, depth_left: usize) -> Result<(), Fault> {
    map.iter().try_for_each(|(key, item)| check(item, depth_left).map_err(|fault| fault.below(key)))
}

/// How many bytes the text of a value has, about: it is not written for that.
pub(crate) fn written(value: &Value) -> usize {
    patience::look();
    match value {
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| 1 + written(item)).sum::<usize>() + 2,
        Value::Object(map) => map.iter().map(|(key, item)| key.len() + 4 + written(item)).sum::<usize>() + 2,
        _ => 4,
    }
}

/// The canonical text of a value that was checked before. An integer beyond the safe ones is written as the float that
/// JavaScript would make of it.
pub(crate) fn write(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    patience::look();
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => write_items(out, items),
        Value::Object(map) => write_map(out, map),
    }
}

fn write_number(out: &mut String, number: &Number) {
    if is_safe(number) && !number.is_f64() {
        out.push_str(&number.to_string());
        return;
    }
    let float = number.as_f64().unwrap_or_default();
    out.push_str(&serde_json_canonicalizer::to_string(&float).unwrap_or_else(|_| "null".to_owned()));
}

fn write_items(out: &mut String, items: &[Value]) {
    out.push('[');
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_value(out, item);
    }
    out.push(']');
}

fn write_map(out: &mut String, map: &Map<String, Value>) {
    out.push('{');
    let sorted = map.keys().is_sorted() && map.keys().all(|key| key.is_ascii());
    if sorted {
        write_entries(out, map.iter());
    } else {
        let mut entries: Vec<_> = map.iter().collect();
        entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
        write_entries(out, entries.into_iter());
    }
    out.push('}');
}

fn write_entries<'a>(out: &mut String, entries: impl Iterator<Item = (&'a String, &'a Value)>) {
    for (i, (key, value)) in entries.enumerate() {
        if i > 0 {
            out.push(',');
        }
        write_text(out, key);
        out.push(':');
        write_value(out, value);
    }
}

fn write_text(out: &mut String, text: &str) {
    out.push('"');
    let mut start = 0;
    for (i, byte) in text.bytes().enumerate() {
        if byte >= 0x20 && byte != b'"' && byte != b'\\' {
            continue;
        }
        out.push_str(&text[start..i]);
        write_escape(out, byte);
        start = i + 1;
    }
    out.push_str(&text[start..]);
    out.push('"');
}

fn write_escape(out: &mut String, byte: u8) {
    match byte {
        b'"' => out.push_str("\\\""),
        b'\\' => out.push_str("\\\\"),
        0x08 => out.push_str("\\b"),
        b'\t' => out.push_str("\\t"),
        b'\n' => out.push_str("\\n"),
        0x0c => out.push_str("\\f"),
        b'\r' => out.push_str("\\r"),
        _ => out.push_str(&format!("\\u{byte:04x}")),
    }
}

#[cfg(test)]
mod tests;
