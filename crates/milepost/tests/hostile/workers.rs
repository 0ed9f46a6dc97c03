//! Workers that say too much, too often, or nothing that is true.

use std::io::Write as _;
use std::net::TcpStream;

use serde_json::{Value, json};

use super::values;
use super::victim::Victim;
use super::wire::{Request, escaped, exchange};

fn task(victim: &Victim) -> (String, Value) {
    let document = json!({"name": "hostile.work", "steps": {"a": {"skill": "hostile.work", "queue": "work"}}});
    let run = victim.run(&document, &json!({}));
    let task = victim.claim("work", "hostile-1").unwrap();
    assert_eq!(task["run_id"], *run);
    (run, task)
}

fn url(task: &Value, verb: &str) -> String {
    format!("/api/v1/tasks/{}/{verb}", task["task_id"].as_str().unwrap())
}

#[test]
fn outputs_of_every_kind() {
    let victim = Victim::serve(&[]);
    let text = |size: usize| values::quoted(&"x".repeat(size));
    let mut outputs = values::jsons();
    outputs.extend([("a large text", text(3 << 20)), ("a larger text", text(40 << 20)), ("too large", text(80 << 20))]);
    outputs.push(("many large lists", [b"[".to_vec(), b"[0],".repeat(5_000_000), b"0]".to_vec()].concat()));
    let mut runs = Vec::new();
    for (kind, output) in &outputs {
        let (run, task) = task(&victim);
        let lease = &task["lease_token"];
        for (verb, field) in [
            ("heartbeat", "progress"),
            ("heartbeat", "lines"),
            ("complete", "artifacts"),
            ("fail", "error"),
            ("complete", "output"),
        ] {
            let body = [format!("{{\"lease_token\":{lease},\"{field}\":").as_bytes(), output, b"}"].concat();
            victim.attack(&format!("{verb}: {field} is {kind}"), &Request::new("POST", url(&task, verb)).json(body));
        }
        let result =
            format!("{{\"task_id\":{},\"lease_token\":{lease},\"outcome\":\"completed\",\"output\":", task["task_id"]);
        let body = [b"{\"worker_id\":\"w\",\"results\":[".as_slice(), result.as_bytes(), output, b"}]}"].concat();
        victim.attack(
            &format!("exchange: output is {kind}"),
            &Request::new("POST", "/api/v1/worker/exchange").json(body),
        );
        for path in ["", "?fields=output", "/events", "/steps/a"] {
            victim.attack(kind, &Request::new("GET", format!("/api/v1/runs/{run}{path}")));
        }
        runs.push(run);
        victim.is_well(kind);
    }
    // What was not taken is still to be done.
    for run in runs {
        victim.post(&format!("/api/v1/runs/{run}/terminate"), &json!({}));
        victim.ended(&run);
    }
    victim.ends_well();
}

#[test]
fn outputs_that_patch_their_own_run() {
    let victim = Victim::serve(&[]);
    let step = json!({"skill": "hostile.work", "queue": "work"});
    let document =
        json!({"name": "hostile.self", "self_patch": {"max_patches": 5, "max_steps": 20}, "steps": {"a": step}});
    let mut patches = values::jsons();
    patches.push(("itself", br#"[{"op":"remove","path":"/steps/a"}]"#.to_vec()));
    patches.push(("a surrogate", br#"[{"op":"add","path":"/steps/b","value":{"skill":"\ud800"}}]"#.to_vec()));
    patches.push(("no number", br#"[{"op":"add","path":"/steps/b","value":{"skill":"echo","input":1e999}}]"#.to_vec()));
    patches.push((
        "a step without end",
        br#"[{"op":"add","path":"/steps/b","value":{"skill":"sleep","input":{"ms":9007199254740991}}}]"#.to_vec(),
    ));
    for (kind, patch) in &patches {
        let started = victim.post("/api/v1/runs", &json!({ "document": document }));
        let Some(run) = started.json()["run_id"].as_str().map(ToOwned::to_owned) else { panic!("{}", started.text()) };
        let task = victim.claim("work", "hostile-1").unwrap();
        let body =
            [format!("{{\"lease_token\":{},\"output\":{{\"patch\":", task["lease_token"]).as_bytes(), patch, b"}}"]
                .concat();
        victim.attack(kind, &Request::new("POST", url(&task, "complete")).json(body));
        victim.is_well(kind);
        victim.post(&format!("/api/v1/runs/{run}/terminate"), &json!({}));
        victim.ended(&run);
    }
    victim.ends_well();
}

#[test]
fn floods_of_progress_and_lines() {
    let victim = Victim::serve(&[]);
    let (run, task) = task(&victim);
    let lease = &task["lease_token"];
    let lines = json!(vec![json!({"text": "x".repeat(1_000)}); 3_000]);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (victim, task, lines) = (&victim, &task, &lines);
            scope.spawn(move || {
                for n in 0..60 {
                    let body = match (n + worker) % 3 {
                        0 => json!({"lease_token": lease, "lines": lines}),
                        1 => json!({"lease_token": lease, "progress": "x".repeat(15_000)}),
                        _ => json!({"lease_token": lease, "progress": "x".repeat(2_000_000)}),
                    };
                    victim.post(&url(task, "heartbeat"), &body);
                }
            });
        }
        victim.is_well("while workers flood it");
    });
    let beats: Vec<Value> =
        (0..10_000).map(|n| json!({"task_id": task["task_id"], "lease_token": lease, "progress": n})).collect();
    let forged: Vec<Value> = (0..10_000)
        .map(|n| json!({"task_id": task["task_id"], "lease_token": format!("1.2.3..1.1.{n:016x}")}))
        .collect();
    let results: Vec<Value> = (0..10_000)
        .map(|n| json!({"task_id": task["task_id"], "lease_token": format!("{}{n}", lease.as_str().unwrap()), "outcome": "completed", "output": n}))
        .collect();
    for body in [
        json!({"worker_id": "w", "heartbeats": beats}),
        json!({"worker_id": "w", "heartbeats": forged}),
        json!({"worker_id": "w", "results": results}),
        json!({"worker_id": "w", "queues": (0..10_000).map(|n| format!("q{n}")).collect::<Vec<_>>(), "capacity": 1000}),
        json!({"worker_id": "w", "skills": vec!["s".repeat(255); 10_000], "capacity": 1000}),
    ] {
        victim.post("/api/v1/worker/exchange", &body);
        victim.is_well("an exchange of many");
    }
    let done = victim.post(&url(&task, "complete"), &json!({"lease_token": lease, "output": 1}));
    assert_eq!(done.status, 200, "{}", done.text());
    let ended = victim.ended(&run);
    assert_eq!(ended["output"]["a"], 1);
    let log = victim.get(&format!("/api/v1/runs/{run}/steps/a/logs?limit=10000"));
    assert!(log.body.len() < 8 << 20, "{} bytes of log", log.body.len());
    victim.ends_well();
}

#[test]
fn thousands_of_workers_that_wait_or_break_off() {
    let victim = Victim::serve(&[]);
    let body = json!({"worker_id": "w", "queues": ["crowd"], "capacity": 10, "wait_ms": 20_000}).to_string();
    let mut waiting = Vec::new();
    for n in 0..600 {
        let mut stream = TcpStream::connect(("127.0.0.1", victim.port())).unwrap();
        let request =
            Request::new("POST", "/api/v1/worker/exchange").json(body.replace("\"w\"", &format!("\"w{n}\""))).bytes();
        // Some say only half of it, some go away.
        let part = if n % 3 == 0 { request.len() / 2 } else { request.len() };
        let _ = stream.write_all(&request[..part]);
        if n % 5 != 0 {
            waiting.push(stream);
        }
    }
    victim.is_well("while workers wait");
    let document =
        json!({"name": "crowd", "steps": {"a": {"skill": "s", "queue": "crowd", "heartbeat_timeout_ms": 1000}}});
    let run = victim.run(&document, &json!({}));
    victim.is_well("after workers were given something and are gone");
    drop(waiting);
    let names = ["w\0", "", " ", &"w".repeat(300), "\u{202e}"].map(|name| json!({"worker_id": name, "queues": [name]}));
    for body in names {
        victim.post("/api/v1/tasks/claim", &body);
    }
    let ids = values::texts();
    for (kind, id) in &ids {
        for verb in ["", "/complete", "/fail", "/heartbeat"] {
            let method = if verb.is_empty() { "GET" } else { "POST" };
            let request =
                Request::new(method, format!("/api/v1/tasks/{}{verb}", escaped(id))).json("{\"lease_token\":\"x\"}");
            victim.attack(kind, &request);
        }
    }
    victim.post(&format!("/api/v1/runs/{run}/terminate"), &json!({}));
    victim.ended(&run);
    victim.ends_well();
}

#[test]
fn uploads_that_lie() {
    let victim = Victim::serve(&[]);
    let digest = format!("sha256:{}", "0".repeat(64));
    let put = |target: &str, more: &str, body: &[u8]| {
        let head = format!("PUT /api/v1/blobs/{target} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n{more}\r\n");
        let bytes = [head.as_bytes(), body].concat();
        victim.attack_bytes(target, &bytes, || head.clone())
    };
    assert_eq!(put(&digest, "content-length: 3\r\n", b"abc").status, 422, "the content has another hash");
    for target in
        ["sha256:..%2f..%2fetc", "%2e%2e%2fmilepost.db", "sha256:00", "md5:00", "sha256:%00", &"x".repeat(5_000)]
    {
        let answer = put(target, "content-length: 3\r\n", b"abc");
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.status);
    }
    // One that breaks off leaves nothing behind that counts.
    let half = format!(
        "POST /api/v1/blobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100000000\r\n\r\n{}",
        "x".repeat(1_000_000)
    );
    for _ in 0..20 {
        let mut stream = TcpStream::connect(("127.0.0.1", victim.port())).unwrap();
        let _ = stream.write_all(half.as_bytes());
    }
    let stored = victim.attack(
        "upload",
        &Request::new("POST", "/api/v1/blobs").body("application/octet-stream", vec![b'x'; 2_000_000]),
    );
    assert_eq!(stored.status, 201, "{}", stored.text());
    let digest = format!("sha256:{}", stored.json()["sha256"].as_str().unwrap());
    for range in [
        "bytes=0-",
        "bytes=-1",
        "bytes=-0",
        "bytes=5-2",
        "bytes=99999999999-",
        "bytes=18446744073709551615-18446744073709551616",
        "bytes=0-0,1-1",
        "x",
        "bytes=",
        "bytes=--1",
        "bytes=0-18446744073709551615",
    ] {
        let request = Request::new("GET", format!("/api/v1/blobs/{digest}")).header("range", range);
        let answer = victim.attack(range, &request);
        assert!(matches!(answer.status, 200 | 206 | 400 | 416), "{range}: {}", answer.status);
    }
    let many = format!("bytes={}", (0..5_000).map(|n| format!("{n}-{n}")).collect::<Vec<_>>().join(","));
    let answer = victim.attack("ranges", &Request::new("GET", format!("/api/v1/blobs/{digest}")).header("range", many));
    assert!(answer.body.len() <= 2_000_000, "{}", answer.body.len());
    // Many at once who read nothing of it.
    let readers: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", victim.port())).unwrap();
            let _ = stream.write_all(&Request::new("GET", format!("/api/v1/blobs/{digest}")).bytes());
            stream
        })
        .collect();
    victim.is_well("while nobody reads");
    drop(readers);
    assert!(
        exchange(
            victim.port(),
            b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n",
            super::wire::DEADLINE
        )
        .is_ok()
    );
    victim.ends_well();
}
