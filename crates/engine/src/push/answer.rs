//! What a receiver's answer means for the attempt.

use milepost_core::event::ErrorInfo;
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::run::Outcome;
use milepost_core::text::without_controls;
use milepost_core::time::Timestamp;
use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::egress::explain;
use crate::executor::check_output;
use crate::room::{Place, Room};
use crate::secrets::Redactor;
use crate::workers::redacted;

/// What stands around an output.
const ENVELOPE: usize = 64 * 1024;
/// So much of an answer is told in an error.
const QUOTED: usize = 500;

/// What to do with the attempt.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// That is its outcome, with the files that it leaves, as they came.
    Ended(Outcome, Vec<Json>),
    /// The receiver has it, and its outcome comes later.
    Later,
    /// Try again; not before that moment, if the receiver says so.
    Again { error: String, not_before: Option<Timestamp>, host_failed: bool },
}

impl Answer {
    fn failed(code: &str, message: String) -> Answer {
        Answer::Ended(Outcome::Failed(ErrorInfo::fatal(code, message)), Vec::new())
    }

    /// Reads an answer, no more of it than may be kept and there is room for, and keeps nothing that is secret.
    pub(super) async fn read(
        mut response: Response,
        now: Timestamp,
        (limits, most_output): (&Limits, usize),
        redactor: Option<&Redactor>,
        (room, place): (&Room, &mut Place),
    ) -> Answer {
        let (status, headers) = (response.status(), response.headers().clone());
        if status == StatusCode::ACCEPTED {
            return Answer::Later;
        }
        let most = match status.is_success() {
            true => most_output.saturating_add(ENVELOPE),
            // A secret that begins in what is quoted is read to its end, or it would not be known for one.
            false => limits.secret_bytes.saturating_mul(4).saturating_add(4 * QUOTED),
        };
        let mut body = Vec::new();
        loop {
            match response.chunk().await {
                Ok(Some(chunk)) => {
                    if let Err(full) = room.grow(place, body.len() + chunk.len()).await {
                        return Answer::Again { error: full.to_string(), not_before: None, host_failed: false };
                    }
                    body.extend_from_slice(&chunk);
                }
                Ok(None) => break,
                Err(error) => {
                    let error = format!("the answer broke off: {}", explain(error));
                    return Answer::Again { error, not_before: None, host_failed: true };
                }
            }
            if body.len() > most {
                break;
            }
        }
        if status.is_success() && body.len() > most {
            let message = format!(
                "the answer has more than {most} bytes; store the output elsewhere and answer with a reference to it"
            );
            return Answer::failed("output_too_large", message);
        }
        Answer::of(status, &headers, &body, now, (limits, most_output), redactor)
    }

    fn of(
        status: StatusCode,
        headers: &HeaderMap,
        body: &[u8],
        now: Timestamp,
        (limits, most_output): (&Limits, usize),
        redactor: Option<&Redactor>,
    ) -> Answer {
        if status.is_success() {
            let (outcome, artifacts) = outcome(body, limits, most_output);
            let outcome = match redactor {
                Some(redactor) => redacted(outcome, redactor),
                None => outcome,
            };
            return Answer::Ended(outcome, artifacts);
        }
        let quoted = quoted(body, redactor);
        let error = format!("the receiver answered {status}{quoted}");
        match status.as_u16() {
            408 | 425 | 429 => Answer::Again { error, not_before: retry_after(headers, now), host_failed: false },
            500.. => Answer::Again { error, not_before: retry_after(headers, now), host_failed: true },
            300..=399 => {
                let message = format!("{error}; redirects are not followed: name the address it leads to");
                Answer::failed("push_rejected", message)
            }
            _ => Answer::failed("push_rejected", error),
        }
    }
}

/// What the protocol says, or the whole answer as the output.
fn outcome(body: &[u8], limits: &Limits, most_output: usize) -> (Outcome, Vec<Json>) {
    #[derive(Deserialize)]
    struct Said<'a> {
        outcome: &'a str,
        #[serde(borrow)]
        output: Option<&'a RawValue>,
        #[serde(default)]
        artifacts: Vec<Json>,
        error: Option<Failure>,
    }
    let bad = |message: &str| (Outcome::Failed(ErrorInfo::fatal("bad_answer", message)), Vec::new());
    let Ok(text) = std::str::from_utf8(body) else { return bad("the answer is not UTF-8 text; answer with JSON") };
    if text.trim().is_empty() {
        return (Outcome::Completed(Json::null()), Vec::new());
    }
    let (output, artifacts) = match serde_json::from_str::<Said<'_>>(text) {
        Ok(Said { outcome: "completed", output, artifacts, .. }) => {
            (output.map_or_else(Json::null, |output| Json::trusted(output.get())), artifacts)
        }
        Ok(Said { outcome: "failed", error, .. }) => {
            return (Outcome::Failed(error.unwrap_or_default().into()), Vec::new());
        }
        _ => match Json::parse(text) {
            Ok(output) => (output, Vec::new()),
            Err(_) => {
                return bad(
                    "the receiver answered with success and something that is no JSON; answer with JSON, with nothing \
                     (204), or with 202 if the outcome comes later",
                );
            }
        },
    };
    match check_output(&output, limits, most_output) {
        Ok(()) => (Outcome::Completed(output), artifacts),
        Err(error) => (Outcome::Failed(error.into()), Vec::new()),
    }
}

/// As a worker says it.
#[derive(Default, Deserialize)]
struct Failure {
    code: Option<String>,
    message: Option<String>,
    retryable: Option<bool>,
}

impl From<Failure> for ErrorInfo {
    fn from(failure: Failure) -> ErrorInfo {
        ErrorInfo {
            code: failure.code.filter(|code| !code.is_empty()).unwrap_or_else(|| "failed".to_owned()),
            message: failure.message.unwrap_or_else(|| "the receiver did not say why".to_owned()),
            retryable: failure.retryable.unwrap_or(true),
        }
    }
}

/// Redacted first: half a secret would not be found.
fn quoted(body: &[u8], redactor: Option<&Redactor>) -> String {
    let text = String::from_utf8_lossy(body).into_owned();
    let text = match redactor {
        Some(redactor) => redactor.text(text),
        None => text,
    };
    let text = without_controls(text.trim());
    match text.char_indices().nth(QUOTED) {
        None if text.is_empty() => String::new(),
        None => format!(": {text}"),
        Some((end, _)) => format!(": {} …", &text[..end]),
    }
}

/// Seconds, or a date.
fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(now.plus_ms(seconds.saturating_mul(1000)));
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
    i64::try_from(at.as_micros()).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Resolved;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn limits() -> (&'static Limits, usize) {
        static LIMITS: std::sync::LazyLock<Limits> = std::sync::LazyLock::new(Limits::default);
        (&LIMITS, LIMITS.output_bytes)
    }

    fn answered(status: u16, body: &str) -> Answer {
        let headers = HeaderMap::new();
        Answer::of(StatusCode::from_u16(status).unwrap(), &headers, body.as_bytes(), NOW, limits(), None)
    }

    fn completed(text: &str) -> Answer {
        Answer::Ended(Outcome::Completed(Json::trusted(text)), Vec::new())
    }

    #[track_caller]
    fn failed(status: u16, body: &str) -> ErrorInfo {
        match answered(status, body) {
            Answer::Ended(Outcome::Failed(error), _) => error,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_outcome_is_taken_as_it_is_said() {
        assert_eq!(answered(200, r#"{"outcome": "completed", "output": {"n": 1.0}}"#), completed(r#"{"n": 1.0}"#));
        assert_eq!(answered(200, r#"{"outcome": "completed"}"#), completed("null"));
        let error =
            failed(200, r#"{"outcome": "failed", "error": {"code": "bad", "message": "no", "retryable": false}}"#);
        assert_eq!(error, ErrorInfo::fatal("bad", "no"));
        let error = failed(200, r#"{"outcome": "failed"}"#);
        assert_eq!((error.code.as_str(), error.retryable), ("failed", true));
    }

    #[test]
    fn any_other_json_is_the_output_itself() {
        for text in [r#"{"size": 3}"#, "[1, 2]", "\"done\"", "7", r#"{"outcome": "win"}"#, r#"{"outcome": 3}"#] {
            assert_eq!(answered(200, text), completed(text), "{text}");
        }
        assert_eq!(answered(204, ""), completed("null"));
        assert_eq!(answered(200, " \n"), completed("null"));
    }

    #[test]
    fn what_is_no_json_is_no_success() {
        let error = failed(200, "<html>please log in</html>");
        assert_eq!((error.code.as_str(), error.retryable), ("bad_answer", false));
        assert_eq!(failed(200, "9007199254740993").code, "bad_output");
        let large = format!("\"{}\"", "x".repeat(Limits::default().output_bytes));
        assert_eq!(failed(200, &large).code, "output_too_large");
    }

    #[test]
    fn a_refusal_ends_the_attempt_for_good() {
        for status in [301, 400, 401, 404, 410, 413, 422] {
            let error = failed(status, "no such thing");
            assert_eq!((error.code.as_str(), error.retryable), ("push_rejected", false));
            assert!(error.message.contains(&status.to_string()) && error.message.contains("no such thing"));
        }
        assert!(failed(400, &"x".repeat(10_000)).message.len() < 1000);
    }

    #[test]
    fn a_secret_that_the_quote_would_cut_in_two_is_taken_out() {
        let redactor = Resolved::of(&[("KEY", "hunter2-hunter2")]).redactor();
        let body = format!("{} hunter2-hunter2", "x".repeat(QUOTED - 8));
        let (status, headers) = (StatusCode::BAD_REQUEST, HeaderMap::new());
        match Answer::of(status, &headers, body.as_bytes(), NOW, limits(), redactor.as_ref()) {
            Answer::Ended(Outcome::Failed(error), _) => assert!(!error.message.contains("hunter"), "{}", error.message),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        for (status, failed) in [(408, false), (425, false), (429, false), (500, true), (502, true), (503, true)] {
            match answered(status, "") {
                Answer::Again { host_failed, not_before: None, .. } => assert_eq!(host_failed, failed, "{status}"),
                other => panic!("{status}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_receiver_may_say_when() {
        let after = |text: &str| {
            let headers = HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]);
            match Answer::of(StatusCode::TOO_MANY_REQUESTS, &headers, b"", NOW, limits(), None) {
                Answer::Again { not_before, .. } => not_before,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(after("120"), Some(NOW.plus_ms(120_000)));
        assert_eq!(after("Tue, 14 Nov 2023 22:13:30 GMT"), Some(NOW.plus_ms(10_000)));
        assert_eq!(after("soon"), None);
    }
}
