//! The log of one attempt: how much of it is kept, and in which order.
//!
//! **Invariant:** a line is let in at once or left out; whoever says it never waits. What was left out is said where it
//! would have stood.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use milepost_core::id::{OrgId, RunId};
use milepost_core::text::clean;
use milepost_core::time::Timestamp;

use super::LogHandle;
use crate::secrets::Redactor;
use crate::skills::{LogLine, LogStream};

/// Whose lines they are.
#[derive(Clone, Debug)]
pub(crate) struct AttemptKey {
    pub(crate) org: OrgId,
    pub(crate) run: RunId,
    pub(crate) step_id: Arc<str>,
    pub(crate) logical_attempt: u32,
    pub(crate) engine_attempt: u32,
}

/// One line on its way to the store.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) attempt: Arc<Attempt>,
    pub(super) at: Timestamp,
    pub(super) stream: LogStream,
    /// Nothing, where no byte of it is kept.
    pub(super) text: Option<String>,
    /// Lines before this one that were left out.
    pub(super) lost_before: u64,
    /// With this one the attempt has said all that is kept.
    pub(super) last: bool,
}

impl Line {
    /// What it costs to keep it waiting.
    pub(super) fn weight(&self) -> usize {
        self.text.as_ref().map_or(0, String::len) + 128
    }
}

/// What is known of an attempt's log.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) key: AttemptKey,
    /// Bytes that were said so far; each line counts one more than it has.
    said: AtomicUsize,
    /// More was said than is kept.
    over: AtomicBool,
    /// Lines that found no room since the last one that did.
    lost: AtomicU64,
    /// The last line that would have been kept found no room.
    cut: AtomicBool,
    /// The number of the next line. Only the writer counts.
    pub(super) next_line: AtomicU32,
}

/// Where an attempt says its lines. When it is dropped, the attempt has ended.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    attempt: Arc<Attempt>,
    handle: LogHandle,
    /// Knows the secrets that the attempt was given.
    redactor: Option<Arc<Redactor>>,
}

impl AttemptLog {
    pub(crate) fn new(key: AttemptKey, handle: LogHandle) -> AttemptLog {
        AttemptLog::from_line(key, handle, 0)
    }

    /// Goes on where another node left off.
    pub(crate) fn from_line(key: AttemptKey, handle: LogHandle, next_line: u32) -> AttemptLog {
        let attempt = Attempt {
            key,
            said: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            lost: AtomicU64::new(0),
            cut: AtomicBool::new(false),
            next_line: AtomicU32::new(next_line),
        };
        AttemptLog { attempt: Arc::new(attempt), handle, redactor: None }
    }

    /// Takes out the secrets that the attempt was given.
    pub(crate) fn redacting(mut self, redactor: Option<Arc<Redactor>>) -> AttemptLog {
        self.redactor = redactor;
        self
    }

    pub(crate) fn say(&self, stream: LogStream, text: String) {
        self.say_at(None, stream, text);
    }

    /// The beginning of a line that was too long to be read. A secret that was cut in two would not be found in it, so of a step
    /// with secrets nothing is kept of such a line.
    pub(crate) fn say_cut(&self, stream: LogStream, beginning: String) {
        let kept = if self.redactor.is_some() { String::new() } else { beginning };
        self.say(stream, format!("{kept}… (a line that was too long; the rest is left out)"));
    }

    /// The longest line of which all can be kept.
    pub(crate) fn longest_line(&self) -> usize {
        self.handle.max_bytes()
    }

    /// At a moment of the speaker's own clock, if it says which.
    pub(crate) fn say_at(&self, at: Option<Timestamp>, stream: LogStream, text: String) {
        let at = at.unwrap_or_else(|| self.handle.now());
        // Before anything is cut or told: a piece of a secret would not be found.
        let text = match &self.redactor {
            Some(redactor) => redactor.text(text),
            None => text,
        };
        let text = clean(text, usize::MAX);
        self.keep(at, stream, &text);
        let AttemptKey { run, logical_attempt, engine_attempt, .. } = self.attempt.key;
        let step_id = self.attempt.key.step_id.clone();
        self.handle.tell(|| LogLine { run, step_id, logical_attempt, engine_attempt, at, stream, text });
    }

    fn keep(&self, at: Timestamp, stream: LogStream, text: &str) {
        let cap = self.handle.max_bytes();
        let before = self.attempt.said.fetch_add(text.len() + 1, Ordering::Relaxed);
        let room = cap.saturating_sub(before);
        let whole = before <= cap && text.len() <= room;
        if !whole && self.attempt.over.swap(true, Ordering::Relaxed) {
            return;
        }
        let kept = if whole { text } else { &text[..text.floor_char_boundary(room)] };
        let text = (whole || !kept.is_empty()).then(|| kept.to_owned());
        let lost_before = self.attempt.lost.swap(0, Ordering::Relaxed);
        let line = Line { attempt: self.attempt.clone(), at, stream, text, lost_before, last: !whole };
        if !self.handle.offer(line) {
            self.attempt.lost.fetch_add(lost_before + 1, Ordering::Relaxed);
            self.attempt.cut.fetch_or(!whole, Ordering::Relaxed);
        }
    }
}

impl Drop for AttemptLog {
    fn drop(&mut self) {
        let (lost, cut) = (self.attempt.lost.swap(0, Ordering::Relaxed), self.attempt.cut.load(Ordering::Relaxed));
        if lost > 0 || cut {
            self.handle.leave(Left { attempt: self.attempt.clone(), lost, cut });
        }
    }
}

/// What has to be said of an attempt that has ended.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) attempt: Arc<Attempt>,
    pub(super) lost: u64,
    pub(super) cut: bool,
}
