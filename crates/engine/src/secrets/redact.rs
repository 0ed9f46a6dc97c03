//! Takes known secrets out of texts that are kept: lines of logs, messages of errors, outputs.
//!
//! A value is searched for as it is, and as JSON, base64 and URLs write it; one of several lines also line by line. What is
//! changed in any other way, or comes in pieces, is not found.

use std::collections::HashSet;
use std::fmt;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use milepost_core::canonical::parse_strict;
use serde_json::Value;

/// What is shorter is found everywhere, so it is not searched for.
const SHORTEST: usize = 4;
/// The same for parts of a value.
const SHORTEST_PART: usize = 8;

/// Finds the secrets of one attempt.
pub struct Redactor {
    patterns: AhoCorasick,
    /// What takes the place of each pattern.
    marks: Vec<String>,
}

impl Redactor {
    /// `None`: there is nothing to search for.
    pub(super) fn new<'s>(secrets: impl Iterator<Item = (&'s str, &'s str)>) -> Option<Redactor> {
        let (mut patterns, mut marks, mut known) = (Vec::new(), Vec::new(), HashSet::new());
        for (name, value) in secrets.filter(|(_, value)| value.len() >= SHORTEST) {
            for form in forms(value).into_iter().filter(|form| known.insert(form.clone())) {
                patterns.push(form);
                marks.push(format!("[redacted: {name}]"));
            }
        }
        if patterns.is_empty() {
            return None;
        }
        let patterns = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(patterns);
        Some(Redactor { patterns: patterns.expect("a few patterns of bounded size"), marks })
    }

    /// The text without secrets.
    #[must_use]
    pub fn text(&self, text: String) -> String {
        match self.patterns.is_match(&text) {
            true => self.patterns.replace_all(&text, &self.marks),
            false => text,
        }
    }

    /// JSON without secrets in its texts and keys. `None`: there were none. A text that cannot be read as JSON is searched as
    /// it stands.
    #[must_use]
    pub fn json(&self, json: &str) -> Option<String> {
        // A value with characters that JSON may write in many ways is found once they are read.
        let is_plain = !json.contains('\\') && !self.patterns.is_match(json);
        if is_plain {
            return None;
        }
        let Ok(before) = serde_json::from_str::<Value>(json) else {
            return self.patterns.is_match(json).then(|| self.patterns.replace_all(json, &self.marks));
        };
        let after = self.value(before.clone());
        // Of a key that comes twice only the last value was read, and the text has them all.
        let is_all = || !self.patterns.is_match(json) && parse_strict(json, usize::MAX).is_ok();
        (after != before || !is_all()).then(|| after.to_string())
    }

    fn value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => items.into_iter().map(|item| self.value(item)).collect(),
            Value::Object(map) => map.into_iter().map(|(key, value)| (self.text(key), self.value(value))).collect(),
            other => other,
        }
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("patterns", &self.marks.len()).finish()
    }
}

/// The ways in which a value is written.
fn forms(value: &str) -> Vec<String> {
    let mut forms =
        vec![value.to_owned(), in_json(value), in_ascii_json(value), in_url(value, "%20"), in_url(value, "+")];
    let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_PART);
    forms.extend(lines.map(ToOwned::to_owned));
    for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
        forms.push(engine.encode(value));
        forms.extend((0..3).map(|before| inside_base64(&engine, value, before)).filter(|f| f.len() >= SHORTEST_PART));
    }
    forms
}

fn in_json(value: &str) -> String {
    let quoted = serde_json::to_string(value).expect("a text is JSON");
    quoted[1..quoted.len() - 1].to_owned()
}

/// As those write it who keep to ASCII.
fn in_ascii_json(value: &str) -> String {
    let mut text = String::new();
    for c in in_json(value).chars() {
        match c.is_ascii() {
            true => text.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| text.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    text
}

fn in_url(value: &str, blank: &str) -> String {
    let byte = |byte: u8| match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        b' ' => blank.to_owned(),
        other => format!("%{other:02X}"),
    };
    value.bytes().map(byte).collect()
}

/// What is sure to be in the base64 of a text in which the value stands after so many bytes (modulo 3): `user:value`.
fn inside_base64(engine: &impl base64::Engine, value: &str, before: usize) -> String {
    let bytes = [&[0; 2][..before], value.as_bytes()].concat();
    let text = engine.encode(&bytes);
    // Characters at both ends are made of other bytes, too.
    let first = [0, 2, 3][before];
    let last = text.len() - usize::from(bytes.len() % 3 != 0);
    text.get(first..last).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::STANDARD;

    fn redactor(value: &str) -> Redactor {
        Redactor::new([("KEY", value)].into_iter()).unwrap()
    }

    #[test]
    fn a_value_is_found_however_it_is_usually_written() {
        let value = "p\"ä/ss wörd+1";
        let redactor = redactor(value);
        let basic = |user: &str| STANDARD.encode(format!("{user}:{value}@host"));
        for text in [
            value.to_owned(),
            serde_json::to_string(value).unwrap(),
            r#"p\"\u00e4/ss w\u00f6rd+1"#.to_owned(),
            STANDARD.encode(value),
            basic("a"),
            basic("ab"),
            basic("abc"),
            URL_SAFE_NO_PAD.encode(format!("xy{value}")),
            "p%22%C3%A4%2Fss%20w%C3%B6rd%2B1".to_owned(),
            "p%22%C3%A4%2Fss+w%C3%B6rd%2B1".to_owned(),
        ] {
            let found = redactor.text(format!("before {text} after"));
            assert!(found.contains("[redacted: KEY]") && found.starts_with("before "), "{text}: {found}");
            assert!(found.ends_with(" after") && !found.contains("rd+1"), "{text}: {found}");
        }
        assert_eq!(redactor.text("nothing to see".to_owned()), "nothing to see");
    }

    #[test]
    fn a_value_of_several_lines_is_found_line_by_line() {
        let redactor = redactor("-----BEGIN KEY-----\nMIIBVgIBADANBg\nshort\n-----END KEY-----\n");
        assert_eq!(redactor.text("got MIIBVgIBADANBg".to_owned()), "got [redacted: KEY]");
        assert_eq!(redactor.text("short".to_owned()), "short");
    }

    #[test]
    fn short_values_are_not_searched_for() {
        assert!(Redactor::new([("A", "abc"), ("B", "")].into_iter()).is_none());
        let both = Redactor::new([("A", "abc"), ("B", "abcd")].into_iter()).unwrap();
        assert_eq!(both.text("abc abcd".to_owned()), "abc [redacted: B]");
    }

    #[test]
    fn the_longest_of_several_values_is_taken_out() {
        let both = Redactor::new([("A", "hunter"), ("B", "hunter22")].into_iter()).unwrap();
        assert_eq!(both.text("hunter hunter22".to_owned()), "[redacted: A] [redacted: B]");
    }

    #[test]
    fn json_stays_json() {
        let redactor = redactor("12\"34ä");
        assert_eq!(redactor.json(r#"{"a": "fine", "n": 1234}"#), None);
        for json in [r#"{"a": ["x 12\"34ä"]}"#, r#"{"a": ["x 12\u002234\u00E4"]}"#] {
            assert_eq!(redactor.json(json).as_deref(), Some(r#"{"a":["x [redacted: KEY]"]}"#));
        }
        assert_eq!(redactor.json(r#"{"12\"34ä": 1}"#).as_deref(), Some(r#"{"[redacted: KEY]":1}"#));
        for unreadable in [r#"{"s": "\ud800", "leak": "hunter2!"}"#, r#"{"n": 1e999, "leak": "hunter2!"}"#, "{hunter2!"]
        {
            let found = Redactor::new([("KEY", "hunter2!")].into_iter()).unwrap().json(unreadable).unwrap();
            assert!(found.contains("[redacted: KEY]") && !found.contains("hunter2"), "{found}");
        }
        let digits = Redactor::new([("PIN", "1234")].into_iter()).unwrap();
        assert_eq!(digits.json(r#"{"n": 123456}"#), None, "numbers are left alone");
    }
}
