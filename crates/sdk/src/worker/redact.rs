//! Keeps a task's secrets out of what is said about it.

use std::borrow::Cow;
use std::collections::BTreeMap;

const REDACTED: &str = "***";
/// A single line of a longer secret is looked for if it is at least this long; a shorter one is in too many texts.
const SHORTEST_LINE: usize = 4;

/// What must not be shown: the values of secrets, their lines, and how they look inside JSON.
#[derive(Debug, Default)]
pub(crate) struct Redactor {
    /// Longer ones first, so that no part of one is left.
    needles: Vec<String>,
}

impl Redactor {
    pub(crate) fn new(secrets: &BTreeMap<String, String>) -> Redactor {
        let mut needles = Vec::new();
        for value in secrets.values().filter(|value| !value.is_empty()) {
            needles.push(value.clone());
            needles.extend(value.lines().filter(|line| line.len() >= SHORTEST_LINE).map(ToOwned::to_owned));
            let quoted = serde_json::Value::from(value.as_str()).to_string();
            needles.push(quoted[1..quoted.len() - 1].to_owned());
        }
        needles.sort_unstable_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        needles.dedup();
        Redactor { needles }
    }

    pub(crate) fn redact<'a>(&self, text: impl Into<Cow<'a, str>>) -> Cow<'a, str> {
        let mut text = text.into();
        for needle in &self.needles {
            if text.contains(needle.as_str()) {
                text = Cow::Owned(text.replace(needle, REDACTED));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(secrets: &[&str], text: &str) -> String {
        let secrets = secrets.iter().enumerate().map(|(n, value)| (n.to_string(), (*value).to_owned())).collect();
        Redactor::new(&secrets).redact(text).into_owned()
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(redacted(&["hush", ""], "the key hush, hush"), "the key ***, ***");
        assert_eq!(redacted(&["abc", "abcdef"], "abcdef abc"), "*** ***", "a longer one goes first");
        assert_eq!(redacted(&[], "nothing to hide"), "nothing to hide");
    }

    #[test]
    fn neither_are_their_lines_or_what_json_makes_of_them() {
        assert_eq!(redacted(&["-- begin\nMIIE\n}"], "the key has MIIE }"), "the key has *** }");
        assert_eq!(redacted(&["a\"b\n"], r#"{"key": "a\"b\n"}"#), r#"{"key": "***"}"#);
    }
}
