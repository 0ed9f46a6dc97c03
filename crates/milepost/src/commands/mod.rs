//! One file per verb.

mod again;
pub(crate) mod cache;
mod change;
pub(crate) mod completion;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod diff;
pub(crate) mod doctor;
mod follow;
pub(crate) mod gc;
pub(crate) mod limits;
pub(crate) mod migrate;
mod mover;
pub(crate) mod outbox;
pub(crate) mod plan;
pub(crate) mod queues;
pub(crate) mod rebuild;
pub(crate) mod recover;
pub(crate) mod run;
pub(crate) mod runs;
pub(crate) mod secrets;
pub(crate) mod serve;
mod source;
mod start;
pub(crate) mod tags;
pub(crate) mod token;
pub(crate) mod validate;
pub(crate) mod worker;
pub(crate) mod workflows;

use std::io::Read as _;

use milepost_core::json::Json;

use crate::output::error::Refusal;

/// The text of a file; `-` is standard input.
fn read_text(path: &str) -> anyhow::Result<String> {
    let bytes = match path {
        "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
        }
        path => std::fs::read(path),
    };
    let bytes = bytes
        .map_err(|error| Refusal::new("unreadable_file", format!("{path} cannot be read: {error}; check its path")))?;
    String::from_utf8(bytes)
        .map_err(|_| Refusal::new("not_utf8", format!("{path} is not UTF-8 text; save it as UTF-8")).into())
}

/// How a file is named to people.
fn shown_name(path: &str) -> &str {
    if path == "-" { "<stdin>" } else { path }
}

/// JSON as it is given on the command line: itself, or `@file`.
fn read_json(what: &str, text: &str) -> anyhow::Result<Json> {
    let read = match text.strip_prefix('@') {
        Some(path) => Some(read_text(path)?),
        None => None,
    };
    Json::parse(read.as_deref().unwrap_or(text)).map_err(|error| {
        Refusal::new(
            "bad_payload",
            format!("{what} is not JSON: {error}; quote it for your shell, or put it into a file and pass @FILE"),
        )
        .into()
    })
}
