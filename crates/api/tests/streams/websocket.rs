//! WebSockets.

use std::collections::HashMap;

use milepost_api::Settings;
use milepost_core::id::RunId;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_socket_follows_many_runs() {
    let server = Server::new().await;
    let mut runs = Vec::new();
    for _ in 0..20 {
        runs.push(server.start(&waiting()).await);
    }
    let mut ws = server.ws("").await;
    let places: Vec<Value> =
        runs.iter().enumerate().map(|(n, run)| json!({"run_id": run, "after_seq": n % 3})).collect();
    ws.say(&json!({"type": "subscribe", "runs": places})).await;
    for run in &runs {
        server.signal(*run, "go").await;
    }
    let mut seen: HashMap<String, Vec<Value>> = HashMap::new();
    let mut open = runs.len();
    while open > 0 {
        let mut told = ws.hear().await;
        let run = told["run_id"].as_str().unwrap().to_owned();
        match told["type"].as_str().unwrap() {
            "subscribed" => assert!(seen.insert(run, Vec::new()).is_none()),
            "event" => seen.get_mut(&run).expect("told first").push(told["event"].take()),
            "end" => {
                assert_eq!(
                    (&told["status"], &told["last_event_seq"]),
                    (&json!("completed"), &seen[&run].last().unwrap()["run_seq"])
                );
                open -= 1;
            }
            other => panic!("{other}: {told}"),
        }
    }
    for (n, run) in runs.iter().enumerate() {
        assert_eq!(seen[&run.to_string()], server.log(*run).await[n % 3..], "{run}");
    }
    server.unwatched().await;
    ws.say(&json!({"type": "ping"})).await;
    assert_eq!(ws.hear().await, json!({"type": "pong"}), "the socket outlives its runs");
    ws.subscribe(runs[0], 0).await;
    let (seen, end) = ws.rest().await;
    assert_eq!(seen, server.log(runs[0]).await);
    assert_eq!(end.unwrap()["type"], "end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_run_can_be_in_the_address() {
    let server = Server::new().await;
    let run = server.start(&json!({"name": "n", "steps": {"a": {"skill": "noop"}}})).await;
    within(server.engine.wait(run)).await.unwrap();
    let log = server.log(run).await;
    let mut ws = server.ws(&format!("?run_id={run}&after_seq=2")).await;
    assert_eq!(ws.hear().await, json!({"type": "subscribed", "run_id": run, "after_seq": 2}));
    let (seen, end) = ws.rest().await;
    assert_eq!(seen, log[2..]);
    assert_eq!(end.unwrap(), json!({"type": "end", "run_id": run, "status": "completed", "last_event_seq": log.len()}));
    // At the end of a run that has ended there is only that to say.
    let mut late = server.ws(&format!("?run_id={run}&after_seq={}", log.len())).await;
    assert_eq!(late.hear().await["type"], "subscribed");
    assert_eq!(late.hear().await["type"], "end");
    let mut unknown = server.ws(&format!("?run_id={}", uuid::Uuid::now_v7())).await;
    assert_eq!(unknown.hear().await["code"], "unknown_run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_messages_get_an_error_and_the_socket_stays() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut ws = server.ws("").await;
    ws.subscribe(run, 3).await;
    let nobody = RunId(uuid::Uuid::now_v7());
    for (said, code, of) in [
        (json!("hello"), "bad_message", None),
        (json!({"type": "dance"}), "bad_message", None),
        (json!({"type": "subscribe"}), "bad_message", None),
        (json!({"type": "subscribe", "run_id": run, "runs": []}), "bad_message", None),
        (json!({"type": "subscribe", "run_id": run}), "already_subscribed", Some(run)),
        (json!({"type": "subscribe", "run_id": nobody}), "unknown_run", Some(nobody)),
        (json!({"type": "unsubscribe", "run_id": nobody}), "not_subscribed", Some(nobody)),
        (json!({"type": "ping", "padding": "x".repeat(300_000)}), "message_too_large", None),
    ] {
        ws.say(&said).await;
        let told = ws.hear().await;
        assert_eq!((&told["type"], &told["code"]), (&json!("error"), &json!(code)), "{told}");
        assert_eq!(told.get("run_id"), of.map(|run| json!(run)).as_ref(), "{told}");
        assert!(told["message"].as_str().is_some_and(|message| !message.is_empty()));
    }
    ws.say_text("{not json").await;
    assert_eq!(ws.hear().await["code"], "bad_message");
    ws.say(&json!({"type": "unsubscribe", "run_id": run})).await;
    assert_eq!(ws.hear().await, json!({"type": "unsubscribed", "run_id": run}));
    ws.say(&json!({"type": "subscribe", "run_id": run, "after_seq": 99})).await;
    assert_eq!(ws.hear().await["code"], "after_last_event");
    // What is far too large is not read, and then nothing else can be.
    let _ = futures::SinkExt::send(&mut ws.socket, Message::text("x".repeat(2 << 20))).await;
    assert!(ws.hear_or_end().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_can_be_left_and_taken_up_again() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let before = server.log(run).await.len() as u64;
    let mut ws = server.ws("").await;
    for _ in 0..50 {
        ws.subscribe(run, before).await;
        ws.say(&json!({"type": "unsubscribe", "run_id": run})).await;
        assert_eq!(ws.hear().await["type"], "unsubscribed");
    }
    server.unwatched().await;
    server.signal(run, "go").await;
    within(server.engine.wait(run)).await.unwrap();
    ws.subscribe(run, before).await;
    let (seen, _) = ws.rest().await;
    assert_eq!(seen, server.log(run).await[before as usize..], "nothing of what came while nobody followed is missing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_socket_follows_a_thousand_runs_at_most() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut ws = server.ws("").await;
    ws.subscribe(run, 0).await;
    let places: Vec<Value> = (0..1000).map(|_| json!({"run_id": uuid::Uuid::now_v7()})).collect();
    ws.say(&json!({"type": "subscribe", "runs": places})).await;
    let (mut unknown, mut too_many) = (0, 0);
    while unknown + too_many < 1000 {
        let told = ws.hear().await;
        match told["code"].as_str() {
            Some("unknown_run") => unknown += 1,
            Some("too_many_runs") => too_many += 1,
            _ => assert_eq!(told["type"], "event", "{told}"),
        }
    }
    assert_eq!((unknown, too_many), (999, 1));
    assert_eq!(server.engine.watched_runs(), 1, "those that are not there take no place");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_websocket_is_told() {
    let server = Server::new().await;
    let mut plain = Sse::open(server.connect().await, "/api/v1/ws", &[]).await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));
    assert_eq!(plain.json().await["code"], "no_websocket");
    let mut odd = Sse::open(server.connect().await, "/api/v1/ws?after_seq=3", &[]).await;
    assert_eq!((odd.status, odd.json().await["code"].as_str()), (400, Some("bad_query")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_answers_nothing_is_let_go() {
    let server = Server::with(Settings { ping_ms: 20, ..Settings::default() }).await;
    let run = server.start(&waiting()).await;
    // It is not read from, so it answers no ping.
    let mut silent = server.ws("").await;
    silent.subscribe(run, 0).await;
    server.closed().await;
    server.unwatched().await;
    drop(silent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_answers_pings_stays() {
    let server = Server::with(Settings { ping_ms: 1000, ..Settings::default() }).await;
    let mut ws = server.ws("").await;
    // More of them than one may leave unanswered.
    for _ in 0..4 {
        let told = within(futures::StreamExt::next(&mut ws.socket)).await;
        assert!(matches!(told, Some(Ok(Message::Ping(_)))), "{told:?}");
    }
    assert_eq!(server.open_sockets(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_shuts_down_closes_with_a_reason() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut ws = server.ws("").await;
    ws.subscribe(run, 0).await;
    server.drain();
    let (_, closed) = ws.rest().await;
    let frame = closed.unwrap_err().expect("a close frame");
    assert_eq!(u16::from(frame.code), 1001);
    assert!(frame.reason.starts_with("shutting_down: "), "{}", frame.reason);
    drop(ws);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_closes_is_answered() {
    let server = Server::new().await;
    let run = server.start(&waiting()).await;
    let mut ws = server.ws("").await;
    ws.subscribe(run, 3).await;
    within(ws.socket.close(None)).await.unwrap();
    assert!(ws.hear_or_end().await.is_err());
    server.unwatched().await;
}
