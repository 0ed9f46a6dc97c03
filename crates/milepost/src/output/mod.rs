//! How results look: tables and texts for people, JSON for programs.

pub(crate) mod conflicts;
pub(crate) mod diff;
pub(crate) mod error;
pub(crate) mod explanation;
pub(crate) mod moves;
pub(crate) mod plain;
pub(crate) mod plan;
pub(crate) mod problems;
pub(crate) mod run;
pub(crate) mod step;
pub(crate) mod table;
pub(crate) mod tag;
pub(crate) mod time;

use std::io::IsTerminal as _;

use serde::Serialize;

/// So much of a hash is shown to people.
const HASH_CHARS: usize = "sha256:".len() + 12;

/// Enough of a hash to know it again.
pub(crate) fn hash(hash: &str) -> String {
    hash.chars().take(HASH_CHARS).collect()
}

/// Prints a value as JSON: on one line for programs, spread out for a person who looks.
pub(crate) fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    let text = match std::io::stdout().is_terminal() {
        // Through a value, because raw JSON inside is not spread out.
        true => serde_json::to_string_pretty(&serde_json::to_value(value)?)?,
        false => one_line(value)?,
    };
    crate::print_json(&text);
    Ok(())
}

/// JSON on one line. What callers sent is kept as they wrote it, line breaks and all; inside texts those are escaped, so
/// these are only white space.
pub(crate) fn one_line(value: &impl Serialize) -> anyhow::Result<String> {
    let text = serde_json::to_string(value)?;
    Ok(if text.contains(['\n', '\r']) { text.replace(['\n', '\r'], " ") } else { text })
}
