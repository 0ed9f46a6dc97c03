//! Rows for tests: valid, and different in every column that a store could mix up.

use std::borrow::Cow;
use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, OutboxId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::record::{EVENT_FORMAT, EventRow};
use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    Batch, Claim, HeadWrite, NewHead, OutboxWrite, ProjectionWrite, RunWrite, SnapshotRow, StatusWrite, StepRow,
};
use uuid::Uuid;

pub const ORG: OrgId = OrgId::DEFAULT;

/// A run id greater than all that this process made before.
#[must_use]
pub fn new_run() -> RunId {
    RunId(Uuid::now_v7())
}

/// A run id that was drawn in this millisecond since 1970.
#[must_use]
pub fn run_at(ms: u64) -> RunId {
    let mut random = [0; 10];
    random.copy_from_slice(&Uuid::new_v4().as_bytes()[..10]);
    RunId(uuid::Builder::from_unix_timestamp_millis(ms, &random).into_uuid())
}

/// The greatest id that is less than this one.
#[must_use]
pub fn just_before(run: RunId) -> RunId {
    RunId(Uuid::from_u128(run.0.as_u128() - 1))
}

#[must_use]
pub fn new_node() -> NodeId {
    let bits = Uuid::now_v7().as_u128();
    NodeId(((bits ^ (bits >> 64)) as u64).cast_signed())
}

/// A word that nothing else in the database has.
#[must_use]
pub fn unique(word: &str) -> String {
    format!("{word}-{}", Uuid::now_v7())
}

/// A moment, `us` microseconds into the tests' time.
#[must_use]
pub fn at(us: i64) -> Timestamp {
    Timestamp(1_750_000_000_000_000 + us)
}

#[must_use]
pub fn event(run: RunId, seq: u64, event_type: &'static str) -> EventRow {
    let offset = i64::try_from(seq).unwrap_or(i64::MAX);
    EventRow {
        seq,
        format: EVENT_FORMAT,
        event_type: Cow::Borrowed(event_type),
        step_id: None,
        logical_attempt: None,
        engine_attempt: None,
        data: Json::trusted(format!(r#"{{"seq":{seq}}}"#)),
        idempotency_key: Digest::of_parts([run.0.as_bytes().as_slice(), &seq.to_be_bytes()]),
        signal: None,
        parent_seq: None,
        emitted_at: at(offset),
        persisted_at: at(offset + 7),
    }
}

/// An event with every column filled.
#[must_use]
pub fn full_event(run: RunId, seq: u64) -> EventRow {
    EventRow {
        step_id: Some(Arc::from("shots[3]")),
        logical_attempt: Some(2),
        engine_attempt: Some(5),
        data: Json::trusted(r#"{"a":[1,2.5,null,true],"text":"Grüße, 世界 \"quoted\" \\ \n"}"#),
        signal: Some(SignalId(Uuid::now_v7())),
        parent_seq: Some(seq.saturating_sub(1)),
        ..event(run, seq, "StepCompleted")
    }
}

#[must_use]
pub fn status(status: RunStatus) -> StatusWrite {
    StatusWrite { status, started_at: None, completed_at: None }
}

#[must_use]
pub fn new_head() -> NewHead {
    NewHead {
        workflow: Arc::from("render"),
        workflow_version: Arc::from("1.0.0"),
        plan_hash: Digest::of(b"plan"),
        request_id: None,
        asked: None,
        base_run: None,
        parent_run: None,
        priority: 0,
        created_at: at(0),
        status: status(RunStatus::Queued),
        owner: None,
    }
}

/// A write with nothing but steps' events: the common case.
#[must_use]
pub fn advance(run: RunId, expected_seq: u64, events: u64) -> RunWrite {
    let last_seq = expected_seq + events;
    RunWrite {
        org: ORG,
        run,
        group: 0,
        expected_seq,
        last_seq,
        head: HeadWrite::Update { status: None, owner: None },
        events: (expected_seq + 1..=last_seq).map(|seq| event(run, seq, "StepCompleted")).collect(),
        timers: Vec::new(),
        slot: None,
        checkpoint: None,
        tasks: Vec::new(),
        outbox: Vec::new(),
        cache: None,
        artifacts: Vec::new(),
    }
}

/// A new run with so many events.
#[must_use]
pub fn start(run: RunId, events: u64) -> RunWrite {
    start_with(run, events, new_head())
}

#[must_use]
pub fn start_with(run: RunId, events: u64, head: NewHead) -> RunWrite {
    RunWrite { head: HeadWrite::Insert(Box::new(head)), ..advance(run, 0, events) }
}

/// Something that a commit asks for.
#[must_use]
pub fn new_outbox(claim: Claim) -> OutboxWrite {
    OutboxWrite {
        id: OutboxId(Uuid::now_v7()),
        kind: Arc::from("push"),
        payload: Json::trusted(r#"{"url":"https://example.com/Grüße"}"#),
        claim,
        created_at: at(3),
    }
}

/// Writes that stand alone.
#[must_use]
pub fn batch(writes: impl IntoIterator<Item = RunWrite>) -> Batch {
    let alone = |(group, write)| RunWrite { group, ..write };
    Batch { writes: (0..).zip(writes).map(alone).collect(), ..Batch::default() }
}

#[must_use]
pub fn snapshot(run: RunId, last_event_seq: u64) -> SnapshotRow {
    SnapshotRow {
        org: ORG,
        run,
        workflow: "render".to_owned(),
        workflow_version: "1.0.0".to_owned(),
        status: RunStatus::Running,
        last_event_seq,
        request_id: None,
        base_run: None,
        parent_run: None,
        priority: 0,
        steps_total: 3,
        steps_done: 1,
        steps_failed: 0,
        error: None,
        created_at: at(0),
        started_at: Some(at(1)),
        completed_at: None,
        submitted_by: None,
        updated_at: at(2),
        engine_node: None,
    }
}

#[must_use]
pub fn project(expected_seq: u64, snapshot: SnapshotRow) -> ProjectionWrite {
    ProjectionWrite { org: snapshot.org, run: snapshot.run, expected_seq, snapshot, steps: Vec::new(), release: false }
}

#[must_use]
pub fn step(step_id: &str, status: StepStatus) -> StepRow {
    StepRow {
        step_id: step_id.to_owned(),
        skill: "image.render".to_owned(),
        status,
        skip_reason: None,
        logical_attempt: 1,
        engine_attempt: 1,
        input_hash: None,
        output_seq: None,
        error: None,
        started_at: None,
        ended_at: None,
    }
}

/// The same event with its data written in one way: a database may keep JSON as it likes.
#[must_use]
pub fn plain(event: EventRow) -> EventRow {
    EventRow { data: plain_json(&event.data), ..event }
}

#[must_use]
pub fn plain_json(json: &Json) -> Json {
    Json::of(&json.to_value())
}

#[must_use]
pub fn plain_events(events: impl IntoIterator<Item = EventRow>) -> Vec<EventRow> {
    events.into_iter().map(plain).collect()
}
