//! The history of a tag, for people: a graph of its moves, the newest first, with who made them and why.

mod graph;

use std::fmt::Write as _;

use console::Style;
use milepost_core::time::Timestamp;

use super::{hash, time};
use crate::wire::{Move, MoveKind};
use graph::{History, State};

/// So much of a revision's id is shown.
const ID_CHARS: usize = 13;

/// The graph, a line for each move.
pub(crate) fn shown(tag: &str, moves: &[Move], now: Timestamp, colours: bool) -> String {
    let rows = History::new(moves).rows();
    let width = rows.iter().map(|row| row.graph.chars().count()).max().unwrap_or_default();
    let digits = moves.first().map_or(1, |newest| newest.move_id.to_string().len());
    let whats: Vec<String> = moves.iter().map(what).collect();
    let what_width = whats.iter().map(|what| what.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for row in &rows {
        let graph = format!("{:<width$}", row.graph);
        let Some((number, state)) = row.of else {
            let _ = writeln!(text, "{}", row.graph);
            continue;
        };
        let (one, what) = (&moves[number], &whats[number]);
        let start = format!("{graph} {:>digits$}  {what:<what_width$}", one.move_id);
        let start = style(state).force_styling(colours).apply_to(start);
        let line = format!("{start}  {}  {}{}", hash(&one.to_version_hash), by_whom(one, now), note(state, tag));
        let _ = writeln!(text, "{}", line.trim_end());
        if let Some(message) = &one.message {
            let margin = width + digits + 3;
            let _ = writeln!(text, "{:<margin$}{}", row.below, message.lines().next().unwrap_or_default());
        }
    }
    text
}

/// Where the tag is, and what an undo or a redo would do, for a person who looks at the graph.
pub(crate) fn hint(tag: &str, moves: &[Move]) -> Option<String> {
    let history = History::new(moves);
    let (here, next) = (history.here()?, history.next()?);
    Some(format!("{tag} is at move {here}; `milepost tags redo {tag}` brings move {next} back"))
}

/// One move in words, without its number.
pub(crate) fn what(one: &Move) -> String {
    let which = one.restores_move_id.map(|id| id.to_string()).unwrap_or_else(|| "?".to_owned());
    match one.kind {
        MoveKind::Move => "move".to_owned(),
        MoveKind::Undo => format!("undo, back to {which}"),
        MoveKind::Redo => format!("redo, forward to {which}"),
        MoveKind::Restore => match one.restores_move_id {
            Some(id) => format!("restore of {id}"),
            None => "restore".to_owned(),
        },
        MoveKind::Merge => match &one.merged_revision_id {
            Some(revision) => format!("merge of {}", revision.chars().take(ID_CHARS).collect::<String>()),
            None => "merge".to_owned(),
        },
    }
}

/// `alice, 3 min ago`.
fn by_whom(one: &Move, now: Timestamp) -> String {
    let age = one.moved_at.map(|at| time::age(at, now));
    one.moved_by.clone().into_iter().chain(age).collect::<Vec<_>>().join(", ")
}

fn note(state: State, tag: &str) -> String {
    match state {
        State::Here => format!("  ← {tag}"),
        State::Undone => "  (undone)".to_owned(),
        State::GivenUp => "  (undone and given up)".to_owned(),
        State::Before | State::Passage => String::new(),
    }
}

fn style(state: State) -> Style {
    match state {
        State::Here => Style::new().green().bold(),
        State::Before => Style::new(),
        State::Undone => Style::new().yellow(),
        State::GivenUp => Style::new().dim(),
        State::Passage => Style::new().cyan(),
    }
}

#[cfg(test)]
mod tests;
