//! Takes known secrets out of texts that are kept: lines of logs, messages of errors, outputs.
//!
//! A value is searched for as it is, and as JSON, base64 and URLs write it; one of several lines also line by line. What is
//! changed in any other way, or comes in pieces, is not found.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use serde::Deserializer as _;
use serde::de::{IgnoredAny, Visitor};
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
    /// The same as JSON writes it.
    in_json: Vec<String>,
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
        let in_json = marks.iter().map(|mark| in_json(mark)).collect();
        Some(Redactor { patterns: patterns.expect("a few patterns of bounded size"), marks, in_json })
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
    /// it stands. It is never read into values: those take many times the memory of their text.
    #[must_use]
    pub fn json(&self, json: &str) -> Option<String> {
        // A value with characters that JSON may write in many ways is found once they are read.
        let is_plain = !json.contains('\\') && !self.patterns.is_match(json);
        if is_plain {
            return None;
        }
        if serde_json::from_str::<IgnoredAny>(json).is_err() {
            return self.patterns.is_match(json).then(|| self.patterns.replace_all(json, &self.marks));
        }
        let mut redacted = Redacted::default();
        for text in Texts::of(json) {
            if let Some(found) = self.text_of_json(&json[text.clone()]) {
                redacted.put(json, text, &found);
            }
        }
        redacted.whole(json)
    }

    /// The same for one text or key, with its quotes.
    fn text_of_json(&self, quoted: &str) -> Option<String> {
        if !quoted.contains('\\') {
            // Without its quotes: a value may begin with one.
            let text = &quoted[1..quoted.len() - 1];
            return self
                .patterns
                .is_match(text)
                .then(|| format!("\"{}\"", self.patterns.replace_all(text, &self.in_json)));
        }
        let text = unquoted(quoted);
        self.patterns.is_match(&text).then(|| Value::String(self.patterns.replace_all(&text, &self.marks)).to_string())
    }
}

/// What a text of JSON means. Half a character, which no reader takes, is a mark in its place.
fn unquoted(quoted: &str) -> String {
    struct Bytes;
    impl Visitor<'_> for Bytes {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
            Ok(String::from_utf8_lossy(bytes).into_owned())
        }
    }
    let read = serde_json::Deserializer::from_str(quoted).deserialize_bytes(Bytes);
    read.unwrap_or_else(|_| quoted.trim_matches('"').to_owned())
}

/// Where the texts and keys of well-formed JSON stand, with their quotes.
struct Texts<'a> {
    json: &'a [u8],
    at: usize,
}

impl Texts<'_> {
    fn of(json: &str) -> Texts<'_> {
        Texts { json: json.as_bytes(), at: 0 }
    }
}

impl Iterator for Texts<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let begin = self.at + self.json[self.at..].iter().position(|byte| *byte == b'"')?;
        let mut end = begin + 1;
        while *self.json.get(end)? != b'"' {
            end += if self.json[end] == b'\\' { 2 } else { 1 };
        }
        self.at = end + 1;
        Some(begin..self.at)
    }
}

/// JSON with other texts in the place of some.
#[derive(Default)]
struct Redacted {
    text: String,
    /// So much of the text before is in it.
    done: usize,
    /// Keys that were replaced: no two of a map may be the same.
    keys: HashMap<String, u32>,
}

impl Redacted {
    fn put(&mut self, json: &str, at: Range<usize>, found: &str) {
        self.text.push_str(&json[self.done..at.start]);
        self.done = at.end;
        if !json[at.end..].trim_start().starts_with(':') {
            return self.text.push_str(found);
        }
        let count = self.keys.entry(found.to_owned()).or_default();
        *count += 1;
        match count {
            1 => self.text.push_str(found),
            _ => self.text.push_str(&format!("{} {count}\"", &found[..found.len() - 1])),
        }
    }

    fn whole(mut self, json: &str) -> Option<String> {
        if self.done == 0 {
            return None;
        }
        self.text.push_str(&json[self.done..]);
        Some(self.text)
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
        for json in [r#"{"a": ["x 12\"34ä"], "n": 1.50}"#, r#"{"a": ["x 12\u002234\u00E4"], "n": 1.50}"#] {
            assert_eq!(redactor.json(json).as_deref(), Some(r#"{"a": ["x [redacted: KEY]"], "n": 1.50}"#));
        }
        assert_eq!(redactor.json(r#"{"12\"34ä" : 1}"#).as_deref(), Some(r#"{"[redacted: KEY]" : 1}"#));
        let digits = Redactor::new([("PIN", "1234")].into_iter()).unwrap();
        assert_eq!(digits.json(r#"{"n": 123456}"#), None, "numbers are left alone");
        assert_eq!(
            digits.json(r#"["\\", 1234, "\\\"1234"]"#).as_deref(),
            Some(r#"["\\", 1234, "\\\"[redacted: PIN]"]"#)
        );
    }

    #[test]
    fn a_value_that_begins_with_a_quote_leaves_the_quotes_of_json() {
        let redactor = redactor("\"abcd");
        assert_eq!(redactor.json(r#"["abcd", "x"]"#), None);
        assert_eq!(redactor.json(r#"["\"abcd", "x"]"#).as_deref(), Some(r#"["[redacted: KEY]", "x"]"#));
    }

    #[test]
    fn keys_that_were_replaced_stay_apart() {
        let redactor = redactor("hunter2!");
        let json = r#"{"hunter2!": "hunter2!", "a hunter2!": 2, "hunter\u0032!": 3}"#;
        let expected = r#"{"[redacted: KEY]": "[redacted: KEY]", "a [redacted: KEY]": 2, "[redacted: KEY] 2": 3}"#;
        assert_eq!(redactor.json(json).as_deref(), Some(expected));
    }

    #[test]
    fn what_no_reader_takes_is_searched_all_the_same() {
        let redactor = redactor("hunter2!");
        for json in [
            r#"{"s": "\ud800", "leak": "hunter2!"}"#,
            r#"{"n": 1e999, "leak": "hunter2!"}"#,
            r#"{"a": "hunter2!", "a": 1}"#,
            r#"["\ud800 hunter\u0032!"]"#,
            r#"{"leak": "hunter2!""#,
            "{hunter2!",
        ] {
            let found = redactor.json(json).unwrap();
            assert!(found.contains("[redacted: KEY]") && !found.contains("hunter"), "{found}");
        }
    }
}
