//! Events to rows and back. The only place that knows how an event looks in the log.

mod patched;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::artifact::{Artifact, Beyond, BlobRef};
use crate::cache::Trust;
use crate::event::{
    BaseRun, Body, EngineRef, ErrorInfo, Event, LeaseHolder, LeaseProof, ParentStep, Queued, Reused, Started, StepRef,
};
use crate::hash::Digest;
use crate::id::{ArtifactId, NodeId, OrgId, RunId, SignalId};
use crate::json::Json;
use crate::plan::{Plan, Rebuild, StepIndex};
use crate::record::{EVENT_FORMAT, EventRow};
use crate::run::{Signal, payload_digest};
use crate::status::{RunStatus, SkipReason};
use crate::time::Timestamp;

/// A row that this release cannot read.
#[derive(Debug, thiserror::Error)]
#[error("event {seq} ({event_type}) cannot be read: {reason}")]
pub struct Unreadable {
    seq: u64,
    event_type: String,
    reason: String,
}

/// The rows of events that follow each other. `plan` is the one that the run has after the last of them: it knows the
/// names of all steps that the run has had.
#[must_use]
pub fn encode_all(events: &[Event], run: RunId, plan: &Plan, persisted_at: Timestamp) -> Vec<EventRow> {
    let patched = |event: &Event| match &event.body {
        Body::RunPatched(patched) => Some((patched.before, patched.plan)),
        _ => None,
    };
    let mut in_force = events.iter().find_map(patched).map_or(plan.hash, |(before, _)| before);
    let mut rows = Vec::with_capacity(events.len());
    for event in events {
        in_force = patched(event).map_or(in_force, |(_, next)| next);
        rows.push(encode_under(event, run, plan, &in_force, persisted_at));
    }
    rows
}

/// The row of an event of `run`.
#[must_use]
pub fn encode(event: &Event, run: RunId, plan: &Plan, persisted_at: Timestamp) -> EventRow {
    encode_under(event, run, plan, &plan.hash, persisted_at)
}

fn encode_under(event: &Event, run: RunId, plan: &Plan, in_force: &Digest, persisted_at: Timestamp) -> EventRow {
    let step_id: Option<Arc<str>> = event.step.map(|step| match step.item {
        None => plan.step(step.step).id.clone(),
        Some(_) => step.name(plan).into(),
    });
    let on_step = event.step.is_some();
    EventRow {
        seq: event.seq,
        format: EVENT_FORMAT,
        event_type: Cow::Borrowed(event.body.event_type()),
        idempotency_key: idempotency_key(event, run, step_id.as_deref(), in_force),
        step_id,
        logical_attempt: on_step.then_some(event.logical_attempt),
        engine_attempt: on_step.then_some(event.engine_attempt),
        data: with_actor(encode_data(&event.body, plan), event.actor.as_deref()),
        signal: event.signal,
        parent_seq: event.parent,
        emitted_at: event.at,
        persisted_at,
    }
}

/// SHA-256 over length-prefixed parts: run, step, attempt, type, plan. The same logical attempt handed out again has the
/// same key for its outcome. What may happen more than once has its cause where an attempt would stand: the signal, the
/// failed step, the count so far.
fn idempotency_key(event: &Event, run: RunId, step_id: Option<&str>, plan: &Digest) -> Digest {
    let mut occasion = String::with_capacity(24);
    let attempt = event.logical_attempt;
    let written = match (&event.body, event.signal) {
        (Body::StepStarted(_) | Body::StepRetryScheduled { .. }, _) if event.engine_attempt > 1 => {
            write!(occasion, "{attempt}.{}", event.engine_attempt)
        }
        (Body::StepSkipped { .. } | Body::StepReused(_), _) if event.parent.is_some() => {
            write!(occasion, "{attempt}@{}", event.parent.unwrap_or(0))
        }
        (Body::StepsSkipped { .. }, _) => write!(occasion, "@{}", event.parent.unwrap_or(0)),
        (Body::RunContinued { count }, _) => write!(occasion, "{count}"),
        (Body::ArtifactRecorded(artifact), _) => write!(occasion, "{}", artifact.id),
        (Body::RunFailed { .. } | Body::RunCompleted, _) => write!(occasion, "{}", event.parent.unwrap_or(0)),
        (_, Some(signal)) if event.step.is_none() => write!(occasion, "{signal}"),
        _ => write!(occasion, "{attempt}"),
    };
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
    key_on(run, step_id, &occasion, event.body.event_type(), plan)
}

fn key_on(run: RunId, step_id: Option<&str>, occasion: &str, event_type: &str, plan: &Digest) -> Digest {
    Digest::of_parts([
        run.0.as_bytes().as_slice(),
        step_id.unwrap_or("").as_bytes(),
        occasion.as_bytes(),
        event_type.as_bytes(),
        &plan.0,
    ])
}

/// The keys that the event of a signal may have, if the run has had no plan but this one.
#[must_use]
pub fn keys_of_signal(run: RunId, plan: &Digest, signal: SignalId) -> [Digest; 2] {
    SIGNAL_EVENTS.map(|event_type| key_on(run, None, &signal.to_string(), event_type, plan))
}

/// The key of the event that records an artifact on its own, under the same condition.
#[must_use]
pub fn key_of_artifact(run: RunId, plan: &Digest, step_id: Option<&str>, artifact: ArtifactId) -> Digest {
    key_on(run, step_id, &artifact.to_string(), ARTIFACT_EVENT, plan)
}

/// The events that say what became of a signal.
pub const SIGNAL_EVENTS: [&str; 2] = ["SignalAccepted", "SignalRejected"];
/// The event that records an artifact on its own.
pub const ARTIFACT_EVENT: &str = "ArtifactRecorded";

/// A signal as it is on record, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedSignal {
    pub name: String,
    pub step_id: Option<String>,
    /// `None` of a refused one in the log of an earlier release, which does not say what came with it.
    pub payload: Option<Digest>,
    /// Why it was refused.
    pub refused: Option<String>,
}

impl RecordedSignal {
    /// The signal of a row; `None` if the row is of none.
    ///
    /// # Errors
    /// The row cannot be read.
    pub fn of(row: &EventRow) -> Result<Option<RecordedSignal>, Unreadable> {
        let read = match &*row.event_type {
            "SignalAccepted" => read::<AcceptedData>(row.data.as_str()).map(|data| RecordedSignal {
                name: data.name,
                step_id: data.step_id,
                payload: Some(payload_digest(&data.payload)),
                refused: None,
            }),
            "SignalRejected" => read::<RejectedData>(row.data.as_str()).map(|data| RecordedSignal {
                name: data.name,
                step_id: data.step_id,
                payload: data.payload_sha256,
                refused: Some(data.reason),
            }),
            _ => return Ok(None),
        };
        let fail = |reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason };
        read.map(Some).map_err(fail)
    }

    /// Whether a signal is this one, sent again.
    #[must_use]
    pub fn is(&self, signal: &Signal) -> bool {
        let same = |payload| payload == payload_digest(&signal.payload);
        self.name == signal.name && self.payload.is_none_or(|payload| same(payload) && self.step_id == signal.step)
    }
}

/// The event of a row.
///
/// # Errors
/// The row has an unknown type or format, or names a step that the plan does not have.
pub fn decode(row: &EventRow, plan: &Plan) -> Result<Event, Unreadable> {
    let fail = |reason: String| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason };
    if row.format != EVENT_FORMAT {
        return Err(fail(format!("it has format {}, this release reads {EVENT_FORMAT}", row.format)));
    }
    let step = match &row.step_id {
        None => None,
        Some(name) => Some(StepRef::parse(name, plan).ok_or_else(|| fail(format!("the plan has no step `{name}`")))?),
    };
    Ok(Event {
        seq: row.seq,
        at: row.emitted_at,
        step,
        logical_attempt: row.logical_attempt.unwrap_or(0),
        engine_attempt: row.engine_attempt.unwrap_or(0),
        signal: row.signal,
        parent: row.parent_seq,
        actor: decode_actor(row),
        body: decode_data(&row.event_type, row.data.as_str(), plan).map_err(fail)?,
    })
}

#[derive(Serialize, Deserialize)]
struct QueuedData {
    org: OrgId,
    plan_hash: Digest,
    status: RunStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    priority: i32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    slot_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<ParentData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    base: Option<BaseData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<Json>,
    #[serde(default, skip_serializing_if = "is_open")]
    trust: Trust,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rebuild: Option<RebuildData>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    submitted_by: Option<String>,
    payload: Json,
}

/// `"all"`, or the ids of steps.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RebuildData {
    All(AllSteps),
    Steps(Vec<String>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AllSteps {
    All,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_open(trust: &Trust) -> bool {
    *trust == Trust::Open
}

#[derive(Serialize, Deserialize)]
struct BaseData {
    run: RunId,
    changes: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[derive(Serialize, Deserialize)]
struct ParentData {
    run: RunId,
    step: String,
    logical_attempt: u32,
    depth: u32,
}

#[derive(Default, Serialize, Deserialize)]
struct StartedData {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker: Option<String>,
    /// Of a step that a worker was given: its name, and what its answer is compared with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worker_id: Option<Arc<str>>,
    /// Only in logs from before there was a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    items: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    child_run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits_for: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_hash: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cache_key: Option<Digest>,
}

#[derive(Deserialize)]
struct CompletedData {
    #[serde(default, deserialize_with = "some")]
    output: Option<Json>,
    #[serde(default)]
    output_blob: Option<BlobRef>,
    #[serde(default)]
    artifacts: Vec<Artifact>,
    #[serde(default)]
    recorded: Vec<Artifact>,
}

impl CompletedData {
    fn beyond(self) -> Option<Box<Beyond>> {
        let CompletedData { output_blob, artifacts, recorded, .. } = self;
        let beyond = Beyond { output_blob, artifacts, recorded };
        (!beyond.is_empty()).then(|| Box::new(beyond))
    }
}

/// An output that is `null` is an output.
fn some<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

#[derive(Serialize, Deserialize)]
struct ErrorData {
    error: ErrorInfo,
}

#[derive(Serialize, Deserialize)]
struct ReasonData {
    reason: String,
}

#[derive(Serialize, Deserialize)]
struct SkippedData {
    reason: SkipReason,
    /// Of an event that is about many of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<String>>,
}

/// What is read of it but its output and its files.
#[derive(Deserialize)]
struct ReusedHead {
    cache_key: Digest,
    input_hash: Digest,
    from: ReusedFrom,
}

/// The output goes before it; it is written by hand.
#[derive(Serialize)]
struct ReusedData {
    cache_key: Digest,
    input_hash: Digest,
    from: ReusedFrom,
    #[serde(flatten)]
    beyond: Beyond,
}

#[derive(Serialize)]
struct RecordedData<'a> {
    artifact: &'a Artifact,
}

#[derive(Deserialize)]
struct ArtifactData {
    artifact: Artifact,
}

#[derive(Serialize, Deserialize)]
struct ReusedFrom {
    run: RunId,
    seq: u64,
}

#[derive(Serialize, Deserialize)]
struct ContinuedData {
    count: u32,
}

#[derive(Serialize, Deserialize)]
struct RetryData {
    retry_at: Timestamp,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reset: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    operator: bool,
}

#[derive(Serialize, Deserialize)]
struct AcceptedData {
    #[serde(rename = "type")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    payload: Json,
}

#[derive(Serialize, Deserialize)]
struct BegunData {
    #[serde(default)]
    engine_run_ref: Option<EngineRunRef>,
    #[serde(default)]
    adapter_version: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct EngineRunRef {
    node: String,
}

#[derive(Deserialize)]
struct ActorData {
    /// Patches called it `by` once.
    #[serde(default, alias = "by")]
    actor: Option<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
struct RejectedData {
    #[serde(rename = "type")]
    name: String,
    reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_sha256: Option<Digest>,
}

fn text<T: Serialize>(data: &T) -> Json {
    Json::trusted(serde_json::to_string(data).expect("event data has string keys and no failing serializer"))
}

fn encode_data(body: &Body, plan: &Plan) -> Json {
    match body {
        Body::StepStarted(started) => encode_started(started),
        // Written by hand: the output is text already and need not be read again.
        Body::StepCompleted { output: Some(output), beyond: None } => {
            let mut data = String::with_capacity(output.len() + 12);
            data.push_str("{\"output\":");
            data.push_str(output.as_str());
            data.push('}');
            Json::trusted(data)
        }
        Body::StepCompleted { output, beyond: Some(beyond) } => with_output(output.as_ref(), &text(beyond)),
        Body::ArtifactRecorded(artifact) => text(&RecordedData { artifact }),
        Body::RunQueued(queued) => encode_queued(queued, plan),
        Body::RunFailed { error } | Body::StepFailed { error } => text(&ErrorData { error: error.clone() }),
        Body::RunCancelled { reason } | Body::RunTerminated { reason } => text(&ReasonData { reason: reason.clone() }),
        Body::StepSkipped { reason } => text(&SkippedData { reason: *reason, steps: None }),
        Body::StepsSkipped { steps } => text(&SkippedData {
            reason: SkipReason::RunStopped,
            steps: Some(steps.iter().map(|step| plan.step(*step).id.to_string()).collect()),
        }),
        Body::StepReused(reused) => encode_reused(reused),
        Body::RunContinued { count } => text(&ContinuedData { count: *count }),
        Body::RunPatched(patched) => patched::encode(patched, plan),
        Body::StepRetryScheduled { retry_at, reset, operator } => text(&RetryData {
            retry_at: *retry_at,
            reset: reset.iter().map(|step| plan.step(*step).id.to_string()).collect(),
            operator: *operator,
        }),
        Body::SignalAccepted { name, step, payload } => text(&AcceptedData {
            name: name.clone(),
            step_id: step.map(|step| step.name(plan)),
            payload: payload.clone(),
        }),
        Body::SignalRejected { name, reason, step, payload } => text(&RejectedData {
            name: name.clone(),
            reason: reason.clone(),
            step_id: step.map(|step| step.name(plan)),
            payload_sha256: *payload,
        }),
        Body::RunStarted(Some(engine)) => encode_engine(engine),
        _ => Json::trusted("{}"),
    }
}

fn encode_engine(engine: &EngineRef) -> Json {
    text(&BegunData {
        engine_run_ref: Some(EngineRunRef { node: engine.node.to_string() }),
        adapter_version: Some(engine.version.clone()),
    })
}

/// The log goes on without it rather than not at all.
fn decode_engine(data: &str) -> Option<EngineRef> {
    let data: BegunData = read(data).ok()?;
    let node = data.engine_run_ref?.node.parse().ok()?;
    Some(EngineRef { node, version: data.adapter_version? })
}

/// An object with the name of who had it happen in front of what it has.
fn with_actor(data: Json, actor: Option<&str>) -> Json {
    let Some(actor) = actor else { return data };
    let rest = &data.as_str()[1..];
    let comma = if rest == "}" { "" } else { "," };
    Json::trusted(format!("{{\"actor\":{}{comma}{rest}", serde_json::Value::from(actor)))
}

/// Who had it happen. The log goes on without that name rather than not at all.
fn decode_actor(row: &EventRow) -> Option<Arc<str>> {
    let may = matches!(
        &*row.event_type,
        "SignalAccepted"
            | "SignalRejected"
            | "RunApproved"
            | "RunPaused"
            | "RunResumed"
            | "RunReopened"
            | "RunCancelled"
            | "RunTerminated"
            | "RunPatched"
    );
    may.then(|| read::<ActorData>(row.data.as_str()).ok()?.actor).flatten()
}

/// An object with an output in front of what it has.
fn with_output(output: Option<&Json>, rest: &Json) -> Json {
    match output {
        None => rest.clone(),
        Some(output) => Json::trusted(format!("{{\"output\":{},{}", output.as_str(), &rest.as_str()[1..])),
    }
}

fn encode_started(started: &Started) -> Json {
    // The shape of nearly every start; the general way costs a microsecond more.
    if let Started {
        worker: Some(worker),
        lease: None,
        items: None,
        child: None,
        waits_for: None,
        due_at: None,
        input_hash,
        cache_key: None,
    } = started
    {
        return Json::trusted(match input_hash {
            None => format!("{{\"worker\":\"{worker}\"}}"),
            Some(hash) => format!("{{\"worker\":\"{worker}\",\"input_hash\":\"{hash}\"}}"),
        });
    }
    text(&StartedData {
        worker: started.worker.map(|worker| worker.to_string()),
        worker_id: started.lease.as_ref().map(|lease| lease.worker.clone()),
        lease: started.lease.as_ref().and_then(|lease| match lease.proof {
            LeaseProof::Nonce(nonce) => Some(format!("{nonce:016x}")),
            LeaseProof::Hash(_) => None,
        }),
        lease_hash: started.lease.as_ref().and_then(|lease| match lease.proof {
            LeaseProof::Hash(hash) => Some(format!("{hash:016x}")),
            LeaseProof::Nonce(_) => None,
        }),
        items: started.items,
        child_run_id: started.child,
        waits_for: started.waits_for.clone(),
        due_at: started.due_at,
        input_hash: started.input_hash,
        cache_key: started.cache_key,
    })
}

fn encode_reused(reused: &Reused) -> Json {
    let from = ReusedFrom { run: reused.run, seq: reused.seq };
    let beyond = reused.beyond.as_deref().cloned().unwrap_or_default();
    let rest = text(&ReusedData { cache_key: reused.key, input_hash: reused.input_hash, from, beyond });
    let rest = with_output(reused.output.as_ref(), &rest);
    Json::trusted(format!("{{\"reason\":\"{}\",{}", SkipReason::CacheHit, &rest.as_str()[1..]))
}

fn encode_queued(queued: &Queued, plan: &Plan) -> Json {
    text(&QueuedData {
        org: queued.org,
        plan_hash: queued.plan_hash,
        status: queued.status,
        request_id: queued.request_id.clone(),
        priority: queued.priority,
        start_at: queued.start_at,
        slot_key: queued.slot_key.clone(),
        parent: queued.parent.as_ref().map(|parent| ParentData {
            run: parent.run,
            step: parent.step.clone(),
            logical_attempt: parent.logical_attempt,
            depth: parent.depth,
        }),
        traceparent: queued.trace.map(|trace| trace.to_string()),
        base: queued.base.as_ref().map(|base| BaseData { run: base.run, changes: base.changes.clone() }),
        definition: queued.definition.clone(),
        trust: queued.trust,
        rebuild: queued.rebuild.as_ref().map(|rebuild| match rebuild {
            Rebuild::All => RebuildData::All(AllSteps::All),
            Rebuild::Steps(steps) => {
                RebuildData::Steps(steps.iter().map(|step| plan.step(*step).id.to_string()).collect())
            }
        }),
        submitted_by: queued.submitted_by.clone(),
        payload: queued.payload.clone(),
    })
}

fn read<'a, T: Deserialize<'a>>(data: &'a str) -> Result<T, String> {
    serde_json::from_str(data).map_err(|error| error.to_string())
}

fn decode_data(event_type: &str, data: &str, plan: &Plan) -> Result<Body, String> {
    Ok(match event_type {
        "RunQueued" => Body::RunQueued(Box::new(decode_queued(read(data)?, plan)?)),
        "RunApproved" => Body::RunApproved,
        "RunStarted" => Body::RunStarted(decode_engine(data)),
        "RunPaused" => Body::RunPaused,
        "RunResumed" => Body::RunResumed,
        "RunCompleted" => Body::RunCompleted,
        "RunFailed" => Body::RunFailed { error: read::<ErrorData>(data)?.error },
        "RunCancelled" => Body::RunCancelled { reason: read::<ReasonData>(data)?.reason },
        "RunTerminated" => Body::RunTerminated { reason: read::<ReasonData>(data)?.reason },
        "RunReopened" => Body::RunReopened,
        "RunContinued" => Body::RunContinued { count: read::<ContinuedData>(data)?.count },
        "RunPatched" => Body::RunPatched(Box::new(patched::decode(data, plan)?)),
        "StepStarted" => Body::StepStarted(decode_started(read(data)?)?),
        "StepCompleted" => {
            let mut completed: CompletedData = read(data)?;
            Body::StepCompleted { output: completed.output.take(), beyond: completed.beyond() }
        }
        "ArtifactRecorded" => Body::ArtifactRecorded(Box::new(read::<ArtifactData>(data)?.artifact)),
        "StepFailed" => Body::StepFailed { error: read::<ErrorData>(data)?.error },
        "StepSkipped" => decode_skipped(data, plan)?,
        "StepRetryScheduled" => decode_retry(read(data)?, plan)?,
        "SignalAccepted" => decode_accepted(read(data)?, plan)?,
        "SignalRejected" => {
            let RejectedData { name, reason, step_id, payload_sha256 } = read(data)?;
            let find = |id: String| StepRef::parse(&id, plan).ok_or_else(|| format!("the plan has no step `{id}`"));
            Body::SignalRejected { name, reason, step: step_id.map(find).transpose()?, payload: payload_sha256 }
        }
        _ => return Err("this release does not know that type".to_owned()),
    })
}

fn decode_skipped(data: &str, plan: &Plan) -> Result<Body, String> {
    let SkippedData { reason, steps } = read(data)?;
    if let Some(steps) = steps {
        return Ok(Body::StepsSkipped { steps: find_all(&steps, plan)? });
    }
    if reason != SkipReason::CacheHit {
        return Ok(Body::StepSkipped { reason });
    }
    let ReusedHead { cache_key, input_hash, from } = read(data)?;
    let mut completed: CompletedData = read(data)?;
    if completed.output.is_none() && completed.output_blob.is_none() {
        return Err("it has no output".to_owned());
    }
    let (output, beyond) = (completed.output.take(), completed.beyond());
    let reused = Reused { key: cache_key, input_hash, output, run: from.run, seq: from.seq, beyond };
    Ok(Body::StepReused(Box::new(reused)))
}

fn decode_rebuild(data: RebuildData, plan: &Plan) -> Result<Rebuild, String> {
    Ok(match data {
        RebuildData::All(AllSteps::All) => Rebuild::All,
        RebuildData::Steps(ids) => {
            let mut steps = find_all(&ids, plan)?;
            steps.sort_unstable();
            Rebuild::Steps(steps)
        }
    })
}

fn decode_queued(data: QueuedData, plan: &Plan) -> Result<Queued, String> {
    Ok(Queued {
        org: data.org,
        plan_hash: data.plan_hash,
        payload: data.payload,
        status: data.status,
        request_id: data.request_id,
        priority: data.priority,
        start_at: data.start_at,
        slot_key: data.slot_key,
        parent: data.parent.map(|parent| ParentStep {
            run: parent.run,
            step: parent.step,
            logical_attempt: parent.logical_attempt,
            depth: parent.depth,
        }),
        // A run goes on without its trace rather than not at all.
        trace: data.traceparent.and_then(|text| text.parse().ok()),
        base: data.base.map(|base| BaseRun { run: base.run, changes: base.changes }),
        definition: data.definition,
        trust: data.trust,
        rebuild: data.rebuild.map(|rebuild| decode_rebuild(rebuild, plan)).transpose()?,
        submitted_by: data.submitted_by,
    })
}

fn decode_started(data: StartedData) -> Result<Started, String> {
    let worker = match data.worker {
        None => None,
        Some(text) => Some(text.parse::<NodeId>().map_err(|error| format!("worker `{text}`: {error}"))?),
    };
    let number = |text: &String| u64::from_str_radix(text, 16).map_err(|error| format!("lease: {error}"));
    let proof = match (&data.lease_hash, &data.lease) {
        (Some(hash), _) => Some(LeaseProof::Hash(number(hash)?)),
        (None, Some(nonce)) => Some(LeaseProof::Nonce(number(nonce)?)),
        (None, None) => None,
    };
    let lease = data.worker_id.zip(proof).map(|(worker, proof)| LeaseHolder { worker, proof });
    Ok(Started {
        worker,
        lease,
        items: data.items,
        child: data.child_run_id,
        waits_for: data.waits_for,
        due_at: data.due_at,
        input_hash: data.input_hash,
        cache_key: data.cache_key,
    })
}

fn decode_retry(data: RetryData, plan: &Plan) -> Result<Body, String> {
    Ok(Body::StepRetryScheduled {
        retry_at: data.retry_at,
        reset: find_all(&data.reset, plan)?,
        operator: data.operator,
    })
}

fn find_all(ids: &[String], plan: &Plan) -> Result<Vec<StepIndex>, String> {
    ids.iter().map(|id| plan.find(id).ok_or_else(|| format!("the plan has no step `{id}`"))).collect()
}

fn decode_accepted(data: AcceptedData, plan: &Plan) -> Result<Body, String> {
    let step = match &data.step_id {
        None => None,
        Some(name) => Some(StepRef::parse(name, plan).ok_or_else(|| format!("the plan has no step `{name}`"))?),
    };
    Ok(Body::SignalAccepted { name: data.name, step, payload: data.payload })
}

/// The plan that a run has from this row on: that of its first event, and of every patch.
///
/// # Errors
/// The row is not readable.
pub fn plan_from(row: &EventRow) -> Result<Option<Digest>, Unreadable> {
    let read = match &*row.event_type {
        "RunQueued" => read::<QueuedData>(row.data.as_str()).map(|data| Some(data.plan_hash)),
        "RunPatched" => patched::plans(row.data.as_str()).map(|(_, plan)| Some(plan)),
        _ => Ok(None),
    };
    read.map_err(|reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason })
}

/// The plan before a patch and the one that it made; `None` for rows of all other kinds.
///
/// # Errors
/// The row is not readable.
pub fn patched_plans(row: &EventRow) -> Result<Option<(Digest, Digest)>, Unreadable> {
    if row.event_type != "RunPatched" {
        return Ok(None);
    }
    let read = patched::plans(row.data.as_str()).map(Some);
    read.map_err(|reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason })
}

/// The value that a row carries: a step's output, a run's payload, a signal's payload.
///
/// # Errors
/// The row is of another type or is not readable.
pub fn carried_value(row: &EventRow) -> Result<Option<Json>, Unreadable> {
    let read = match &*row.event_type {
        // A skipped step has an output if its result was there.
        "StepCompleted" | "StepSkipped" => read::<CompletedData>(row.data.as_str()).map(|data| data.output),
        "RunQueued" => read::<QueuedData>(row.data.as_str()).map(|data| Some(data.payload)),
        "SignalAccepted" => read::<AcceptedData>(row.data.as_str()).map(|data| Some(data.payload)),
        _ => Err("it carries no value".to_owned()),
    };
    read.map_err(|reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason })
}

/// Where the output of a row is, if it is too large for the log.
#[must_use]
pub fn carried_blob(row: &EventRow) -> Option<BlobRef> {
    if !matches!(&*row.event_type, "StepCompleted" | "StepSkipped") || !row.data.as_str().contains("\"output_blob\"") {
        return None;
    }
    read::<CompletedData>(row.data.as_str()).ok()?.output_blob
}

/// What the result that a row carries has beyond its output.
#[must_use]
pub fn carried_beyond(row: &EventRow) -> Option<Box<Beyond>> {
    if !matches!(&*row.event_type, "StepCompleted" | "StepSkipped") || !row.data.as_str().contains("\"artifact_id\"") {
        return None;
    }
    read::<CompletedData>(row.data.as_str()).ok()?.beyond()
}

/// Whose results the steps of a run may have, as its first event has it.
///
/// # Errors
/// The row cannot be read.
pub fn carried_trust(row: &EventRow) -> Result<Trust, Unreadable> {
    let read = read::<QueuedData>(row.data.as_str()).map(|data| data.trust);
    read.map_err(|reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason })
}

/// Where the plan of a run came from, as its first event has it.
///
/// # Errors
/// The row cannot be read.
pub fn carried_definition(row: &EventRow) -> Result<Option<Json>, Unreadable> {
    let read = read::<QueuedData>(row.data.as_str()).map(|data| data.definition);
    read.map_err(|reason| Unreadable { seq: row.seq, event_type: row.event_type.to_string(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document;
    use crate::limits::Limits;

    fn row(event_type: &'static str, step: Option<&str>, data: &str) -> EventRow {
        EventRow {
            seq: 4,
            format: EVENT_FORMAT,
            event_type: Cow::Borrowed(event_type),
            step_id: step.map(Arc::from),
            logical_attempt: step.map(|_| 1),
            engine_attempt: step.map(|_| 1),
            data: Json::trusted(data),
            idempotency_key: Digest([0; 32]),
            signal: None,
            parent_seq: None,
            emitted_at: Timestamp(0),
            persisted_at: Timestamp(0),
        }
    }

    fn plan() -> Plan {
        let source = "{kind: workflow, name: t, version: 1.0.0, steps: {a: {skill: x}}}";
        document::load(source, &Limits::default()).unwrap().plan
    }

    #[test]
    fn rows_that_mean_nothing_here_are_refused() {
        let plan = plan();
        assert!(decode(&row("StepCompleted", Some("a"), "{\"output\":1}"), &plan).is_ok());
        assert!(decode(&row("StepCompleted", Some("b"), "{\"output\":1}"), &plan).is_err());
        assert!(decode(&row("StepCompleted", Some("a"), "{"), &plan).is_err());
        assert!(decode(&row("StepDreamt", Some("a"), "{}"), &plan).is_err());
        assert!(decode(&row("StepSkipped", Some("a"), "{\"reason\":\"whim\"}"), &plan).is_err());
        assert!(decode(&row("StepRetryScheduled", Some("a"), "{\"retry_at\":\"now\"}"), &plan).is_err());
        let newer = EventRow { format: EVENT_FORMAT + 1, ..row("RunStarted", None, "{}") };
        assert!(decode(&newer, &plan).is_err());
    }

    #[test]
    fn fields_of_a_later_release_are_passed_over() {
        let event = decode(&row("RunContinued", None, "{\"count\":2,\"why\":\"long\"}"), &plan()).unwrap();
        assert_eq!(event.body, Body::RunContinued { count: 2 });
    }

    #[test]
    fn the_engine_that_began_a_run_is_read_and_need_not_be_there() {
        let plan = plan();
        let engine = EngineRef { node: NodeId(-7), version: "milepost/1.2.3".into() };
        let begun = |body| Event { body, ..decode(&row("RunStarted", None, "{}"), &plan).unwrap() };
        for body in [Body::RunStarted(None), Body::RunStarted(Some(engine))] {
            let event = begun(body);
            let row = encode(&event, RunId(uuid::Uuid::nil()), &plan, Timestamp(0));
            assert_eq!(decode(&row, &plan).unwrap(), event, "{}", row.data.as_str());
        }
        let other = decode(&row("RunStarted", None, "{\"engine_run_ref\":{\"node\":\"?\"}}"), &plan).unwrap();
        assert_eq!(other.body, Body::RunStarted(None), "a run goes on without it");
    }

    #[test]
    fn who_had_it_happen_is_read_and_need_not_be_there() {
        let plan = plan();
        let actor = |event_type, data: &str| decode(&row(event_type, None, data), &plan).unwrap().actor;
        assert_eq!(actor("RunPaused", "{}"), None);
        assert_eq!(actor("SignalAccepted", "{\"type\":\"go\",\"payload\":{\"actor\":\"eve\"}}"), None);
        let bodies = [
            Body::RunApproved,
            Body::RunTerminated { reason: "too dear".to_owned() },
            Body::SignalAccepted { name: "go".to_owned(), step: None, payload: Json::trusted("{\"actor\":\"eve\"}") },
        ];
        for body in bodies {
            let event =
                Event { actor: Some("a \"b\"".into()), body, ..decode(&row("RunStarted", None, "{}"), &plan).unwrap() };
            let row = encode(&event, RunId(uuid::Uuid::nil()), &plan, Timestamp(0));
            assert_eq!(decode(&row, &plan).unwrap(), event, "{}", row.data.as_str());
        }
    }

    #[test]
    fn a_row_carries_an_output_a_payload_or_nothing() {
        let carried = |event_type, data| {
            carried_value(&row(event_type, None, data)).map(|json| json.map(|json| json.as_str().to_owned()))
        };
        assert_eq!(carried("StepCompleted", "{\"output\":null}").unwrap().as_deref(), Some("null"));
        assert_eq!(carried("StepCompleted", "{\"output\":[1, 2]}").unwrap().as_deref(), Some("[1, 2]"));
        assert_eq!(carried("StepCompleted", "{}").unwrap(), None);
        assert_eq!(carried("SignalAccepted", "{\"type\":\"go\",\"payload\":7}").unwrap().as_deref(), Some("7"));
        assert!(carried("StepStarted", "{}").is_err());
    }
}
