//! Several processes on one database: killed, interrupted, sending each other signals.

use std::process::Child;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Place, example, finish, step};

/// Waits until something is so; the tests do not depend on how long it takes.
pub(super) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(30) {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(30));
    }
    panic!("{what} did not happen within 30 s")
}

fn events(place: &Place) -> Vec<Value> {
    let ran = place.run(&["runs", "events", "last", "-o", "json"]);
    let page: Value = serde_json::from_str(&ran.out).unwrap_or_default();
    page["items"].as_array().cloned().unwrap_or_default()
}

/// Waits until the last run's log has this event of this step.
pub(super) fn has_happened(place: &Place, event_type: &str, step_id: &str) {
    eventually(&format!("{event_type} of {step_id}"), || {
        let found = events(place).iter().any(|event| event["event_type"] == event_type && event["step_id"] == step_id);
        found.then_some(())
    });
}

pub(super) fn send(child: &Child, signal: rustix::process::Signal) {
    let process = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(process, signal).expect("the process is there");
}

pub(super) const SLOW: &str = "
name: slow
steps:
  first: {skill: echo, input: {n: 1}}
  # Waits for a file, so that the test decides how long it takes.
  second:
    skill: shell
    depends_on: [first]
    input: {command: \"while [ ! -e go ]; do sleep 0.05; done; echo '{\\\"n\\\": 2}'\"}
  third: {skill: echo, input: {n: \"${{ steps.second.output.n + 1 }}\"}}
";

#[test]
fn what_a_killed_process_left_is_finished_by_recover() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let mut child = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    child.kill().unwrap();
    child.wait().unwrap();
    place.file("go", "");
    let recovered = place.json(&["recover"]);
    assert_eq!(recovered["ended"][0]["status"], "completed", "{recovered}");
    assert_eq!(recovered["open"], json!([]));
    let run = place.json(&["runs", "show", "last"]);
    assert_eq!(run["output"], json!({"third": {"n": 3}}));
    assert_eq!(
        (&step(&run, "second")["logical_attempt"], &step(&run, "second")["engine_attempt"]),
        (&json!(1), &json!(2))
    );
    assert_eq!(place.run(&["doctor"]).code, 0);
    assert_eq!(place.run(&["recover"]).out, "0 runs ended, 0 are open\n");
}

#[test]
fn a_signal_of_another_process_reaches_the_one_that_runs() {
    let place = Place::new();
    let child = place.start(&["run", &example("wait.yaml")]);
    has_happened(&place, "StepStarted", "sign_off");
    let sent = place.json(&["runs", "signal", "last", "approved", "--payload", r#"{"by": "Ada"}"#]);
    assert_eq!(sent["accepted"], true);
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("\"approved_by\": \"Ada\""), "{}", ran.out);
    assert!(ran.err.contains("signal approved accepted"), "{}", ran.err);
    assert_eq!(place.run(&["doctor"]).code, 0);
}

#[test]
fn a_run_is_paused_and_resumed_from_outside() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let child = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    assert_eq!(place.json(&["runs", "pause", "last"])["status"], "paused");
    place.file("go", "");
    has_happened(&place, "StepCompleted", "second");
    let refused = place.run(&["runs", "pause", "last", "-o", "json"]);
    assert_eq!(refused.code, 2);
    let error: Value = serde_json::from_str(&refused.err).unwrap();
    assert_eq!(error["code"], "signal_rejected", "{error}");
    assert_eq!(place.json(&["runs", "resume", "last"])["status"], "running");
    let ran = finish(child);
    assert_eq!(ran.code, 0, "{}{}", ran.out, ran.err);
    assert_eq!(place.run(&["doctor"]).code, 0);
}

#[test]
fn a_waiting_run_is_cancelled_from_outside() {
    let place = Place::new();
    let child = place.start(&["run", &example("wait.yaml")]);
    has_happened(&place, "StepStarted", "sign_off");
    assert_eq!(place.json(&["runs", "cancel", "last"])["status"], "cancelled");
    let ran = finish(child);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("cancelled"), "{}", ran.out);
}

#[test]
fn ctrl_c_cancels_the_run() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let child = place.start(&["run", &file, "-o", "json"]);
    has_happened(&place, "StepStarted", "second");
    send(&child, rustix::process::Signal::INT);
    let ran = finish(child);
    assert_eq!(ran.code, 1);
    let run: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(run["status"], "cancelled");
    assert_eq!(place.run(&["doctor"]).code, 0);
}

#[test]
fn a_process_that_is_told_to_go_leaves_its_run_for_recover() {
    let place = Place::new();
    let file = place.file("slow.yaml", SLOW);
    let child = place.start(&["run", &file]);
    has_happened(&place, "StepStarted", "second");
    send(&child, rustix::process::Signal::TERM);
    let ran = finish(child);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("milepost recover"), "{}", ran.err);
    place.file("go", "");
    assert_eq!(place.json(&["recover"])["ended"][0]["status"], "completed");
}

#[test]
fn recover_leaves_alone_what_waits_for_somebody() {
    let place = Place::new();
    let mut child = place.start(&["run", &example("wait.yaml")]);
    has_happened(&place, "StepStarted", "sign_off");
    child.kill().unwrap();
    child.wait().unwrap();
    let recovered = place.json(&["recover"]);
    assert_eq!((recovered["ended"].clone(), &recovered["open"][0]["status"]), (json!([]), &json!("running")));
    assert_eq!(place.run(&["runs", "signal", "last", "approved", "--payload", r#"{"by": "Bo"}"#]).code, 0);
    assert_eq!(place.json(&["recover"])["ended"][0]["status"], "completed");
}

#[test]
fn a_failed_run_goes_on_when_its_step_is_tried_again() {
    let place = Place::new();
    let command = r#"if [ -e fixed ]; then echo '{\"ok\": true}'; else echo broken >&2; exit 3; fi"#;
    let file = place.file("fix.yaml", &format!("name: x\nsteps:\n  a: {{skill: shell, input: {{command: \"{command}\"}}}}\n  b: {{skill: echo, depends_on: [a]}}\n"));
    let ran = place.run(&["run", &file]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.contains("broken"), "{}", ran.out);
    place.file("fixed", "");
    assert_eq!(place.json(&["runs", "retry", "last", "--step", "a"])["status"], "running");
    assert_eq!(place.json(&["recover"])["ended"][0]["status"], "completed");
}

#[test]
fn a_signal_that_does_not_fit_is_refused_with_a_reason() {
    let place = Place::new();
    place.run(&["run", &example("chain.yaml")]);
    let ended = place.run(&["runs", "cancel", "last"]);
    assert_eq!(ended.code, 2);
    assert!(ended.err.contains("takes no CANCEL any more"), "{}", ended.err);
    let missing = Place::new().run(&["runs", "pause", "last", "--db", "none.db"]);
    assert_eq!(missing.code, 2);
    assert!(missing.err.contains("there is no database"), "{}", missing.err);
}
