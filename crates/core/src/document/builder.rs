//! Puts a tree together from the pieces a YAML or JSON reader finds, and checks what holds for both: no repeated keys, no
//! bottomless nesting, no more values than may be, numbers that survive.

use std::collections::HashSet;

use serde_json::Number;

use super::node::{Data, Entry, Node, Position};
use super::problem::{Problems, segment};
use crate::canonical::is_safe;
use crate::limits::Limits;
use crate::patience;

/// Deeper documents are refused whatever the limit says; what is stored must be readable again.
const MAX_DEPTH: usize = 100;

/// The document is nested too deeply, or has too many values, to go on.
#[derive(Debug)]
pub(super) struct TooMuch;

#[derive(Debug)]
enum Frame {
    List { at: Position, items: Vec<Node> },
    Map { at: Position, entries: Vec<Entry>, key: Option<(String, Position)> },
}

#[derive(Debug)]
pub(super) struct Builder<'p> {
    frames: Vec<Frame>,
    root: Option<Node>,
    max_depth: usize,
    max_values: usize,
    max_key: usize,
    values: usize,
    pub(super) problems: &'p mut Problems,
}

impl<'p> Builder<'p> {
    pub(super) fn new(limits: &Limits, problems: &'p mut Problems) -> Builder<'p> {
        let (max_depth, max_values) = (limits.json_depth.min(MAX_DEPTH), limits.document_values);
        Builder {
            frames: Vec::new(),
            root: None,
            max_depth,
            max_values,
            max_key: limits.key_bytes,
            values: 0,
            problems,
        }
    }

    pub(super) fn take_root(&mut self) -> Option<Node> {
        self.root.take()
    }

    /// Makes room for one more value. Of several documents in one source all count together.
    pub(super) fn count(&mut self, at: Position) -> Result<(), TooMuch> {
        patience::look();
        self.values += 1;
        if self.values <= self.max_values {
            return Ok(());
        }
        let (path, message) = (self.path(), too_many_values(self.max_values));
        self.problems.add("too_many_values", at, &path, message);
        Err(TooMuch)
    }

    /// Whether the next piece is a key of a map.
    pub(super) fn wants_key(&self) -> bool {
        matches!(self.frames.last(), Some(Frame::Map { key: None, .. }))
    }

    pub(super) fn key(&mut self, name: String, at: Position) {
        if name.len() > self.max_key {
            let path = self.path() + &segment(&name);
            self.problems.add("key_too_long", at, &path, key_too_long(self.max_key));
        }
        if let Some(Frame::Map { key, .. }) = self.frames.last_mut() {
            *key = Some((name, at));
        }
    }

    pub(super) fn open_list(&mut self, at: Position) -> Result<(), TooMuch> {
        self.check_depth(at, 1)?;
        self.frames.push(Frame::List { at, items: Vec::new() });
        Ok(())
    }

    pub(super) fn open_map(&mut self, at: Position) -> Result<(), TooMuch> {
        self.check_depth(at, 1)?;
        self.frames.push(Frame::Map { at, entries: Vec::new(), key: None });
        Ok(())
    }

    /// Refuses `more` further levels beyond the limit.
    pub(super) fn check_depth(&mut self, at: Position, more: usize) -> Result<(), TooMuch> {
        if self.frames.len() + more <= self.max_depth {
            return Ok(());
        }
        let (path, message) = (self.path(), format!("the document is nested deeper than {} levels", self.max_depth));
        self.problems.add("too_deep", at, &path, message);
        Err(TooMuch)
    }

    /// Ends the innermost list or map and returns where it went for a reader that keeps copies of it.
    pub(super) fn close(&mut self) -> Option<&Node> {
        let node = match self.frames.pop()? {
            Frame::List { at, items } => Node { at, data: Data::List(items) },
            Frame::Map { at, entries, .. } => Node { at, data: Data::Map(self.without_repeats(entries)) },
        };
        self.push(node)
    }

    pub(super) fn push(&mut self, node: Node) -> Option<&Node> {
        match self.frames.last_mut() {
            None => {
                self.root = Some(node);
                self.root.as_ref()
            }
            Some(Frame::List { items, .. }) => {
                items.push(node);
                items.last()
            }
            Some(Frame::Map { entries, key, .. }) => {
                let (key, at) = key.take()?;
                entries.push(Entry { key, at, node });
                entries.last().map(|entry| &entry.node)
            }
        }
    }

    pub(super) fn number(&mut self, text: &str, at: Position) -> Data {
        let whole = !text.bytes().any(|b| b".eE".contains(&b));
        match text.parse::<Number>() {
            Ok(number) if whole && (number.is_f64() && text != "-0" || !is_safe(&number)) => {
                let path = self.path();
                self.problems.add_with(
                    "integer_too_large",
                    at,
                    &path,
                    format!("the integer {text} is beyond ±(2^53 − 1)"),
                    Some("write it in quotes".into()),
                );
                Data::Null
            }
            Ok(number) => Data::Number(number),
            Err(_) => {
                let path = self.path();
                self.problems.add("bad_value", at, &path, format!("the number {text} is out of range"));
                Data::Null
            }
        }
    }

    /// The JSON pointer of the piece that comes next. Nobody asks for it when no problem is told any more.
    pub(super) fn path(&self) -> String {
        if self.problems.are_enough() {
            return String::new();
        }
        let shown = |frame: &Frame| match frame {
            Frame::List { items, .. } => format!("/{}", items.len()),
            Frame::Map { key: Some((key, _)), .. } => segment(key),
            Frame::Map { key: None, .. } => String::new(),
        };
        self.frames.iter().map(shown).collect()
    }

    /// Whether the map that was just closed holds the steps.
    fn in_steps(&self) -> bool {
        matches!(&self.frames[..], [Frame::Map { key: Some((key, _)), .. }] if key == "steps")
    }

    fn without_repeats(&mut self, mut entries: Vec<Entry>) -> Vec<Entry> {
        let mut order: Vec<usize> = (0..entries.len()).collect();
        order.sort_by(|a, b| entries[*a].key.cmp(&entries[*b].key));
        let same = |pair: &&[usize]| entries[pair[0]].key == entries[pair[1]].key;
        let repeats: HashSet<usize> = order.windows(2).filter(same).map(|pair| pair[1]).collect();
        if repeats.is_empty() {
            return entries;
        }
        let (code, what) = if self.in_steps() { ("duplicate_step", "step") } else { ("duplicate_key", "key") };
        let mut i = 0;
        entries.retain(|Entry { key, at, .. }| {
            i += 1;
            let repeated = repeats.contains(&(i - 1));
            if repeated {
                let path = self.path() + &segment(key);
                self.problems.add(code, *at, &path, format!("the {what} `{key}` appears twice"));
            }
            !repeated
        });
        entries
    }
}

/// What is wrong with a key of more bytes than one may have.
pub(super) fn key_too_long(most: usize) -> String {
    format!("a key has more than {most} bytes; keep long texts in values")
}

/// What is wrong with a document of more values than there may be.
pub(super) fn too_many_values(most: usize) -> String {
    format!("the document has more than {most} values; keep large data in files or in payloads, and refer to it")
}
