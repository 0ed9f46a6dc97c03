//! Logs with a gap: the run is shown as it was before, says so everywhere, and goes on when the gap has closed.

use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::{EngineError, NewRun, list_runs, repair};
use milepost_store::rows::RunFilter;

use crate::support::*;

/// The memory store cannot be damaged.
mod sqlite {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_that_ended_is_stale_until_its_log_is_whole() {
        super::a_run_that_ended_is_stale_until_its_log_is_whole(Home::sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_run_stands_still_at_a_gap() {
        super::an_open_run_stands_still_at_a_gap(Home::sqlite()).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_without_its_beginning_or_its_end_is_shown() {
        super::a_run_without_its_beginning_or_its_end_is_shown(Home::sqlite()).await;
    }
}

mod postgres {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_that_ended_is_stale_until_its_log_is_whole() {
        super::a_run_that_ended_is_stale_until_its_log_is_whole(Home::postgres().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn an_open_run_stands_still_at_a_gap() {
        super::an_open_run_stands_still_at_a_gap(Home::postgres().await).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_run_without_its_beginning_or_its_end_is_shown() {
        super::a_run_without_its_beginning_or_its_end_is_shown(Home::postgres().await).await;
    }
}

const TWO: &str = "{name: two, steps: {a: {skill: noop}, b: {skill: noop, depends_on: [a]}}}";
const WAITS: &str = "{name: w, steps: {a: {skill: wait, input: {signal: go}}}}";

fn of(home: &Home, run: RunId, seq: u64) -> String {
    let id = match home {
        Home::Postgres(_) => format!("'{}'", run.0),
        _ => sql_id(run),
    };
    format!("FROM run_events WHERE run_seq = {seq} AND run_id = {id}")
}

async fn take(home: &Home, run: RunId, seq: u64) {
    let event = of(home, run, seq);
    damage(home, &format!("CREATE TABLE kept AS SELECT * {event}; DELETE {event};")).await;
}

async fn give_back(home: &Home) {
    damage(home, "INSERT INTO run_events SELECT * FROM kept; DROP TABLE kept;").await;
}

/// What a list says of a run: its status, its last event, and where its log has a gap.
async fn listed(engine: &milepost_engine::Engine, run: RunId) -> (RunStatus, u64, Option<u64>) {
    let runs = list_runs(engine.store(), ORG, &RunFilter { limit: 10, ..RunFilter::default() }).await.unwrap();
    let row = runs.iter().find(|row| row.run_id == run).expect("it is in the list");
    (row.status, row.last_event_seq, row.stale.map(|stale| stale.from_seq))
}

async fn a_run_that_ended_is_stale_until_its_log_is_whole(home: Home) {
    let engine = home.open(config()).await;
    let (run, _) = run(&engine, TWO, NewRun::default()).await;
    engine.flush_projections().await;
    let whole = engine.run(run).await.unwrap();
    let last = whole.summary.last_event_seq;
    assert_eq!((whole.summary.status, whole.summary.stale), (RunStatus::Completed, None));
    take(&home, run, 4).await;
    // What was projected before is right still.
    let view = engine.run(run).await.unwrap();
    assert_eq!((view.summary.status, view.summary.last_event_seq), (RunStatus::Completed, last));
    assert_eq!(view.summary.stale.unwrap().from_seq, 4);
    assert_eq!(listed(&engine, run).await, (RunStatus::Completed, last, Some(4)));
    assert_eq!(engine.summary(run).await.unwrap().stale.unwrap().from_seq, 4);
    // As it was after an event is told up to the gap.
    for (seq, shown, stale) in [(3, 3, None), (4, 3, Some(4)), (last, 3, Some(4))] {
        let then = engine.run_at(run, seq).await.unwrap().summary;
        assert_eq!((then.last_event_seq, then.stale.map(|stale| stale.from_seq)), (shown, stale), "{seq}");
    }
    // A stream gives what is before the gap, says where it is, and goes on when it has closed.
    let mut stream = engine.stream(run, 0).await.unwrap();
    assert_eq!(within(stream.next()).await.unwrap().iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 2, 3]);
    for _ in 0..2 {
        assert!(matches!(within(stream.next()).await, Err(EngineError::LogGap { seq: 4, .. })));
    }
    give_back(&home).await;
    let rest: Vec<u64> = within(stream.next()).await.unwrap().iter().map(|event| event.seq).collect();
    assert_eq!(rest, (4..=last).collect::<Vec<_>>());
    assert_eq!(engine.run(run).await.unwrap().summary.stale, None);
    assert_eq!(listed(&engine, run).await, (RunStatus::Completed, last, None));
    // Nobody has looked at it: `doctor --repair` marks it in lists.
    take(&home, run, 2).await;
    assert_eq!(listed(&engine, run).await.2, None);
    let done = repair(engine.store(), None, None).await.unwrap();
    assert_eq!(done, [format!("run {run} is marked as stale from event 2 on")]);
    assert_eq!(listed(&engine, run).await.2, Some(2));
    assert!(repair(engine.store(), None, None).await.unwrap().is_empty());
    give_back(&home).await;
    assert_eq!(listed(&engine, run).await.2, None);
}

async fn an_open_run_stands_still_at_a_gap(home: Home) {
    let engine = home.open(config()).await;
    let (holed, whole) =
        (start(&engine, WAITS, NewRun::default()).await, start(&engine, WAITS, NewRun::default()).await);
    engine.flush_projections().await;
    engine.store().drop_projection(ORG, holed).await.unwrap();
    take(&home, holed, 2).await;
    for run in [holed, whole] {
        send(&engine, run, "something").await;
    }
    engine.flush_projections().await;
    assert_eq!(listed(&engine, holed).await, (RunStatus::Queued, 1, Some(2)));
    assert_eq!(listed(&engine, whole).await.2, None, "others go on");
    let view = engine.run(holed).await.unwrap();
    assert_eq!((view.summary.last_event_seq, view.summary.stale.unwrap().from_seq), (1, 2));
    engine.shutdown().await;
    // Who has to read the log cannot go on with the run; that is a conflict and no failure of the server.
    let engine = home.open(config()).await;
    let refused = within(engine.signal(holed, milepost_engine::Engine::new_signal("go"))).await.unwrap_err();
    assert_eq!(refused.code(), "log_gap", "{refused}");
    assert_eq!(within(engine.step(holed, "a")).await.unwrap_err().code(), "log_gap");
    give_back(&home).await;
    send(&engine, holed, "go").await;
    assert_eq!(ended(&engine, holed).await, RunStatus::Completed);
    within(async {
        while listed(&engine, holed).await.0 != RunStatus::Completed {
            engine.flush_projections().await;
        }
    })
    .await;
    assert_eq!(engine.run(holed).await.unwrap().summary.stale, None);
    assert_eq!(listed(&engine, holed).await.2, None);
    sound(&engine, holed).await;
}

async fn a_run_without_its_beginning_or_its_end_is_shown(home: Home) {
    let engine = home.open(config()).await;
    let (run, _) = run(&engine, TWO, NewRun::default()).await;
    engine.flush_projections().await;
    let last = engine.run(run).await.unwrap().summary.last_event_seq;
    for missing in [1, last] {
        engine.store().drop_projection(ORG, run).await.unwrap();
        take(&home, run, missing).await;
        assert!(engine.rebuild_projection(run).await.is_err());
        let view = engine.run(run).await.unwrap();
        assert_eq!((view.summary.last_event_seq, view.summary.stale.unwrap().from_seq), (missing - 1, missing));
        assert_eq!(listed(&engine, run).await.1, missing - 1);
        assert_eq!(listed(&engine, run).await.2, Some(missing));
        give_back(&home).await;
        engine.rebuild_projection(run).await.unwrap();
        let view = engine.run(run).await.unwrap();
        assert_eq!((view.summary.last_event_seq, view.summary.stale), (last, None));
        assert_eq!(listed(&engine, run).await, (RunStatus::Completed, last, None));
    }
}
