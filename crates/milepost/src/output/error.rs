//! What went wrong and what to do about it, on standard error.

use std::borrow::Cow;
use std::fmt::Write as _;

use milepost_engine::EngineError;
use milepost_store::StoreError;
use serde_json::{Value, json};

use super::plain;
use super::problems::BadDocument;
use crate::context::Format;

/// The exit status of what was refused, or could not be done.
pub(crate) const WRONG_USE: u8 = 2;
/// The exit status where a server was to be asked and none answered.
pub(crate) const NO_SERVER: u8 = 3;

/// Something that will not be done, by the command itself or by a server. Its message says what is wrong, then, after a
/// semicolon, what to do.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Refusal {
    code: Cow<'static, str>,
    message: String,
    /// What a server found wrong with a document or a payload, one by one.
    problems: Vec<Value>,
    /// What a merge could not decide, one by one.
    conflicts: Vec<Value>,
    exit_status: u8,
}

impl Refusal {
    pub(crate) fn new(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Refusal {
        Refusal {
            code: code.into(),
            message: message.into(),
            problems: Vec::new(),
            conflicts: Vec::new(),
            exit_status: WRONG_USE,
        }
    }

    /// Nobody is there to do it.
    pub(crate) fn no_server(message: impl Into<String>) -> Refusal {
        Refusal { exit_status: NO_SERVER, ..Refusal::new("no_server", message) }
    }

    pub(crate) fn with_problems(self, problems: Vec<Value>) -> Refusal {
        Refusal { problems, ..self }
    }

    pub(crate) fn with_conflicts(self, conflicts: Vec<Value>) -> Refusal {
        Refusal { conflicts, ..self }
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn conflicts(&self) -> &[Value] {
        &self.conflicts
    }
}

/// The exit status of a command that ended with this error.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    error.downcast_ref::<Refusal>().map_or(WRONG_USE, |refusal| refusal.exit_status)
}

pub(crate) fn report(error: &anyhow::Error, format: Format) {
    match (format, error.downcast_ref::<BadDocument>()) {
        (Format::Text, Some(bad)) => crate::say(bad.shown_on_stderr().trim_end()),
        (Format::Text, None) => {
            problems(error).iter().for_each(|problem| crate::say(&one_line(problem)));
            crate::say(in_words(&format!("{error:#}")).trim_end());
        }
        (Format::Json, bad) => {
            let mut value = json!({ "code": code(error), "message": format!("{error:#}") });
            match bad {
                Some(bad) => value["problems"] = serde_json::to_value(bad.problems()).unwrap_or(Value::Null),
                None if !problems(error).is_empty() => value["problems"] = problems(error).into(),
                None => {}
            }
            if let Some(refusal) = error.downcast_ref::<Refusal>().filter(|refusal| !refusal.conflicts.is_empty()) {
                value["conflicts"] = refusal.conflicts.clone().into();
            }
            crate::say(&plain::escaped(&value.to_string()));
        }
    }
}

fn problems(error: &anyhow::Error) -> &[Value] {
    error.downcast_ref::<Refusal>().map_or(&[], |refusal| &refusal.problems)
}

/// A problem that a server told, as `validate` prints one.
fn one_line(problem: &Value) -> String {
    let text = |key: &str| problem[key].as_str().unwrap_or_default();
    let path = Some(text("path")).filter(|path| !path.is_empty()).map(|path| format!(" [{path}]")).unwrap_or_default();
    let suggestion = problem["suggestion"].as_str().map(|suggestion| format!(" ({suggestion})")).unwrap_or_default();
    format!("{}: {}{path}{suggestion}", text("code"), text("message"))
}

/// A stable word for programs.
pub(crate) fn code(error: &anyhow::Error) -> &str {
    if error.downcast_ref::<BadDocument>().is_some() {
        return "invalid_document";
    }
    if let Some(refusal) = error.downcast_ref::<Refusal>() {
        return refusal.code();
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

/// An error with what to do, for a verb that tells the rest itself.
pub(crate) fn say(message: &str) {
    crate::say(in_words(message).trim_end());
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
