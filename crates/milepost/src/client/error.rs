//! What it means when a server says no, says nothing, or is none.

use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::output::error::Refusal;
use crate::target::{Server, Source};

/// Problem details, RFC 9457.
#[derive(Deserialize)]
struct Problem {
    #[serde(default)]
    title: String,
    #[serde(default)]
    detail: String,
    code: String,
    #[serde(default)]
    problems: Vec<Value>,
}

/// The server answered, and will not do it.
pub(super) fn refused(server: &Server, status: StatusCode, body: &[u8]) -> anyhow::Error {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else { return stranger(server, status) };
    let message = if problem.detail.is_empty() { problem.title } else { problem.detail };
    let help = match status {
        StatusCode::UNAUTHORIZED if server.token.is_none() && !message.contains("; ") => {
            "; name yourself with --token or MILEPOST_TOKEN"
        }
        _ => "",
    };
    Refusal::new(problem.code, format!("{message}{help}")).with_problems(problem.problems).into()
}

/// Somebody answered who does not speak as a server of ours does.
fn stranger(server: &Server, status: StatusCode) -> anyhow::Error {
    let url = &server.url;
    Refusal::no_server(format!(
        "what answers at {url} is no Milepost server (it says {status}); check the address, and what stands before the server"
    ))
    .into()
}

/// An answer of the right kind that makes no sense.
pub(super) fn unreadable(server: &Server, error: &serde_json::Error) -> anyhow::Error {
    let url = &server.url;
    Refusal::new(
        "unreadable_answer",
        format!("the answer of {url} cannot be read: {error}; check that both sides have the same version of milepost"),
    )
    .into()
}

/// Nobody answered.
pub(super) fn unreachable(server: &Server, error: &reqwest::Error) -> anyhow::Error {
    let (url, why) = (&server.url, cause(error));
    Refusal::no_server(match server.source {
        Source::Default => format!(
            "there is no database here, and no server at {url} ({why}); start one with `milepost dev`, or name one with --server or --db"
        ),
        Source::Named | Source::Found => format!(
            "the server at {url} does not answer: {why}; check the address, or start a server with `milepost dev`"
        ),
    })
    .into()
}

/// The innermost reason, which is the one that says something.
pub(super) fn cause(error: &reqwest::Error) -> String {
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
    use crate::output::error::{NO_SERVER, WRONG_USE, exit_status};

    fn server(source: Source) -> Server {
        Server { url: "http://a:7400".to_owned(), token: None, source }
    }

    #[test]
    fn what_a_server_says_is_passed_on_with_its_code() {
        let body = br#"{"type": "about:blank", "title": "Conflict", "status": 409, "detail": "only a running run can be paused; resume it", "code": "signal_rejected"}"#;
        let error = refused(&server(Source::Named), StatusCode::CONFLICT, body);
        assert_eq!(error.to_string(), "only a running run can be paused; resume it");
        assert_eq!(error.downcast_ref::<Refusal>().map(Refusal::code), Some("signal_rejected"));
        assert_eq!(exit_status(&error), WRONG_USE);
    }

    #[test]
    fn who_is_not_known_is_told_how_to_say_who_it_is() {
        let body = br#"{"title": "Unauthorized", "code": "unauthorized"}"#;
        let error = refused(&server(Source::Named), StatusCode::UNAUTHORIZED, body).to_string();
        assert_eq!(error, "Unauthorized; name yourself with --token or MILEPOST_TOKEN");
    }

    #[test]
    fn something_else_at_the_address_is_no_server() {
        let error = refused(&server(Source::Named), StatusCode::BAD_GATEWAY, b"<html>");
        assert!(error.to_string().contains("is no Milepost server (it says 502 Bad Gateway); "), "{error}");
        assert_eq!(exit_status(&error), NO_SERVER);
    }

    #[tokio::test]
    async fn where_nobody_listens_it_says_how_to_start_one() {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = reqwest::Client::new().get(format!("http://{free}")).send().await.unwrap_err();
        for (source, says) in
            [(Source::Default, "no database here"), (Source::Named, "does not answer: Connection refused")]
        {
            let error = unreachable(&server(source), &error);
            assert!(error.to_string().contains(says) && error.to_string().contains("`milepost dev`"), "{error}");
            assert_eq!(exit_status(&error), NO_SERVER);
        }
    }
}
