//! Values whose text is short and whose memory is not, and answers that are larger than what was sent.

use std::fmt::Write as _;
use std::io::Write as _;

use serde_json::{Value, json};

use super::peers::listen;
use super::servers::eventually;
use super::victim::Victim;
use super::wire::Request;

/// A list of maps of so many bytes of text, which takes a hundred times as much of the memory when it is read.
fn maps(bytes: usize) -> String {
    let map = r#"{"":0}"#;
    format!("[{}{map}]", format!("{map},").repeat(bytes / (map.len() + 1) - 1))
}

/// Nested as deep as payloads may be, again and again.
fn nests(bytes: usize) -> String {
    let depth = 60;
    let nest = format!("{}0{}", r#"{"":"#.repeat(depth), "}".repeat(depth));
    format!("[{}0]", format!("{nest},").repeat(bytes / (nest.len() + 1) - 1))
}

#[test]
fn payloads_that_take_far_more_memory_than_their_text() {
    let victim = Victim::serve(&[]);
    let step = |after: Option<&str>| {
        let input = json!({"n": "${{ payload.list | length }}", "i": "${{ payload.list[0] }}"});
        match after {
            None => json!({"skill": "echo", "input": input}),
            Some(after) => json!({"skill": "echo", "input": input, "depends_on": [after]}),
        }
    };
    let steps = json!({"a": step(None), "gate": {"skill": "wait", "depends_on": ["a"],
        "input": {"signal": "go"}}, "c": step(Some("gate"))});
    let mut runs = Vec::new();
    std::thread::scope(|scope| {
        let started: Vec<_> = [maps(1_000_000), nests(1_000_000)]
            .into_iter()
            .map(|list| {
                let (victim, steps) = (&victim, &steps);
                scope.spawn(move || {
                    let payload = format!("{{\"list\":{list}}}");
                    let document = json!({"name": "hostile.large", "steps": steps});
                    let body = format!("{{\"document\":{document},\"payload\":{payload}}}");
                    let start = |_| victim.attack("a start", &Request::new("POST", "/api/v1/runs").json(body.clone()));
                    (0..8).map(start).filter_map(|run| run.json()["run_id"].as_str().map(ToOwned::to_owned)).collect()
                })
            })
            .collect();
        for started in started {
            let started: Vec<String> = started.join().unwrap();
            assert_eq!(started.len(), 8, "payloads within their limit are taken");
            runs.extend(started);
        }
    });
    victim.is_well("while runs with large payloads wait");
    std::thread::scope(|scope| {
        for run in &runs {
            let victim = &victim;
            scope.spawn(move || {
                for path in ["", "?fields=payload", "?fields=payload.list", "/steps/a", "/events"] {
                    victim.attack("a look", &Request::new("GET", format!("/api/v1/runs/{run}{path}")));
                }
            });
        }
    });
    victim.is_well("after many have looked at them");
    for run in &runs {
        let sent = victim.post(&format!("/api/v1/runs/{run}/signals"), &json!({"type": "go", "payload": {}}));
        assert!(sent.status < 300, "{}", sent.text());
    }
    for run in &runs {
        let ended = ended(&victim, run);
        assert_eq!(ended["status"], "completed", "{}", ended["error"]);
    }
    victim.ends_well();
}

/// How a run ended, without what it carries.
fn ended(victim: &Victim, run: &str) -> Value {
    eventually(&format!("the end of run {run}"), || {
        let run = victim.get(&format!("/api/v1/runs/{run}?fields=status,error,steps.status,steps.error")).json();
        ["completed", "failed"].iter().any(|end| run["status"] == *end).then_some(run)
    })
}

/// Each is within its limits; what all of them take together grows with every run that is open, unless plans are let go.
#[test]
fn documents_that_take_far_more_memory_than_their_text() {
    let victim = Victim::serve(&[]);
    let gate = json!({"skill": "wait", "input": {"signal": "go"}});
    let patterns = |n: usize| {
        let property =
            |i: usize| (format!("p{i}"), json!({"type": "string", "pattern": format!("^\\w{{{}}}$", 250 + n)}));
        json!((0..900).map(property).collect::<serde_json::Map<_, _>>())
    };
    let mut runs = Vec::new();
    for n in 0..20 {
        let constant = maps(1_200_000 - n);
        let large = format!(
            "{{\"name\":\"hostile.constant\",\"steps\":{{\"gate\":{gate},\"a\":{{\"skill\":\"hostile.none\",\"queue\":\"none\",\"depends_on\":[\"gate\"],\"input\":{{\"l\":{constant}}}}}}}}}"
        );
        let schema = json!({"name": "hostile.patterns", "params": {"type": "object", "properties": patterns(n)},
            "steps": {"gate": gate}});
        for document in [large, schema.to_string()] {
            let body = format!("{{\"document\":{document},\"payload\":{{}}}}");
            let started = victim.attack("a start", &Request::new("POST", "/api/v1/runs").json(body));
            assert_eq!(started.status, 201, "{}", started.text());
            runs.push(started.json()["run_id"].as_str().unwrap().to_owned());
        }
    }
    victim.is_well("while runs of large plans are open");
    let peak = victim.peak_mib();
    assert!(peak < 720, "{peak} MiB");
    for run in &runs {
        let sent = victim.post(&format!("/api/v1/runs/{run}/signals"), &json!({"type": "TERMINATE", "payload": {}}));
        assert!(sent.status < 300, "{}", sent.text());
    }
    victim.ends_well();
}

/// A run with more outputs than an answer shows.
#[test]
fn runs_with_outputs_that_no_answer_holds() {
    let victim = Victim::serve(&[]);
    let document = json!({"name": "hostile.outputs", "steps": {
        "all": {"skill": "echo", "foreach": "${{ payload.items }}", "input": {"s": "${{ payload.s }}", "n": "${{ item }}"}},
    }});
    let run = victim.run(&document, &json!({"s": "x".repeat(200_000), "items": (0..300).collect::<Vec<_>>()}));
    assert_eq!(ended(&victim, &run)["status"], "completed");
    std::thread::scope(|scope| {
        for path in ["", "?fields=output,steps.output", "/events?limit=1000", "/steps?limit=1000", "/at/600"] {
            for _ in 0..6 {
                let (victim, run) = (&victim, &run);
                scope.spawn(move || {
                    let answer = victim.get(&format!("/api/v1/runs/{run}{path}"));
                    assert!(answer.status == 200 || answer.status == 503, "{path}: {}", answer.text());
                    assert!(answer.body.len() < 100 << 20, "{path}: {} bytes", answer.body.len());
                });
            }
        }
    });
    let shown = victim.get(&format!("/api/v1/runs/{run}")).json();
    let steps = shown["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 301);
    assert!(shown["output"].is_null() && steps[0]["output_omitted"] == true && steps[0]["output"].is_null());
    let (there, omitted): (Vec<&Value>, Vec<&Value>) =
        steps[1..].iter().partition(|step| step["output"]["s"].is_string());
    assert!(!there.is_empty() && !omitted.is_empty());
    assert!(omitted.iter().all(|step| step["output_omitted"] == true && step["status"] == "completed"));
    let alone = victim.get(&format!("/api/v1/runs/{run}/steps/{}", omitted[0]["step_id"].as_str().unwrap())).json();
    assert_eq!(alone["output"]["s"].as_str().map(str::len), Some(200_000), "the step alone shows it");
    let (mut after, mut events) = (0, 0);
    while events < 900 {
        let page = victim.get(&format!("/api/v1/runs/{run}/events?limit=1000&after_seq={after}"));
        assert!(page.body.len() < 32 << 20, "{} bytes", page.body.len());
        let page = page.json();
        let items = page["items"].as_array().unwrap();
        events += items.len();
        match page["next_cursor"].as_str() {
            Some(next) => after = next.parse::<u64>().unwrap(),
            None => break,
        }
    }
    assert!(after > 0 && events > 600, "all of the log is there, page by page: {events}");
    victim.ends_well();
}

#[test]
fn outputs_of_workers_that_were_given_secrets() {
    let victim = Victim::serve(&[]);
    assert!(victim.put("/api/v1/secrets/hostile", &json!({"value": "hunter2-hunter2"})).status < 300);
    let document = json!({"name": "hostile.secret", "steps": {
        "a": {"skill": "hostile.work", "queue": "secret", "secrets": {"KEY": "secret://hostile"}},
        "b": {"skill": "echo", "input": {"n": "${{ steps.a.output | length }}"}},
    }});
    for output in [maps(20_000_000), format!("[{}\"hunter2-hunter2\"]", "0,".repeat(10_000_000))] {
        let run = victim.run(&document, &json!({}));
        let task = victim.claim("secret", "hostile-1").unwrap();
        let lease = &task["lease_token"];
        let url = format!("/api/v1/tasks/{}/complete", task["task_id"].as_str().unwrap());
        let body = format!("{{\"lease_token\":{lease},\"output\":{output}}}");
        let done = victim.attack("an output", &Request::new("POST", url).json(body));
        assert_eq!(done.status, 200, "{}", done.text());
        let ended = ended(&victim, &run);
        assert_eq!(ended["status"], "failed");
        assert_eq!(ended["error"]["code"], "values_too_large", "{}", ended["error"]);
        victim.is_well("a large output with secrets");
    }
    victim.ends_well();
}

#[test]
fn many_large_answers_at_once() {
    let victim = Victim::serve(&["--allow-private-http"]);
    let head = |length: usize| {
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let small = maps(1_000_000);
    let called = listen(move |_, stream| drop(stream.write_all(format!("{}{small}", head(small.len())).as_bytes())));
    let large = maps(20_000_000);
    let pushed = listen(move |_, stream| drop(stream.write_all(format!("{}{large}", head(large.len())).as_bytes())));
    let mut steps = json!({});
    for n in 0..40 {
        let body = json!(vec![json!({"": 0}); 1000]);
        steps[format!("call_{n}")] =
            json!({"skill": "http", "input": {"url": format!("http://{called}/"), "method": "POST", "body": body}});
    }
    for n in 0..6 {
        let mut name = String::from("push_");
        write!(name, "{n}").unwrap();
        steps[name] = json!({"skill": "hostile.push", "runtime": "push", "push": {"url": format!("http://{pushed}/")}});
    }
    let run = victim.run(&json!({"name": "hostile.answers", "steps": steps}), &json!({}));
    let ended = ended(&victim, &run);
    assert_eq!(ended["status"], "completed", "{ended}");
    victim.is_well("after large answers came in");
    victim.ends_well();
}
