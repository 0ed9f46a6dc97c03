//! Update runs: what was, with changes.

use serde_json::{Value, json};

use super::{Place, Ran};

const HALF: &str = r#"
name: half
defaults: {cache: {enabled: true}}
steps:
  a: {skill: echo, input: {n: "${{ payload.a }}"}}
  b: {skill: fail, input: {times: "${{ payload.times }}", of: "${{ steps.a.output.n }}"}}
changes:
  fix: {replace: /times}
  set: {merge: ""}
  art: {merge: /art}
  full_rebuild: {rebuild: all}
  b.again: {rebuild: [b]}
"#;

/// A place with a run that failed half-way, and then one that is mended.
fn half() -> (Place, String) {
    let place = Place::new();
    let file = place.file("half.yaml", HALF);
    assert_eq!(place.run(&["run", &file, "--payload", r#"{"a": 1, "times": 9}"#]).code, 1);
    (place, file)
}

/// The steps of the run that a command starts: `a skipped, b completed`.
fn steps(place: &Place, arguments: &[&str]) -> String {
    let run = place.json(arguments);
    let step = |step: &Value| format!("{} {}", step["step_id"], step["status"]).replace('"', "");
    run["steps"].as_array().unwrap().iter().map(step).collect::<Vec<_>>().join(", ")
}

fn error(ran: &Ran) -> Value {
    serde_json::from_str(&ran.err).unwrap_or_else(|_| panic!("{}", ran.err))
}

#[test]
fn changes_in_order_chains_and_rebuilds_run_what_they_touch() {
    let (place, file) = half();
    let mended = ["rebuild", "last", "--change", "fix=5", "--change", r#"set={"times": 0}"#];
    assert_eq!(steps(&place, &mended), "a skipped, b completed");
    assert_eq!(steps(&place, &["rebuild", "last"]), "a skipped, b skipped");
    assert_eq!(steps(&place, &["rebuild", "last", "--change", "b.again"]), "a skipped, b completed");
    assert_eq!(steps(&place, &["rebuild", "last", "--step", "a"]), "a completed, b skipped");
    assert_eq!(steps(&place, &["rebuild", "last", "--step", "a", "--step", "b"]), "a completed, b completed");
    assert_eq!(steps(&place, &["rebuild", "last", "--change", "full_rebuild"]), "a completed, b completed");
    assert_eq!(steps(&place, &["rebuild", "last", "--all"]), "a completed, b completed");
    let payload = r#"{"a": 1, "times": 0}"#;
    assert_eq!(steps(&place, &["run", &file, "--payload", payload, "--rebuild=b"]), "a skipped, b completed");
    assert_eq!(steps(&place, &["run", &file, "--payload", payload, "--rebuild"]), "a completed, b completed");
    assert_eq!(steps(&place, &["run", &file, "--payload", payload]), "a skipped, b skipped");
    let newer = place.file("newer.yaml", &HALF.replace("of:", "more: 1, of:"));
    assert_eq!(steps(&place, &["rebuild", "last", "--workflow", &newer]), "a skipped, b completed");
    place.json(&["deploy", &newer]);
    assert_eq!(steps(&place, &["rebuild", "last", "--workflow", "half"]), "a skipped, b skipped");
}

#[test]
fn what_cannot_be_changed_or_rebuilt_is_named() {
    let (place, _) = half();
    for (arguments, code, said) in [
        (["--change", "fixx=1"], "unknown_change", "It declares art, b.again, fix, full_rebuild, set"),
        (["--change", "art={}"], "change_failed", "nothing at `/art`"),
        (["--step", "c"], "unknown_step", "no step `c`"),
    ] {
        let refused = place.run(&[&["rebuild", "last", "-o", "json"], &arguments[..]].concat());
        let told = error(&refused);
        assert_eq!((refused.code, &told["code"]), (2, &json!(code)), "{told}");
        assert!(told["message"].as_str().unwrap().contains(said), "{told}");
    }
    assert_eq!(place.json(&["runs", "list"])["items"].as_array().unwrap().len(), 1);
}

#[test]
fn a_plan_is_told_like_a_build() {
    let (place, file) = half();
    let payload = r#"{"a": 1, "times": 0}"#;
    assert_eq!(place.run(&["rebuild", "last", "--change", "fix=0"]).code, 0);
    let again = place.run(&["plan", &file, "--payload", payload]);
    let lines: Vec<&str> = again.out.lines().collect();
    assert_eq!(lines.len(), 3, "{}{}", again.out, again.err);
    assert!(lines[0].starts_with("○ a  cached  saves "), "{}", again.out);
    assert!(lines[2].starts_with("half 0.0.0: 2 reused") || lines[2].starts_with("half: 2 reused"), "{}", again.out);
    let changed = place.run(&["plan", "--base-run", "last", "--change", r#"set={"a": 2}"#]);
    assert!(
        changed.out.contains("● a  `n` of its input changed") && changed.out.contains("? b  known after a"),
        "{}",
        changed.out
    );
    let rebuilt = place.json(&["plan", &file, "--payload", payload, "--rebuild=b"]);
    assert_eq!(
        (&rebuilt["steps"][0]["decision"], &rebuilt["steps"][1]["reason"]),
        (&json!("reuse"), &json!("rebuild"))
    );
    let run = place.json(&["runs", "show", "last"]);
    assert_eq!(run["base_run_id"], place.json(&["runs", "list"])["items"][1]["run_id"]);
    // A file needs no database.
    let elsewhere = Place::new();
    let file = elsewhere.file("half.yaml", HALF);
    let plan = elsewhere.json(&["plan", &file, "--payload", payload]);
    assert_eq!(plan["counts"], json!({"run": 1, "reuse": 0, "unknown": 1, "skip": 0}));
    assert!(!elsewhere.path().join(".milepost").exists());
}

#[test]
fn an_explanation_is_a_sentence_and_a_diff() {
    let (place, _) = half();
    assert_eq!(place.run(&["rebuild", "last", "--change", r#"set={"a": 2, "times": 0}"#]).code, 0);
    let told = place.run(&["runs", "explain", "last", "a"]);
    let lines: Vec<&str> = told.out.lines().collect();
    assert_eq!(lines[0], "a ran because `n` of its input changed", "{}{}", told.out, told.err);
    assert_eq!(lines[lines.len() - 3..], ["  input /n", "  - 1", "  + 2"]);
    assert!(lines[2].starts_with("before: ") && lines[2].contains(" of base run "), "{}", told.out);
    assert_eq!(place.run(&["rebuild", "last"]).code, 0);
    let reused = place.run(&["runs", "explain", "last", "b"]);
    assert!(reused.out.starts_with("b reused: it has the result that run "), "{}", reused.out);
    let json = place.json(&["runs", "explain", "last", "b"]);
    assert_eq!((&json["decision"], &json["reason"]), (&json!("reused"), &json!("cached")));
    let unknown = place.run(&["runs", "explain", "last", "bb", "-o", "json"]);
    assert_eq!((unknown.code, &error(&unknown)["code"]), (2, &json!("unknown_step")));
}
