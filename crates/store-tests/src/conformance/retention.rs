//! Runs that ended long ago are forgotten.
//!
//! All of it happens in January 1970: whoever else uses the database keeps its runs, and a month that is over is not waited
//! for.

use std::sync::Arc;

use milepost_core::id::{OrgId, RunId};
use milepost_core::status::{RunStatus, StepStatus};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{
    Answer, CheckpointRow, Forgotten, HeadWrite, LogChunkRow, NewHead, ProjectionWrite, Question, RunWrite, SlotWrite,
    SnapshotRow, StatusWrite, TimerWrite, WriteResult,
};

use super::{commit, written};
use crate::rows::{
    ORG, advance, batch, new_head, new_node, new_run, project, run_at, snapshot, start, start_with, step, unique,
};
use RunStatus::{Cancelled, Completed, Failed, Running, Terminated};

/// As many as there are.
const ALL: u32 = 100_000;

pub(super) async fn check(store: &Arc<dyn Store>) {
    forget_all(&**store).await;
    a_run_goes_with_all_that_belongs_to_it(&**store).await;
    runs_go_when_their_time_is_over(&**store).await;
    runs_that_somebody_needs_stay(&**store).await;
    a_run_that_was_opened_again_stays(&**store).await;
    a_base_goes_after_those_built_upon_it(&**store).await;
    those_that_ended_first_go_first(&**store).await;
    a_long_run_is_there_as_a_whole_or_not_at_all(store).await;
    what_a_run_has_outside_is_known_when_it_is_gone(&**store).await;
}

fn day(day: i64) -> Timestamp {
    Timestamp(day * 24 * 3600 * 1_000_000)
}

/// All that is said here is over by then.
fn spring() -> Timestamp {
    day(80)
}

fn old_run() -> RunId {
    run_at(24 * 3600 * 1000)
}

fn ended(status: RunStatus, at: Timestamp) -> StatusWrite {
    StatusWrite { status, started_at: Some(day(1)), completed_at: Some(at) }
}

/// A run that has ended and is projected.
async fn end(store: &dyn Store, run: RunId, events: u64, head: NewHead) {
    let row = SnapshotRow {
        status: head.status.status,
        completed_at: head.status.completed_at,
        base_run: head.base_run,
        request_id: head.request_id.clone(),
        ..snapshot(run, events)
    };
    written(store, start_with(run, events, head)).await;
    let steps = vec![step("a", StepStatus::Completed), step("b[0]", StepStatus::Failed)];
    let write = ProjectionWrite { steps, ..project(0, row) };
    assert_eq!(store.project(vec![write]).await.unwrap(), [WriteResult::Written]);
}

async fn end_at(store: &dyn Store, status: RunStatus, at: Timestamp) -> RunId {
    let run = old_run();
    end(store, run, 3, NewHead { status: ended(status, at), ..new_head() }).await;
    run
}

async fn is_there(store: &dyn Store, run: RunId) -> bool {
    store.head(ORG, run).await.unwrap().is_some()
}

/// Until there is no more to do.
async fn forget(store: &dyn Store, ended_before: Timestamp) -> u64 {
    let mut runs = 0;
    loop {
        let forgotten = store.forget_runs(ended_before, ALL).await.unwrap();
        runs += forgotten.runs;
        if !forgotten.more {
            return runs;
        }
    }
}

/// What an earlier test, or an earlier run of all tests, kept.
async fn forget_all(store: &dyn Store) {
    forget(store, spring()).await;
}

async fn a_run_goes_with_all_that_belongs_to_it(store: &dyn Store) {
    let (run, other, request, key) = (old_run(), old_run(), unique("request"), unique("slot"));
    let head = NewHead { request_id: Some(request.clone()), status: ended(Completed, day(2)), ..new_head() };
    end(store, run, 3, head.clone()).await;
    end(store, other, 3, NewHead { status: ended(Completed, day(50)), ..new_head() }).await;
    let logs = |run| LogChunkRow {
        org: ORG,
        run,
        step_id: "a".to_owned(),
        logical_attempt: 1,
        engine_attempt: 1,
        first_line: 0,
        lines: 1,
        content: vec![0; 10_000],
        blob: None,
    };
    for run in [run, other] {
        let rest = RunWrite {
            timers: vec![TimerWrite::Arm { seq: 3, due_at: day(500_000) }],
            slot: Some(SlotWrite::Hold { key: key.clone() }),
            checkpoint: Some(CheckpointRow { seq: 2, format: 1, state: vec![7; 9000] }),
            ..advance(run, 3, 1)
        };
        written(store, rest).await;
        store.append_logs(vec![logs(run)]).await.unwrap();
    }
    assert_eq!(forget(store, day(40)).await, 1);
    assert_eq!(store.head(ORG, run).await.unwrap(), None);
    assert!(store.load_runs(&[(ORG, run)]).await.unwrap().is_empty());
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap(), []);
    assert_eq!(store.timers_of(ORG, run).await.unwrap(), []);
    assert_eq!(store.slot_of(ORG, run).await.unwrap(), None);
    assert_eq!(store.projection(ORG, run).await.unwrap(), None);
    assert_eq!(store.steps_by_id(ORG, run, &["a".to_owned()]).await.unwrap(), []);
    assert_eq!(store.logs(ORG, run, None, None, 10).await.unwrap(), []);
    assert!(!store.log_gaps(ALL).await.unwrap().iter().any(|gap| gap.run == run));
    let asked = vec![
        Question::RunOfRequest { org: ORG, workflow: new_head().workflow, request_id: request.clone() },
        Question::SlotsHeld { org: ORG, key: key.clone() },
    ];
    let (transaction, answers) = store.ask(asked).await.unwrap();
    assert!(matches!(answers[..], [Answer::RunOfRequest(None), Answer::SlotsHeld(1)]), "{answers:?}");
    drop(transaction);

    // Nothing of the other one is gone.
    let loaded = store.load_runs(&[(ORG, other)]).await.unwrap();
    assert_eq!((loaded[0].checkpoint.as_ref().unwrap().seq, loaded[0].tail.len()), (2, 2));
    assert_eq!(store.events(ORG, other, 0, 10).await.unwrap().len(), 4);
    assert_eq!(store.timers_of(ORG, other).await.unwrap().len(), 1);
    assert_eq!(store.projection(ORG, other).await.unwrap().unwrap().1.len(), 2);
    assert_eq!(store.logs(ORG, other, None, None, 10).await.unwrap(), [logs(other)]);

    // Its request id is free, and so is its own.
    end(store, run, 3, head).await;
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 3);
    assert_eq!(forget(store, spring()).await, 2);
}

async fn runs_go_when_their_time_is_over(store: &dyn Store) {
    let mut early = Vec::new();
    for status in [Completed, Failed, Cancelled, Terminated] {
        early.push(end_at(store, status, Timestamp(day(10).0 - 1)).await);
    }
    let just = end_at(store, Completed, day(10)).await;
    assert_eq!(forget(store, day(10)).await, 4);
    for run in early {
        assert!(!is_there(store, run).await);
    }
    assert!(is_there(store, just).await, "it did not end before that moment but at it");
    assert_eq!(store.forget_runs(day(10), ALL).await.unwrap(), Forgotten::default());
    assert_eq!(forget(store, Timestamp(day(10).0 + 1)).await, 1);
}

async fn runs_that_somebody_needs_stay(store: &dyn Store) {
    let (open, owned, elsewhere, node) = (old_run(), old_run(), old_run(), new_node());
    let running = StatusWrite { status: Running, started_at: Some(day(1)), completed_at: None };
    end(store, open, 2, NewHead { status: running, ..new_head() }).await;
    end(store, owned, 2, NewHead { status: ended(Failed, day(2)), owner: Some(node), ..new_head() }).await;
    // Not projected yet: its owner died before, or is about to take it.
    written(
        store,
        start_with(elsewhere, 2, NewHead { status: ended(Failed, day(2)), owner: Some(node), ..new_head() }),
    )
    .await;
    // Nobody knows when it will have ended, whatever it says.
    let odd = old_run();
    end(store, odd, 2, NewHead { status: ended(Running, day(2)), ..new_head() }).await;
    assert_eq!(forget(store, spring()).await, 0);
    for run in [open, owned, elsewhere, odd] {
        assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 2);
    }
    let release = |run, expected| {
        let row = SnapshotRow { status: Failed, completed_at: Some(day(2)), ..snapshot(run, 2) };
        ProjectionWrite { release: true, ..project(expected, row) }
    };
    store.project(vec![release(owned, 2), release(elsewhere, 0)]).await.unwrap();
    let end = HeadWrite::Update { status: Some(ended(Cancelled, day(3))), owner: None };
    written(store, RunWrite { head: end.clone(), ..advance(open, 2, 0) }).await;
    written(store, RunWrite { head: end, ..advance(odd, 2, 0) }).await;
    let row = SnapshotRow { status: Cancelled, completed_at: Some(day(3)), ..snapshot(open, 3) };
    store.project(vec![project(2, row)]).await.unwrap();
    assert_eq!(forget(store, spring()).await, 4);
}

async fn a_run_that_was_opened_again_stays(store: &dyn Store) {
    let run = end_at(store, Failed, day(2)).await;
    let again = StatusWrite { status: Running, started_at: Some(day(1)), completed_at: None };
    let reopened = RunWrite { head: HeadWrite::Update { status: Some(again), owner: None }, ..advance(run, 3, 1) };
    written(store, reopened).await;
    // Its projection still says that it failed.
    assert_eq!(forget(store, spring()).await, 0);
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap().len(), 4);
    // It ends again, later; the projection says when it had ended first.
    let later = HeadWrite::Update { status: Some(ended(Failed, day(70))), owner: None };
    written(store, RunWrite { head: later, ..advance(run, 4, 1) }).await;
    assert_eq!(forget(store, day(70)).await, 0);
    assert_eq!(forget(store, spring()).await, 1);
}

async fn a_base_goes_after_those_built_upon_it(store: &dyn Store) {
    let (base, update, latest) = (old_run(), old_run(), old_run());
    let built_upon = |base, at| NewHead { base_run: Some(base), status: ended(Completed, at), ..new_head() };
    end(store, base, 2, NewHead { status: ended(Completed, day(2)), ..new_head() }).await;
    end(store, update, 2, built_upon(base, day(3))).await;
    end(store, latest, 2, built_upon(update, day(50))).await;
    // Somebody else's run of that name has nothing to do with it.
    let namesake =
        RunWrite { org: OrgId(2), ..start_with(new_run(), 1, NewHead { base_run: Some(latest), ..new_head() }) };
    written(store, namesake).await;
    assert_eq!(forget(store, day(40)).await, 0, "all of them are needed by the latest");
    assert!(is_there(store, base).await && is_there(store, update).await);
    assert_eq!(forget(store, spring()).await, 3, "one after the other");
    for run in [base, update, latest] {
        assert!(!is_there(store, run).await);
    }
}

async fn those_that_ended_first_go_first(store: &dyn Store) {
    let mut runs = Vec::new();
    for n in [3, 1, 4, 2, 5] {
        runs.push((n, end_at(store, Completed, day(n)).await));
    }
    runs.sort_unstable();
    let first = store.forget_runs(spring(), 2).await.unwrap();
    assert_eq!((first.runs, first.more), (2, true));
    for (n, run) in &runs {
        assert_eq!(is_there(store, *run).await, *n > 2, "the one that ended on day {n}");
    }
    let none = store.forget_runs(spring(), 0).await.unwrap();
    assert_eq!((none.runs, none.more), (0, true));
    assert_eq!(forget(store, spring()).await, 3);
}

async fn a_long_run_is_there_as_a_whole_or_not_at_all(store: &Arc<dyn Store>) {
    const EVENTS: u64 = 11_000;
    let (run, bystander) = (old_run(), new_run());
    let mut head = NewHead { status: ended(Completed, day(2)), ..new_head() };
    head.request_id = Some(unique("request"));
    end(&**store, run, EVENTS, head).await;
    written(&**store, start(bystander, 1)).await;
    let forgetting = tokio::spawn({
        let store = store.clone();
        async move { forget(&*store, spring()).await }
    });
    let mut seq = 1;
    while !forgetting.is_finished() {
        for loaded in store.load_runs(&[(ORG, run)]).await.unwrap() {
            assert_eq!(loaded.tail.len() as u64, EVENTS, "a run that is there has all its events");
        }
        assert!(!store.log_gaps(ALL).await.unwrap().iter().any(|gap| gap.run == run), "nobody misses what is going");
        // Others go on meanwhile.
        commit(&**store, batch([advance(bystander, seq, 1)])).await;
        seq += 1;
    }
    assert_eq!(forgetting.await.unwrap(), 1);
    assert_eq!(store.events_at(ORG, run, &[1, EVENTS / 2, EVENTS]).await.unwrap(), []);
    assert_eq!(store.head(ORG, bystander).await.unwrap().unwrap().last_seq, seq);
}

async fn what_a_run_has_outside_is_known_when_it_is_gone(store: &dyn Store) {
    let blobs = store.run_blobs();
    let gone = async || blobs.gone(ALL).await.unwrap().into_iter().map(|(_, run)| run).collect::<Vec<_>>();
    let old = end_at(store, Completed, day(2)).await;
    let (plain, young, never) = (end_at(store, Failed, day(2)).await, new_run(), old_run());
    written(store, start(young, 1)).await;
    blobs.note(&[(ORG, old), (ORG, young)]).await.unwrap();
    blobs.note(&[(ORG, young)]).await.unwrap();
    blobs.note(&[]).await.unwrap();
    assert!(gone().await.iter().all(|run| ![old, plain, young].contains(run)));
    assert_eq!(forget(store, spring()).await, 2);
    // One that comes late is of a run that is gone already.
    blobs.note(&[(ORG, never)]).await.unwrap();
    let found = gone().await;
    assert!(found.contains(&old) && found.contains(&never), "{found:?}");
    assert!(!found.contains(&plain) && !found.contains(&young), "{found:?}");
    assert_eq!(blobs.gone(1).await.unwrap().len(), 1);
    blobs.clear(&[(ORG, old), (ORG, never), (ORG, young), (OrgId(2), old)]).await.unwrap();
    assert!(gone().await.iter().all(|run| ![old, never].contains(run)));
    // The one that is there has its note still, and what comes for the other one is found again.
    blobs.note(&[(ORG, old)]).await.unwrap();
    assert!(gone().await.contains(&old));
    blobs.clear(&[(ORG, old)]).await.unwrap();
}
