//! What is said over a WebSocket: JSON texts with a `type`.

use axum::extract::ws::Message;
use milepost_core::id::RunId;
use milepost_engine::StreamEvent;
use serde::{Deserialize, Serialize};

use super::{End, Stale};

/// What a client says.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Said {
    Subscribe { run_id: Option<RunId>, after_seq: Option<u64>, runs: Option<Vec<Place>> },
    Unsubscribe { run_id: RunId },
    Ping {},
}

/// A place in a run's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Place {
    pub(crate) run_id: RunId,
    #[serde(default)]
    pub(crate) after_seq: u64,
}

/// What a client is told.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Told {
    Subscribed {
        run_id: RunId,
        after_seq: u64,
    },
    Unsubscribed {
        run_id: RunId,
    },
    End(End),
    Stale(Stale),
    Error {
        code: &'static str,
        message: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
    },
    Pong,
}

impl Said {
    /// # Errors
    /// What is wrong with the message, for the client.
    pub(super) fn parse(text: &str) -> Result<Said, Told> {
        serde_json::from_str(text).map_err(|error| {
            let wanted = r#"send {"type":"subscribe","run_id":…,"after_seq":…}, {"type":"unsubscribe","run_id":…} or {"type":"ping"}"#;
            Told::error("bad_message", format!("the message cannot be read: {error}; {wanted}"), None)
        })
    }
}

impl Told {
    pub(super) fn error(code: &'static str, message: impl Into<String>, run_id: Option<RunId>) -> Told {
        Told::Error { code, message: message.into(), run_id }
    }
}

impl From<Told> for Message {
    fn from(told: Told) -> Message {
        Message::text(serde_json::to_string(&told).expect("a message has nothing that JSON lacks"))
    }
}

/// An event goes out as it was encoded, with a frame around it.
pub(super) fn event(run: RunId, event: &StreamEvent) -> Message {
    let json = std::str::from_utf8(&event.json).expect("JSON is UTF-8");
    Message::text(format!(r#"{{"type":"event","run_id":"{run}","event":{json}}}"#))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId(uuid::Uuid::nil());

    #[test]
    fn messages_are_read() {
        let run = RUN.to_string();
        let subscribe = |run_id, after_seq, runs| Ok::<_, String>(Said::Subscribe { run_id, after_seq, runs });
        let parse = |text: &str| Said::parse(&text.replace("RUN", &run)).map_err(|told| format!("{told:?}"));
        assert_eq!(parse(r#"{"type":"subscribe","run_id":"RUN","after_seq":3}"#), subscribe(Some(RUN), Some(3), None));
        assert_eq!(parse(r#"{"type":"subscribe","run_id":"RUN"}"#), subscribe(Some(RUN), None, None));
        let places = vec![Place { run_id: RUN, after_seq: 7 }, Place { run_id: RUN, after_seq: 0 }];
        assert_eq!(
            parse(r#"{"runs":[{"run_id":"RUN","after_seq":7},{"run_id":"RUN"}],"type":"subscribe"}"#),
            subscribe(None, None, Some(places))
        );
        assert_eq!(parse(r#"{"type":"unsubscribe","run_id":"RUN"}"#), Ok(Said::Unsubscribe { run_id: RUN }));
        assert_eq!(parse(r#"{"type":"ping"}"#), Ok(Said::Ping {}));
        for bad in [
            "",
            "[]",
            "{}",
            r#"{"type":"dance"}"#,
            r#"{"type":"subscribe","run_id":"x"}"#,
            r#"{"type":"subscribe","run":"RUN"}"#,
            r#"{"type":"subscribe","run_id":"RUN","after_seq":-1}"#,
            r#"{"type":"unsubscribe"}"#,
            r#"{"type":"ping","extra":1}"#,
        ] {
            assert!(parse(bad).is_err_and(|told| told.contains("bad_message")), "{bad}");
        }
    }
}
