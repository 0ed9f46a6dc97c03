//! What events carry, as far as it is at hand: the payload, outputs, signals. It can be read from the log again at any time.
//!
//! **Invariant:** what a value takes of the memory is known before it is made, and what one step reads takes no more than
//! [`MOST_READ`].

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::canonical::glance;
use crate::json::Json;

/// Bytes that the values which one step reads may take: short texts make large values.
pub(super) const MOST_READ: usize = 256 * 1024 * 1024;
/// Values that take more than this are read again in the next decision.
const KEPT_VALUES: usize = 512 * 1024;

#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    by_seq: BTreeMap<u64, Fact>,
    /// Bytes of their texts.
    texts: usize,
    /// Bytes of the values that were read.
    values: usize,
}

/// Texts as short as this are not looked over: no value takes more than this for each byte of its text.
const SHORT: usize = 64;
const PER_BYTE: usize = 130;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// With what else the step reads.
    TooLarge,
    /// The text means nothing to us, or is gone.
    Meaningless(String),
}

#[derive(Clone, Debug)]
struct Fact {
    json: Json,
    /// What the text means.
    value: Option<Arc<Value>>,
    /// What that takes.
    memory: Option<usize>,
    /// Why it can never be had again: it was somewhere else, and is gone.
    loss: Option<String>,
}

impl Fact {
    fn memory(&mut self) -> usize {
        let text = self.json.as_str();
        *self.memory.get_or_insert_with(|| match text.len() <= SHORT {
            true => text.len() * PER_BYTE,
            false => glance(text).memory(text),
        })
    }
}

impl Facts {
    pub(super) fn learn(&mut self, seq: u64, json: Json) {
        self.insert(seq, Fact { json, value: None, memory: None, loss: None });
    }

    pub(super) fn learn_lost(&mut self, seq: u64, reason: String) {
        self.insert(seq, Fact { json: Json::null(), value: None, memory: None, loss: Some(reason) });
    }

    fn insert(&mut self, seq: u64, fact: Fact) {
        self.texts += fact.json.len();
        let Some(old) = self.by_seq.insert(seq, fact) else { return };
        self.texts -= old.json.len();
        if let (Some(_), Some(memory)) = (old.value, old.memory) {
            self.values -= memory;
        }
    }

    pub(super) fn has(&self, seq: u64) -> bool {
        self.by_seq.contains_key(&seq)
    }

    pub(super) fn json(&self, seq: u64) -> Option<&Json> {
        self.by_seq.get(&seq).map(|fact| &fact.json)
    }

    /// Why it can never be had again.
    pub(super) fn loss(&self, seq: u64) -> Option<&str> {
        self.by_seq.get(&seq)?.loss.as_deref()
    }

    /// The same of all of them; those that do not fit are never read at once.
    pub(super) fn memory_of_all(&mut self) -> usize {
        self.by_seq.values_mut().map(Fact::memory).sum::<usize>().min(MOST_READ)
    }

    /// What the text means, or why it means nothing to us: text can be well-formed JSON and still hold a number that is out
    /// of range or half of a surrogate pair. `taken` is what has been read for the same step.
    pub(super) fn value(&mut self, seq: u64, taken: &mut usize) -> Option<Result<Arc<Value>, Unread>> {
        let fact = self.by_seq.get_mut(&seq)?;
        let memory = fact.memory();
        *taken = taken.saturating_add(memory);
        if *taken > MOST_READ {
            return Some(Err(Unread::TooLarge));
        }
        if let Some(value) = &fact.value {
            return Some(Ok(value.clone()));
        }
        if let Some(loss) = &fact.loss {
            return Some(Err(Unread::Meaningless(loss.clone())));
        }
        if self.values + memory > MOST_READ {
            // What is held by the step itself is counted in `taken`.
            self.forget_values();
        }
        let fact = self.by_seq.get_mut(&seq)?;
        Some(match serde_json::from_str(fact.json.as_str()) {
            Ok(value) => {
                self.values += memory;
                Ok(fact.value.insert(Arc::new(value)).clone())
            }
            Err(error) => Err(Unread::Meaningless(error.to_string())),
        })
    }

    /// At the end of a decision: many runs are at hand at once.
    pub(super) fn forget_large_values(&mut self) {
        if self.values > KEPT_VALUES {
            self.forget_values();
        }
    }

    fn forget_values(&mut self) {
        self.by_seq.values_mut().for_each(|fact| fact.value = None);
        self.values = 0;
    }

    pub(super) fn clear(&mut self) {
        *self = Facts::default();
    }

    /// Bytes that all of it takes.
    pub(super) fn weight(&self) -> usize {
        self.texts + self.values + self.by_seq.len() * 96
    }
}

/// The list that a `foreach` step goes over, as text: a list of values would take many times as much.
#[derive(Clone, Debug, Default)]
pub(super) struct List {
    text: String,
    /// Where each item ends.
    ends: Vec<usize>,
}

impl List {
    pub(super) fn of(items: &[Value]) -> List {
        let mut list = List { text: String::new(), ends: Vec::with_capacity(items.len()) };
        for item in items {
            list.text.push_str(&item.to_string());
            list.ends.push(list.text.len());
        }
        list
    }

    pub(super) fn count(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn get(&self, item: usize) -> Option<Value> {
        let end = *self.ends.get(item)?;
        let begin = item.checked_sub(1).map_or(0, |before| self.ends[before]);
        serde_json::from_str(self.text.get(begin..end)?).ok()
    }

    pub(super) fn weight(&self) -> usize {
        self.text.len() + self.ends.len() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_come_out_of_a_list_as_they_went_in() {
        let items = [json!(1.5), json!("ä\"\u{0}"), json!({"a": [null, {}]}), json!([])];
        let list = List::of(&items);
        assert_eq!(list.count(), items.len());
        for (at, item) in items.iter().enumerate() {
            assert_eq!(list.get(at).as_ref(), Some(item));
        }
        assert_eq!(list.get(items.len()), None);
    }

    #[test]
    fn what_values_take_is_known_before_they_are_made() {
        let mut facts = Facts::default();
        let maps = format!("[{}]", vec![r#"{"":0}"#; 10_000].join(","));
        facts.learn(1, Json::trusted(maps.as_str()));
        facts.learn(2, Json::trusted("[1,2,3]"));
        let mut taken = 0;
        let before = facts.weight();
        assert!(facts.value(1, &mut taken).unwrap().is_ok() && facts.value(3, &mut taken).is_none());
        assert!(taken > 50 * maps.len(), "maps take far more than their text: {taken}");
        assert!(facts.weight() > before + 50 * maps.len(), "what was read is part of what a run takes");
        facts.forget_large_values();
        assert_eq!(facts.weight(), before);
        assert_eq!(facts.value(2, &mut taken).unwrap().unwrap(), Arc::new(json!([1, 2, 3])));
        taken = MOST_READ - 1;
        assert_eq!(facts.value(1, &mut taken).unwrap(), Err(Unread::TooLarge));
        facts.learn(2, Json::trusted("1"));
        facts.learn_lost(1, "it is gone".to_owned());
        assert_eq!((facts.loss(1), facts.loss(2)), (Some("it is gone"), None));
        assert_eq!(facts.value(1, &mut 0).unwrap(), Err(Unread::Meaningless("it is gone".to_owned())));
        assert_eq!(facts.weight(), 5 + 2 * 96);
    }
}
