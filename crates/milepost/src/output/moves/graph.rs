//! The moves of a tag as a graph: what came after what, what was undone, and where the tag is.
//!
//! ```text
//!   ↶ 6  undo, back to 2        the tag is at 2 again
//! ○   5  move                   undone; a redo brings it back
//! │ ↶ 4  undo, back to 2
//! │ × 3  move                   undone, and given up when 5 was made
//! ├─╯
//! @   2  move                   where the tag is
//! ●   1  move
//! ```
//!
//! Undos and redos are on no line themselves: they only say where the tag went. Every other move comes after the one whose
//! result the tag pointed at when it was made.

use std::collections::{HashMap, HashSet};

use crate::wire::{Move, MoveKind};

/// What a move is to the tag now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The tag is here.
    Here,
    /// On the way to where it is.
    Before,
    /// A redo leads there.
    Undone,
    /// No redo leads there any more.
    GivenUp,
    /// An undo or a redo.
    Passage,
}

/// One line: a move, or what connects those above with those below.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) graph: String,
    /// What goes on below it, where a line comes in between.
    pub(super) below: String,
    /// The number of the move in the list, and what it is.
    pub(super) of: Option<(usize, State)>,
}

/// What is known of a tag from its moves.
pub(super) struct History<'a> {
    moves: &'a [Move],
    by_id: HashMap<u64, &'a Move>,
    /// Moves up to the newest that is no undo and no redo.
    line: HashSet<u64>,
}

impl<'a> History<'a> {
    /// Of moves without gaps, the newest first.
    pub(super) fn new(moves: &'a [Move]) -> History<'a> {
        let by_id = moves.iter().map(|one| (one.move_id, one)).collect();
        let mut history = History { moves, by_id, line: HashSet::new() };
        let newest = moves.iter().find(|one| !is_passage(one)).map(|one| one.move_id);
        let line = std::iter::successors(newest, |id| history.parent(*id)).collect();
        history.line = line;
        history
    }

    /// The move whose result the tag points at.
    pub(super) fn here(&self) -> Option<u64> {
        self.moves.first().and_then(result)
    }

    /// What a redo would bring back.
    pub(super) fn next(&self) -> Option<u64> {
        let here = self.here()?;
        self.line.iter().copied().filter(|id| *id > here).min()
    }

    /// The move whose result the tag pointed at when this one was made.
    fn parent(&self, id: u64) -> Option<u64> {
        self.by_id.get(&id.checked_sub(1)?).copied().and_then(result)
    }

    fn state(&self, one: &Move) -> State {
        let id = one.move_id;
        match self.here() {
            _ if is_passage(one) => State::Passage,
            _ if !self.line.contains(&id) => State::GivenUp,
            Some(here) if id == here => State::Here,
            Some(here) if id > here => State::Undone,
            _ => State::Before,
        }
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        // What each column goes down to.
        let mut columns: Vec<Option<u64>> = Vec::new();
        let mut rows = Vec::new();
        for (number, one) in self.moves.iter().enumerate() {
            let state = self.state(one);
            if state == State::Passage {
                let at = columns.len().max(1);
                let glyph = if one.kind == MoveKind::Undo { '↶' } else { '↷' };
                let (graph, below) = (drawn(&columns, Some((at, glyph))), drawn(&columns, None));
                rows.push(Row { graph, below, of: Some((number, state)) });
                continue;
            }
            let waiting: Vec<usize> = (0..columns.len()).filter(|at| columns[*at] == Some(one.move_id)).collect();
            let at = match waiting.first() {
                Some(at) => *at,
                None => free(&mut columns),
            };
            if waiting.len() > 1 {
                rows.push(Row { graph: joined(&columns, &waiting), below: String::new(), of: None });
                waiting[1..].iter().for_each(|other| columns[*other] = None);
            }
            while columns.len() > at + 1 && columns.last() == Some(&None) {
                columns.pop();
            }
            let graph = drawn(&columns, Some((at, glyph(state))));
            columns[at] = self.parent(one.move_id);
            rows.push(Row { graph, below: drawn(&columns, None), of: Some((number, state)) });
        }
        rows
    }
}

fn is_passage(one: &Move) -> bool {
    matches!(one.kind, MoveKind::Undo | MoveKind::Redo)
}

/// The move whose result the tag pointed at after this one.
fn result(one: &Move) -> Option<u64> {
    if is_passage(one) { one.restores_move_id } else { Some(one.move_id) }
}

fn glyph(state: State) -> char {
    match state {
        State::Here => '@',
        State::Undone => '○',
        State::GivenUp => '×',
        State::Before | State::Passage => '●',
    }
}

fn free(columns: &mut Vec<Option<u64>>) -> usize {
    columns.iter().position(Option::is_none).unwrap_or_else(|| {
        columns.push(None);
        columns.len() - 1
    })
}

/// The columns that go on, and a glyph in one of them.
fn drawn(columns: &[Option<u64>], glyph: Option<(usize, char)>) -> String {
    let cell = |column: usize| match (glyph, columns.get(column)) {
        (Some((at, glyph)), _) if column == at => glyph,
        (_, Some(Some(_))) => '│',
        _ => ' ',
    };
    let width = glyph.map_or(0, |(at, _)| at + 1).max(columns.len());
    spaced((0..width).map(|column| (cell(column), ' ')))
}

/// Columns that meet in the first of them.
fn joined(columns: &[Option<u64>], meeting: &[usize]) -> String {
    let (first, last) = (meeting[0], meeting[meeting.len() - 1]);
    let cell = |column: usize| {
        let inside = (first..last).contains(&column);
        let glyph = match columns[column] {
            _ if column == first => '├',
            _ if column == last => '╯',
            _ if meeting.contains(&column) => '┴',
            Some(_) if inside => '┼',
            Some(_) => '│',
            None if inside => '─',
            None => ' ',
        };
        (glyph, if inside { '─' } else { ' ' })
    };
    spaced((0..columns.len()).map(cell))
}

fn spaced(cells: impl Iterator<Item = (char, char)>) -> String {
    let text: String = cells.flat_map(|(cell, gap)| [cell, gap]).collect();
    text.trim_end().to_owned()
}
