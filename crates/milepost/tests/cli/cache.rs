//! Results that are kept, on a server and in a database: the same words.

use serde_json::{Value, json};

use super::server::Server;
use super::{Place, Ran};

const FLOW: &str = "{name: w, defaults: {cache: {enabled: true}}, steps: {a: {skill: echo, input: 1}, \
                    b: {skill: echo, input: '${{ steps.a.output }}'}}}";

fn results_are_counted_listed_shown_and_gone(flow: &str, run: impl Fn(&[&str]) -> Ran) {
    let json = |args: &[&str]| -> Value {
        let ran = run(&[args, &["-o", "json"]].concat());
        assert_eq!(ran.code, 0, "{}", ran.err);
        serde_json::from_str(&ran.out).unwrap()
    };
    for _ in 0..2 {
        assert_eq!(run(&["run", flow]).code, 0);
    }
    let stats = json(&["cache", "stats"]);
    assert_eq!((&stats["results"], &stats["hits"], &stats["misses"]), (&json!(2), &json!(2), &json!(2)));
    assert_eq!((&stats["hit_ratio"], stats["steps"].as_array().unwrap().len()), (&json!(0.5), 2));
    let table = run(&["cache", "stats", "--workflow", "w", "--step", "b"]).out;
    let shown = ["w         b     1        1 B   1     1       50 %", "WORKFLOW  STEP  RESULTS  SIZE"];
    assert!(shown.iter().all(|line| table.contains(line)) && !table.contains("all"), "{table}");

    let listed = json(&["cache", "list", "--workflow", "w"]);
    let key = listed["items"][0]["key"].as_str().unwrap();
    assert_eq!((&listed["items"][0]["step_id"], &listed["next_cursor"]), (&json!("a"), &Value::Null));
    let table = run(&["cache", "list"]).out;
    assert!(table.contains(&key[..16]) && table.contains("LAST HIT"), "{table}");
    let some = run(&["cache", "list", "--limit", "1"]);
    assert!(some.out.lines().count() == 2 && some.err.contains("there are more"), "{}{}", some.out, some.err);

    let shown = run(&["cache", "show", &key[..10]]).out;
    assert!(shown.contains("a of w, for all runs (open)") && shown.contains("\"input\": 1"), "{shown}");
    assert_eq!(json(&["cache", "show", key])["items"][0]["output_preview"], "1");

    for (wrong, code, word) in [
        (&["cache", "evict"][..], 2, "name a workflow"),
        (&["cache", "evict", "--all"], 2, "say --yes"),
        (&["cache", "evict", "--step", "a"], 2, "--workflow"),
        (&["cache", "evict", "--all", "--workflow", "w"], 2, "cannot be used with"),
        (&["cache", "evict", "--key", "000000"], 2, "no result has a key that begins with"),
        (&["cache", "show", "abc"], 2, "6 to 64 hexadecimal digits"),
        (&["cache", "show", &"0".repeat(64)], 2, "nothing is kept under"),
        (&["cache", "disown"], 2, "--workflow"),
        (&["cache", "disown", "--workflow", ""], 2, "a value is required"),
    ] {
        let refused = run(wrong);
        assert!(refused.code == code && refused.err.contains(word), "{wrong:?}: {} {}", refused.code, refused.err);
    }
    assert_eq!(run(&["cache", "evict", "--key", &key[..8]]).out, "1 result is gone\n");
    assert_eq!(json(&["cache", "evict", "--workflow", "w", "--yes"]), json!({"evicted": 1}));
    assert_eq!(run(&["cache", "list"]).out, "no results are kept\n");
    let disowned = json(&["cache", "disown", "--workflow", "w", "--step", "a"]);
    assert_eq!(disowned, json!({"workflow": "w", "step_id": "a", "epoch": 1, "results": 0}));
    let said = run(&["cache", "disown", "--workflow", "w"]).out;
    assert_eq!(said, "results of w are not taken any more (epoch 1; 0 are kept)\n");
}

#[test]
fn results_of_a_server() {
    let server = Server::start();
    assert_eq!(server.run(&["cache", "stats"]).out, "no step with a cache has run yet\n");
    let flow = server.place.file("flow.yaml", FLOW);
    results_are_counted_listed_shown_and_gone(&flow, |args| server.run(args));
}

#[test]
fn results_of_a_database() {
    let place = Place::new();
    let flow = place.file("flow.yaml", FLOW);
    results_are_counted_listed_shown_and_gone(&flow, |args| place.run(args));
}
