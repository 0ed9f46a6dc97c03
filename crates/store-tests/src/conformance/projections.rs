//! What is derived from the log.

use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::status::{RunStatus, SkipReason, StepStatus};
use milepost_store::Store;
use milepost_store::rows::{
    NewHead, ProjectionWrite, RunRows, RunWrite, SnapshotRow, StepRow, TransitionRow, WriteResult,
};
use uuid::Uuid;

use super::written;
use crate::rows::{
    ORG, advance, at, event, new_head, new_node, new_run, project, snapshot, start, start_with, step, unique,
};
use WriteResult::{Conflict, Written};

pub(super) async fn check(shared: &Arc<dyn Store>) {
    let store = &**shared;
    every_column_of_a_snapshot_comes_back(store).await;
    a_projection_is_written_only_from_where_it_stands(store).await;
    steps_are_replaced_one_by_one(store).await;
    a_dropped_projection_can_be_made_anew(store).await;
    a_projection_is_read_as_of_one_moment(shared).await;
    a_run_is_read_in_one_go(store).await;
    the_events_of_one_step_are_read_alone(store).await;
    a_run_is_released_only_at_the_end_of_its_log(store).await;
    transitions_are_read_from_the_log(store).await;
}

async fn put(store: &dyn Store, write: ProjectionWrite) -> WriteResult {
    store.project(vec![write]).await.unwrap().remove(0)
}

async fn every_column_of_a_snapshot_comes_back(store: &dyn Store) {
    let run = new_run();
    let first = SnapshotRow {
        request_id: Some(unique("request")),
        base_run: Some(new_run()),
        parent_run: Some(new_run()),
        priority: -2,
        steps_total: 12,
        steps_done: 7,
        steps_failed: 3,
        error: Some(Json::trusted(r#""bad""#)),
        completed_at: Some(at(77)),
        status: RunStatus::Failed,
        ..snapshot(run, 4)
    };
    assert_eq!(put(store, project(0, first.clone())).await, Written);
    assert_eq!(store.snapshot(ORG, run).await.unwrap().as_ref(), Some(&first));
    for (seq, status) in [(5, RunStatus::Failed), (9, RunStatus::Running)] {
        let next = SnapshotRow {
            status,
            last_event_seq: seq,
            steps_done: 8,
            steps_total: 13,
            steps_failed: 0,
            workflow_version: "1.0.1".to_owned(),
            priority: 4,
            error: None,
            started_at: Some(at(78)),
            completed_at: None,
            ..first.clone()
        };
        let before = store.snapshot(ORG, run).await.unwrap().unwrap().last_event_seq;
        assert_eq!(put(store, project(before, next.clone())).await, Written);
        assert_eq!(store.snapshot(ORG, run).await.unwrap(), Some(next));
    }
    assert_eq!(store.snapshot(ORG, new_run()).await.unwrap(), None);
}

async fn a_projection_is_written_only_from_where_it_stands(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    assert_eq!(put(store, project(3, snapshot(run, 4))).await, Conflict, "there is none yet");
    assert_eq!(put(store, project(0, snapshot(run, 4))).await, Written);
    let late = ProjectionWrite { steps: vec![step("late", StepStatus::Running)], ..project(0, snapshot(run, 2)) };
    let mixed = vec![late, project(0, snapshot(other, 1)), project(2, snapshot(run, 9))];
    assert_eq!(store.project(mixed).await.unwrap(), [Conflict, Written, Conflict]);
    assert_eq!(store.snapshot(ORG, run).await.unwrap().unwrap().last_event_seq, 4);
    assert_eq!(steps(store, run).await, []);
    assert_eq!(store.snapshot(ORG, other).await.unwrap().unwrap().last_event_seq, 1);
    assert_eq!(store.project(Vec::new()).await.unwrap(), []);
}

async fn steps(store: &dyn Store, run: RunId) -> Vec<StepRow> {
    store.projection(ORG, run).await.unwrap().map(|(_, steps)| steps).unwrap_or_default()
}

async fn steps_are_replaced_one_by_one(store: &dyn Store) {
    let run = new_run();
    let full = StepRow {
        skip_reason: Some(SkipReason::CacheHit),
        logical_attempt: 3,
        engine_attempt: 8,
        input_hash: Some(Digest::of(b"input")),
        output_seq: Some(6),
        error: Some(Json::trusted("[]")),
        started_at: Some(at(1)),
        ended_at: Some(at(2)),
        ..step("b[10]", StepStatus::Skipped)
    };
    let first = vec![step("a", StepStatus::Pending), full.clone()];
    assert_eq!(put(store, ProjectionWrite { steps: first, ..project(0, snapshot(run, 1)) }).await, Written);
    assert_eq!(steps(store, run).await, [step("a", StepStatus::Pending), full.clone()]);
    let second = vec![step("a", StepStatus::Completed), step("c", StepStatus::Running)];
    assert_eq!(put(store, ProjectionWrite { steps: second, ..project(1, snapshot(run, 2)) }).await, Written);
    let expected = [step("a", StepStatus::Completed), full.clone(), step("c", StepStatus::Running)];
    assert_eq!(steps(store, run).await, expected);
    let some = store.steps_by_id(ORG, run, &["b[10]".to_owned(), "none".to_owned()]).await.unwrap();
    assert_eq!(some, [full]);
    assert_eq!(store.steps_by_id(ORG, run, &[]).await.unwrap(), []);
}

async fn a_dropped_projection_can_be_made_anew(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    for run in [run, other] {
        let write = ProjectionWrite { steps: vec![step("a", StepStatus::Running)], ..project(0, snapshot(run, 3)) };
        assert_eq!(put(store, write).await, Written);
    }
    store.drop_projection(ORG, run).await.unwrap();
    assert_eq!(store.snapshot(ORG, run).await.unwrap(), None);
    assert_eq!(store.projection(ORG, run).await.unwrap(), None);
    assert_eq!(steps(store, other).await.len(), 1);
    assert_eq!(put(store, project(0, snapshot(run, 5))).await, Written);
    assert_eq!(store.projection(ORG, run).await.unwrap(), Some((snapshot(run, 5), Vec::new())), "nothing came back");
    assert_eq!(store.projection(OrgId(2), run).await.unwrap(), None);
}

/// Each write says everywhere which one it was.
async fn a_projection_is_read_as_of_one_moment(store: &Arc<dyn Store>) {
    const WRITES: u64 = 150;
    let run = new_run();
    let numbered = move |seq: u64| {
        let row = |id: &str| StepRow { output_seq: Some(seq), ..step(id, StepStatus::Running) };
        ProjectionWrite { steps: ["a", "b", "c"].map(row).to_vec(), ..project(seq - 1, snapshot(run, seq)) }
    };
    assert_eq!(put(&**store, numbered(1)).await, Written);
    let writing = tokio::spawn({
        let store = store.clone();
        async move {
            for seq in 2..=WRITES {
                assert_eq!(put(&*store, numbered(seq)).await, Written);
            }
        }
    });
    let mut seen = 0;
    while seen < WRITES {
        let (snapshot, steps) = store.projection(ORG, run).await.unwrap().unwrap();
        assert!(
            steps.len() == 3 && steps.iter().all(|step| step.output_seq == Some(snapshot.last_event_seq)),
            "{steps:?}"
        );
        seen = snapshot.last_event_seq;
    }
    writing.await.unwrap();
}

async fn a_run_is_released_only_at_the_end_of_its_log(store: &dyn Store) {
    let (run, node) = (new_run(), new_node());
    store.heartbeat(node, at(0), 1000).await.unwrap();
    written(store, start_with(run, 2, NewHead { owner: Some(node), ..new_head() })).await;
    let release = |expected, seq| ProjectionWrite { release: true, ..project(expected, snapshot(run, seq)) };
    let owner = async || store.head(ORG, run).await.unwrap().unwrap().owner;
    assert_eq!(put(store, release(0, 1)).await, Written);
    assert_eq!(owner().await, Some(node), "the log goes on after what was projected");
    assert_eq!(put(store, release(7, 2)).await, Conflict);
    assert_eq!(owner().await, Some(node), "nothing of a conflicting write counts");
    assert_eq!(put(store, project(1, snapshot(run, 2))).await, Written);
    assert_eq!(owner().await, Some(node), "not asked to release");
    assert_eq!(put(store, release(2, 2)).await, Written);
    assert_eq!(owner().await, None);
    written(store, advance(run, 2, 1)).await;
    store.leave(node).await.unwrap();
}

async fn transitions_are_read_from_the_log(store: &dyn Store) {
    let run = new_run();
    let signal = SignalId(Uuid::now_v7());
    let types = [
        "RunQueued",
        "RunApproved",
        "RunStarted",
        "StepStarted",
        "RunPaused",
        "RunResumed",
        "RunFailed",
        "RunReopened",
        "RunCompleted",
        "RunCancelled",
        "RunTerminated",
    ];
    let mut events: Vec<EventRow> = (1..).zip(types).map(|(seq, event_type)| event(run, seq, event_type)).collect();
    // What stands beside the fields that are read may be no text for a database.
    let odd = r#"{"a\u0000":"\u0000 \\u0000 \\","b":"\\\u0000\""}"#;
    events[0].data = Json::trusted(format!(r#"{{"payload":{odd},"status":"pending","submitted_by":"ada"}}"#));
    events[4].signal = Some(signal);
    events[4].data = Json::trusted(r#"{"actor":"bob \"b\" Zoé"}"#);
    let length = events.len() as u64;
    written(store, RunWrite { events, ..start(run, length) }).await;
    let found = store.transitions(ORG, run).await.unwrap();
    use RunStatus::{Approved, Cancelled, Completed, Failed, Paused, Pending, Running, Terminated};
    let expected = [
        (1, None, Pending),
        (2, Some(Pending), Approved),
        (3, Some(Approved), Running),
        (5, Some(Running), Paused),
        (6, Some(Paused), Running),
        (7, Some(Running), Failed),
        (8, Some(Failed), Running),
        (9, Some(Running), Completed),
        (10, Some(Completed), Cancelled),
        (11, Some(Cancelled), Terminated),
    ];
    let row = |(seq, from, to): (u64, Option<RunStatus>, RunStatus)| TransitionRow {
        seq,
        from,
        to,
        signal: (seq == 5).then_some(signal),
        changed_by: match seq {
            1 => Some("ada".to_owned()),
            5 => Some("bob \"b\" Zoé".to_owned()),
            _ => None,
        },
        at: event(run, seq, "").emitted_at,
    };
    assert_eq!(found, expected.map(row));
    assert_eq!(store.transitions(ORG, new_run()).await.unwrap(), []);

    // Steps of a run that is cancelled may end later, and so does it: whoever cancelled it changed it.
    let run = new_run();
    let types = ["RunQueued", "SignalAccepted", "SignalAccepted", "SignalAccepted", "RunCancelled"];
    let mut events: Vec<EventRow> = (1..).zip(types).map(|(seq, event_type)| event(run, seq, event_type)).collect();
    events[1].data = Json::trusted(r#"{"type":"go","payload":1,"actor":"ada"}"#);
    events[2].data = Json::trusted(r#"{"type":"CANCEL","payload":{"actor":"eve"},"actor":"bob"}"#);
    events[3].data = Json::trusted(r#"{"type":"go","payload":{"type":"CANCEL"},"actor":"eve"}"#);
    events[4].data = Json::trusted(r#"{"reason":"cancelled"}"#);
    written(store, RunWrite { events, ..start(run, 5) }).await;
    let found = store.transitions(ORG, run).await.unwrap();
    let whose: Vec<Option<&str>> = found.iter().map(|row| row.changed_by.as_deref()).collect();
    assert_eq!(whose, [None, Some("bob")]);
}

async fn a_run_is_read_in_one_go(store: &dyn Store) {
    assert_eq!(store.read_run(ORG, new_run()).await.unwrap(), None);
    let run = new_run();
    written(store, start(run, 6)).await;
    let seqs = |events: &[EventRow]| {
        let mut seqs: Vec<u64> = events.iter().map(|event| event.seq).collect();
        seqs.sort_unstable();
        seqs
    };
    let rows = store.read_run(ORG, run).await.unwrap().unwrap();
    assert_eq!((rows.head.last_seq, &rows.projection, seqs(&rows.carrying)), (6, &None, vec![]));
    assert_eq!(rows.tail.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    let steps = vec![
        StepRow { output_seq: Some(3), ..step("a", StepStatus::Completed) },
        StepRow { output_seq: None, ..step("b", StepStatus::Running) },
    ];
    let write = ProjectionWrite { steps: steps.clone(), ..project(0, snapshot(run, 4)) };
    assert_eq!(put(store, write).await, Written);
    let rows = store.read_run(ORG, run).await.unwrap().unwrap();
    assert_eq!(rows.projection, Some((snapshot(run, 4), steps)));
    assert_eq!((seqs(&rows.tail), seqs(&rows.carrying)), (vec![5, 6], vec![1, 3]));
    assert_eq!(put(store, project(4, snapshot(run, 6))).await, Written);
    assert_eq!(store.read_run(ORG, run).await.unwrap().unwrap().tail, []);
    assert_eq!(store.read_run(OrgId(2), run).await.unwrap(), None);
    // However long its log is.
    let tail = u64::from(RunRows::TAIL);
    written(store, advance(run, 6, tail + 1)).await;
    let rows = store.read_run(ORG, run).await.unwrap().unwrap();
    assert_eq!((rows.head.last_seq, seqs(&rows.carrying)), (7 + tail, vec![1, 3]));
    assert!(rows.tail.iter().map(|event| event.seq).eq(7..7 + tail));
}

async fn the_events_of_one_step_are_read_alone(store: &dyn Store) {
    let run = new_run();
    let of = |seq, name: &str| EventRow { step_id: Some(name.into()), ..event(run, seq, "StepStarted") };
    let events = vec![event(run, 1, "RunQueued"), of(2, "a"), of(3, "a[0]"), of(4, "b"), of(5, "a"), of(6, "a")];
    written(store, RunWrite { events, ..start(run, 6) }).await;
    let read = async |name, after, limit| -> Vec<u64> {
        let events = store.step_events(ORG, run, name, after, limit).await.unwrap();
        events.iter().map(|event| event.seq).collect()
    };
    assert_eq!(read("a", 0, 10).await, [2, 5, 6]);
    assert_eq!((read("a", 2, 1).await, read("a[0]", 0, 10).await, read("c", 0, 10).await), (vec![5], vec![3], vec![]));
}
