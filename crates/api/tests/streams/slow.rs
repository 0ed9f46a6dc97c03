//! Readers that do not read: they are let go with a reason, and hold up nobody.

use milepost_api::Settings;
use serde_json::Value;

use crate::support::*;

const EVENTS: usize = 200;

fn impatient() -> Settings {
    // Long enough for a reader that reads, on a machine that has other things to do.
    Settings { slow_reader_ms: 1500, goodbye_ms: 30_000, ..Settings::default() }
}

/// The events are the log from the start, without gap or duplicate.
fn is_start_of(seen: &[Value], log: &[Value]) {
    assert!(seen.len() < log.len(), "nobody was slow");
    let seqs: Vec<u64> = seen.iter().filter_map(|event| event["run_seq"].as_u64()).collect();
    assert!(seqs.iter().copied().eq(1..=seen.len() as u64), "{seqs:?}");
    assert!(seen == &log[..seen.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_events_is_dropped_with_a_reason_and_can_go_on() {
    let server = Server::with(impatient()).await;
    let run = server.start(&large(EVENTS)).await;
    let mut slow = server.small_sse(run).await;
    // Others are served, and the run goes on to its end, while one reads nothing.
    let (seen, end) = server.sse(run, "", &[]).await.rest().await;
    let log = server.log(run).await;
    assert!(seen == log);
    assert_eq!(end.unwrap().name.as_deref(), Some("end"));
    server.unwatched().await;

    let (mut seen, dropped) = slow.rest().await;
    is_start_of(&seen, &log);
    let dropped = dropped.unwrap();
    assert_eq!((dropped.name.as_deref(), dropped.id), (Some("dropped"), None));
    assert_eq!(dropped.data["code"], "slow_reader");
    assert_eq!(dropped.data["after_seq"], seen.len());
    assert_eq!(slow.next().await, None);

    let last = seen.len().to_string();
    let (rest, end) = server.sse(run, "", &[("Last-Event-ID", &last)]).await.rest().await;
    seen.extend(rest);
    assert!(seen == log);
    assert_eq!(end.unwrap().name.as_deref(), Some("end"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_of_a_websocket_is_closed_with_a_reason_and_can_go_on() {
    let server = Server::with(impatient()).await;
    let run = server.start(&large(EVENTS)).await;
    let mut slow = server.small_ws(&format!("?run_id={run}")).await;
    let mut other = server.ws("").await;
    other.subscribe(run, 0).await;
    let (seen, end) = other.rest().await;
    let log = server.log(run).await;
    assert!(seen == log);
    assert_eq!(end.unwrap()["type"], "end");
    server.unwatched().await;

    assert_eq!(slow.hear().await["type"], "subscribed");
    let (mut seen, closed) = slow.rest().await;
    is_start_of(&seen, &log);
    let frame = closed.unwrap_err().expect("a close frame");
    assert_eq!(u16::from(frame.code), 1013);
    assert!(frame.reason.starts_with("slow_reader: "), "{}", frame.reason);

    other.subscribe(run, seen.len() as u64).await;
    seen.extend(other.rest().await.0);
    assert!(seen == log);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_that_never_reads_again_is_closed() {
    let server = Server::with(Settings { goodbye_ms: 50, ..impatient() }).await;
    let run = server.start(&large(EVENTS)).await;
    let mut slow = server.small_ws(&format!("?run_id={run}")).await;
    within(server.engine.wait(run)).await.unwrap();
    server.closed().await;
    server.unwatched().await;
    // It finds what was on its way, and then nothing.
    while slow.hear_or_end().await.is_ok() {}
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_shuts_down_although_readers_are_stuck() {
    let server = Server::with(Settings { slow_reader_ms: 60_000, goodbye_ms: 50, ..Settings::default() }).await;
    let run = server.start(&large(EVENTS)).await;
    let mut sse = server.small_sse(run).await;
    let _ws = server.small_ws(&format!("?run_id={run}")).await;
    within(server.engine.wait(run)).await.unwrap();
    let log = server.log(run).await;
    server.drain();
    server.unwatched().await;
    let (seen, shutdown) = sse.rest().await;
    is_start_of(&seen, &log);
    let shutdown = shutdown.unwrap();
    assert_eq!(shutdown.name.as_deref(), Some("shutdown"));
    assert_eq!(shutdown.data["after_seq"], seen.len());
    server.stop().await;
}
