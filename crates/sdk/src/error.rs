//! What it means when a server says no, says nothing, or is none.

use std::time::Duration;

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

/// Why something was not done, cut by what the caller does next. Messages say what is wrong and, after a semicolon, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server answered, and will not do it.
    #[error("{}", .0.message)]
    Refused(Box<Problem>),
    /// Nobody answered.
    #[error("the server at {url} does not answer: {why}; check the address, or start a server with `milepost dev`")]
    Unreachable { url: String, why: String },
    /// Somebody answered who does not speak as a server of ours does.
    #[error(
        "what answers at {url} is no Milepost server (it says {status}); check the address, and what stands before the server"
    )]
    Stranger { url: String, status: StatusCode },
    /// An answer of the right kind that makes no sense.
    #[error("the answer of {url} cannot be read: {why}; check that both sides have the same version of milepost")]
    Unreadable { url: String, why: String },
    #[error("`{0}` is no address of a server; write it as in http://127.0.0.1:7400")]
    BadAddress(String),
    /// The system does not give what is needed.
    #[error("this cannot be set up here: {0}; see what the system allows")]
    Setup(String),
    /// A value that was to be sent is none that JSON has.
    #[error("this cannot be written as JSON: {0}; maps need text as keys")]
    NotJson(#[from] serde_json::Error),
    /// A file of this machine.
    #[error("the file {path} cannot be read or written: {why}; check its path, and the room on its disk")]
    File { path: String, why: String },
    /// What was downloaded is not what was asked for.
    #[error("what came has the hash {found}, not {expected}; nothing was kept, try again")]
    Damaged { expected: String, found: String },
    #[error("this worker has no skills; add one with `skill`")]
    NoSkills,
}

/// What a server says when it refuses: problem details, RFC 9457.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    pub status: u16,
    /// A stable word for programs.
    pub code: String,
    pub message: String,
    /// What is wrong with a document or a payload, one by one.
    pub problems: Vec<Value>,
    /// What a merge could not decide, one by one.
    pub conflicts: Vec<Value>,
    /// When to come back.
    pub retry_after: Option<Duration>,
}

#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    code: String,
    #[serde(default)]
    problems: Vec<Value>,
    #[serde(default)]
    conflicts: Vec<Value>,
}

impl Error {
    /// The server's own word, where it refused.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Error::Refused(problem) => Some(&problem.code),
            _ => None,
        }
    }

    /// Whether the same request may go through later: the server is away, overloaded, starting or stopping.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Error::Unreachable { .. } => true,
            Error::Refused(problem) => passes(problem.status),
            Error::Stranger { status, .. } => passes(status.as_u16()),
            _ => false,
        }
    }

    pub(crate) fn refused(url: &str, status: StatusCode, retry_after: Option<Duration>, body: &[u8]) -> Error {
        let Ok(body) = serde_json::from_slice::<Body>(body) else {
            return Error::Stranger { url: url.to_owned(), status };
        };
        let Body { title, detail, code, problems, conflicts } = body;
        let message = if detail.is_empty() { title } else { detail };
        Error::Refused(Box::new(Problem { status: status.as_u16(), code, message, problems, conflicts, retry_after }))
    }

    pub(crate) fn unreachable(url: &str, error: &reqwest::Error) -> Error {
        Error::Unreachable { url: url.to_owned(), why: cause(error) }
    }

    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Error {
        Error::File { path: path.display().to_string(), why: error.to_string() }
    }

    pub(crate) fn unreadable(url: &str, error: &serde_json::Error) -> Error {
        Error::Unreadable { url: url.to_owned(), why: error.to_string() }
    }
}

fn passes(status: u16) -> bool {
    status >= 500 || matches!(status, 408 | 429)
}

/// The innermost reason, which is the one that says something.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "it took too long".to_owned();
    }
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_passed_on_with_its_code() {
        let body = br#"{"type": "about:blank", "title": "Conflict", "status": 409, "detail": "only a running run can be paused; resume it", "code": "signal_rejected"}"#;
        let error = Error::refused("http://a:7400", StatusCode::CONFLICT, None, body);
        assert_eq!(error.to_string(), "only a running run can be paused; resume it");
        assert_eq!((error.code(), error.may_pass()), (Some("signal_rejected"), false));
    }

    #[test]
    fn what_clashes_is_passed_on() {
        let body = br#"{"code": "merge_conflict", "detail": "1 conflict", "conflicts": [{"path": "/on_failure"}]}"#;
        let Error::Refused(problem) = Error::refused("http://a:7400", StatusCode::CONFLICT, None, body) else {
            panic!("a refusal")
        };
        assert_eq!(problem.conflicts[0]["path"], "/on_failure");
    }

    #[test]
    fn something_else_at_the_address_is_no_server() {
        let error = Error::refused("http://a:7400", StatusCode::BAD_GATEWAY, None, b"<html>");
        assert!(error.to_string().contains("is no Milepost server (it says 502 Bad Gateway); "), "{error}");
        assert!(error.may_pass(), "what stands before the server may find it later");
    }

    #[tokio::test]
    async fn where_nobody_listens_it_says_why() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = reqwest::Client::new().get(format!("http://{free}")).send().await.unwrap_err();
        let error = Error::unreachable("http://a:7400", &error);
        assert!(error.to_string().contains("does not answer: Connection refused"), "{error}");
        assert!(error.may_pass());
    }
}
