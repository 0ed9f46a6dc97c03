//! What went wrong and what to do about it, on standard error.

use std::fmt::Write as _;

use milepost_engine::EngineError;
use milepost_store::StoreError;
use serde_json::{Value, json};

use super::problems::BadDocument;
use crate::context::Format;

/// The exit status of everything that is reported here.
pub(crate) const WRONG_USE: u8 = 2;

/// Something the command itself will not do. Its message says what is wrong, then, after a semicolon, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }
}

pub(crate) fn report(error: &anyhow::Error, format: Format) {
    match (format, error.downcast_ref::<BadDocument>()) {
        (Format::Text, Some(bad)) => eprint!("{}", bad.shown_on_stderr()),
        (Format::Text, None) => eprint!("{}", in_words(&format!("{error:#}"))),
        (Format::Json, bad) => {
            let mut value = json!({ "code": code(error), "message": format!("{error:#}") });
            if let Some(bad) = bad {
                value["problems"] = serde_json::to_value(bad.problems()).unwrap_or(Value::Null);
            }
            eprintln!("{value}");
        }
    }
}

/// A stable word for programs.
fn code(error: &anyhow::Error) -> &'static str {
    if error.downcast_ref::<BadDocument>().is_some() {
        return "invalid_document";
    }
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refusal.code;
    }
    match error.downcast_ref::<EngineError>() {
        Some(engine) => engine.code(),
        None => match error.downcast_ref::<StoreError>() {
            Some(StoreError::Unavailable(_)) => "store_unavailable",
            Some(StoreError::Refused(_)) => "store_refused",
            Some(StoreError::Corrupt(_)) => "corrupt",
            Some(StoreError::DiskFull(_)) => "disk_full",
            Some(StoreError::Unusable(_)) => "store_unusable",
            None => "failed",
        },
    }
}

/// Messages say what is wrong and, after a semicolon, what to do.
fn in_words(message: &str) -> String {
    let (wrong, help) = message.split_once("; ").map_or((message, None), |(wrong, help)| (wrong, Some(help)));
    let mut text = format!("{} {wrong}\n", console::style("error:").red().bold().for_stderr());
    if let Some(help) = help {
        let _ = writeln!(text, "{} {help}", console::style("help:").cyan().bold().for_stderr());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_stands_on_its_own_line() {
        console::set_colors_enabled_stderr(false);
        assert_eq!(
            in_words("it is not ours; choose another path"),
            "error: it is not ours\nhelp: choose another path\n"
        );
        assert_eq!(in_words("it broke"), "error: it broke\n");
    }
}
