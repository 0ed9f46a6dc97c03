//! Steps that wait for workers, steps that workers have, and what queues may do at most.

use std::collections::BTreeSet;
use std::sync::Arc;

use milepost_core::event::StepRef;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::json::Json;
use milepost_store::Store;
use milepost_store::rows::{
    Answer, LeaseExtension, LeaseRow, Question, QueueRow, Rate, RateWrite, RunWrite, TaskLimits, TaskRow, TaskSlot,
    TaskWrite,
};

use super::{commit, written};
use crate::rows::{ORG, advance, at, batch, new_node, new_run, start, unique};

pub(super) async fn check(store: &dyn Store) {
    a_task_waits_is_leased_and_goes(store).await;
    what_a_worker_has_is_not_withdrawn(store).await;
    a_write_that_conflicts_leaves_tasks_alone(store).await;
    tasks_of_a_run_are_its_own(store).await;
    what_waits_elsewhere_is_pulled_of_each_kind(store).await;
    what_a_dead_node_had_is_taken_over(store).await;
    a_lease_goes_on_and_moves_with_its_worker(store).await;
    queues_are_counted(store).await;
    limits_are_answered_and_used_up(store).await;
}

pub(crate) fn waiting(run: RunId, step: StepRef, queue: &str, node: NodeId) -> TaskRow {
    TaskRow {
        task: TaskId::of(run, step),
        org: ORG,
        run,
        step,
        step_id: "shots[3]".into(),
        queue: queue.into(),
        skill: "image.render".into(),
        workflow: "campaign".into(),
        priority: 0,
        ready_at: at(5),
        node,
        since: at(6),
        slot: None,
        lease: None,
    }
}

pub(crate) fn leased(row: &TaskRow, nonce: u64) -> TaskRow {
    let lease = LeaseRow {
        worker: "host-1".into(),
        nonce,
        logical_attempt: 2,
        engine_attempt: 3,
        lease_ms: 30_000,
        expires_at: at(100),
        progress: None,
    };
    TaskRow { lease: Some(lease), ..row.clone() }
}

fn put(row: &TaskRow) -> TaskWrite {
    TaskWrite::Put(Box::new(row.clone()))
}

async fn write(store: &dyn Store, run: RunId, expected_seq: u64, tasks: Vec<TaskWrite>) {
    written(store, RunWrite { tasks, ..advance(run, expected_seq, 1) }).await;
}

async fn begin(store: &dyn Store, run: RunId, tasks: Vec<TaskWrite>) {
    written(store, RunWrite { tasks, ..start(run, 1) }).await;
}

async fn of(store: &dyn Store, run: RunId) -> Vec<TaskRow> {
    store.tasks_of(ORG, run).await.unwrap()
}

async fn a_task_waits_is_leased_and_goes(store: &dyn Store) {
    let (run, node) = (new_run(), new_node());
    let slot = Some(TaskSlot { key: "ada".into(), limit: 2 });
    let row = TaskRow { slot, priority: -4, ..waiting(run, StepRef::item(2, 3), &unique("queue"), node) };
    begin(store, run, vec![put(&row)]).await;
    assert_eq!(store.tasks(ORG, &[row.task]).await.unwrap(), std::slice::from_ref(&row));
    assert!(store.tasks(OrgId(99), &[row.task]).await.unwrap().is_empty(), "another org's");
    let held = leased(&row, u64::MAX - 1);
    write(store, run, 1, vec![put(&held)]).await;
    assert_eq!(of(store, run).await, [held]);
    // Lost: it waits again.
    write(store, run, 2, vec![put(&row)]).await;
    assert_eq!(of(store, run).await, std::slice::from_ref(&row));
    // Patched: it waits in another line.
    let row = TaskRow { queue: unique("queue").into(), skill: "other".into(), ..row };
    write(store, run, 3, vec![put(&row)]).await;
    assert_eq!(of(store, run).await, std::slice::from_ref(&row));
    write(store, run, 4, vec![TaskWrite::Delete(row.task)]).await;
    assert!(of(store, run).await.is_empty());
    write(store, run, 5, vec![TaskWrite::Delete(row.task)]).await;
}

async fn what_a_worker_has_is_not_withdrawn(store: &dyn Store) {
    let (run, node, queue) = (new_run(), new_node(), unique("queue"));
    let (kept, gone) = (waiting(run, StepRef::whole(0), &queue, node), waiting(run, StepRef::whole(1), &queue, node));
    let kept = leased(&kept, 7);
    begin(store, run, vec![put(&kept), put(&gone)]).await;
    write(store, run, 1, vec![TaskWrite::Withdraw(kept.task), TaskWrite::Withdraw(gone.task)]).await;
    assert_eq!(of(store, run).await, std::slice::from_ref(&kept));
    write(store, run, 2, vec![TaskWrite::Delete(kept.task)]).await;
}

async fn a_write_that_conflicts_leaves_tasks_alone(store: &dyn Store) {
    let run = new_run();
    let row = waiting(run, StepRef::whole(0), &unique("queue"), new_node());
    begin(store, run, vec![put(&row)]).await;
    let stale = |tasks| RunWrite { tasks, ..advance(run, 7, 1) };
    for tasks in [vec![TaskWrite::Delete(row.task)], vec![put(&leased(&row, 1))]] {
        commit(store, batch([stale(tasks)])).await;
        assert_eq!(of(store, run).await, std::slice::from_ref(&row));
    }
    write(store, run, 1, vec![TaskWrite::Delete(row.task)]).await;
}

async fn tasks_of_a_run_are_its_own(store: &dyn Store) {
    let (run, other, queue, node) = (new_run(), new_run(), unique("queue"), new_node());
    let rows: Vec<TaskRow> = (0..20).map(|step| waiting(run, StepRef::whole(step), &queue, node)).collect();
    let neighbour = waiting(other, StepRef::whole(0), &queue, node);
    begin(store, run, rows.iter().map(put).collect()).await;
    begin(store, other, vec![put(&neighbour)]).await;
    let ids = |rows: &[TaskRow]| rows.iter().map(|row| row.task).collect::<BTreeSet<_>>();
    assert_eq!(ids(&of(store, run).await), ids(&rows));
    write(store, run, 1, rows.iter().map(|row| TaskWrite::Delete(row.task)).collect()).await;
    write(store, other, 1, vec![TaskWrite::Delete(neighbour.task)]).await;
}

async fn what_waits_elsewhere_is_pulled_of_each_kind(store: &dyn Store) {
    let (run, queue, far, near) = (new_run(), unique("queue"), new_node(), new_node());
    let of_workflow = |step: u32, workflow: &str| TaskRow {
        workflow: workflow.into(),
        ready_at: at(i64::from(step)),
        ..waiting(run, StepRef::whole(step), &queue, far)
    };
    let mut rows: Vec<TaskRow> = (0..5).map(|step| of_workflow(step, "many")).collect();
    rows.push(of_workflow(5, "one"));
    rows.push(TaskRow { since: at(50), ..of_workflow(6, "young") });
    rows.push(leased(&of_workflow(7, "held"), 1));
    rows.push(TaskRow { node: near, ..of_workflow(8, "own") });
    rows.push(TaskRow { priority: 9, ..of_workflow(9, "many") });
    begin(store, run, rows.iter().map(put).collect()).await;
    let pulled = store.pull_tasks(near, &[queue.clone(), unique("empty")], at(50), at(60), 2).await.unwrap();
    let steps: BTreeSet<u32> = pulled.iter().map(|row| row.step.step).collect();
    assert_eq!(steps, [0, 5, 9].into(), "two of the many, the urgent one first, and the one");
    assert!(pulled.iter().all(|row| row.node == near && row.since == at(60)));
    assert_eq!(of(store, run).await.iter().filter(|row| row.node == near).count(), 4);
    write(store, run, 1, rows.iter().map(|row| TaskWrite::Delete(row.task)).collect()).await;
}

async fn what_a_dead_node_had_is_taken_over(store: &dyn Store) {
    let (run, queue, dead, heir) = (new_run(), unique("queue"), new_node(), new_node());
    let rows: Vec<TaskRow> = (0..3).map(|step| waiting(run, StepRef::whole(step), &queue, dead)).collect();
    let held = leased(&rows[2], 4);
    begin(store, run, vec![put(&rows[0]), put(&rows[1]), put(&held)]).await;
    assert!(store.dead_nodes(at(0)).await.unwrap().contains(&dead));
    let mut taken = store.take_over_tasks(dead, heir, at(70), 2).await.unwrap();
    taken.extend(store.take_over_tasks(dead, heir, at(70), 2).await.unwrap());
    assert!(store.take_over_tasks(dead, heir, at(70), 2).await.unwrap().is_empty());
    assert_eq!(taken.len(), 3);
    assert!(taken.iter().all(|row| row.node == heir && row.since == at(70)));
    assert_eq!(taken.iter().filter(|row| row.lease == held.lease).count(), 1);
    assert!(!store.dead_nodes(at(0)).await.unwrap().contains(&dead));
    write(store, run, 1, rows.iter().map(|row| TaskWrite::Delete(row.task)).collect()).await;
}

async fn a_lease_goes_on_and_moves_with_its_worker(store: &dyn Store) {
    let (run, first, second) = (new_run(), new_node(), new_node());
    let row = leased(&waiting(run, StepRef::whole(0), &unique("queue"), first), 42);
    begin(store, run, vec![put(&row)]).await;
    let extension = |nonce, until, progress: Option<&str>| LeaseExtension {
        task: row.task,
        nonce,
        expires_at: at(until),
        progress: progress.map(|text| Json::trusted(text.to_owned())),
    };
    let extend =
        |org, node, extension| async move { store.extend_leases(org, node, at(80), &[extension]).await.unwrap() };
    assert!(extend(ORG, first, extension(41, 200, None)).await.is_empty(), "another lease's secret");
    assert!(extend(OrgId(99), first, extension(42, 200, None)).await.is_empty(), "another org's");
    let kept = extend(ORG, first, extension(42, 200, Some("[1]"))).await;
    let lease = kept[0].lease.clone().unwrap();
    assert_eq!((lease.expires_at, lease.progress, kept[0].since), (at(200), Some(Json::trusted("[1]")), row.since));
    let moved = extend(ORG, second, extension(42, 150, None)).await;
    let lease = moved[0].lease.clone().unwrap();
    assert_eq!((lease.expires_at, lease.progress.is_some()), (at(200), true), "never shorter, nothing forgotten");
    assert_eq!((moved[0].node, moved[0].since), (second, at(80)));
    assert!(store.extend_leases(ORG, first, at(80), &[]).await.unwrap().is_empty());
    write(store, run, 1, vec![TaskWrite::Delete(row.task)]).await;
}

async fn queues_are_counted(store: &dyn Store) {
    let (run, queue, node) = (new_run(), unique("queue"), new_node());
    let rows: Vec<TaskRow> = (0..3)
        .map(|step| TaskRow { ready_at: at(9 - i64::from(step)), ..waiting(run, StepRef::whole(step), &queue, node) })
        .collect();
    begin(store, run, vec![put(&rows[0]), put(&rows[1]), put(&leased(&rows[2], 1))]).await;
    let counts = store.queue_counts().await.unwrap();
    let count = counts.iter().find(|count| count.queue == queue).unwrap();
    assert_eq!((count.org, count.waiting, count.leased, count.oldest), (ORG, 2, 1, Some(at(8))));
    write(store, run, 1, rows.iter().map(|row| TaskWrite::Delete(row.task)).collect()).await;
    assert!(!store.queue_counts().await.unwrap().iter().any(|count| count.queue == queue));
}

async fn limits(store: &dyn Store, queue: &Arc<str>, key: Option<&str>, taken_until: Option<i64>) -> TaskLimits {
    let question = Question::Limits { org: ORG, queue: queue.clone(), key: key.map(Into::into) };
    let (transaction, mut answers) = store.ask(vec![question]).await.unwrap();
    let rates = taken_until.map(|until| RateWrite { org: ORG, queue: queue.clone(), taken_until: at(until) });
    let empty = milepost_store::rows::Batch { writes: Vec::new(), rates: rates.into_iter().collect() };
    transaction.commit(Arc::new(empty)).await.unwrap();
    match answers.pop() {
        Some(Answer::Limits(limits)) => limits,
        other => panic!("one question, one answer of its kind: {other:?}"),
    }
}

async fn limits_are_answered_and_used_up(store: &dyn Store) {
    let (run, name, key, node) = (new_run(), unique("queue"), unique("key"), new_node());
    let queue: Arc<str> = name.as_str().into();
    let slot = Some(TaskSlot { key: key.as_str().into(), limit: 2 });
    let rows: Vec<TaskRow> =
        (0..3).map(|step| TaskRow { slot: slot.clone(), ..waiting(run, StepRef::whole(step), &name, node) }).collect();
    begin(store, run, vec![put(&rows[0]), put(&leased(&rows[1], 1)), put(&leased(&rows[2], 2))]).await;
    assert_eq!(limits(store, &queue, None, None).await, TaskLimits::default(), "it has none");
    assert_eq!(limits(store, &queue, Some(&key), None).await.with_key, 2);
    assert_eq!(limits(store, &queue, Some("nobody's"), None).await.with_key, 0);
    let row = QueueRow {
        org: ORG,
        queue: queue.clone(),
        concurrency: Some(4),
        rate: Some(Rate { limit: 7, per_ms: 60_000 }),
    };
    store.set_queue(&row).await.unwrap();
    assert!(store.queues().await.unwrap().contains(&row));
    let found = limits(store, &queue, None, Some(1234)).await;
    assert_eq!((found.in_queue, found.queue), (2, Some(row.clone())));
    assert_eq!(limits(store, &queue, None, None).await.taken_until, Some(at(1234)));
    store.set_queue(&QueueRow { concurrency: None, rate: None, ..row }).await.unwrap();
    assert_eq!(limits(store, &queue, None, None).await, TaskLimits::default());
    write(store, run, 1, rows.iter().map(|row| TaskWrite::Delete(row.task)).collect()).await;
}
