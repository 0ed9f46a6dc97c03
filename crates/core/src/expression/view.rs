//! JSON as minijinja sees it. What is small is converted at once; of what is large, only what somebody looks at.

use std::fmt;
use std::sync::Arc;

use minijinja::Error;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use serde_json::Value as Json;

use super::meter::{COST_OF_ITEM, pay};
use super::path::{Segment, step_into};

/// What costs no more than this is converted at once.
const SMALL: usize = 4096;

#[cfg(test)]
thread_local! {
    /// Tests have nothing converted at once.
    pub(super) static NOTHING_IS_SMALL: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

fn small() -> usize {
    #[cfg(test)]
    if NOTHING_IS_SMALL.get() {
        return COST_OF_ITEM;
    }
    SMALL
}

/// A list or map somewhere in a JSON value. Its items are found from the root each time, as they cannot be borrowed.
pub(super) struct View {
    root: Arc<Json>,
    way: Vec<Segment>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.json(), f)
    }
}

impl View {
    pub(super) fn json(&self) -> &Json {
        let found = self.way.iter().try_fold(&*self.root, |at, segment| match step_into(at, segment)? {
            std::borrow::Cow::Borrowed(inner) => Some(inner),
            std::borrow::Cow::Owned(_) => None,
        });
        found.unwrap_or(&Json::Null)
    }

    fn child(&self, json: &Json, segment: impl FnOnce() -> Segment) -> Value {
        let way = || self.way.iter().cloned().chain([segment()]).collect();
        // Whoever gets this in place of a value ends with the error, as nothing can be paid for any more.
        value_at(json, &self.root, way).unwrap_or_else(Value::from)
    }
}

/// What a variable stands for: `json` is what `way` leads to from the root.
///
/// # Errors
/// It cannot be paid for.
pub(super) fn value_at(json: &Json, root: &Arc<Json>, way: impl FnOnce() -> Vec<Segment>) -> Result<Value, Error> {
    match json {
        Json::Array(_) | Json::Object(_) if cost(json, small()).is_none() => {
            pay(COST_OF_ITEM)?;
            Ok(Value::from_object(View { root: root.clone(), way: way() }))
        }
        _ => paid(json),
    }
}

/// Converts all of a value.
pub(super) fn paid(json: &Json) -> Result<Value, Error> {
    pay(cost(json, usize::MAX).unwrap_or(usize::MAX))?;
    Ok(converted(json))
}

/// What converting all of a value costs, if that is no more than `most`.
fn cost(json: &Json, most: usize) -> Option<usize> {
    let own = match json {
        Json::String(text) => text.len(),
        Json::Array(items) => items.len().saturating_mul(COST_OF_ITEM),
        Json::Object(map) => map.len().saturating_mul(2 * COST_OF_ITEM),
        _ => 1,
    };
    if own > most {
        return None;
    }
    match json {
        Json::Array(items) => items.iter().try_fold(own, |sum, item| Some(sum + cost(item, most - sum)?)),
        Json::Object(map) => map.iter().try_fold(own, |sum, (key, value)| {
            let sum = sum + key.len();
            Some(sum + cost(value, most.checked_sub(sum)?)?)
        }),
        _ => Some(own),
    }
    .filter(|sum| *sum <= most)
}

pub(super) fn converted(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(converted).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), converted(value)))),
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.json().is_array() { ObjectRepr::Seq } else { ObjectRepr::Map }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match self.json() {
            Json::Array(items) => {
                let index = key.as_usize()?;
                let place = i64::try_from(index).ok()?;
                items.get(index).map(|item| self.child(item, || Segment::Index(place)))
            }
            Json::Object(map) => {
                let key = key.as_str()?;
                map.get(key).map(|value| self.child(value, || Segment::Key(key.to_owned())))
            }
            _ => None,
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match self.json() {
            Json::Array(items) => Enumerator::Seq(items.len()),
            Json::Object(map) => {
                let size = map.keys().map(|key| key.len() + COST_OF_ITEM).sum();
                if let Err(error) = pay(size) {
                    return Enumerator::Values(vec![Value::from(error)]);
                }
                let mut keys: Vec<&String> = map.keys().collect();
                keys.sort_unstable();
                let keys: Vec<Value> = keys.into_iter().map(|key| Value::from(key.as_str())).collect();
                let view = self.clone();
                // As the maps that are converted at once have it: what can be done with them depends on it.
                Enumerator::RevKeyValueIter(Box::new(keys.into_iter().map(move |key| {
                    let value = view.get_value(&key).unwrap_or_default();
                    (key, value)
                })))
            }
            _ => Enumerator::Empty,
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        match self.json() {
            Json::Array(items) => Some(items.len()),
            Json::Object(map) => Some(map.len()),
            _ => Some(0),
        }
    }
}

/// The items of something that would make them anew each time that somebody goes over it.
#[derive(Debug)]
pub(super) struct Items(pub(super) Vec<Value>);

impl Object for Items {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.0.len())
    }
}
