//! Server-sent events.

use milepost_api::Settings;
use milepost_core::id::RunId;
use serde_json::{Value, json};

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_come_as_they_happen_and_the_end_is_told() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut sse = server.sse(run, "", &[("Accept-Encoding", "gzip")]).await;
    assert_eq!((sse.status, sse.header("content-type")), (200, Some("text/event-stream")));
    assert_eq!((sse.header("cache-control"), sse.header("x-accel-buffering")), (Some("no-cache"), Some("no")));
    assert_eq!(sse.header("content-encoding"), None, "compressing would hold events back");
    let before = server.log(run).await;
    for expected in &before {
        let event = sse.next().await.unwrap();
        assert_eq!((event.id, event.name, &event.data), (expected["run_seq"].as_u64(), None, expected));
    }
    server.signal(run, "go").await;
    let (after, end) = sse.rest().await;
    let log = server.log(run).await;
    assert_eq!(after, log[before.len()..]);
    let end = end.unwrap();
    assert_eq!((end.id, end.name.as_deref()), (None, Some("end")));
    assert_eq!(end.data, json!({"run_id": run, "status": "completed", "last_event_seq": log.len()}));
    assert_eq!(sse.next().await, None);
    server.unwatched().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_begins_where_it_says() {
    let server = Server::new().await;
    let run = server.start(&json!({"name": "n", "steps": {"a": {"skill": "noop"}}})).await;
    within(server.engine.wait(run)).await.unwrap();
    let log = server.log(run).await;
    for (query, last_id, first) in [
        ("", None, 0),
        ("?after_seq=2", None, 2),
        ("", Some("3"), 3),
        ("?after_seq=1", Some("2"), 2),
        ("?after_seq=1", Some(""), 1),
    ] {
        let headers: Vec<_> = last_id.map(|id| ("Last-Event-ID", id)).into_iter().collect();
        let (seen, end) = server.sse(run, query, &headers).await.rest().await;
        assert_eq!(seen, log[first..], "{query} {last_id:?}");
        assert_eq!(end.unwrap().name.as_deref(), Some("end"));
    }
    let last = log.len().to_string();
    let ended = server.sse(run, "", &[("Last-Event-ID", &last)]).await;
    assert_eq!(ended.status, 204, "an EventSource that comes back is told to stay away");
    let ended = server.sse(run, &format!("?after_seq={last}"), &[]).await;
    assert_eq!(ended.status, 204);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_a_problem() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let check = async |run: RunId, query: &str, headers: &[(&str, &str)], status: u16, code: &str| {
        let mut sse = server.sse(run, query, headers).await;
        let problem: Value = sse.json().await;
        assert_eq!((sse.status, problem["code"].as_str()), (status, Some(code)), "{problem}");
    };
    check(RunId(uuid::Uuid::now_v7()), "", &[], 404, "unknown_run").await;
    check(run, "?after_seq=99", &[], 409, "after_last_event").await;
    check(run, "?after_seq=18446744073709551615", &[], 409, "after_last_event").await;
    check(run, "?after=1", &[], 400, "bad_query").await;
    check(run, "?after_seq=-1", &[], 400, "bad_query").await;
    check(run, "", &[("Last-Event-ID", "one")], 400, "bad_last_event_id").await;
    assert_eq!(server.engine.watched_runs(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quiet_stream_says_that_it_is_there() {
    let server = Server::with(Settings { keep_alive_ms: 20, ..Settings::default() }).await;
    let run = server.start(&waiting()).await;
    let mut sse = server.sse(run, "", &[]).await;
    while sse.block().await.unwrap() != ": keep-alive" {}
    assert_eq!(sse.block().await.unwrap(), ": keep-alive");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_goes_is_forgotten() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut sse = server.sse(run, "", &[]).await;
    sse.next().await.unwrap();
    assert_eq!(server.engine.watched_runs(), 1);
    drop(sse);
    server.unwatched().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shuts_down_says_so() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut sse = server.sse(run, "", &[]).await;
    sse.next().await.unwrap();
    server.drain();
    let (_, shutdown) = sse.rest().await;
    let shutdown = shutdown.unwrap();
    assert_eq!((shutdown.id, shutdown.name.as_deref()), (None, Some("shutdown")));
    assert_eq!(shutdown.data["code"], "shutting_down");
    assert_eq!(shutdown.data["after_seq"], server.log(run).await.len());
    assert_eq!(sse.next().await, None);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_is_told_once_and_the_stream_goes_on_when_it_has_closed() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let server = Server::on(folder.clone(), Settings::default()).await;
    let run = server.start(&json!({"name": "n", "steps": {"a": {"skill": "noop"}}})).await;
    within(server.engine.wait(run)).await.unwrap();
    let log = server.log(run).await;
    let sql = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    sql.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    sql.execute_batch(
        "DROP TRIGGER run_events_stay; CREATE TABLE kept AS SELECT * FROM run_events WHERE run_seq = 3;
         DELETE FROM run_events WHERE run_seq = 3;",
    )
    .unwrap();
    let mut sse = server.sse(run, "", &[]).await;
    let mut ws = server.ws(&format!("?run_id={run}")).await;
    assert_eq!(ws.hear().await["type"], "subscribed");
    for expected in &log[..2] {
        assert_eq!(sse.next().await.unwrap().data, *expected);
        assert_eq!(ws.hear().await["event"], *expected);
    }
    let told = sse.next().await.unwrap();
    assert_eq!((told.id, told.name.as_deref()), (None, Some("stale")));
    assert_eq!((&told.data["run_id"], &told.data["from_seq"]), (&json!(run), &json!(3)));
    let told = ws.hear().await;
    assert_eq!((&told["type"], &told["from_seq"]), (&json!("stale"), &json!(3)), "{told}");
    sql.execute_batch("INSERT INTO run_events SELECT * FROM kept").unwrap();
    let (after, end) = sse.rest().await;
    assert_eq!(after, log[2..]);
    assert_eq!(end.unwrap().name.as_deref(), Some("end"));
    let (after, end) = ws.rest().await;
    assert_eq!(after, log[2..]);
    assert_eq!(end.unwrap()["type"], "end");
    server.stop().await;
}
