//! An event as it goes out: encoded once, shared by all who read it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use milepost_core::id::RunId;
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;

use crate::view::EventView;

/// One event of a run's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamEvent {
    pub seq: u64,
    pub event_type: Cow<'static, str>,
    /// An [`EventView`] as JSON, on one line.
    pub json: Bytes,
}

/// Events in order, without a gap.
pub type Batch = Vec<Arc<StreamEvent>>;

impl StreamEvent {
    pub(super) fn of(run: RunId, row: &EventRow) -> Arc<StreamEvent> {
        let mut json = serde_json::to_vec(&EventView::of(run, row)).expect("a view has nothing that JSON lacks");
        // What callers sent is kept as they wrote it, line breaks and all. Inside strings they are escaped, so these are
        // only white space; without them an event is one line of text for every protocol.
        for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
            *byte = b' ';
        }
        Arc::new(StreamEvent { seq: row.seq, event_type: row.event_type.clone(), json: json.into() })
    }

    /// The status with which this event ended its run. A failed run may be reopened later.
    #[must_use]
    pub fn ends_run(&self) -> Option<RunStatus> {
        match &*self.event_type {
            "RunCompleted" => Some(RunStatus::Completed),
            "RunFailed" => Some(RunStatus::Failed),
            "RunCancelled" => Some(RunStatus::Cancelled),
            "RunTerminated" => Some(RunStatus::Terminated),
            _ => None,
        }
    }

    pub(super) fn reopens_run(&self) -> bool {
        self.event_type == "RunReopened"
    }

    /// Roughly what it takes in memory.
    pub(super) fn size(&self) -> usize {
        self.json.len() + 128
    }
}

#[cfg(test)]
pub(super) mod tests {
    use milepost_core::event::{Body, ErrorInfo};
    use milepost_core::hash::Digest;
    use milepost_core::json::Json;
    use milepost_core::time::Timestamp;

    use super::*;

    pub(crate) fn row(seq: u64, event_type: &'static str, data: &str) -> EventRow {
        EventRow {
            seq,
            format: 1,
            event_type: event_type.into(),
            step_id: None,
            logical_attempt: None,
            engine_attempt: None,
            data: Json::parse(data).unwrap(),
            idempotency_key: Digest::of(b"key"),
            signal: None,
            parent_seq: None,
            emitted_at: Timestamp(0),
            persisted_at: Timestamp(0),
        }
    }

    pub(crate) fn event(seq: u64) -> Arc<StreamEvent> {
        StreamEvent::of(RunId(uuid::Uuid::nil()), &row(seq, "StepCompleted", "{}"))
    }

    #[test]
    fn an_event_is_one_line_whatever_its_data_looks_like() {
        let data = "{\n  \"text\": \"two\\nlines\",\r\n\t\"more\": [1,\n2]\n}";
        let event = StreamEvent::of(RunId(uuid::Uuid::nil()), &row(3, "StepCompleted", data));
        let text = std::str::from_utf8(&event.json).unwrap();
        assert!(!text.contains(['\n', '\r']), "{text}");
        let value: serde_json::Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["data"], serde_json::from_str::<serde_json::Value>(data).unwrap());
        assert_eq!(value["run_seq"], 3);
    }

    #[test]
    fn the_ends_of_a_run_are_those_that_the_rules_know() {
        let error = ErrorInfo::fatal("x", "x");
        let bodies = [
            Body::RunApproved,
            Body::RunStarted(None),
            Body::RunPaused,
            Body::RunResumed,
            Body::RunCompleted,
            Body::RunFailed { error: error.clone() },
            Body::RunCancelled { reason: String::new() },
            Body::RunTerminated { reason: String::new() },
            Body::RunReopened,
            Body::StepFailed { error },
        ];
        for body in bodies {
            let event = StreamEvent::of(RunId(uuid::Uuid::nil()), &row(1, body.event_type(), "{}"));
            assert_eq!(event.ends_run(), body.run_status().filter(|status| status.is_terminal()), "{body:?}");
        }
    }
}
