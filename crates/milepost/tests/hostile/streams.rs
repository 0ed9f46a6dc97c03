//! Readers of streams by the hundred that never read, and sockets that send what is no frame.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use super::victim::Victim;

fn connect(victim: &Victim, request: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", victim.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = stream.write_all(request);
    stream
}

fn socket(victim: &Victim, query: &str) -> TcpStream {
    let head = format!(
        "GET /api/v1/ws{query} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    );
    connect(victim, head.as_bytes())
}

/// A frame of a client, masked with zeros.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

#[test]
fn hundreds_of_readers_that_never_read() {
    let victim = Victim::serve(&[]);
    let text = "x".repeat(50_000);
    let steps: serde_json::Map<String, serde_json::Value> =
        (0..60).map(|n| (format!("s{n}"), json!({"skill": "echo", "input": format!("{n} {text}")}))).collect();
    let large = victim.run(&json!({"name": "large", "steps": steps}), &json!({}));
    victim.ended(&large);
    let open = victim.waiting_run();
    let mut readers = Vec::new();
    for n in 0..600 {
        let run = if n % 2 == 0 { &large } else { &open };
        readers.push(match n % 3 {
            0 => socket(&victim, &format!("?run_id={run}")),
            1 => connect(
                &victim,
                format!("GET /api/v1/runs/{run}/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").as_bytes(),
            ),
            _ => connect(
                &victim,
                format!("GET /api/v1/runs/{run}/events?limit=1000 HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                    .repeat(20)
                    .as_bytes(),
            ),
        });
        if n % 200 == 199 {
            victim.is_well(&format!("{} readers that do not read", n + 1));
        }
    }
    victim.post(&format!("/api/v1/runs/{open}/signals"), &json!({"type": "go"}));
    victim.is_well("while nobody reads");
    drop(readers);
    victim.ends_well();
}

#[test]
fn sockets_that_send_what_is_none() {
    let victim = Victim::serve(&[]);
    let run = victim.waiting_run();
    let follow = json!({"type": "subscribe", "run_id": run, "after_seq": 0}).to_string();
    let deep = "[".repeat(100_000);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no frame", b"hello, this is no frame at all".to_vec()),
        ("no mask", vec![0x81, 5, b'h', b'e', b'l', b'l', b'o']),
        ("a frame beyond all", [vec![0x81, 0xff], vec![0x7f; 8], vec![0; 4], vec![b'x'; 100_000]].concat()),
        ("a large frame", frame(1, &vec![b'x'; 20_000_000])),
        ("no UTF-8", frame(1, b"\xff\xfe")),
        ("a binary frame", frame(2, b"\0\0")),
        ("an unknown frame", frame(7, b"")),
        ("a large ping", frame(9, &[b'x'; 1_000])),
        ("pings", frame(9, b"x").repeat(20_000)),
        ("pongs", frame(10, b"x").repeat(20_000)),
        (
            "a piece without end",
            [[0x01, 0x81, 0, 0, 0, 0, b'x'].to_vec(), [0x00, 0x81, 0, 0, 0, 0, b'x'].repeat(200_000)].concat(),
        ),
        ("no JSON", frame(1, b"{").repeat(2_000)),
        ("deep JSON", frame(1, deep.as_bytes())),
        ("a number", frame(1, br#"{"type":"subscribe","run_id":1,"after_seq":1e999}"#)),
        (
            "a place beyond all",
            frame(1, json!({"type": "subscribe", "run_id": run, "after_seq": u64::MAX}).to_string().as_bytes()),
        ),
        ("NUL", frame(1, br#"{"type":"\u0000","run_id":"\u0000"}"#)),
        ("the same run, often", frame(1, follow.as_bytes()).repeat(5_000)),
        (
            "on and off",
            [
                frame(1, follow.as_bytes()),
                frame(1, json!({"type": "unsubscribe", "run_id": run}).to_string().as_bytes()),
            ]
            .concat()
            .repeat(3_000),
        ),
        (
            "runs of nobody",
            (0..3_000)
                .flat_map(|n| {
                    frame(
                        1,
                        json!({"type": "subscribe", "run_id": format!("00000000-0000-0000-0000-{n:012}")})
                            .to_string()
                            .as_bytes(),
                    )
                })
                .collect(),
        ),
        ("a goodbye of one byte", frame(8, b"x")),
        ("a goodbye that is none", frame(8, b"\xff\xff\xff\xfe")),
    ];
    for (what, bytes) in &cases {
        let mut sockets: Vec<TcpStream> = (0..3).map(|_| socket(&victim, &format!("?run_id={run}"))).collect();
        for stream in &mut sockets {
            stream.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
            let _ = stream.write_all(bytes);
        }
        victim.is_well(what);
        // One reads what comes, for a moment; the others never do.
        sockets[0].set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut piece = [0; 4096];
        while let Ok(1..) = sockets[0].read(&mut piece) {}
    }
    let keys = ["", "x", "é", &"x".repeat(10_000)];
    for key in keys {
        let head = format!(
            "GET /api/v1/ws HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 99\r\nsec-websocket-key: {key}\r\n\r\n"
        );
        let answer = victim.attack_bytes("a handshake", head.as_bytes(), || head.clone());
        assert!((400..500).contains(&answer.status), "{}", answer.status);
    }
    victim.ends_well();
}

/// The parts of a server that look after streams answer its watchdog also when nobody stays.
#[test]
fn readers_that_come_and_go_leave_the_server_well() {
    let victim = Victim::with(&[], &[("MILEPOST_UNREADY_AFTER", "1s"), ("MILEPOST_END_AFTER", "3s")]);
    let run = victim.waiting_run();
    for _ in 0..5 {
        drop(connect(&victim, format!("GET /api/v1/runs/{run}/stream HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n").as_bytes()));
        drop(socket(&victim, &format!("?run_id={run}")));
        std::thread::sleep(Duration::from_millis(100));
    }
    std::thread::sleep(Duration::from_secs(4));
    victim.is_well("after readers that came and went");
    victim.ends_well();
}
