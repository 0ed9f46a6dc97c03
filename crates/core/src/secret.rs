//! References to secrets, as documents have them: `secret://audio/api-key`, or `secret://audio/api-key@3` for one version.
//! Secrets themselves never come here.
//!
//! **Invariant:** no message about a reference quotes it: who writes a secret in its place must not find it in an error.

use std::collections::BTreeMap;
use std::ops::Range;

use serde_json::Value;

/// What every reference begins with.
pub const SCHEME: &str = "secret://";
/// Variables with such names are Milepost's own: no step gets them from the server, and no secret takes their place.
pub const RESERVED_PREFIX: &str = "MILEPOST_";

/// What stands around the name of a secret in a text that it is put into.
const OPEN: &str = "{{secret:";
const CLOSE: &str = "}}";

/// The first `{{secret:NAME}}` of a text: where it stands, and the name.
#[must_use]
pub fn placeholder(text: &str) -> Option<(Range<usize>, &str)> {
    let start = text.find(OPEN)?;
    let name = start + OPEN.len();
    let end = name + text[name..].find(CLOSE)?;
    Some((start..end + CLOSE.len(), text[name..end].trim()))
}

/// Where the document itself wrote `{{secret:NAME}}` in an input. Whatever else looks like one came from values: from
/// payloads, items and outputs, whose authors must not choose where secrets go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placeholders {
    /// JSON pointers to texts, and where in each of them placeholders begin, in order.
    texts: BTreeMap<String, Vec<usize>>,
}

impl Placeholders {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Where they begin in the text that a JSON pointer leads to.
    #[must_use]
    pub fn at(&self, pointer: &str) -> &[usize] {
        self.texts.get(pointer).map_or(&[], Vec::as_slice)
    }

    /// The texts below a JSON pointer, and the one that it leads to: how each is reached from there.
    pub fn below<'a>(&'a self, pointer: &'a str) -> impl Iterator<Item = (&'a str, &'a [usize])> {
        let inside = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.texts.iter().filter_map(move |(text, offsets)| {
            text.strip_prefix(pointer).filter(|rest| inside(rest)).map(|rest| (rest, offsets.as_slice()))
        })
    }

    /// Notes those of a literal that begins at `offset` of the text at `pointer`.
    pub(crate) fn note(&mut self, pointer: &str, literal: &str, offset: usize) {
        let mut from = 0;
        while let Some((span, _)) = placeholder(&literal[from..]) {
            self.texts.entry(pointer.to_owned()).or_default().push(offset + from + span.start);
            from += span.end;
        }
    }

    /// Those of a constant.
    #[must_use]
    pub fn of(value: &Value) -> Placeholders {
        let mut found = Placeholders::default();
        found.note_all(&mut String::new(), value);
        found
    }

    /// Notes those of all texts in a constant.
    pub(crate) fn note_all(&mut self, pointer: &mut String, value: &Value) {
        let length = pointer.len();
        match value {
            Value::String(text) => self.note(pointer, text, 0),
            Value::Array(items) => items.iter().enumerate().for_each(|(index, item)| {
                push_segment(pointer, &index.to_string());
                self.note_all(pointer, item);
                pointer.truncate(length);
            }),
            Value::Object(map) => map.iter().for_each(|(key, item)| {
                push_segment(pointer, key);
                self.note_all(pointer, item);
                pointer.truncate(length);
            }),
            _ => {}
        }
    }
}

/// Makes a JSON pointer one step longer.
pub fn push_segment(pointer: &mut String, segment: &str) {
    pointer.push('/');
    for c in segment.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            c => pointer.push(c),
        }
    }
}

/// Which secret, and which version of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretRef<'a> {
    pub name: &'a str,
    /// The newest if it is not said.
    pub version: Option<u32>,
}

/// A reference that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadReference {
    #[error("a secret is referred to by `secret://…`; secrets themselves never stand in documents")]
    NoScheme,
    #[error("the name of the secret {0}")]
    BadName(String),
    #[error("after `@` stands the number of a version, as in `secret://audio/api-key@3`")]
    BadVersion,
}

impl<'a> SecretRef<'a> {
    /// Reads a reference.
    ///
    /// # Errors
    /// It is none, or names what cannot be a secret.
    pub fn parse(reference: &'a str, max_chars: usize) -> Result<SecretRef<'a>, BadReference> {
        let named = reference.strip_prefix(SCHEME).filter(|rest| !rest.is_empty()).ok_or(BadReference::NoScheme)?;
        let (name, version) = match named.split_once('@') {
            Some((name, version)) => (name, Some(number(version).ok_or(BadReference::BadVersion)?)),
            None => (named, None),
        };
        match name_fault(name, max_chars) {
            Some(fault) => Err(BadReference::BadName(fault)),
            None => Ok(SecretRef { name, version }),
        }
    }
}

fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|number: &u32| *number > 0 && number.to_string() == text)
}

/// What is wrong with the name of a secret.
#[must_use]
pub fn name_fault(name: &str, max_chars: usize) -> Option<String> {
    if name.is_empty() {
        return Some("is empty".to_owned());
    }
    if name.chars().count() > max_chars {
        return Some(format!("has more than {max_chars} characters"));
    }
    let odd = |part: &str| part.chars().any(|c| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-' | '.'));
    if name.split('/').any(odd) {
        return Some("may have only letters, digits, `_`, `-`, `.`, and `/` between its parts".to_owned());
    }
    if name.split('/').any(|part| part.trim_matches('.').is_empty()) {
        return Some("has a part that is empty or dots alone".to_owned());
    }
    None
}

/// What is wrong with the name by which a step knows a secret or a variable of the server.
#[must_use]
pub fn variable_fault(name: &str, max_chars: usize) -> Option<&'static str> {
    let mut chars = name.chars();
    let fits = chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c.is_ascii_alphanumeric());
    if !fits || name.chars().count() > max_chars {
        return Some("cannot be an environment variable; it may have letters, digits and `_`, and no digit first");
    }
    name.starts_with(RESERVED_PREFIX).then_some("is a name that Milepost keeps for itself; choose another")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_names_a_secret_and_perhaps_a_version() {
        let read = |text| SecretRef::parse(text, 255);
        assert_eq!(read("secret://audio/api-key"), Ok(SecretRef { name: "audio/api-key", version: None }));
        assert_eq!(read("secret://a.b_C@12"), Ok(SecretRef { name: "a.b_C", version: Some(12) }));
    }

    #[test]
    fn what_is_no_reference_is_not_quoted() {
        for text in [
            "hunter2",
            "secret://",
            "secret:/hunter2",
            "secret://hunter2!",
            "secret://hunter2@",
            "secret://hunter2@0",
            "secret://hunter2@+1",
            "secret://hunter2@99999999999",
            "secret://../hunter2",
            "secret://hunter2//x",
            "secret:///hunter2",
            "secret://hunter2/.",
            "secret://${{ payload.hunter2 }}",
        ] {
            let refused = SecretRef::parse(text, 255).unwrap_err();
            assert!(!refused.to_string().contains("hunter2"), "{refused}");
        }
        assert!(SecretRef::parse("secret://abcd", 3).is_err());
    }

    #[test]
    fn variables_have_names_that_a_shell_can_read() {
        for name in ["A", "_a", "API_KEY2"] {
            assert_eq!(variable_fault(name, 255), None, "{name}");
        }
        for name in ["", "1A", "A-B", "A B", "Ä", "A=B", "MILEPOST_DB"] {
            assert!(variable_fault(name, 255).is_some(), "{name}");
        }
    }
}
