//! A server that misbehaves, and what comes out all the same.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::*;

/// What the server answers to one request after the other, and the `Last-Event-ID`s that it was asked with.
#[derive(Default)]
struct Script {
    answers: Vec<Answer>,
    asked: Vec<String>,
}

enum Answer {
    /// These pieces of a stream, then its end.
    Stream(Vec<String>),
    Status(StatusCode, &'static str),
}

type Shared = Arc<Mutex<Script>>;

async fn stream(State(script): State<Shared>, Path(_): Path<String>, headers: HeaderMap) -> Response {
    let mut script = script.lock().unwrap();
    script.asked.push(headers["last-event-id"].to_str().unwrap().to_owned());
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    let pieces = |pieces: Vec<String>| futures::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
    match script.answers.remove(0) {
        Answer::Stream(text) => (kind, Body::from_stream(pieces(text))).into_response(),
        Answer::Status(status, body) => (status, body).into_response(),
    }
}

async fn serve(answers: Vec<Answer>) -> (Client, Shared) {
    let script = Arc::new(Mutex::new(Script { answers, asked: Vec::new() }));
    let router = Router::new().route("/api/v1/runs/{run}/stream", get(stream)).with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (Client::new(&url).unwrap(), script)
}

fn run() -> RunId {
    "01a1defb-20b0-76b2-bcac-6128b7360903".parse().unwrap()
}

fn event(seq: u64) -> String {
    let zeros = "0".repeat(64);
    format!(
        "id: {seq}\ndata: {{\"event_id\":\"5c262a51-3c94-8ce9-bb2c-a686b51bb2c2\",\"run_id\":\"{}\",\"run_seq\":{seq},\"event_type\":\"RunStarted\",\"data\":{{}},\"idempotency_key\":\"{zeros}\",\"emitted_at\":\"2026-11-15T11:12:25Z\",\"persisted_at\":\"2026-11-15T11:12:25Z\"}}\n\n",
        run()
    )
}

const END: &str = "event: end\ndata: {\"status\":\"completed\"}\n\n";

/// All that comes out of a stream: numbers of events, and what is said of the connection.
async fn drain(mut stream: EventStream) -> Result<(Vec<u64>, Vec<String>), Error> {
    let (mut seqs, mut notes) = (Vec::new(), Vec::new());
    while let Some(seen) = stream.next_seen().await? {
        match seen {
            Seen::Events(events) => seqs.extend(events.iter().map(|event| event.run_seq)),
            Seen::Lost { why } => notes.push(why),
            Seen::Back => notes.push("back".to_owned()),
            Seen::Stale { from_seq } => notes.push(format!("stale from {from_seq}")),
        }
    }
    Ok((seqs, notes))
}

#[tokio::test]
async fn a_lost_connection_goes_on_after_the_last_event() {
    let (client, script) = serve(vec![
        // Cut in the middle of the third.
        Answer::Stream(vec![event(1) + ": beat\n\n" + &event(2), event(3)[..40].to_owned()]),
        Answer::Stream(vec![event(3), "event: dropped\ndata: {\"reason\":\"slow\"}\n\n".to_owned(), event(4)]),
        Answer::Stream(vec![event(4), "event: shutdown\ndata: {}\n\n".to_owned()]),
        Answer::Stream(vec![event(5), "event: failed\ndata: {}\n\n".to_owned()]),
        Answer::Stream(vec![event(6), END.to_owned(), event(7)]),
    ])
    .await;
    let (seqs, notes) = drain(client.watch(run(), 0)).await.unwrap();
    assert_eq!(seqs, [1, 2, 3, 4, 5, 6]);
    assert_eq!(notes, [""; 0], "whoever watches is not bothered with what passes at once");
    assert_eq!(script.lock().unwrap().asked, ["0", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_run_that_had_ended_when_the_connection_was_lost_has_ended() {
    let (client, _) = serve(vec![Answer::Stream(vec![event(1)]), Answer::Status(StatusCode::NO_CONTENT, "")]).await;
    assert_eq!(drain(client.watch(run(), 0)).await.unwrap().0, [1]);
}

#[tokio::test]
async fn what_comes_twice_is_given_once_and_a_gap_is_asked_for() {
    let (client, script) = serve(vec![
        Answer::Stream(vec![event(4), event(5), event(5), event(4), event(7)]),
        Answer::Stream(vec![event(5), event(6), event(7), END.to_owned()]),
    ])
    .await;
    let (seqs, _) = drain(client.watch(run(), 3)).await.unwrap();
    assert_eq!(seqs, [4, 5, 6, 7]);
    assert_eq!(script.lock().unwrap().asked, ["3", "5"]);
}

#[tokio::test]
async fn a_server_that_is_away_for_a_while_is_waited_for_and_that_is_told() {
    let (client, _) = serve(vec![
        Answer::Stream(vec![event(1)]),
        Answer::Status(StatusCode::BAD_GATEWAY, "<html>"),
        Answer::Status(StatusCode::SERVICE_UNAVAILABLE, "{}"),
        Answer::Stream(vec![event(2), END.to_owned()]),
    ])
    .await;
    let (seqs, notes) = drain(client.watch(run(), 0)).await.unwrap();
    assert_eq!(seqs, [1, 2]);
    assert_eq!(notes, ["it says 502 Bad Gateway", "back"]);
}

#[tokio::test]
async fn what_the_server_refuses_is_not_tried_again() {
    let problem = r#"{"title": "Not Found", "status": 404, "code": "unknown_run", "detail": "there is no such run"}"#;
    let (client, _) = serve(vec![Answer::Status(StatusCode::NOT_FOUND, problem)]).await;
    let error = drain(client.watch(run(), 0)).await.unwrap_err();
    assert_eq!((error.to_string().as_str(), error.code()), ("there is no such run", Some("unknown_run")));
}

#[tokio::test]
async fn something_else_than_a_stream_is_no_server() {
    let (client, _) = serve(vec![Answer::Status(StatusCode::OK, "hello")]).await;
    let error = drain(client.watch(run(), 0)).await.unwrap_err();
    assert!(error.to_string().contains("is no Milepost server"), "{error}");
}

#[tokio::test]
async fn events_are_given_one_by_one_to_whoever_wants_them_so() {
    let (client, _) = serve(vec![Answer::Stream(vec![event(1) + &event(2), END.to_owned()])]).await;
    let mut stream = client.watch(run(), 0);
    for seq in 1..=2 {
        assert_eq!(stream.next().await.unwrap().unwrap().run_seq, seq);
    }
    assert!(stream.next().await.unwrap().is_none());
    assert!(stream.next().await.unwrap().is_none(), "the end is the end");
}

#[tokio::test]
async fn a_gap_is_told_and_what_comes_after_it_is_given() {
    let stale = "event: stale\ndata: {\"run_id\":\"x\",\"from_seq\":2,\"message\":\"it lacks event 2\"}\n\n".to_owned();
    let (client, _) = serve(vec![Answer::Stream(vec![event(1), stale, event(2), END.to_owned()])]).await;
    let (seqs, notes) = drain(client.watch(run(), 0)).await.unwrap();
    assert_eq!((seqs, notes), (vec![1, 2], vec!["stale from 2".to_owned()]));
}
