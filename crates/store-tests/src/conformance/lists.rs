//! Lists of runs, newest first, by every filter.

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{NewHead, RunFilter, SnapshotRow, WriteResult};

use super::written;
use crate::rows::{ORG, at, new_head, new_run, project, run_at, snapshot, start_with, unique};
use RunStatus::{Completed, Failed, Paused, Running};

pub(super) async fn check(store: &dyn Store) {
    runs_are_listed_newest_first(store).await;
    several_statuses_are_put_together(store).await;
    a_span_of_time_is_exact(store).await;
    a_request_id_names_one_run_of_each_workflow(store).await;
    children_and_updates_are_found_by_what_they_come_from(store).await;
    runs_are_found_by_who_started_them(store).await;
    filters_are_put_together(store).await;
    open_runs_are_counted_by_status(store).await;
}

async fn put(store: &dyn Store, expected_seq: u64, row: SnapshotRow) {
    assert_eq!(store.project(vec![project(expected_seq, row)]).await.unwrap(), [WriteResult::Written]);
}

/// The runs of a list. Counting them must give the same.
async fn list(store: &dyn Store, filter: &RunFilter) -> Vec<RunId> {
    let rows = store.list_runs(ORG, filter).await.unwrap();
    if (rows.len() as u64) < u64::from(filter.limit) {
        let all = store.count_matching(ORG, filter, 1000).await.unwrap();
        assert_eq!(all, rows.len() as u64, "{filter:?}");
        assert_eq!(store.count_matching(ORG, filter, 2).await.unwrap(), all.min(2), "{filter:?}");
    }
    rows.iter().map(|row| row.run).collect()
}

fn of_workflow(workflow: &str) -> RunFilter {
    RunFilter { workflow: Some(workflow.to_owned()), limit: 100, ..RunFilter::default() }
}

async fn runs_are_listed_newest_first(store: &dyn Store) {
    let workflow = unique("workflow");
    let runs: Vec<RunId> = (0..6).map(|_| new_run()).collect();
    for (index, run) in runs.iter().enumerate() {
        let status = if index % 2 == 0 { Running } else { Completed };
        put(store, 0, SnapshotRow { workflow: workflow.clone(), status, ..snapshot(*run, 1) }).await;
    }
    let mine = of_workflow(&workflow);
    let of = async |filter: RunFilter| list(store, &filter).await;
    assert_eq!(of(mine.clone()).await, [5, 4, 3, 2, 1, 0].map(|index| runs[index]));
    assert_eq!(of(RunFilter { limit: 2, ..mine.clone() }).await, [runs[5], runs[4]]);
    assert_eq!(of(RunFilter { limit: 0, ..mine.clone() }).await, []);
    assert_eq!(of(RunFilter { before: Some(runs[4]), limit: 2, ..mine.clone() }).await, [runs[3], runs[2]]);
    assert_eq!(store.count_matching(ORG, &RunFilter { limit: 1, ..mine.clone() }, 100).await.unwrap(), 6);
    let past = RunFilter { before: Some(runs[4]), ..mine.clone() };
    assert_eq!(store.count_matching(ORG, &past, 100).await.unwrap(), 4, "what is before the cursor counts");
    let running = RunFilter { statuses: vec![Running], ..mine.clone() };
    assert_eq!(of(running.clone()).await, [4, 2, 0].map(|index| runs[index]));
    assert_eq!(of(RunFilter { before: Some(runs[4]), ..running }).await, [2, 0].map(|index| runs[index]));
    let any = RunFilter { workflow: None, ..mine.clone() };
    let newest = of(any.clone()).await;
    assert!(newest.contains(&runs[5]) && newest.is_sorted_by(|a, b| a > b));
    let completed = of(RunFilter { statuses: vec![Completed], ..any }).await;
    assert!(completed.contains(&runs[5]) && !completed.contains(&runs[4]));
    // A run that moved on is found under its new status only.
    put(store, 1, SnapshotRow { workflow, status: Failed, ..snapshot(runs[0], 2) }).await;
    assert_eq!(of(RunFilter { statuses: vec![Failed], ..mine.clone() }).await, [runs[0]]);
    assert_eq!(of(RunFilter { statuses: vec![Running], ..mine.clone() }).await, [runs[4], runs[2]]);
    assert_eq!(store.list_runs(OrgId(2), &mine).await.unwrap(), []);
    assert_eq!(store.count_matching(OrgId(2), &mine, 9).await.unwrap(), 0);
}

async fn several_statuses_are_put_together(store: &dyn Store) {
    let workflow = unique("workflow");
    let statuses = [Running, Failed, Completed, Failed, Paused, Running, Failed];
    let runs = statuses.map(|_| new_run());
    for (run, status) in runs.iter().zip(statuses) {
        put(store, 0, SnapshotRow { workflow: workflow.clone(), status, ..snapshot(*run, 1) }).await;
    }
    let mine = of_workflow(&workflow);
    let both = RunFilter { statuses: vec![Failed, Running, Failed], ..mine.clone() };
    assert_eq!(list(store, &both).await, [6, 5, 3, 1, 0].map(|index| runs[index]), "a status named twice counts once");
    assert_eq!(list(store, &RunFilter { limit: 3, ..both.clone() }).await, [6, 5, 3].map(|index| runs[index]));
    let next = RunFilter { before: Some(runs[3]), limit: 1, ..both.clone() };
    assert_eq!(list(store, &next).await, [runs[1]]);
    let everywhere = RunFilter { workflow: None, before: Some(runs[6]), limit: 4, ..both };
    let found = list(store, &everywhere).await;
    assert_eq!(found, [5, 3, 1, 0].map(|index| runs[index]), "these are the newest there are");
    let all = RunFilter { statuses: RunStatus::ALL.to_vec(), ..mine };
    assert_eq!(list(store, &all).await.len(), 7);
}

async fn a_span_of_time_is_exact(store: &dyn Store) {
    let workflow = unique("workflow");
    // Two within one millisecond, one that was drawn in it but created later, and one long before.
    let ms = 1_749_999_000_000;
    let moment = |us: i64| Timestamp(1_749_999_000_000_000 + us);
    let [old, first, second, late] = [ms - 60_000, ms, ms, ms].map(run_at);
    let (first, second) = (first.min(second), first.max(second));
    let created = [(old, -60_000_000), (first, 300), (second, 700), (late, 2_000_500)];
    for (run, us) in created {
        let row = SnapshotRow { workflow: workflow.clone(), created_at: moment(us), ..snapshot(run, 1) };
        put(store, 0, row).await;
    }
    let found = async |from: Option<i64>, until: Option<i64>| {
        let times = (from.map(moment), until.map(moment));
        let filter = RunFilter { created_from: times.0, created_until: times.1, ..of_workflow(&workflow) };
        let mut found = list(store, &filter).await;
        found.sort_by_key(|run| created.iter().find(|(known, _)| known == run).unwrap().1);
        found
    };
    assert_eq!(found(None, None).await, [old, first, second, late]);
    assert_eq!(found(Some(300), None).await, [first, second, late]);
    assert_eq!(found(Some(301), None).await, [second, late]);
    assert_eq!(found(None, Some(700)).await, [old, first], "before that moment, not at it");
    assert_eq!(found(None, Some(701)).await, [old, first, second]);
    assert_eq!(found(Some(300), Some(700)).await, [first]);
    assert_eq!(found(Some(1_000_000), Some(3_000_000)).await, [late], "created after its id was drawn");
    assert_eq!(found(Some(700), Some(300)).await, []);
    assert_eq!(found(Some(-60_000_000), Some(0)).await, [old]);
    let without_workflow = RunFilter {
        created_from: Some(moment(0)),
        created_until: Some(moment(701)),
        statuses: vec![Running],
        limit: 1000,
        ..RunFilter::default()
    };
    let both = list(store, &without_workflow).await;
    assert!(both.contains(&first) && both.contains(&second) && !both.contains(&old) && !both.contains(&late));
}

async fn a_request_id_names_one_run_of_each_workflow(store: &dyn Store) {
    let (request, other) = (unique("request"), unique("request"));
    let runs = [(new_run(), Some(&request)), (new_run(), Some(&other)), (new_run(), None)];
    for (run, request) in &runs {
        let request_id = request.cloned();
        written(store, start_with(*run, 1, NewHead { request_id: request_id.clone(), ..new_head() })).await;
        put(store, 0, SnapshotRow { request_id, ..snapshot(*run, 1) }).await;
    }
    let of = |request: &str| RunFilter { request_id: Some(request.to_owned()), limit: 9, ..RunFilter::default() };
    assert_eq!(list(store, &of(&request)).await, [runs[0].0]);
    assert_eq!(list(store, &of("nobody's")).await, []);
    assert_eq!(list(store, &RunFilter { statuses: vec![Failed], ..of(&request) }).await, []);
    assert_eq!(list(store, &RunFilter { statuses: vec![Failed, Running], ..of(&request) }).await, [runs[0].0]);
    assert_eq!(list(store, &RunFilter { workflow: Some("other".to_owned()), ..of(&request) }).await, []);
    assert_eq!(list(store, &RunFilter { before: Some(runs[0].0), ..of(&request) }).await, []);
    assert_eq!(store.list_runs(OrgId(2), &of(&request)).await.unwrap(), []);

    // The same id for another workflow is another run.
    let second = new_run();
    let workflow = unique("workflow");
    let head = NewHead { workflow: workflow.as_str().into(), request_id: Some(request.clone()), ..new_head() };
    written(store, start_with(second, 1, head)).await;
    let row = SnapshotRow { workflow: workflow.clone(), request_id: Some(request.clone()), ..snapshot(second, 1) };
    put(store, 0, row).await;
    assert_eq!(list(store, &of(&request)).await, [second, runs[0].0], "newest first");
    assert_eq!(list(store, &RunFilter { limit: 1, ..of(&request) }).await, [second]);
    assert_eq!(list(store, &RunFilter { limit: 1, before: Some(second), ..of(&request) }).await, [runs[0].0]);
    assert_eq!(list(store, &RunFilter { workflow: Some(workflow), ..of(&request) }).await, [second]);
    assert_eq!(store.count_matching(ORG, &of(&request), 9).await.unwrap(), 2);
}

async fn children_and_updates_are_found_by_what_they_come_from(store: &dyn Store) {
    let (parent, base) = (new_run(), new_run());
    let runs: Vec<RunId> = (0..6).map(|_| new_run()).collect();
    for (index, run) in runs.iter().enumerate() {
        let row = SnapshotRow {
            parent_run: (index % 2 == 0).then_some(parent),
            base_run: (index % 3 == 0).then_some(base),
            status: if index < 3 { Completed } else { Failed },
            ..snapshot(*run, 1)
        };
        put(store, 0, row).await;
    }
    let of_parent = RunFilter { parent_run: Some(parent), limit: 9, ..RunFilter::default() };
    let of_base = RunFilter { base_run: Some(base), limit: 9, ..RunFilter::default() };
    let pick = |places: &[usize]| places.iter().map(|place| runs[*place]).collect::<Vec<_>>();
    assert_eq!(list(store, &of_parent).await, pick(&[4, 2, 0]));
    assert_eq!(list(store, &of_base).await, pick(&[3, 0]));
    assert_eq!(list(store, &RunFilter { statuses: vec![Completed], ..of_parent.clone() }).await, pick(&[2, 0]));
    assert_eq!(list(store, &RunFilter { statuses: vec![Failed], ..of_base.clone() }).await, pick(&[3]));
    assert_eq!(list(store, &RunFilter { limit: 1, before: Some(runs[4]), ..of_parent.clone() }).await, pick(&[2]));
    assert_eq!(list(store, &RunFilter { base_run: Some(base), ..of_parent }).await, pick(&[0]), "of both");
    assert_eq!(list(store, &RunFilter { base_run: Some(parent), ..of_base }).await, []);
}

async fn runs_are_found_by_who_started_them(store: &dyn Store) {
    let (ada, bob, workflow) = (unique("Ada \u{fc}"), unique("bob"), unique("workflow"));
    let runs: Vec<RunId> = (0..6).map(|_| new_run()).collect();
    for (index, run) in runs.iter().enumerate() {
        let row = SnapshotRow {
            submitted_by: [Some(ada.clone()), Some(bob.clone()), None][index % 3].clone(),
            status: if index < 3 { Completed } else { Failed },
            engine_node: (index < 3).then_some(NodeId(i64::MIN)),
            updated_at: at(9),
            ..snapshot(*run, 1)
        };
        put(store, 0, row).await;
    }
    let of = |name: &str| RunFilter { submitted_by: Some(name.to_owned()), limit: 9, ..RunFilter::default() };
    assert_eq!(list(store, &of(&ada)).await, [runs[3], runs[0]], "newest first");
    assert_eq!(list(store, &RunFilter { limit: 1, before: Some(runs[3]), ..of(&ada) }).await, [runs[0]]);
    assert_eq!(list(store, &RunFilter { statuses: vec![Failed], ..of(&bob) }).await, [runs[4]]);
    assert_eq!(list(store, &RunFilter { workflow: Some(workflow), ..of(&bob) }).await, []);
    assert_eq!(list(store, &RunFilter { workflow: Some("render".to_owned()), ..of(&bob) }).await, [runs[4], runs[1]]);
    assert_eq!(list(store, &of(&ada.to_uppercase())).await, [], "a name is written in one way");
    assert_eq!(list(store, &of("")).await, []);
    assert_eq!(store.count_matching(ORG, &of(&ada), 9).await.unwrap(), 2);
    assert_eq!(store.list_runs(OrgId(2), &of(&ada)).await.unwrap(), []);

    // Who started a run stays as it was; the rest follows its events.
    let changed = SnapshotRow { updated_at: at(11), engine_node: Some(NodeId(3)), ..snapshot(runs[0], 2) };
    put(store, 1, SnapshotRow { submitted_by: Some(ada.clone()), ..changed }).await;
    let row = store.snapshot(ORG, runs[0]).await.unwrap().unwrap();
    assert_eq!((row.submitted_by, row.updated_at, row.engine_node), (Some(ada), at(11), Some(NodeId(3))));
    let row = store.snapshot(ORG, runs[5]).await.unwrap().unwrap();
    assert_eq!((row.submitted_by, row.updated_at, row.engine_node), (None, at(9), None));
}

async fn filters_are_put_together(store: &dyn Store) {
    let (workflow, parent, request) = (unique("workflow"), new_run(), unique("request"));
    let (run, other) = (run_at(1_750_000_000_000), run_at(1_750_000_000_001));
    let head = NewHead { request_id: Some(request.clone()), ..new_head() };
    written(store, start_with(run, 1, head)).await;
    for (run, workflow) in [(run, workflow.clone()), (other, unique("workflow"))] {
        let request_id = (run != other).then(|| request.clone());
        let row =
            SnapshotRow { workflow, parent_run: Some(parent), base_run: Some(parent), request_id, ..snapshot(run, 1) };
        put(store, 0, SnapshotRow { submitted_by: Some("ada".to_owned()), ..row }).await;
    }
    let all = RunFilter {
        statuses: vec![Running],
        workflow: Some(workflow.clone()),
        created_from: None,
        created_until: Some(at(2000)),
        request_id: Some(request),
        base_run: Some(parent),
        parent_run: Some(parent),
        submitted_by: Some("ada".to_owned()),
        stuck: false,
        before: Some(other),
        limit: 5,
    };
    assert_eq!(list(store, &all).await, [run]);
    let without_request = RunFilter { request_id: None, ..all.clone() };
    assert_eq!(list(store, &without_request).await, [run]);
    assert_eq!(list(store, &RunFilter { base_run: None, ..without_request.clone() }).await, [run]);
    let by_parent = RunFilter { base_run: None, workflow: None, before: None, ..without_request };
    assert_eq!(list(store, &by_parent).await, [other, run]);
    for wrong in [
        RunFilter { statuses: vec![Failed], ..all.clone() },
        RunFilter { workflow: Some("other".to_owned()), ..all.clone() },
        RunFilter { created_until: Some(at(0)), ..all.clone() },
        RunFilter { base_run: Some(run), ..all.clone() },
        RunFilter { parent_run: Some(run), ..all.clone() },
        RunFilter { submitted_by: Some("bob".to_owned()), ..all.clone() },
        RunFilter { before: Some(run), ..all.clone() },
    ] {
        assert_eq!(list(store, &wrong).await, [], "{wrong:?}");
    }
}

async fn open_runs_are_counted_by_status(store: &dyn Store) {
    // An org that nobody else has, so that its numbers are ours alone.
    let org = OrgId(i32::try_from(new_run().0.as_u128() % 1_000_000).unwrap() + 1000);
    let statuses = [Running, Running, Paused, Completed, Failed];
    for status in statuses {
        put(store, 0, SnapshotRow { org, status, ..snapshot(new_run(), 1) }).await;
    }
    let counts = store.status_counts().await.unwrap();
    let ours: Vec<_> =
        counts.iter().filter(|(of, _, _)| *of == org).map(|(_, status, count)| (*status, *count)).collect();
    assert_eq!(ours, [(Running, 2), (Paused, 1)]);
    assert!(counts.is_sorted_by_key(|(org, status, _)| (*org, *status)), "{counts:?}");
}
