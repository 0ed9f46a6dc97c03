//! The text as the scanner reads it. What stands in brackets may turn out to be a key, so the scanner keeps all of it before it
//! tells any: here it finds the end of the text when that becomes too much.

use std::cell::Cell;

use saphyr_parser::{Input, StrInput};

/// Pieces (brackets, commas, colons, scalars) that may be read for one event. Each takes some hundred bytes until it is told.
pub(super) const MOST_AHEAD: usize = 250_000;
/// Characters that the scanner asks to see before a piece, and within scalars before each of their words.
const BEFORE_PIECES: usize = 4;
/// Room that it makes for each scalar.
const ROOM: usize = 16;

/// How far the scanner is ahead of the events.
#[derive(Debug, Default)]
pub(super) struct Pace {
    ahead: Cell<usize>,
}

impl Pace {
    /// An event was told.
    pub(super) fn begin(&self) {
        self.ahead.set(0);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.ahead.get() > MOST_AHEAD
    }
}

pub(super) struct Paced<'a> {
    text: StrInput<'a>,
    pace: &'a Pace,
    /// It asked for one character, and took none since.
    asked_once: bool,
    /// It asked for one character twice, as it does between pieces and not within them.
    is_between: bool,
}

impl<'a> Paced<'a> {
    pub(super) fn new(text: &'a str, pace: &'a Pace) -> Paced<'a> {
        Paced { text: StrInput::new(text), pace, asked_once: false, is_between: false }
    }
}

impl Input for Paced<'_> {
    fn lookahead(&mut self, count: usize) {
        self.is_between |= count == 1 && self.asked_once;
        self.asked_once = count == 1;
        if count == BEFORE_PIECES && std::mem::take(&mut self.is_between) {
            self.pace.ahead.set(self.pace.ahead.get() + 1);
        }
        if self.pace.is_lost() {
            self.text = StrInput::new("");
        }
        self.text.lookahead(count);
    }

    fn buflen(&self) -> usize {
        self.text.buflen()
    }

    fn bufmaxlen(&self) -> usize {
        ROOM
    }

    fn raw_read_ch(&mut self) -> char {
        self.text.raw_read_ch()
    }

    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        self.text.raw_read_non_breakz_ch()
    }

    fn skip(&mut self) {
        self.asked_once = false;
        self.text.skip();
    }

    fn skip_n(&mut self, count: usize) {
        self.asked_once = false;
        self.text.skip_n(count);
    }

    fn peek(&self) -> char {
        self.text.peek()
    }

    fn peek_nth(&self, n: usize) -> char {
        self.text.peek_nth(n)
    }

    fn peek_opt(&self) -> Option<char> {
        self.text.peek_opt()
    }
}
