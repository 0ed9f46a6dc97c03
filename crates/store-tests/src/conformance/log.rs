//! Heads, events, checkpoints, compare-and-swap and groups.

use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_store::rows::{
    Batch, CheckpointRow, HeadRow, HeadWrite, NewHead, PatchedHead, RunWrite, SlotWrite, StatusWrite, TimerWrite,
    WriteResult,
};
use milepost_store::{Store, StoreError};

use super::{commit, last_seq, written};
use crate::rows::{
    ORG, advance, at, batch, event, full_event, new_head, new_node, new_run, plain_events, start, start_with, unique,
};
use WriteResult::{Conflict, Written};

pub(super) async fn check(store: &dyn Store) {
    every_column_of_a_head_comes_back(store).await;
    every_column_of_an_event_comes_back(store).await;
    long_data_comes_back(store).await;
    the_log_is_read_in_pages(store).await;
    events_are_found_by_their_keys(store).await;
    a_patched_run_follows_another_plan(store).await;
    an_empty_batch_is_fine(store).await;
    a_stale_write_conflicts_and_leaves_nothing(store).await;
    a_run_that_does_not_exist_conflicts(store).await;
    a_taken_run_id_conflicts(store).await;
    a_taken_request_id_conflicts(store).await;
    orgs_do_not_see_each_other(store).await;
    a_conflict_takes_its_group_and_nothing_else(store).await;
    a_child_is_undone_with_its_parent(store).await;
    a_used_idempotency_key_refuses_the_whole_batch(store).await;
    an_update_changes_only_what_it_names(store).await;
    the_owner_alone_can_change(store).await;
    a_checkpoint_shortens_what_is_loaded(store).await;
    missing_runs_are_left_out(store).await;
}

async fn every_column_of_a_head_comes_back(store: &dyn Store) {
    let (run, base, parent, owner) = (new_run(), new_run(), new_run(), new_node());
    let new = NewHead {
        workflow: Arc::from("wörkflow"),
        workflow_version: Arc::from("2.1.0"),
        plan_hash: Digest::of(run.0.as_bytes()),
        request_id: Some(unique("request")),
        asked: None,
        base_run: Some(base),
        parent_run: Some(parent),
        priority: -3,
        created_at: at(5),
        status: StatusWrite { status: RunStatus::Running, started_at: Some(at(6)), completed_at: Some(at(8)) },
        owner: Some(owner),
    };
    written(store, start_with(run, 2, new.clone())).await;
    let expected = HeadRow {
        org: ORG,
        run,
        workflow: new.workflow.to_string(),
        workflow_version: new.workflow_version.to_string(),
        plan_hash: new.plan_hash,
        request_id: new.request_id,
        base_run: Some(base),
        parent_run: Some(parent),
        priority: -3,
        status: RunStatus::Running,
        last_seq: 2,
        owner: Some(owner),
        created_at: at(5),
        started_at: Some(at(6)),
        completed_at: Some(at(8)),
        stuck: None,
    };
    assert_eq!(store.head(ORG, run).await.unwrap().as_ref(), Some(&expected));
    let loaded = store.load_runs(&[(ORG, run)]).await.unwrap();
    assert_eq!(loaded[0].head, expected);

    let plain = new_run();
    written(store, start(plain, 1)).await;
    let head = store.head(ORG, plain).await.unwrap().unwrap();
    let empty = (head.request_id, head.base_run, head.parent_run, head.owner, head.started_at, head.completed_at);
    assert_eq!(empty, (None, None, None, None, None, None));
}

async fn every_column_of_an_event_comes_back(store: &dyn Store) {
    let run = new_run();
    let events = vec![event(run, 1, "RunQueued"), full_event(run, 2)];
    written(store, RunWrite { events: events.clone(), ..start(run, 2) }).await;
    assert_eq!(plain_events(store.events(ORG, run, 0, 10).await.unwrap()), plain_events(events));
}

async fn long_data_comes_back(store: &dyn Store) {
    let run = new_run();
    let long = EventRow { data: Json::trusted(format!("\"{}\"", "x".repeat(1 << 20))), ..event(run, 1, "RunQueued") };
    written(store, RunWrite { events: vec![long.clone()], ..start(run, 1) }).await;
    assert!(store.events(ORG, run, 0, 1).await.unwrap() == [long], "a megabyte of data must not change");
}

async fn the_log_is_read_in_pages(store: &dyn Store) {
    let run = new_run();
    written(store, start(run, 10)).await;
    let seqs = |events: Vec<EventRow>| events.iter().map(|event| event.seq).collect::<Vec<_>>();
    assert_eq!(seqs(store.events(ORG, run, 0, 3).await.unwrap()), [1, 2, 3]);
    assert_eq!(seqs(store.events(ORG, run, 3, 100).await.unwrap()), [4, 5, 6, 7, 8, 9, 10]);
    assert_eq!(seqs(store.events(ORG, run, 10, 100).await.unwrap()), [0; 0]);
    let mut some = seqs(store.events_at(ORG, run, &[9, 2, 77]).await.unwrap());
    some.sort_unstable();
    assert_eq!(some, [2, 9]);
    assert_eq!(store.events_at(ORG, run, &[]).await.unwrap(), []);
}

async fn events_are_found_by_their_keys(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    for run in [run, other] {
        written(store, start(run, 3)).await;
    }
    let all = store.events(ORG, run, 0, 10).await.unwrap();
    let foreign = store.events(ORG, other, 0, 10).await.unwrap();
    let keys = [all[2].idempotency_key, foreign[1].idempotency_key, all[0].idempotency_key];
    let mut found = store.events_by_key(ORG, run, &keys).await.unwrap();
    found.sort_unstable_by_key(|event| event.seq);
    assert_eq!(plain_events(found), plain_events(vec![all[0].clone(), all[2].clone()]));
    assert_eq!(store.events_by_key(ORG, run, &[]).await.unwrap(), []);
    let elsewhere = milepost_core::id::OrgId(ORG.0 + 1);
    assert_eq!(store.events_by_key(elsewhere, run, &keys).await.unwrap(), []);
}

/// Beside one that is not: whatever else its batch does, only the patched run follows another plan.
async fn a_patched_run_follows_another_plan(store: &dyn Store) {
    let (patched, other, new, owner) = (new_run(), new_run(), new_run(), new_node());
    written(store, start(patched, 1)).await;
    written(store, start(other, 1)).await;
    let before = store.head(ORG, other).await.unwrap().unwrap();
    let plan_hash = Digest::of(b"another");
    let patch = |status, owner| HeadWrite::Patch(Box::new(PatchedHead { plan_hash, status, owner }));
    let first = RunWrite { head: patch(None, None), ..advance(patched, 1, 1) };
    assert_eq!(commit(store, batch([first, advance(other, 1, 1), start(new, 1)])).await, [Written; 3]);
    let head = store.head(ORG, patched).await.unwrap().unwrap();
    assert_eq!((head.plan_hash, head.status, head.last_seq), (plan_hash, RunStatus::Queued, 2));
    assert_eq!(store.head(ORG, other).await.unwrap().unwrap().plan_hash, before.plan_hash);
    let status = crate::rows::status(RunStatus::Failed);
    let second = RunWrite { head: patch(Some(status.clone()), Some(owner)), ..advance(patched, 2, 1) };
    written(store, second).await;
    let head = store.load_runs(&[(ORG, patched)]).await.unwrap().remove(0).head;
    assert_eq!((head.status, head.owner, head.completed_at), (RunStatus::Failed, Some(owner), status.completed_at));
    let stale = RunWrite { head: patch(None, None), ..advance(other, 1, 1) };
    assert_eq!(commit(store, batch([stale])).await, [Conflict]);
    assert_eq!(store.head(ORG, other).await.unwrap().unwrap().plan_hash, before.plan_hash);
}

async fn an_empty_batch_is_fine(store: &dyn Store) {
    assert_eq!(commit(store, Batch::default()).await, []);
}

async fn a_stale_write_conflicts_and_leaves_nothing(store: &dyn Store) {
    let (run, other) = (new_run(), new_run());
    written(store, start(run, 2)).await;
    let stale = RunWrite {
        timers: vec![TimerWrite::Arm { seq: 2, due_at: at(9) }],
        slot: Some(SlotWrite::Hold { key: unique("slot") }),
        checkpoint: Some(CheckpointRow { seq: 2, format: 1, state: vec![1] }),
        head: HeadWrite::Update { status: Some(crate::rows::status(RunStatus::Failed)), owner: Some(new_node()) },
        ..advance(run, 1, 2)
    };
    assert_eq!(commit(store, batch([stale, start(other, 1)])).await, [Conflict, Written]);
    let loaded = store.load_runs(&[(ORG, run)]).await.unwrap().remove(0);
    assert_eq!((loaded.head.last_seq, loaded.head.status, loaded.head.owner), (2, RunStatus::Queued, None));
    assert_eq!((loaded.checkpoint, loaded.tail.len()), (None, 2));
    assert_eq!(store.timers_of(ORG, run).await.unwrap(), []);
    assert_eq!(store.slot_of(ORG, run).await.unwrap(), None);
    assert_eq!(last_seq(store, other).await, Some(1));
    // A number from the future is as wrong as one from the past.
    assert_eq!(commit(store, batch([advance(run, 5, 1)])).await, [Conflict]);
}

async fn a_run_that_does_not_exist_conflicts(store: &dyn Store) {
    let run = new_run();
    assert_eq!(commit(store, batch([advance(run, 0, 1), advance(new_run(), 3, 1)])).await, [Conflict, Conflict]);
    assert_eq!(store.events(ORG, run, 0, 10).await.unwrap(), []);
}

async fn a_taken_run_id_conflicts(store: &dyn Store) {
    let run = new_run();
    written(store, start(run, 3)).await;
    assert_eq!(commit(store, batch([start(run, 1)])).await, [Conflict]);
    assert_eq!(last_seq(store, run).await, Some(3));
}

async fn a_taken_request_id_conflicts(store: &dyn Store) {
    let request = unique("request");
    let with = |request: &str| NewHead { request_id: Some(request.to_owned()), ..new_head() };
    let (first, second, third) = (new_run(), new_run(), new_run());
    written(store, start_with(first, 1, with(&request))).await;
    let late = start_with(second, 1, with(&request));
    assert_eq!(commit(store, batch([late.clone(), start(third, 1)])).await, [Conflict, Written]);
    assert_eq!(last_seq(store, second).await, None);
    // Another org's requests are its own, and so are another workflow's.
    written(store, RunWrite { org: OrgId(2), ..late }).await;
    let other = NewHead { workflow: Arc::from("other"), ..with(&request) };
    written(store, start_with(new_run(), 1, other)).await;
}

async fn orgs_do_not_see_each_other(store: &dyn Store) {
    let run = new_run();
    let other = OrgId(2);
    written(store, start(run, 1)).await;
    assert_eq!(store.head(other, run).await.unwrap(), None);
    assert_eq!(store.events(other, run, 0, 10).await.unwrap(), []);
    assert_eq!(commit(store, batch([RunWrite { org: other, ..advance(run, 1, 1) }])).await, [Conflict]);
    written(store, RunWrite { org: other, ..start(run, 4) }).await;
    assert_eq!(last_seq(store, run).await, Some(1));
    assert_eq!(store.head(other, run).await.unwrap().unwrap().last_seq, 4);
    assert_eq!(store.load_runs(&[(other, run)]).await.unwrap()[0].tail.len(), 4);
}

async fn a_conflict_takes_its_group_and_nothing_else(store: &dyn Store) {
    let runs: Vec<_> = (0..5).map(|_| new_run()).collect();
    commit(store, batch(runs.iter().map(|run| start(*run, 1)))).await;
    // 0 and 3 belong together though others stand between them, and 3 is stale; so do 1 and 4, which are fine.
    let in_group = |index: usize, group, expected| RunWrite { group, ..advance(runs[index], expected, 1) };
    let writes = vec![in_group(0, 7, 1), in_group(1, 9, 1), in_group(2, 8, 1), in_group(3, 7, 4), in_group(4, 9, 1)];
    assert_eq!(
        commit(store, Batch { writes, ..Batch::default() }).await,
        [Conflict, Written, Written, Conflict, Written]
    );
    for (index, expected) in [1, 2, 2, 1, 2].into_iter().enumerate() {
        assert_eq!(last_seq(store, runs[index]).await, Some(expected), "run {index}");
        assert_eq!(store.events(ORG, runs[index], 0, 10).await.unwrap().len() as u64, expected, "run {index}");
    }
}

async fn a_child_is_undone_with_its_parent(store: &dyn Store) {
    let (parent, child) = (new_run(), new_run());
    written(store, start(parent, 2)).await;
    let child_head = NewHead { parent_run: Some(parent), ..new_head() };
    let together = |expected| Batch {
        writes: vec![start_with(child, 1, child_head.clone()), advance(parent, expected, 1)],
        ..Batch::default()
    };
    assert_eq!(commit(store, together(1)).await, [Conflict, Conflict]);
    assert_eq!(last_seq(store, child).await, None);
    assert_eq!(commit(store, together(2)).await, [Written, Written]);
    assert_eq!(last_seq(store, child).await, Some(1));
    assert_eq!(last_seq(store, parent).await, Some(3));
}

async fn a_used_idempotency_key_refuses_the_whole_batch(store: &dyn Store) {
    let (run, other, third) = (new_run(), new_run(), new_run());
    written(store, start(run, 1)).await;
    let mut twice = advance(run, 1, 1);
    twice.events[0].idempotency_key = event(run, 1, "RunQueued").idempotency_key;
    let refused = store.commit(Arc::new(batch([start(other, 1), twice.clone(), start(third, 1)]))).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    assert_eq!(last_seq(store, run).await, Some(1));
    assert_eq!(last_seq(store, other).await, None);
    assert_eq!(last_seq(store, third).await, None);
    assert_eq!(store.events(ORG, other, 0, 10).await.unwrap(), []);
    // Twice in one batch is no better.
    let mut both = advance(run, 1, 2);
    both.events[1].idempotency_key = both.events[0].idempotency_key;
    let refused = store.commit(Arc::new(batch([both]))).await;
    assert!(matches!(refused, Err(StoreError::Refused(_))), "{refused:?}");
    // The key counts within its run only, and the store goes on.
    let mut elsewhere = start(other, 1);
    elsewhere.events[0].idempotency_key = event(run, 1, "RunQueued").idempotency_key;
    written(store, elsewhere).await;
    written(store, advance(run, 1, 1)).await;
}

async fn an_update_changes_only_what_it_names(store: &dyn Store) {
    let (run, node, later) = (new_run(), new_node(), new_node());
    written(store, start(run, 1)).await;
    let update = |expected, to: Option<StatusWrite>, owner| RunWrite {
        head: HeadWrite::Update { status: to, owner },
        ..advance(run, expected, 1)
    };
    let running = StatusWrite { status: RunStatus::Running, started_at: Some(at(3)), completed_at: None };
    let done = StatusWrite { status: RunStatus::Completed, started_at: Some(at(3)), completed_at: Some(at(9)) };
    let wanted = [
        (update(1, None, Some(node)), (RunStatus::Queued, None, None, Some(node))),
        (update(2, Some(running), None), (RunStatus::Running, Some(at(3)), None, Some(node))),
        (update(3, None, None), (RunStatus::Running, Some(at(3)), None, Some(node))),
        (update(4, Some(done), Some(later)), (RunStatus::Completed, Some(at(3)), Some(at(9)), Some(later))),
    ];
    for (write, expected) in wanted {
        let seq = write.last_seq;
        written(store, write).await;
        let head = store.head(ORG, run).await.unwrap().unwrap();
        assert_eq!(head.last_seq, seq);
        assert_eq!((head.status, head.started_at, head.completed_at, head.owner), expected, "after event {seq}");
        assert_eq!((head.workflow.as_str(), head.created_at), ("render", at(0)));
    }
}

async fn the_owner_alone_can_change(store: &dyn Store) {
    let (run, node) = (new_run(), new_node());
    written(store, start(run, 2)).await;
    let claim = RunWrite { head: HeadWrite::Update { status: None, owner: Some(node) }, ..advance(run, 2, 0) };
    written(store, claim).await;
    let head = store.head(ORG, run).await.unwrap().unwrap();
    assert_eq!((head.last_seq, head.owner), (2, Some(node)));
}

async fn a_checkpoint_shortens_what_is_loaded(store: &dyn Store) {
    let run = new_run();
    let checkpoint = |seq, state: &[u8]| Some(CheckpointRow { seq, format: 4, state: state.to_vec() });
    written(store, RunWrite { checkpoint: checkpoint(3, b"three"), ..start(run, 5) }).await;
    let loaded = store.load_runs(&[(ORG, run)]).await.unwrap().remove(0);
    assert_eq!(loaded.checkpoint, checkpoint(3, b"three"));
    assert_eq!(loaded.tail.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
    written(store, RunWrite { checkpoint: checkpoint(7, b"\0seven"), ..advance(run, 5, 2) }).await;
    let loaded = store.load_runs(&[(ORG, run)]).await.unwrap().remove(0);
    assert_eq!((loaded.checkpoint, loaded.tail.len()), (checkpoint(7, b"\0seven"), 0));
}

async fn missing_runs_are_left_out(store: &dyn Store) {
    let (one, two) = (new_run(), new_run());
    commit(store, batch([start(one, 1), start(two, 2)])).await;
    let asked = [(ORG, two), (ORG, new_run()), (ORG, one), (OrgId(2), one)];
    let loaded = store.load_runs(&asked).await.unwrap();
    let mut found: Vec<_> = loaded.iter().map(|run| (run.head.run, run.tail.len())).collect();
    found.sort_unstable();
    assert_eq!(found, [(one, 1), (two, 2)]);
    assert!(store.load_runs(&[]).await.unwrap().is_empty());
    let mut seqs = store.last_seqs(&asked).await.unwrap();
    seqs.sort_unstable();
    assert_eq!(seqs, [(ORG, one, 1), (ORG, two, 2)]);
    assert_eq!(store.last_seqs(&[]).await.unwrap(), []);
}
