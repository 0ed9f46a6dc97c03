//! Peers that send or take too little: they are let go, and hold up nobody.

use std::time::{Duration, Instant};

use milepost_api::Settings;
use milepost_core::id::RunId;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::*;

fn impatient() -> Settings {
    Settings { header_ms: 1_000, idle_ms: 1_000, body_ms: 1_000, write_ms: 1_000, ..Settings::default() }
}

/// Sends bytes, then reads to the end of the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A connection that is reset has ended, too.
    let _ = within(stream.read_to_end(&mut text)).await;
    String::from_utf8_lossy(&text).into_owned()
}

async fn say(server: &Server, text: &str) -> TcpStream {
    let mut stream = server.connect().await;
    within(stream.write_all(text.as_bytes())).await.unwrap();
    stream
}

/// One answer with a `content-length`; the connection stays open.
async fn answer(stream: &mut TcpStream) -> (u16, Value) {
    let mut text = Vec::new();
    loop {
        let mut piece = [0; 1024];
        let count = within(stream.read(&mut piece)).await.unwrap();
        assert!(count > 0, "the connection ended: {}", String::from_utf8_lossy(&text));
        text.extend_from_slice(&piece[..count]);
        let said = String::from_utf8_lossy(&text);
        let Some((head, body)) = said.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        if body.len() == length.parse::<usize>().unwrap() {
            let status = head.split(' ').nth(1).unwrap().parse().unwrap();
            return (status, serde_json::from_str(body).unwrap_or_default());
        }
    }
}

async fn health(server: &Server) -> Duration {
    let begun = Instant::now();
    let mut stream = say(server, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(answer(&mut stream).await.0, 200);
    begun.elapsed()
}

#[tokio::test]
async fn half_a_head_and_silence_are_let_go() {
    let server = Server::with(impatient()).await;
    let mut half = say(&server, "GET /healthz HTTP/1.1\r\nHost: loc").await;
    let mut silent = server.connect().await;
    let mut idle = say(&server, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!(answer(&mut idle).await.0, 200);
    for stream in [&mut half, &mut silent, &mut idle] {
        assert_eq!(rest(stream).await, "");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_head_that_trickles_in_is_let_go() {
    let server = Server::with(impatient()).await;
    let mut stream = say(&server, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n").await;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        if stream.write_all(b"X-Slow: 1\r\n").await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(begun.elapsed() < Duration::from_secs(10));
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_with_a_problem() {
    let server = Server::with(impatient()).await;
    let head = "POST /api/v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    for framing in ["Content-Length: 100\r\n\r\n{\"document\"", "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"doc\r\n"] {
        let mut stream = say(&server, &format!("{head}{framing}")).await;
        let (status, problem) = answer(&mut stream).await;
        assert_eq!((status, &problem["code"]), (408, &json!("body_timeout")), "{problem}");
        assert_eq!(rest(&mut stream).await, "");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_upload_may_be_slow_and_may_not_stop() {
    let server = Server::with(impatient()).await;
    let head = "POST /api/v1/blobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30\r\n\r\n";
    let mut slow = say(&server, head).await;
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_millis(70)).await;
        within(slow.write_all(b"x")).await.unwrap();
    }
    let (status, stored) = answer(&mut slow).await;
    assert_eq!((status, &stored["size_bytes"]), (201, &json!(30)), "{stored}");
    let mut stopped = say(&server, &format!("{head}xxx")).await;
    let (status, problem) = answer(&mut stopped).await;
    assert_eq!((status, &problem["code"]), (400, &json!("upload_broken")), "{problem}");
    server.stop().await;
}

#[tokio::test]
async fn those_who_wait_for_news_are_not_idle() {
    let server = Server::with(impatient()).await;
    let run = server.start(&waiting()).await;
    let mut events = server.sse(run, "", &[]).await;
    let mut socket = server.ws("").await;
    socket.subscribe(run, 0).await;
    let body = r#"{"worker_id":"w","capacity":1,"wait_ms":3000}"#;
    let head = "POST /api/v1/worker/exchange HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let mut worker = say(&server, &format!("{head}Content-Length: {}\r\n\r\n{body}", body.len())).await;
    let begun = Instant::now();
    let (status, told) = answer(&mut worker).await;
    assert_eq!((status, &told["tasks"]), (200, &json!([])), "{told}");
    assert!(begun.elapsed() > Duration::from_secs(2), "longer than anybody may be silent");
    server.signal(run, "go").await;
    assert_eq!(events.rest().await.1.unwrap().name.as_deref(), Some("end"));
    assert_eq!(socket.rest().await.1.unwrap()["type"], "end");
    server.stop().await;
}

async fn finished(server: &Server, document: &Value) -> RunId {
    let run = server.start(document).await;
    within(server.engine.wait(run)).await.unwrap();
    run
}

#[tokio::test]
async fn a_reader_that_takes_nothing_of_an_answer_is_let_go() {
    let server = Server::with(impatient()).await;
    let run = finished(&server, &large(200)).await;
    let mut stream = server.connect_small().await;
    let request = format!("GET /api/v1/runs/{run} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    within(stream.write_all(request.as_bytes())).await.unwrap();
    let metrics = milepost_api::metrics::install();
    until(|| metrics.render().contains("milepost_connections_let_go_total{reason=\"stalled\"} 1")).await;
    // What the kernel still holds comes through the small window far too slowly to be read to its end.
    let mut status = [0; 12];
    within(stream.read_exact(&mut status)).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_full_answers_all_the_same() {
    let server = Server::with(Settings { connections: 100, ..Settings::default() }).await;
    let run = server.start(&waiting()).await;
    let mut events = server.sse(run, "", &[]).await;
    let mut half_open = Vec::new();
    for _ in 0..5 {
        for _ in 0..100 {
            half_open.push(say(&server, "GET /api/v1/runs HTTP/1.1\r\nHost: ").await);
        }
        assert!(health(&server).await < Duration::from_secs(1));
        finished(&server, &json!({"name": "one", "steps": {"a": {"skill": "noop"}}})).await;
        let mut list = say(&server, "GET /api/v1/runs HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
        assert_eq!(answer(&mut list).await.0, 200);
    }
    server.signal(run, "go").await;
    assert_eq!(events.rest().await.1.unwrap().name.as_deref(), Some("end"), "what is under way is left alone");
    drop(half_open);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_what_a_server_can_do_are_told_to_come_back() {
    let server = Server::with(Settings { connections: 64, ..Settings::default() }).await;
    let run = server.start(&waiting()).await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(server.sse(run, "", &[]).await);
    }
    let mut refused = server.sse(run, "", &[]).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(refused.json().await["code"], "overloaded");
    assert!(health(&server).await < Duration::from_secs(1));
    streams.pop();
    within(async { while server.sse(run, "", &[]).await.status != 200 {} }).await;
    drop(streams);
    server.stop().await;
}

#[tokio::test]
async fn streams_are_counted() {
    let server = Server::with(Settings { streams: 2, ..Settings::default() }).await;
    let run = server.start(&waiting()).await;
    let _streams = (server.sse(run, "", &[]).await, server.ws("").await);
    let mut refused = server.sse(run, "", &[]).await;
    assert_eq!((refused.status, &refused.json().await["code"]), (503, &json!("too_many_streams")));
    drop(_streams);
    within(async { while server.sse(run, "", &[]).await.status != 200 {} }).await;
    server.stop().await;
}
