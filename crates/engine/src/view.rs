//! A run as somebody outside sees it: the projection, with what the log says beyond it.

use std::collections::{HashMap, HashSet};

use milepost_core::artifact::BlobRef;
use milepost_core::event::{ErrorInfo, StepRef};
use milepost_core::hash::Digest;
use milepost_core::id::{EventId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::plan::Plan;
use milepost_core::record::EventRow;
use milepost_core::status::{RunStatus, SkipReason, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::rows::{ArtifactRow, SnapshotRow, StepRow, Stuck};
use serde::{Deserialize, Serialize};

use crate::artifacts::ArtifactView;
use crate::care::stuck_reason;
use crate::projector::Projection;

/// A run in a list.
#[derive(Clone, Debug, Serialize)]
pub struct RunSummary {
    pub run_id: RunId,
    pub workflow: String,
    pub workflow_version: String,
    pub status: RunStatus,
    pub trigger_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    pub priority: i32,
    pub steps_total: u32,
    pub steps_done: u32,
    pub steps_failed: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// The run is parked: it took its process down, and is decided by nobody until somebody says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stuck: Option<StuckView>,
    pub last_event_seq: u64,
    /// Its log has a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
    pub created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Timestamp>,
    /// When the last event came about.
    pub updated_at: Timestamp,
    /// From its start to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_duration_ms: Option<u64>,
    /// Who asked for it; not known where nobody who has a name did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<String>,
    /// The engine that began it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_run_ref: Option<EngineRunRef>,
}

/// The process that began a run.
#[derive(Clone, Debug, Serialize)]
pub struct EngineRunRef {
    pub node: String,
}

/// A run's log lacks an event: what is shown is as it was before that, or cannot be made anew from the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stale {
    /// The number of the first event that is missing.
    pub from_seq: u64,
}

impl Stale {
    pub(crate) fn at(from_seq: Option<u64>) -> Option<Stale> {
        from_seq.map(|from_seq| Stale { from_seq })
    }
}

/// Why a run is parked.
#[derive(Clone, Debug, Serialize)]
pub struct StuckView {
    pub reason: String,
    pub since: Timestamp,
    /// How often it took its process down.
    pub crashes: u32,
}

impl From<&Stuck> for StuckView {
    fn from(stuck: &Stuck) -> StuckView {
        StuckView { reason: stuck_reason(stuck), since: stuck.since, crashes: stuck.crashes }
    }
}

/// A run with its steps.
#[derive(Clone, Debug, Serialize)]
pub struct RunView {
    #[serde(flatten)]
    pub summary: RunSummary,
    /// Where its plan came from: what was asked for, the revision that that meant, and where the tag was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Json>,
    pub payload: Json,
    /// The outputs of the last steps, by step id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Files that are of the run as a whole; those of steps are with them.
    pub artifacts: Vec<ArtifactView>,
    pub steps: Vec<StepView>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepView {
    pub step_id: String,
    pub skill: String,
    pub status: StepStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<SkipReason>,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub cache_hit: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_hash: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Where the output is, if it is too large to be shown here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_blob: Option<BlobRef>,
    /// It has an output, which is not shown here: together those of the run are too large.
    #[serde(skip_serializing_if = "is_false")]
    pub output_omitted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorInfo>,
    /// Files that it left.
    pub artifacts: Vec<ArtifactView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// An event on the wire.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EventView {
    pub event_id: EventId,
    pub run_id: RunId,
    pub run_seq: u64,
    pub event_type: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logical_attempt: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine_attempt: Option<u32>,
    pub data: Json,
    pub idempotency_key: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caused_by_signal_id: Option<SignalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_event_id: Option<EventId>,
    pub emitted_at: Timestamp,
    pub persisted_at: Timestamp,
}

impl EventView {
    #[must_use]
    pub fn of(run: RunId, row: &EventRow) -> EventView {
        EventView {
            event_id: EventId::of(run, row.seq),
            run_id: run,
            run_seq: row.seq,
            event_type: row.event_type.to_string(),
            step_id: row.step_id.as_deref().map(ToOwned::to_owned),
            logical_attempt: row.logical_attempt,
            engine_attempt: row.engine_attempt,
            data: shown_data(row),
            idempotency_key: row.idempotency_key,
            caused_by_signal_id: row.signal,
            parent_event_id: row.parent_seq.map(|seq| EventId::of(run, seq)),
            emitted_at: row.emitted_at,
            persisted_at: row.persisted_at,
        }
    }
}

/// The data of an event without what earlier releases wrote of a lease: whoever has all of one speaks for its holder.
fn shown_data(row: &EventRow) -> Json {
    if row.event_type != "StepStarted" || !row.data.as_str().contains("\"lease\":") {
        return row.data.clone();
    }
    let mut data = row.data.to_value();
    data.as_object_mut().map(|data| data.remove("lease"));
    Json::of(&data)
}

impl From<&SnapshotRow> for RunSummary {
    fn from(row: &SnapshotRow) -> RunSummary {
        RunSummary {
            run_id: row.run,
            workflow: row.workflow.clone(),
            workflow_version: row.workflow_version.clone(),
            status: row.status,
            trigger_type: if row.base_run.is_some() { "update" } else { "initial" },
            base_run_id: row.base_run,
            parent_run_id: row.parent_run,
            request_id: row.request_id.clone(),
            priority: row.priority,
            steps_total: row.steps_total,
            steps_done: row.steps_done,
            steps_failed: row.steps_failed,
            error: read_error(row.error.as_ref()),
            stuck: None,
            last_event_seq: row.last_event_seq,
            stale: None,
            created_at: row.created_at,
            started_at: row.started_at,
            completed_at: row.completed_at,
            updated_at: row.updated_at,
            total_duration_ms: row.started_at.zip(row.completed_at).map(|(from, to)| to.ms_since(from)),
            submitted_by: row.submitted_by.clone(),
            engine_run_ref: row.engine_node.map(|node| EngineRunRef { node: node.to_string() }),
        }
    }
}

fn read_error(json: Option<&Json>) -> Option<ErrorInfo> {
    serde_json::from_str(json?.as_str()).ok()
}

fn is_false(value: &bool) -> bool {
    !value
}

/// Bytes of outputs that one answer shows; each step shows its own.
const SHOWN_BYTES: usize = 16 * 1024 * 1024;

/// Where the definition of a run is among the values that its events carry; no event has that number.
pub(crate) const DEFINITION: u64 = 0;

/// What events carry, by sequence number: as much of it as one answer shows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    values: HashMap<u64, Option<Json>>,
    bytes: usize,
    /// Those that are left out.
    omitted: HashSet<u64>,
    /// Where those are that are somewhere else.
    blobs: HashMap<u64, BlobRef>,
}

impl Carried {
    pub(crate) fn has(&self, seq: u64) -> bool {
        self.values.contains_key(&seq) || self.omitted.contains(&seq)
    }

    /// What the payload and the definition are made of is never left out.
    pub(crate) fn keep(&mut self, seq: u64, value: Option<Json>) {
        let bytes = value.as_ref().map_or(0, Json::len);
        if seq > 1 && self.bytes + bytes > SHOWN_BYTES {
            return self.omit(seq);
        }
        self.bytes += bytes;
        self.values.insert(seq, value);
    }

    pub(crate) fn omit(&mut self, seq: u64) {
        self.omitted.insert(seq);
    }

    /// Bytes of what is kept.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_full(&self) -> bool {
        !self.omitted.is_empty()
    }

    fn omits(&self, row: &StepRow) -> bool {
        row.output_seq.is_some_and(|seq| self.omitted.contains(&seq))
    }

    pub(crate) fn keep_blob(&mut self, seq: u64, blob: BlobRef) {
        self.blobs.insert(seq, blob);
    }

    fn value(&self, seq: u64) -> Option<Json> {
        self.values.get(&seq).cloned().flatten()
    }

    fn blob(&self, row: &StepRow) -> Option<BlobRef> {
        self.blobs.get(&row.output_seq?).copied()
    }
}

/// Puts a run together from its rows and the values that their events carry.
pub(crate) fn run_view(
    plan: &Plan,
    projection: &Projection,
    carried: &Carried,
    artifacts: &[ArtifactRow],
) -> Option<RunView> {
    let (mut files, artifacts) = by_step(artifacts);
    let snapshot = projection.snapshot()?;
    let ended = snapshot.status.is_terminal();
    let mut steps = Vec::with_capacity(plan.steps.len());
    for index in &plan.order {
        let id = plan.step(*index).id.to_string();
        let items = items_of(projection, &id);
        let row = projection.steps().get(&id);
        let mut view = step_view(plan, StepRef::whole(*index), row, carried, ended.then_some(SkipReason::Cancelled));
        if view.output.is_none() && view.status == StepStatus::Completed && plan.step(*index).foreach.is_some() {
            // A list with parts that are somewhere else is not shown at all.
            let whole = items.iter().all(|row| carried.blob(row).is_none() && !carried.omits(row));
            view.output = whole.then(|| join(items.iter().map(|row| output_of(row, carried))));
            view.output_omitted = items.iter().any(|row| carried.omits(row));
        }
        view.artifacts = files.remove(id.as_str()).unwrap_or_default();
        steps.push(view);
        let over = ended.then(|| over_with(row));
        for (item, row) in items.into_iter().enumerate() {
            let mut view = step_view(plan, StepRef::item(*index, item as u32), Some(row), carried, over);
            if !files.is_empty() {
                view.artifacts = files.remove(view.step_id.as_str()).unwrap_or_default();
            }
            steps.push(view);
        }
    }
    // An output with parts that are left out would be another.
    let shown = snapshot.status == RunStatus::Completed && !is_omitted(plan, &steps);
    let output = shown.then(|| last_outputs(plan, &steps));
    let payload = carried.value(1).unwrap_or_else(Json::null);
    let definition = carried.value(DEFINITION);
    Some(RunView { summary: RunSummary::from(snapshot), definition, payload, output, artifacts, steps })
}

/// The same of a run whose plan nobody may look at: the steps that have rows, in the order of their ids.
pub(crate) fn unseen_run_view(
    projection: &Projection,
    carried: &Carried,
    artifacts: &[ArtifactRow],
) -> Option<RunView> {
    let snapshot = projection.snapshot()?;
    let (mut files, artifacts) = by_step(artifacts);
    let ended = snapshot.status.is_terminal();
    let steps = projection.steps().values().map(|row| {
        let over = ended.then(|| match row.step_id.split_once('[') {
            Some((step, _)) => over_with(projection.steps().get(step)),
            None => SkipReason::Cancelled,
        });
        let view = row_view(&row.step_id, &row.skill, Some(row), carried, over);
        StepView { artifacts: files.remove(row.step_id.as_str()).unwrap_or_default(), ..view }
    });
    Some(RunView {
        summary: RunSummary::from(snapshot),
        definition: carried.value(DEFINITION),
        payload: carried.value(1).unwrap_or_else(Json::null),
        output: None,
        steps: steps.collect(),
        artifacts,
    })
}

/// Those of steps, and those of the run as a whole.
fn by_step(artifacts: &[ArtifactRow]) -> (HashMap<&str, Vec<ArtifactView>>, Vec<ArtifactView>) {
    let (mut by_step, mut of_run) = (HashMap::new(), Vec::new());
    for row in artifacts {
        let list = row.step_id.as_deref().map_or(&mut of_run, |step| by_step.entry(step).or_default());
        list.push(ArtifactView::from(row));
    }
    (by_step, of_run)
}

/// The rows of a `foreach` step's items, in order.
fn items_of<'p>(projection: &'p Projection, id: &str) -> Vec<&'p StepRow> {
    let prefix = format!("{id}[");
    let mut items: Vec<(u32, &StepRow)> = projection
        .steps()
        .range(prefix.clone()..)
        .take_while(|(step, _)| step.starts_with(&prefix))
        .filter(|(_, row)| row.skip_reason != Some(SkipReason::Removed))
        .filter_map(|(step, row)| Some((step[prefix.len()..].trim_end_matches(']').parse().ok()?, row)))
        .collect();
    items.sort_unstable_by_key(|(item, _)| *item);
    items.into_iter().map(|(_, row)| row).collect()
}

fn output_of(row: &StepRow, carried: &Carried) -> Option<Json> {
    carried.value(row.output_seq?)
}

fn join(outputs: impl Iterator<Item = Option<Json>>) -> Json {
    let texts: Vec<String> =
        outputs.map(|output| output.map_or_else(|| "null".to_owned(), |json| json.as_str().to_owned())).collect();
    Json::trusted(format!("[{}]", texts.join(",")))
}

/// Whether the output of a last step is left out.
fn is_omitted(plan: &Plan, steps: &[StepView]) -> bool {
    let last = |id: &str| plan.last_steps.iter().any(|index| *plan.step(*index).id == *id);
    steps.iter().any(|step| step.output_omitted && last(&step.step_id))
}

/// Outputs are text already and are not read again.
fn last_outputs(plan: &Plan, steps: &[StepView]) -> Json {
    let by_id: HashMap<&str, &StepView> = steps.iter().map(|step| (step.step_id.as_str(), step)).collect();
    let mut outputs = Vec::with_capacity(plan.last_steps.len());
    for index in &plan.last_steps {
        let id = &*plan.step(*index).id;
        let output = match by_id.get(id).map(|step| (&step.output, step.skip_reason)) {
            Some((Some(output), _)) => output.as_str(),
            Some((None, Some(SkipReason::Condition))) => "null",
            _ => continue,
        };
        outputs.push(format!("{}:{output}", serde_json::Value::from(id)));
    }
    Json::trusted(format!("{{{}}}", outputs.join(",")))
}

/// Why items of a step are over that had not ended when the run did.
pub(crate) fn over_with(step: Option<&StepRow>) -> SkipReason {
    let stopped = step.is_some_and(|row| row.skip_reason == Some(SkipReason::RunStopped));
    if stopped { SkipReason::RunStopped } else { SkipReason::Cancelled }
}

pub(crate) fn step_view(
    plan: &Plan,
    step: StepRef,
    row: Option<&StepRow>,
    carried: &Carried,
    over: Option<SkipReason>,
) -> StepView {
    row_view(&step.name(plan), &plan.step(step.step).skill, row, carried, over)
}

/// A step as its row has it. `over`: why it is, if its run has ended before it did.
fn row_view(
    step_id: &str,
    skill: &str,
    row: Option<&StepRow>,
    carried: &Carried,
    over: Option<SkipReason>,
) -> StepView {
    let status = row.map_or(StepStatus::Pending, |row| row.status);
    // What had not ended when its run did, never will: logs of earlier releases do not say so of steps, none says so of items.
    let closed = over.filter(|_| !status.is_terminal());
    let skip_reason = closed.or_else(|| row.and_then(|row| row.skip_reason));
    let (started_at, ended_at) = row.map_or((None, None), |row| (row.started_at, row.ended_at));
    StepView {
        step_id: step_id.to_owned(),
        skill: skill.to_owned(),
        status: if closed.is_some() { StepStatus::Skipped } else { status },
        skip_reason,
        logical_attempt: row.map_or(0, |row| row.logical_attempt),
        engine_attempt: row.map_or(0, |row| row.engine_attempt),
        cache_hit: skip_reason == Some(SkipReason::CacheHit),
        input_hash: row.and_then(|row| row.input_hash),
        output: row.and_then(|row| output_of(row, carried)),
        output_blob: row.and_then(|row| carried.blob(row)),
        output_omitted: row.is_some_and(|row| carried.omits(row)),
        error: row.and_then(|row| read_error(row.error.as_ref())),
        artifacts: Vec::new(),
        started_at,
        ended_at,
        duration_ms: started_at.zip(ended_at).map(|(from, to)| to.ms_since(from)),
    }
}
