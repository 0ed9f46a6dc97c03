//! What nobody may see or do: secrets, leases of others, the server's environment and its network, on every way that leads
//! out.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use super::peers::listen;
use super::servers::eventually;
use super::victim::{Victim, files};
use super::wire::{Request, exchange};

const SECRET: &str = "s3cr3t-0f-th3-h0u53";

/// What a server keeps and says has this nowhere.
fn is_nowhere(victim: &Victim, run: &str, text: &str) {
    for path in [
        "",
        "?fields=output,steps.output,steps.error,error",
        "/events?limit=1000",
        "/logs",
        "/steps/a",
        "/steps/a/logs",
        "/steps/a/explain",
        "/artifacts",
    ] {
        let shown = victim.get(&format!("/api/v1/runs/{run}{path}"));
        assert!(!String::from_utf8_lossy(&shown.body).contains(text), "{path}: {}", shown.text());
    }
    let stream = format!("GET /api/v1/runs/{run}/stream HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n");
    let streamed = exchange(victim.port(), stream.as_bytes(), Duration::from_secs(2)).unwrap();
    assert!(!String::from_utf8_lossy(&streamed.body).contains(text));
    assert!(!victim.server.said().contains(text));
    for file in files(victim.place.path()) {
        let bytes = std::fs::read(&file).unwrap_or_default();
        let found = bytes.windows(text.len()).any(|piece| piece == text.as_bytes());
        assert!(!found, "it is in {}", file.display());
    }
}

fn with_secret(victim: &Victim) -> Value {
    let set = victim.put("/api/v1/secrets/hostile%2Fsecret", &json!({ "value": SECRET }));
    assert_eq!(set.status, 201, "{}", set.text());
    json!({"KEY": "secret://hostile/secret"})
}

#[test]
fn secrets_in_what_workers_say_in_any_form() {
    let victim = Victim::serve(&[]);
    let secrets = with_secret(&victim);
    let step = json!({"skill": "hostile.leak", "queue": "leaks", "secrets": secrets, "input": "${{ payload.n }}", "cache": {"enabled": true}});
    let document = json!({"name": "leaks", "steps": {"a": step}});
    let escaped: String = SECRET.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect();
    let said = |text: &str| {
        [
            format!("\"{text}\""),
            format!("{{\"s\":\"\\ud800\",\"leak\":\"{text}\"}}"),
            format!("{{\"n\":1e999,\"leak\":\"{text}\"}}"),
            format!("{{\"leak\":\"{text}\",\"leak\":1}}"),
            format!("{{\"{text}\":1}}"),
            format!("[[[\"{text}\"]]]"),
            format!("{{\"leak\":\"{text}\""),
            format!("NaN, \"{text}\""),
        ]
    };
    for (n, value) in said(SECRET).iter().chain(&said(&escaped)).enumerate() {
        let run = victim.run(&document, &json!({ "n": n }));
        let task = victim.claim("leaks", "leaker").unwrap();
        assert_eq!(task["secrets"]["KEY"], SECRET);
        let (id, lease) = (task["task_id"].as_str().unwrap(), &task["lease_token"]);
        let call = |verb: &str, body: String| {
            victim.attack(value, &Request::new("POST", format!("/api/v1/tasks/{id}/{verb}")).json(body)).status
        };
        call("heartbeat", format!("{{\"lease_token\":{lease},\"progress\":{value},\"lines\":[{{\"text\":{value}}}]}}"));
        is_nowhere_in_task(&victim, id);
        let result =
            format!("{{\"task_id\":\"{id}\",\"lease_token\":{lease},\"outcome\":\"completed\",\"output\":{value}}}");
        let exchange = format!("{{\"worker_id\":\"leaker\",\"queues\":[\"none\"],\"results\":[{result}]}}");
        victim.attack(value, &Request::new("POST", "/api/v1/worker/exchange").json(exchange));
        if call("complete", format!("{{\"lease_token\":{lease},\"output\":{value}}}")) >= 400 {
            let error = json!({"code": SECRET, "message": SECRET, "retryable": false});
            call("fail", format!("{{\"lease_token\":{lease},\"error\":{error}}}"));
        }
        let ended = victim.ended(&run);
        assert!(matches!(ended["status"].as_str(), Some("completed" | "failed")), "{value}: {ended}");
        is_nowhere(&victim, &run, SECRET);
    }
    victim.ends_well();
}

fn is_nowhere_in_task(victim: &Victim, id: &str) {
    let shown = victim.get(&format!("/api/v1/tasks/{id}"));
    assert!(!String::from_utf8_lossy(&shown.body).contains(SECRET), "{}", shown.text());
}

#[test]
fn secrets_that_payloads_ask_for() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let kept = received.clone();
    let address = listen(move |request, stream| {
        kept.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}");
    });
    let victim = Victim::serve(&["--allow-private-http"]);
    let secrets = with_secret(&victim);
    let asks = [
        "{{secret:KEY}}",
        "{{ secret:KEY }}",
        "{{secret:KEY",
        "${{ secrets.KEY }}",
        "secret://hostile/secret",
        "{{secret:{{secret:KEY}}}}",
    ];
    for ask in asks {
        let call = json!({"url": format!("http://{address}/?q=${{{{ payload.s }}}}"), "method": "POST",
                           "headers": {"authorization": "Bearer {{secret:KEY}}", "x-comment": "${{ payload.s }}"},
                           "body": {"text": "New comment: ${{ payload.s }}", "whole": "${{ payload.s }}", "${{ payload.s }}": 1}});
        let document = json!({"name": "asks", "steps": {"a": {"skill": "http", "secrets": secrets, "input": call}}});
        let started = victim.post("/api/v1/runs", &json!({"document": document, "payload": {"s": ask}}));
        let Some(run) = started.json()["run_id"].as_str().map(ToOwned::to_owned) else { continue };
        victim.ended(&run);
        is_nowhere(&victim, &run, SECRET);
    }
    let received = received.lock().unwrap();
    assert!(received.len() >= 3, "{received:?}");
    for request in received.iter() {
        assert_eq!(request.matches(SECRET).count(), 1, "once, where the document has it: {request}");
        assert!(request.to_lowercase().contains(&format!("authorization: bearer {SECRET}")), "{request}");
    }
    drop(received);
    victim.ends_well();
}

#[test]
fn variables_of_the_server() {
    let victim = Victim::with(
        &["--allow-private-http"],
        &[("AWS_SECRET_ACCESS_KEY", SECRET), ("MILEPOST_SECRET_HOSTILE", SECRET)],
    );
    for name in [
        "AWS_SECRET_ACCESS_KEY",
        "MILEPOST_SECRET_HOSTILE",
        "MILEPOST_SECRETS_KEY",
        "aws_secret_access_key",
        "PATH",
        "*",
    ] {
        let step = json!({"skill": "hostile.leak", "queue": "leaks", "env": [name]});
        let started = victim.post("/api/v1/runs", &json!({"document": {"name": "leaks", "steps": {"a": step}}}));
        let Some(run) = started.json()["run_id"].as_str().map(ToOwned::to_owned) else { continue };
        // It is not handed out, or without the variable.
        if let Some(task) = victim.claim("leaks", "leaker") {
            assert!(!task.to_string().contains(SECRET), "{task}");
        }
        is_nowhere(&victim, &run, SECRET);
    }
    victim.ends_well();
}

#[test]
fn leases_that_are_put_together_from_what_can_be_read() {
    let victim = Victim::serve(&[]);
    let secrets = with_secret(&victim);
    let step = json!({"skill": "hostile.work", "queue": "leases", "secrets": secrets});
    let run = victim.run(&json!({"name": "leases", "steps": {"a": step}}), &json!({}));
    let task = victim.claim("leases", "owner-1").unwrap();
    let (id, lease) = (task["task_id"].as_str().unwrap().to_owned(), task["lease_token"].as_str().unwrap().to_owned());
    let nonce = lease.rsplit('.').next().unwrap();
    is_nowhere(&victim, &run, nonce);

    // All that looks like a lease in what a reader sees.
    let events = victim.get(&format!("/api/v1/runs/{run}/events")).json();
    let shown = victim.get(&format!("/api/v1/tasks/{id}")).json();
    let mut words = vec![nonce.chars().rev().collect::<String>(), "0".repeat(16), String::new()];
    hexadecimal(&events, &mut words);
    hexadecimal(&shown, &mut words);
    assert!(words.len() > 4, "{events}");
    let (front, _) = lease.rsplit_once('.').unwrap();
    for word in words {
        for token in [
            format!("{front}.{word}"),
            word.clone(),
            format!("2{}", &lease[1..]),
            lease[..lease.len() - 1].to_owned(),
            format!("{lease}0"),
            format!("{lease} "),
        ] {
            for (verb, more) in [
                ("complete", json!({"output": 1})),
                ("fail", json!({"error": {"code": "c", "message": "m", "retryable": true}})),
                ("heartbeat", json!({})),
            ] {
                let mut body = more;
                body["lease_token"] = json!(token);
                let answer = victim.post(&format!("/api/v1/tasks/{id}/{verb}"), &body);
                assert!(
                    (400..500).contains(&answer.status),
                    "{verb} with {token}: {} {}",
                    answer.status,
                    answer.text()
                );
            }
        }
    }
    // Under the owner's name nobody is told anything.
    for body in [json!({"worker_id": "owner-1"}), json!({"worker_id": "owner-1", "worker_secret": "0123456789abcdef"})]
    {
        victim.post(&format!("/api/v1/runs/{run}/pause"), &json!({}));
        let told = victim.post("/api/v1/worker/exchange", &body).json();
        assert!(!told.to_string().contains(nonce) && told["directives"] == json!([]), "{told}");
        victim.post(&format!("/api/v1/runs/{run}/resume"), &json!({}));
    }
    let done = victim.post(&format!("/api/v1/tasks/{id}/complete"), &json!({"lease_token": lease, "output": 1}));
    assert_eq!(done.status, 200, "the owner's own: {}", done.text());
    assert_eq!(victim.ended(&run)["output"]["a"], 1);
    victim.ends_well();
}

/// Words of hexadecimal digits, and what begins or ends with 16 of them.
fn hexadecimal(value: &Value, words: &mut Vec<String>) {
    match value {
        Value::String(text) => {
            let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
            if digits.len() >= 16 {
                words.extend([digits[..16].to_owned(), digits[digits.len() - 16..].to_owned(), text.clone()]);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| hexadecimal(item, words)),
        Value::Object(fields) => fields.values().for_each(|field| hexadecimal(field, words)),
        _ => {}
    }
}

#[test]
fn addresses_of_the_servers_own_network() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let address = listen(move |_, _| *count.lock().unwrap() += 1);
    let port = address.port();
    let proxy = format!("http://{address}");
    let variables = [("HTTP_PROXY", &*proxy), ("http_proxy", &proxy), ("ALL_PROXY", &proxy), ("HTTPS_PROXY", &proxy)];
    let victim = Victim::with(&[], &variables);
    let hosts = [
        "127.0.0.1",
        "localhost",
        "localhost.",
        "LOCALHOST",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.0.0.1.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::127.0.0.1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[2001:0:7f00:1::]",
        "[fec0::1]",
        "[fe80::1]",
        "[fc00::1]",
        "[2001:db8::1]",
        "[ff02::1]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.0.192",
        "168.63.129.16",
        "198.18.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "user:pass@127.0.0.1",
        "metadata.google.internal",
        "127.0.0.1%00.example.com",
        "①②⑦.0.0.1",
    ];
    let steps: serde_json::Map<String, Value> = hosts
        .iter()
        .enumerate()
        .map(|(n, host)| (format!("s{n}"), json!({"skill": "http", "timeout_ms": 5000, "input": {"url": format!("${{{{ 'http://{host}:{port}/' }}}}")}})))
        .collect();
    let run = victim.run(&json!({"name": "network", "on_failure": "continue", "steps": steps}), &json!({}));
    let ended = victim.ended(&run);
    for step in ended["steps"].as_array().unwrap() {
        assert_eq!(step["status"], "failed", "{step}");
    }
    for (n, host) in hosts.iter().enumerate() {
        let push = json!({"skill": "p", "runtime": "push", "push": {"url": format!("http://{host}:{port}/")}, "timeout_ms": 3000});
        let document = json!({"name": format!("network-{n}"), "steps": {"a": push}});
        victim.post("/api/v1/runs", &json!({ "document": document }));
    }
    victim.is_well("requests to its own network");
    eventually("the deliveries to be over", || {
        let open = victim.get("/api/v1/runs?status=running&limit=100").json();
        open["items"].as_array().unwrap().is_empty().then_some(())
    });
    assert_eq!(*asked.lock().unwrap(), 0, "something was asked for at {address}");
    victim.ends_well();
}

#[test]
fn pages_of_other_sites() {
    let victim = Victim::dev();
    let refused = |what: &str, request: &Request| {
        let answer = victim.attack(what, request);
        assert!(matches!(answer.status, 400 | 403), "{what}: {} {}", answer.status, answer.text());
    };
    let get = || Request::new("GET", "/api/v1/runs");
    let origin = victim.server.url.clone();
    for host in [
        "evil.example",
        "127.0.0.1:1@evil",
        "127.0.0.1.evil.example",
        "127.0.0.1:7400@evil",
        "",
        "localhost.evil.example",
        "[::1",
        "é",
    ] {
        refused("a name of somebody else", &get().header("host", host));
    }
    for foreign in [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "https://127.0.0.1",
        "http://é",
        "file://",
        "http://127.0.0.1:7400@evil",
        "\u{ff}",
    ] {
        refused("another origin", &get().header("host", &origin[7..]).header("origin", foreign));
    }
    for site in ["cross-site", "same-site", "CROSS-SITE", "cross-site, none"] {
        for path in ["/api/v1/runs", "/", "/docs", "/api/v1/openapi.json", "/metrics", "/api/v1/ws"] {
            let answer = victim.attack(site, &Request::new("GET", path).header("sec-fetch-site", site));
            assert!(matches!(answer.status, 400 | 403), "{site} {path}: {}", answer.status);
        }
    }
    let two = format!(
        "GET /api/v1/runs HTTP/1.1\r\nhost: {0}\r\nhost: evil\r\norigin: http://{0}\r\nconnection: close\r\n\r\n",
        &origin[7..]
    );
    let origins = format!(
        "GET /api/v1/runs HTTP/1.1\r\nhost: {0}\r\norigin: http://{0}\r\norigin: http://evil\r\nconnection: close\r\n\r\n",
        &origin[7..]
    );
    for bytes in [two, origins] {
        let answer = victim.attack_bytes("two of them", bytes.as_bytes(), || bytes.clone());
        assert!(matches!(answer.status, 400 | 403), "{}: {bytes}", answer.status);
    }
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let form = Request::new("POST", "/api/v1/runs")
            .body(media_type, r#"{"document":{"name":"x","steps":{"a":{"skill":"noop"}}}}"#);
        let answer = victim.attack("a form", &form);
        assert!((400..500).contains(&answer.status), "{}", answer.status);
    }
    for path in ["/", "/docs", "/healthz", "/api/v1/runs", "/api/v1/openapi.json", "/nowhere"] {
        let answer = victim.get(path);
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}: {}", answer.head);
        assert!(
            answer.header("cache-control").is_some_and(|value| value.contains("no-store")),
            "{path}: {}",
            answer.head
        );
        if answer.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            for name in ["content-security-policy", "x-frame-options", "referrer-policy"] {
                assert!(answer.header(name).is_some(), "{path}: {name}: {}", answer.head);
            }
        }
    }
    victim.ends_well();
}

#[test]
fn servers_with_tokens_tell_strangers_nothing() {
    let hash = format!("sha256:{}", "0a".repeat(32));
    let place = super::servers::Place::new();
    let server = place.serve(&["--token-hash", &hash]);
    let call = |target: &str, authorization: &str| {
        let request = Request::new("GET", target).header("authorization", authorization);
        exchange(server.port(), &request.bytes(), super::wire::DEADLINE).unwrap()
    };
    let paths = [
        "/api/v1/runs",
        "/api/v1/../v1/runs",
        "//api/v1/runs",
        "/api/v1/runs/",
        "/api/v1/RUNS",
        "/%61pi/v1/runs",
        "/api/v1/nowhere",
        "/metrics",
        "/api/v1/runs?fields=status.a",
        "/healthz/../api/v1/runs",
    ];
    let long = format!("Bearer {}", "x".repeat(60_000));
    for authorization in [
        "",
        "Bearer",
        "Bearer ",
        "bearer mp_x",
        "BEARER mp_x",
        "Basic YTpi",
        &format!("Bearer {hash}"),
        &long,
        "Bearer \u{ff}",
        "Bearer a, Bearer b",
    ] {
        for path in paths {
            let answer = call(path, authorization);
            assert!(
                matches!(answer.status, 400 | 401 | 404 | 431),
                "{path} {authorization:.40}: {} {}",
                answer.status,
                answer.text()
            );
            assert!(!path.starts_with("/api/v1/runs") || answer.status != 404, "{path}: {}", answer.text());
        }
    }
    for path in ["/healthz", "/readyz"] {
        let answer = call(path, "");
        assert!(answer.status == 200 && answer.json()["version"].is_null(), "{}", answer.text());
    }
    server.stop();
}
