//! JSON to trees with positions. The text was found to be well-formed before, so this only splits it.

use super::builder::{Builder, TooMuch};
use super::node::{Data, Node, Position};
use super::problem::Problems;
use crate::limits::Limits;

/// Whether a source is JSON rather than YAML that happens to start with a brace.
pub(super) fn is_json(source: &str) -> bool {
    source.trim_start().starts_with('{') && serde_json::from_str::<serde::de::IgnoredAny>(source).is_ok()
}

pub(super) fn read(source: &str, limits: &Limits, problems: &mut Problems) -> Option<Node> {
    let mut scanner = Scanner { source, at: 0, line: 1, column: 1, counted: 0 };
    let mut builder = Builder::new(limits, problems);
    while let Some((at, token)) = scanner.next() {
        if take(&mut builder, at, token).is_err() {
            return None;
        }
    }
    builder.take_root()
}

fn take(builder: &mut Builder<'_>, at: Position, token: &str) -> Result<(), TooMuch> {
    if !builder.wants_key() && !matches!(token.as_bytes()[0], b'}' | b']') {
        builder.count(at)?;
    }
    match token.as_bytes()[0] {
        b'{' => return builder.open_map(at),
        b'[' => return builder.open_list(at),
        b'}' | b']' => {
            builder.close();
        }
        b'"' if builder.wants_key() => {
            let key = text(builder, at, token);
            builder.key(key, at);
        }
        b'"' => {
            let text = text(builder, at, token);
            push(builder, at, Data::Text(text));
        }
        b't' => push(builder, at, Data::Bool(true)),
        b'f' => push(builder, at, Data::Bool(false)),
        b'n' => push(builder, at, Data::Null),
        _ => {
            let number = builder.number(token, at);
            push(builder, at, number);
        }
    }
    Ok(())
}

fn push(builder: &mut Builder<'_>, at: Position, data: Data) {
    builder.push(Node { at, data });
}

/// Whoever found the text to be well-formed did not look at what its escapes mean.
fn text(builder: &mut Builder<'_>, at: Position, token: &str) -> String {
    serde_json::from_str(token).unwrap_or_else(|_| {
        let path = builder.path();
        builder.problems.add(
            "bad_value",
            at,
            &path,
            "a text has half of a surrogate pair (`\\ud800`); send the whole character",
        );
        String::new()
    })
}

struct Scanner<'a> {
    source: &'a str,
    at: usize,
    line: u32,
    /// The column of `counted`; counted on as tokens are found, so a source on one line is read in linear time.
    column: u32,
    counted: usize,
}

impl<'a> Scanner<'a> {
    fn next(&mut self) -> Option<(Position, &'a str)> {
        self.skip_between();
        let rest = &self.source.as_bytes()[self.at..];
        let length = match rest.first()? {
            b'{' | b'}' | b'[' | b']' => 1,
            b'"' => text_length(rest),
            _ => rest.iter().take_while(|b| !b" \t\r\n,:]}".contains(b)).count(),
        };
        let passed = self.source[self.counted..self.at].chars().count();
        self.column = self.column.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
        self.counted = self.at;
        let position = Position { line: self.line, column: self.column };
        let token = &self.source[self.at..self.at + length];
        self.at += length;
        Some((position, token))
    }

    fn skip_between(&mut self) {
        let rest = &self.source.as_bytes()[self.at..];
        for byte in rest.iter().take_while(|b| b" \t\r\n,:".contains(b)) {
            self.at += 1;
            if *byte == b'\n' {
                self.line += 1;
                self.column = 1;
                self.counted = self.at;
            }
        }
    }
}

/// Bytes of a text with both its quotes.
fn text_length(bytes: &[u8]) -> usize {
    let mut i = 1;
    while i < bytes.len() && bytes[i] != b'"' {
        i += if bytes[i] == b'\\' { 2 } else { 1 };
    }
    (i + 1).min(bytes.len())
}
