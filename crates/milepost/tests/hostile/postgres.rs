//! The same on Postgres, which takes fewer texts than SQLite: what one caller sends harms no other.

use std::time::{Duration, Instant};

use serde_json::json;

use super::common::postgres_schema;
use super::values;
use super::victim::Victim;
use super::wire::{Request, escaped};

#[test]
fn texts_that_postgres_does_not_take() {
    let victim = Victim::serve(&["--db", &postgres_schema("hostile")]);
    let run = victim.waiting_run();
    let document = json!({"name": "texts", "steps": {"a": {"skill": "noop"}}});
    let bodies = |text: &str| {
        vec![
            ("/api/v1/runs".to_owned(), format!("{{\"document\":{document},\"request_id\":{text}}}")),
            ("/api/v1/runs".to_owned(), format!("{{\"document\":{document},\"payload\":{text}}}")),
            ("/api/v1/runs".to_owned(), format!("{{\"document\":{document},\"payload\":{{{text}:{text}}}}}")),
            ("/api/v1/runs".to_owned(), format!("{{\"workflow\":{text}}}")),
            ("/api/v1/workflows".to_owned(), format!("{{\"document\":{document},\"tag\":{text},\"message\":{text}}}")),
            (
                "/api/v1/runs/bulk".to_owned(),
                format!("{{\"action\":\"cancel\",\"filter\":{{\"workflow\":{text}}},\"reason\":{text}}}"),
            ),
            (format!("/api/v1/runs/{run}/signals"), format!("{{\"type\":{text},\"payload\":{text}}}")),
            (format!("/api/v1/runs/{run}/skip"), format!("{{\"step_id\":{text},\"payload\":{{\"reason\":{text}}}}}")),
            (format!("/api/v1/runs/{run}/patch"), format!("{{\"ops\":[],\"message\":{text}}}")),
            (
                format!("/api/v1/runs/{run}/artifacts"),
                format!("{{\"uri\":\"s3://b/f\",\"kind\":{text},\"filename\":{text},\"metadata\":{text}}}"),
            ),
            ("/api/v1/tasks/claim".to_owned(), format!("{{\"worker_id\":{text},\"queues\":[{text}]}}")),
            (
                "/api/v1/worker/exchange".to_owned(),
                format!("{{\"worker_id\":{text},\"queues\":[{text}],\"skills\":[{text}],\"capacity\":1}}"),
            ),
            ("/api/v1/cache/disown".to_owned(), format!("{{\"workflow\":{text},\"step\":{text}}}")),
        ]
    };
    let mut texts: Vec<String> =
        ["\"a\\u0000b\"", "\"\\ud800\"", "\"\\ufffe\\uffff\"", "\"\\u0085\\u202e\"", "\"\\ud83d\\ude00\""]
            .map(ToOwned::to_owned)
            .to_vec();
    texts.push(format!("\"{}\"", "x".repeat(10_000)));
    for text in &texts {
        for (path, body) in bodies(text) {
            victim.attack(&format!("{path} with {text:.40}"), &Request::new("POST", path).json(body));
        }
        victim.is_well(text.get(..40).unwrap_or(text));
    }
    let addresses = [
        "runs?workflow=",
        "runs?request_id=",
        "runs?status=",
        "runs?cursor=",
        "workflows/",
        "tags/",
        "tags?cursor=",
        "cache?workflow=",
        "cache?step=",
        "cache/",
        "secrets?cursor=",
        "outbox?cursor=",
        "revisions/",
        "diff?to=hello&from=",
        "tasks/",
    ];
    for (kind, text) in values::texts() {
        for address in addresses {
            victim.attack(kind, &Request::new("GET", format!("/api/v1/{address}{}", escaped(&text))));
        }
        for more in ["steps/", "artifacts?kind=", "artifacts?step=", "logs?cursor=", "events?after_seq=", "at/"] {
            victim.attack(kind, &Request::new("GET", format!("/api/v1/runs/{run}/{more}{}", escaped(&text))));
        }
    }
    // Keys that only the run itself makes.
    for place in ["concurrency", "step"] {
        let key = json!({"key": "${{ payload.s }}", "limit": 1, "on_limit": "queue"});
        let document = match place {
            "step" => {
                json!({"name": "keys", "steps": {"a": {"skill": "s", "queue": "keys", "concurrency": {"key": "${{ payload.s }}", "limit": 1}, "timeout_ms": 500}}})
            }
            _ => json!({"name": "keys", "concurrency": key, "steps": {"a": {"skill": "noop"}}}),
        };
        for text in &texts {
            let body = format!("{{\"document\":{document},\"payload\":{{\"s\":{text}}}}}");
            victim.attack(place, &Request::new("POST", "/api/v1/runs").json(body));
        }
        victim.is_well(place);
    }
    victim.ends_well();
}

#[test]
fn requests_that_cannot_be_stored_do_not_harm_those_of_others() {
    let victim = Victim::serve(&["--db", &postgres_schema("hostile_neighbours")]);
    let document = json!({"name": "neighbour", "steps": {"a": {"skill": "noop"}}});
    let innocent = json!({ "document": document }).to_string();
    let bad = [
        format!("{{\"document\":{document},\"request_id\":\"a\\u0000b\"}}"),
        format!("{{\"document\":{document},\"payload\":{{\"s\":\"a\\u0000b\"}}}}"),
        json!({"document": {"name": "keyed", "concurrency": {"key": "${{ payload.s }}", "limit": 1}, "steps": {"a": {"skill": "noop"}}}, "payload": {"s": "a\0b"}}).to_string(),
        json!({"document": {"name": "a\0b", "steps": {"a": {"skill": "noop"}}}}).to_string(),
    ];
    let begun = Instant::now();
    let started: usize = std::thread::scope(|scope| {
        let attackers: Vec<_> = bad
            .iter()
            .map(|body| {
                let victim = &victim;
                scope.spawn(move || {
                    while begun.elapsed() < Duration::from_secs(2) {
                        victim.attack("a bad start", &Request::new("POST", "/api/v1/runs").json(body.clone()));
                    }
                })
            })
            .collect();
        let mut started = 0;
        while begun.elapsed() < Duration::from_secs(2) {
            let answer =
                victim.attack("an innocent start", &Request::new("POST", "/api/v1/runs").json(innocent.clone()));
            assert_eq!(answer.status, 201, "{}", answer.text());
            started += 1;
        }
        attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
        started
    });
    assert!(started > 5, "{started}");
    victim.ends_well();
}
