//! Reads the keys of one map of a document, each with its type, and notes what does not fit.

use super::node::{Data, Entry, Node, Position};
use super::problem::{Problems, Trail};
use crate::canonical::MAX_SAFE_INTEGER;
use crate::text;

/// One map of a document and the way to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'n, 't> {
    pub(super) entries: &'n [Entry],
    pub(super) at: Position,
    pub(super) trail: &'t Trail<'t>,
}

impl<'n, 't> Section<'n, 't> {
    /// The node as a map; anything else is a problem.
    pub(super) fn of(node: &'n Node, trail: &'t Trail<'t>, problems: &mut Problems) -> Option<Section<'n, 't>> {
        match node.as_map() {
            Some(entries) => Some(Section { entries, at: node.at, trail }),
            None => {
                problems.add("wrong_type", node.at, trail, format!("a map is needed here, not {}", node.kind()));
                None
            }
        }
    }

    /// Notes the keys that are not known.
    pub(super) fn only(&self, known: &[&str], problems: &mut Problems) {
        for entry in self.entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            let suggestion = problems.suggest(&entry.key, known.iter().copied());
            let message = format!("there is no key `{}` here; known are {}", entry.key, known.join(", "));
            problems.add_with("unknown_key", entry.at, &self.trail.key(&entry.key), message, suggestion);
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&'n Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    pub(super) fn required(&self, key: &str, problems: &mut Problems) -> Option<&'n Entry> {
        let found = self.get(key);
        if found.is_none() {
            problems.add("missing_key", self.at, self.trail, format!("the key `{key}` is missing"));
        }
        found
    }

    pub(super) fn text(&self, key: &str, problems: &mut Problems) -> Option<&'n str> {
        let entry = self.get(key)?;
        let text = entry.node.as_text();
        if text.is_none() {
            let suggestion =
                matches!(entry.node.data, Data::Number(_) | Data::Bool(_)).then(|| "write it in quotes".into());
            self.wrong_type(entry, "a text", suggestion, problems);
        }
        text
    }

    /// A text that names something: not empty, not too long, no blanks or control characters.
    pub(super) fn name(&self, key: &str, max_chars: usize, problems: &mut Problems) -> Option<&'n str> {
        let name = self.text(key, problems)?;
        let Some(fault) = name_fault(name, max_chars) else { return Some(name) };
        let entry = self.get(key)?;
        problems.add("bad_name", entry.node.at, &self.trail.key(key), format!("the {key} {fault}"));
        None
    }

    pub(super) fn flag(&self, key: &str, problems: &mut Problems) -> Option<bool> {
        let entry = self.get(key)?;
        match entry.node.data {
            Data::Bool(value) => Some(value),
            _ => {
                self.wrong_type(entry, "`true` or `false`", None, problems);
                None
            }
        }
    }

    /// A whole number from `min` to `max`.
    pub(super) fn integer(&self, key: &str, min: u64, max: u64, problems: &mut Problems) -> Option<u64> {
        let entry = self.get(key)?;
        let Data::Number(number) = &entry.node.data else {
            self.wrong_type(entry, "a whole number", None, problems);
            return None;
        };
        let value = number.as_u64().or_else(|| whole(number.as_f64()?));
        match value.filter(|value| (min..=max).contains(value)) {
            Some(value) => Some(value),
            None => {
                let message = if max < MAX_SAFE_INTEGER {
                    format!("`{key}` is a whole number from {min} to {max}, not {number}")
                } else {
                    format!("`{key}` is a whole number of at least {min}, not {number}")
                };
                problems.add("bad_value", entry.node.at, &self.trail.key(key), message);
                None
            }
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)], problems: &mut Problems) -> Option<T> {
        let text = self.text(key, problems)?;
        if let Some((_, value)) = choices.iter().find(|(name, _)| *name == text) {
            return Some(*value);
        }
        let known: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let suggestion = problems.suggest(text, known.iter().copied());
        let message = format!("`{key}` is one of {}, not `{text}`", known.join(", "));
        let at = self.get(key).map_or(self.at, |entry| entry.node.at);
        problems.add_with("bad_value", at, &self.trail.key(key), message, suggestion);
        None
    }

    /// A list of texts; what is not a text is a problem and left out.
    pub(super) fn texts(&self, key: &str, problems: &mut Problems) -> Option<Vec<&'n str>> {
        let entry = self.get(key)?;
        let Some(items) = entry.node.as_list() else {
            self.wrong_type(entry, "a list of texts", None, problems);
            return None;
        };
        let trail = self.trail.key(key);
        let texts = items.iter().enumerate().filter_map(|(i, item)| {
            let text = item.as_text();
            if text.is_none() {
                problems.add(
                    "wrong_type",
                    item.at,
                    &trail.index(i),
                    format!("a text is needed here, not {}", item.kind()),
                );
            }
            text
        });
        Some(texts.collect())
    }

    pub(super) fn wrong_type(&self, entry: &Entry, wanted: &str, suggestion: Option<String>, problems: &mut Problems) {
        let message = format!("`{}` is {wanted}, not {}", entry.key, entry.node.kind());
        problems.add_with("wrong_type", entry.node.at, &self.trail.key(&entry.key), message, suggestion);
    }
}

fn whole(value: f64) -> Option<u64> {
    let fits = value.fract() == 0.0 && (0.0..=MAX_SAFE_INTEGER as f64).contains(&value);
    fits.then_some(value as u64)
}

/// What is wrong with a name.
pub(super) fn name_fault(name: &str, max_chars: usize) -> Option<String> {
    text::name_fault(name, max_chars).or_else(|| {
        let odd = name.chars().find(|letter| letter.is_whitespace())?;
        Some(format!("may not have {odd:?} in it"))
    })
}
