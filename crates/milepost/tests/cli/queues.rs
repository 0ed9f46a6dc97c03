//! Queues on a server and in a database: what waits in them, and their limits.

use serde_json::{Value, json};

use super::processes::eventually;
use super::server::Server;
use super::{Place, Ran, finish};

const WAITING: &str = "{name: w, steps: {a: {skill: audio.render, queue: audio}}}";

/// The same words on a server and on a database.
fn limits_are_set_shown_and_lifted(run: impl Fn(&[&str]) -> Ran, waiting: u64) {
    let json = |args: &[&str]| -> Value {
        let ran = run(&[args, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    };
    let audio = || {
        let page = json(&["queues", "list"]);
        page["items"].as_array().unwrap().iter().find(|queue| queue["queue"] == "audio").cloned()
    };
    let set = run(&["queues", "set", "audio", "--concurrency", "4", "--rate", "100/1m"]);
    assert_eq!(
        (set.code, set.out.as_str()),
        (0, "audio may do no more than this: 4 tasks at once, 100/1m begin\n"),
        "{}",
        set.err
    );
    let shown = audio().unwrap();
    assert_eq!((&shown["waiting"], &shown["running"]), (&json!(waiting), &json!(0)));
    assert_eq!(shown["concurrency"], 4);
    assert_eq!(shown["rate"], json!({"limit": 100, "per_ms": 60000}));
    assert_eq!(shown["oldest_ready_at"].is_string(), waiting > 0);
    let table = run(&["queues", "list"]).out;
    assert!(table.contains("CONCURRENCY") && table.contains("100/1m"), "{table}");

    let narrowed = json(&["queues", "set", "audio", "--rate", "5/s"]);
    assert_eq!(narrowed, json!({"queue": "audio", "rate": {"limit": 5, "per_ms": 1000}}), "the other one is lifted");
    assert_eq!(audio().unwrap()["concurrency"], Value::Null);

    for (wrong, word) in [
        (&["queues", "set", "audio"][..], "--concurrency"),
        (&["queues", "set", "audio", "--rate", "5"], "100/1m"),
        (&["queues", "set", "audio", "--concurrency", "0"], "a limit is 1 or more"),
        (&["queues", "set", "audio", "--rate", "5/2d"], "between a millisecond and a day"),
        (&["queues", "set", "", "--concurrency", "1"], "a name of 1 to 255"),
    ] {
        let refused = run(wrong);
        assert!(refused.code == 2 && refused.err.contains(word), "{wrong:?}: {}{}", refused.code, refused.err);
    }

    assert_eq!(run(&["queues", "clear", "audio"]).out, "audio has no limits\n");
    assert_eq!(audio().map(|queue| queue["rate"].clone()), (waiting > 0).then_some(Value::Null));
}

#[test]
fn queues_of_a_server() {
    let server = Server::start();
    assert_eq!(server.run(&["queues", "list"]).out, "nothing waits, and no queue has limits\n");
    server.place.file("flow.yaml", WAITING);
    let deployed = server.place.run(&["deploy", "flow.yaml", "--server", &server.url]);
    assert_eq!(deployed.code, 0, "{}", deployed.err);
    let child = server.start_command(&["run", "w"]);
    eventually("a task that waits", || {
        let page = server.json(&["queues", "list"]);
        (page["items"][0]["waiting"] == 1).then_some(())
    });
    limits_are_set_shown_and_lifted(|args| server.run(args), 1);
    let runs = server.json(&["runs", "list"]);
    let run = runs["items"][0]["run_id"].as_str().unwrap().to_owned();
    assert_eq!(server.run(&["runs", "terminate", &run]).code, 0);
    finish(child);
}

#[test]
fn queues_of_a_database() {
    let place = Place::new();
    let db = ["--db", "runs.db"];
    assert_eq!(place.run(&[&["migrate"], &db[..]].concat()).code, 0);
    limits_are_set_shown_and_lifted(|args| place.run(&[args, &db[..]].concat()), 0);
}
