//! How results look: tables and texts for people, JSON for programs.

pub(crate) mod error;
pub(crate) mod problems;
pub(crate) mod run;
pub(crate) mod table;
pub(crate) mod time;

use std::io::IsTerminal as _;

use serde::Serialize;

/// One page of a list.
#[derive(Debug, Serialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next_cursor: Option<String>,
}

/// Prints a value as JSON: on one line for programs, spread out for a person who looks.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = match std::io::stdout().is_terminal() {
        // Through a value, because raw JSON inside is not spread out.
        true => serde_json::to_string_pretty(&serde_json::to_value(value)?)?,
        false => serde_json::to_string(value)?,
    };
    crate::print_line(&text);
    Ok(())
}
