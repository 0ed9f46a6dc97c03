//! What is wrong with a document: where it is, what it is, and what was probably meant.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::near::near_name;
use super::node::Position;
use crate::canonical::pointer_segment;
use crate::text;

/// Beyond this many, further problems are not told: they have one cause.
const MAX_PROBLEMS: usize = 1000;
/// Bytes of a path or a message; the rest is cut.
const MAX_TEXT: usize = 1024;
/// Bytes of one name in a path.
const MAX_SEGMENT: usize = 256;
/// Bytes of all problems together. Names that are quoted stand in a document once, and here as often as they are wrong.
const MAX_BYTES: usize = 256 * 1024;
/// Suggestions look at every known name, so only the first problems get one.
const MAX_SUGGESTIONS: usize = 50;

/// One thing that is wrong with a document or a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Stable; programs may match on it.
    pub code: &'static str,
    pub message: String,
    /// A JSON pointer with steps by their id: `/steps/bgm/input/mood`.
    pub path: String,
    /// 1-based.
    pub line: Option<u32>,
    /// 1-based, in characters.
    pub column: Option<u32>,
    pub suggestion: Option<String>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(line), Some(column)) = (self.line, self.column) {
            write!(f, "{line}:{column} ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " ({suggestion})"),
            None => Ok(()),
        }
    }
}

/// The way from the document's root to one of its values; costs nothing until it is shown.
#[derive(Clone, Copy, Debug)]
pub(super) enum Trail<'a> {
    Root,
    Key(&'a Trail<'a>, &'a str),
    Index(&'a Trail<'a>, usize),
}

impl<'a> Trail<'a> {
    pub(super) fn key(&'a self, key: &'a str) -> Trail<'a> {
        Trail::Key(self, key)
    }

    pub(super) fn index(&'a self, index: usize) -> Trail<'a> {
        Trail::Index(self, index)
    }
}

impl fmt::Display for Trail<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trail::Root => Ok(()),
            Trail::Key(parent, key) => write!(f, "{parent}{}", segment(key)),
            Trail::Index(parent, index) => write!(f, "{parent}/{index}"),
        }
    }
}

/// A name as paths show it.
pub(super) fn segment(name: &str) -> String {
    pointer_segment(&text::shortened(name, MAX_SEGMENT))
}

/// A path, a message or a suggestion as it is told.
pub(super) fn told(text: String) -> String {
    match text::shortened(&text, MAX_TEXT) {
        Cow::Borrowed(_) => text,
        Cow::Owned(short) => short,
    }
}

/// Collects the problems of one document.
#[derive(Debug, Default)]
pub(super) struct Problems {
    all: Vec<Problem>,
    /// Bytes of all of them.
    bytes: usize,
    suggestions: usize,
    /// The circles among the steps, each as the way around: messages may cut them short.
    circles: Vec<Vec<Arc<str>>>,
}

impl Problems {
    pub(super) fn add(&mut self, code: &'static str, at: Position, path: &impl ToString, message: impl Into<String>) {
        self.add_with(code, at, path, message, None);
    }

    pub(super) fn add_with(
        &mut self,
        code: &'static str,
        at: Position,
        path: &impl ToString,
        message: impl Into<String>,
        suggestion: Option<String>,
    ) {
        if self.are_enough() {
            return;
        }
        let (line, column) = at.shown();
        let (message, path, suggestion) = (told(message.into()), told(path.to_string()), suggestion.map(told));
        self.bytes += message.len() + path.len() + suggestion.as_ref().map_or(0, String::len);
        self.all.push(Problem { code, message, path, line, column, suggestion });
    }

    /// Whether no more of them are told.
    pub(super) fn are_enough(&self) -> bool {
        self.all.len() >= MAX_PROBLEMS || self.bytes >= MAX_BYTES
    }

    /// What was probably meant by an unknown name.
    pub(super) fn suggest<'a>(&mut self, wanted: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
        self.suggestions += 1;
        if self.suggestions > MAX_SUGGESTIONS {
            return None;
        }
        near_name(wanted, known).map(|name| format!("did you mean `{name}`?"))
    }

    pub(super) fn add_circle(&mut self, way: Vec<Arc<str>>) {
        self.circles.push(way);
    }

    pub(super) fn take_circles(&mut self) -> Vec<Vec<Arc<str>>> {
        std::mem::take(&mut self.circles)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// In the order of the text.
    pub(super) fn into_sorted(mut self) -> Vec<Problem> {
        self.all.sort_by_key(|problem| (problem.line, problem.column));
        self.all
    }
}
