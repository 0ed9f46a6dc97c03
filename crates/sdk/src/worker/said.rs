//! What an attempt said and no call has taken along yet.
//!
//! **Invariant:** bounded. What finds no room is left out, and a line says how much that was.

use serde_json::value::RawValue;

use crate::wire::{Line, LogStream, instant_text};

/// So much of one attempt waits at most.
const MOST_BYTES: usize = 256 * 1024;
/// What a line takes beside its text; so there are never more lines than a server takes at once.
const LINE_BYTES: usize = 32;

#[derive(Debug, Default)]
pub(crate) struct Said {
    lines: Vec<Line>,
    bytes: usize,
    /// Lines that found no room.
    left_out: u64,
    progress: Option<Box<RawValue>>,
    /// The worker knows that there is something.
    known: bool,
}

impl Said {
    /// Takes a line in. Answers whether the worker does not know yet that there is something.
    pub(super) fn line(&mut self, stream: LogStream, text: &str) -> bool {
        let line = Line { stream, text: text.to_owned(), at: instant_text() };
        if self.bytes + weight(&line) > MOST_BYTES {
            self.left_out += 1;
        } else {
            self.bytes += weight(&line);
            self.lines.push(line);
        }
        !std::mem::replace(&mut self.known, true)
    }

    pub(super) fn progress(&mut self, progress: Box<RawValue>) -> bool {
        self.progress = Some(progress);
        !std::mem::replace(&mut self.known, true)
    }

    /// Whether there is more than a call took.
    pub(super) fn has_more(&self) -> bool {
        !self.lines.is_empty()
    }

    /// Lines of about so many bytes at most, and the newest progress.
    pub(super) fn take(&mut self, bytes: usize) -> (Option<Box<RawValue>>, Vec<Line>) {
        let mut taken = 0;
        let fit = self.lines.iter().take_while(|line| {
            taken += weight(line);
            taken <= bytes
        });
        let count = fit.count();
        let lines: Vec<Line> = self.lines.drain(..count).collect();
        self.bytes -= lines.iter().map(weight).sum::<usize>();
        self.known = self.has_more();
        if !self.known && self.left_out > 0 {
            return (self.progress.take(), self.with_left_out(lines));
        }
        (self.progress.take(), lines)
    }

    fn with_left_out(&mut self, mut lines: Vec<Line>) -> Vec<Line> {
        let count = std::mem::take(&mut self.left_out);
        let text = format!("lines left out here: {count}; they came faster than they could be sent");
        lines.push(Line { stream: LogStream::Log, text, at: instant_text() });
        lines
    }

    /// A call that took this along was lost.
    pub(super) fn give_back(&mut self, progress: Option<Box<RawValue>>, mut lines: Vec<Line>) {
        self.progress = self.progress.take().or(progress);
        self.bytes += lines.iter().map(weight).sum::<usize>();
        lines.append(&mut self.lines);
        self.lines = lines;
        self.known = true;
    }
}

/// About what a line takes in a call.
pub(super) fn weight(line: &Line) -> usize {
    line.text.len() + LINE_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &[Line]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    #[test]
    fn the_worker_is_woken_once_until_it_takes_what_there_is() {
        let mut said = Said::default();
        assert!(said.line(LogStream::Log, "a"));
        assert!(!said.line(LogStream::Log, "b"));
        assert_eq!(texts(&said.take(1000).1), ["a", "b"]);
        assert!(said.line(LogStream::Log, "c"));
    }

    #[test]
    fn what_finds_no_room_is_left_out_and_that_is_said() {
        let mut said = Said::default();
        for _ in 0..3 {
            said.line(LogStream::Log, &"x".repeat(100 * 1024));
        }
        let (_, lines) = said.take(usize::MAX);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2].text, "lines left out here: 1; they came faster than they could be sent");
    }

    #[test]
    fn what_a_lost_call_took_comes_first_again() {
        let mut said = Said::default();
        let number = |n: u32| serde_json::value::to_raw_value(&n).unwrap();
        said.line(LogStream::Log, "a");
        said.progress(number(1));
        let (progress, lines) = said.take(1000);
        said.line(LogStream::Log, "b");
        said.progress(number(2));
        said.give_back(progress, lines);
        let (progress, lines) = said.take(1000);
        assert_eq!((progress.unwrap().get(), texts(&lines)), ("2", vec!["a", "b"]));
    }

    #[test]
    fn a_call_takes_no_more_than_it_has_room_for() {
        let mut said = Said::default();
        for text in ["one", "two", "three"] {
            said.line(LogStream::Log, text);
        }
        assert_eq!(texts(&said.take(2 * LINE_BYTES + 8).1), ["one", "two"]);
        assert!(said.has_more());
        assert_eq!(texts(&said.take(2 * LINE_BYTES + 8).1), ["three"]);
    }
}
