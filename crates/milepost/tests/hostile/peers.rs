//! Receivers and servers that steps call, and that answer as badly as they can.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::common::postgres_schema;
use super::servers::eventually;
use super::victim::Victim;

/// Listens on a port of this machine, and answers each request, of which the start is told, as it is told. Ends with the test.
pub(crate) fn listen(answer: impl Fn(Vec<u8>, &mut TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            std::thread::spawn(move || serve(stream, &answer));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answer: &impl Fn(Vec<u8>, &mut TcpStream)) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let (mut request, mut piece) = (Vec::new(), [0; 16 * 1024]);
    while let Ok(count @ 1..) = stream.read(&mut piece) {
        request.extend(&piece[..count]);
        let text = String::from_utf8_lossy(&request);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.to_ascii_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
        if body.len() >= length.unwrap_or(0) {
            break;
        }
    }
    answer(request, &mut stream);
}

/// What is said, and then what goes on until the other side has enough.
#[derive(Clone)]
enum Answer {
    Once(Vec<u8>),
    Endless(Vec<u8>, Vec<u8>, Duration),
}

fn peer(answer: Answer) -> SocketAddr {
    listen(move |_, stream| match &answer {
        Answer::Once(bytes) => drop(stream.write_all(bytes)),
        Answer::Endless(first, piece, pause) => {
            let begun = Instant::now();
            let mut going = stream.write_all(first).is_ok();
            while going && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(*pause);
                going = stream.write_all(piece).is_ok();
            }
        }
    })
}

fn with_body(status: &str, body: impl AsRef<[u8]>) -> Answer {
    with_headers(status, "content-type: application/json\r\n", body)
}

fn with_headers(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{headers}connection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    Answer::Once([head.as_bytes(), body].concat())
}

fn hostile() -> Vec<(&'static str, Answer)> {
    let ok = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    let large = vec![b'x'; 256 * 1024];
    let chunk = [format!("{:x}\r\n", large.len()).as_bytes(), &large, b"\r\n"].concat();
    let none = Duration::ZERO;
    let slow = Duration::from_millis(50);
    vec![
        ("NUL as the reason", with_body("503 Busy", "a\0b")),
        ("NUL as a refusal", with_body("400 Bad", "\0\0\0")),
        ("control characters", with_body("503 Busy", "\x1b[2J\u{202e}\u{85}\x07")),
        ("no UTF-8", with_body("503 Busy", b"\xff\xfe\xed\xa0\x80")),
        (
            "NUL in an outcome",
            with_body(
                "200 OK",
                r#"{"outcome":"failed","error":{"code":"a\u0000b","message":"\u0000","retryable":true}}"#,
            ),
        ),
        ("NUL in an output", with_body("200 OK", r#"{"outcome":"completed","output":{"a\u0000":"\u0000"}}"#)),
        ("a lone surrogate", with_body("200 OK", r#"{"outcome":"completed","output":{"s":"\ud800"}}"#)),
        ("no number", with_body("200 OK", r#"{"outcome":"completed","output":{"n":1e999}}"#)),
        ("a deep output", with_body("200 OK", [vec![b'['; 100_000], vec![b']'; 100_000]].concat())),
        ("a key twice", with_body("200 OK", r#"{"outcome":"completed","outcome":"failed","output":1}"#)),
        ("an outcome of the wrong type", with_body("200 OK", r#"{"outcome":{"completed":1},"error":[]}"#)),
        ("half an answer", with_headers("200 OK", "content-length: 1000\r\n", "{\"outcome\":")),
        ("no JSON", with_headers("200 OK", "content-type: text/html\r\n", "<h1>hello</h1>")),
        ("nothing", Answer::Once(Vec::new())),
        ("no HTTP", Answer::Once(b"\x16\x03\x01 hello\r\n\r\n".to_vec())),
        ("a redirect inwards", with_headers("302 Found", "location: http://169.254.169.254/\r\n", "")),
        ("a redirect to itself", with_headers("307 Temporary", "location: /\r\n", "")),
        ("retry after all time", with_headers("503 Busy", "retry-after: 99999999999999999999\r\n", "")),
        ("retry after a year", with_headers("429 Many", "retry-after: 31536000\r\n", "")),
        ("retry in the past", with_headers("503 Busy", "retry-after: Thu, 01 Jan 1970 00:00:00 GMT\r\n", "")),
        ("retry never", with_headers("503 Busy", "retry-after: -1\r\n", "")),
        ("compressed", with_headers("200 OK", "content-encoding: gzip\r\n", b"\x1f\x8b\x08\0\0\0\0\0")),
        ("a giant header", with_headers("200 OK", &format!("x-a: {}\r\n", "x".repeat(10_000_000)), "{}")),
        ("many headers", with_headers("200 OK", &"x-a: 1\r\n".repeat(100_000), "{}")),
        ("later", with_headers("202 Accepted", "", "")),
        ("early hints", Answer::Endless(Vec::new(), b"HTTP/1.1 103 Hints\r\n\r\n".to_vec(), Duration::from_millis(1))),
        ("headers without end", Answer::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x-a: 1\r\n".repeat(1_000), none)),
        ("headers that trickle", Answer::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x-a: 1\r\n".to_vec(), slow)),
        ("a body without end", Answer::Endless(ok.clone(), chunk, none)),
        ("a body that trickles", Answer::Endless(ok, b"1\r\nx\r\n".to_vec(), slow)),
        (
            "a length beyond all",
            Answer::Endless(b"HTTP/1.1 200 OK\r\ncontent-length: 18446744073709551615\r\n\r\n".to_vec(), large, none),
        ),
        ("silence", Answer::Endless(Vec::new(), Vec::new(), Duration::from_secs(1))),
    ]
}

fn called(address: SocketAddr, how: &str) -> Value {
    let step = match how {
        "push" => {
            json!({"skill": "p", "runtime": "push", "push": {"url": format!("http://{address}/"), "timeout_ms": 1000}, "timeout_ms": 4000})
        }
        _ => {
            json!({"skill": "http", "input": {"url": format!("http://{address}/"), "body": {"a": 1}, "method": "POST"}, "timeout_ms": 4000})
        }
    };
    json!({"name": "hostile.called", "steps": {"a": step}})
}

/// Steps that call each of them, at once; one that is good is served meanwhile.
fn attacked_by_peers(more: &[&str]) {
    let victim = Victim::with(
        &[&["--allow-private-http"], more].concat(),
        &[("MILEPOST_PUSH_SECRET", "a key that only these two know")],
    );
    let good = peer(with_body("200 OK", r#"{"outcome":"completed","output":{"n":1}}"#));
    let peers: Vec<(&str, SocketAddr)> = hostile().into_iter().map(|(what, answer)| (what, peer(answer))).collect();
    let mut runs = Vec::new();
    for (what, address) in &peers {
        for how in ["push", "http"] {
            runs.push((format!("{how}: {what}"), victim.run(&called(*address, how), &json!({}))));
        }
    }
    victim.is_well("while it calls");
    for _ in 0..3 {
        let run = victim.run(&called(good, "push"), &json!({}));
        let begun = Instant::now();
        let ended = victim.ended(&run);
        assert_eq!((&ended["status"], &ended["output"]["a"]["n"]), (&json!("completed"), &json!(1)), "{ended}");
        assert!(begun.elapsed() < Duration::from_secs(3), "a good receiver waits for bad ones: {:?}", begun.elapsed());
    }
    for (what, run) in &runs {
        let ended = victim.ended(run);
        let (text, status) = (ended.to_string(), &ended["status"]);
        assert!(*status == "failed" || *status == "completed", "{what}: {ended}");
        assert!(text.len() < 2 << 20, "{what}: {} bytes", text.len());
        victim.get(&format!("/api/v1/runs/{run}/events"));
    }
    eventually("all deliveries to be over", || {
        let owed = victim.get("/api/v1/outbox?status=pending").json();
        owed["items"].as_array().unwrap().is_empty().then_some(())
    });
    victim.is_well("after it called");
    victim.ends_well();
}

#[test]
fn receivers_that_answer_badly() {
    attacked_by_peers(&[]);
}

#[test]
fn receivers_that_answer_badly_on_postgres() {
    attacked_by_peers(&["--db", &postgres_schema("hostile_peers")]);
}
