//! Events of a run's log.

use milepost_core::json::Json;
use milepost_engine::view::EventView;
use milepost_store::rows::TransitionRow;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;

/// One event of a run's log.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "event_id": "01a1defb-20b0-86b2-bcac-6128b7360004",
    "run_id": "01a1defb-20b0-76b2-bcac-6128b7360903",
    "run_seq": 4,
    "event_type": "StepCompleted",
    "step_id": "load",
    "logical_attempt": 1,
    "engine_attempt": 1,
    "data": {"output": {"rows": 3}},
    "idempotency_key": "2bafd4629cc04e701c66d3854982e073924fa77d4fdc31b2803184ff6f1c0f7d",
    "emitted_at": "2030-01-31T10:00:00.000000Z",
    "persisted_at": "2030-01-31T10:00:00.001000Z"
}))]
pub(crate) struct Event {
    event_id: Uuid,
    run_id: Uuid,
    /// 1, 2, 3, … without a gap.
    pub(crate) run_seq: u64,
    event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logical_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine_attempt: Option<u32>,
    #[schema(value_type = Any)]
    data: Json,
    idempotency_key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    caused_by_signal_id: Option<Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent_event_id: Option<Uuid>,
    #[schema(format = DateTime)]
    emitted_at: String,
    #[schema(format = DateTime)]
    persisted_at: String,
}

impl From<EventView> for Event {
    fn from(event: EventView) -> Event {
        Event {
            event_id: event.event_id.0,
            run_id: event.run_id.0,
            run_seq: event.run_seq,
            event_type: event.event_type,
            step_id: event.step_id,
            logical_attempt: event.logical_attempt,
            engine_attempt: event.engine_attempt,
            data: event.data,
            idempotency_key: event.idempotency_key.to_string(),
            caused_by_signal_id: event.caused_by_signal_id.map(|signal| signal.0),
            parent_event_id: event.parent_event_id.map(|event| event.0),
            emitted_at: event.emitted_at.to_string(),
            persisted_at: event.persisted_at.to_string(),
        }
    }
}

/// A change of a run's status.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Transition {
    /// The event that changed it.
    run_seq: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
    to: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal_id: Option<Uuid>,
    /// Who had it happen; not there if it followed by itself, or if nobody who has a name did.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed_by: Option<String>,
    #[schema(format = DateTime)]
    at: String,
}

impl From<TransitionRow> for Transition {
    fn from(row: TransitionRow) -> Transition {
        Transition {
            run_seq: row.seq,
            from: row.from.map(|status| status.to_string()),
            to: row.to.to_string(),
            signal_id: row.signal.map(|signal| signal.0),
            changed_by: row.changed_by,
            at: row.at.to_string(),
        }
    }
}
