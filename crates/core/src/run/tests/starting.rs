//! What keeps a run from starting: checks at the door, approval, `start_at`, room under its key.

use super::harness::{Run, START, code, run_id};
use crate::event::{BaseRun, Body, ParentStep};
use crate::hash::Digest;
use crate::json::Json;
use crate::limits::Limits;
use crate::request::{Asked, AskedParts, RequestDigest, RunRequest};
use crate::run::{Command, Context};
use crate::status::RunStatus::{Approved, Cancelled, Completed, Pending, Queued, Running};
use crate::time::Timestamp;

const ONE: &str = "steps: {a: {skill: x}}";
const KEYED: &str = "concurrency: {key: '${{ payload.k }}', limit: 2}\nsteps: {a: {skill: x}}";

fn nameless_request() -> RunRequest {
    let payload = Json::trusted("{}");
    let parts = AskedParts {
        tag: None,
        base: None,
        payload: &payload,
        patch: None,
        rebuild: None,
        priority: 0,
        start_at: None,
    };
    let asked = Asked { version_hash: Digest::of(b"document"), digest: RequestDigest::of(&parts, 64) };
    RunRequest { id: String::new(), asked, pinned: false }
}

#[test]
fn an_update_run_says_which_run_it_goes_back_to() {
    let base = BaseRun { run: run_id(9), changes: vec!["audio.update".to_owned()] };
    let run = Run::of(ONE).request(|request| request.base = Some(base.clone())).begin();
    let read = crate::codec::decode(&run.rows[0], &run.plan).unwrap();
    assert!(matches!(read.body, Body::RunQueued(queued) if queued.base == Some(base)));
    let data = run.rows[0].data.to_value();
    assert_eq!(data["base"], serde_json::json!({"run": run_id(9), "changes": ["audio.update"]}));
}

#[test]
fn a_payload_that_is_not_what_params_asks_for_is_refused() {
    let yaml = "params: {type: object, required: [n]}\nsteps: {a: {skill: x}}";
    assert_eq!(Run::of(yaml).try_begin().err().unwrap().code, "payload_invalid");
    Run::start(yaml, r#"{"n":1}"#).is(Running);
}

#[test]
fn limits_are_checked_at_the_door() {
    let start = || Run::of(ONE);
    let large = start().payload(r#"{"a":"0123456789"}"#).limits(|limits| limits.payload_bytes = 10);
    assert_eq!(large.try_begin().err().unwrap().code, "payload_too_large");
    let nameless = start().request(|request| request.request = Some(Box::new(nameless_request())));
    assert_eq!(nameless.try_begin().err().unwrap().code, "bad_request_id");
    let parent = ParentStep { run: run_id(9), step: "s".to_owned(), logical_attempt: 1, depth: 17 };
    assert_eq!(start().request(|request| request.parent = Some(parent)).try_begin().err().unwrap().code, "too_deep");
    assert_eq!(start().payload(r#"{"a":1,"a":2}"#).try_begin().err().unwrap().code, "bad_payload");
}

#[test]
fn an_approved_run_starts_and_a_rejected_one_ends() {
    let yaml = format!("approval: true\n{ONE}");
    let mut run = Run::start(&yaml, "{}");
    run.is(Pending);
    assert!(run.state.waits_for_people());
    run.signal("PAUSE").signal("APPROVE");
    run.ends_with(&["2 SignalRejected PAUSE", "3 SignalAccepted APPROVE", "4 RunApproved", "5 RunStarted"]);
    run.signal("APPROVE").run_steps(&["a"]).is(Completed);
    let mut run = Run::start(&yaml, "{}");
    run.send("REJECT", None, r#"{"reason":"too dear"}"#).unwrap();
    run.ends_with(&["2 SignalAccepted REJECT", "3 StepSkipped a 0/0 run_stopped", "4 RunCancelled too dear"]);
}

#[test]
fn a_run_starts_at_its_time() {
    let mut run = Run::of(ONE).request(|request| request.start_at = Some(START.plus_ms(1000))).begin();
    run.is(Queued);
    run.crash().next_timer().run_steps(&["a"]).is(Completed);
    let past = Run::of(ONE).request(|request| request.start_at = Some(START)).begin();
    past.is(Running);
}

#[test]
fn approval_and_start_at_are_both_awaited_in_either_order() {
    let yaml = format!("approval: true\n{ONE}");
    let later = || Run::of(&yaml).request(|request| request.start_at = Some(START.plus_ms(1000))).begin();
    let mut run = later();
    run.signal("APPROVE").is(Approved);
    run.next_timer().is(Running);
    let mut run = later();
    run.next_timer().is(Pending);
    run.signal("APPROVE").is(Running);
}

#[test]
fn a_run_with_room_under_its_key_holds_a_slot_until_it_ends() {
    let mut run = Run::of(KEYED).payload(r#"{"k":"acme"}"#).held(1).begin();
    assert_eq!(run.state.slot_key.as_deref(), Some("acme"));
    run.run_steps(&["a"]);
    assert_eq!(run.slots, ["hold", "release"]);
}

#[test]
fn a_run_without_room_waits_until_there_is_some() {
    let mut run = Run::of(KEYED).payload(r#"{"k":7}"#).held(2).begin();
    run.is(Pending);
    run.command(Command::SlotsHeld { held: 2 }).unwrap();
    run.is(Pending);
    run.crash().command(Command::SlotsHeld { held: 1 }).unwrap();
    assert_eq!(code(run.command(Command::SlotsHeld { held: 0 })), "not_waiting");
    run.run_steps(&["a"]).is(Completed);
    assert_eq!(run.slots, ["wait", "hold", "release"]);
}

#[test]
fn a_run_may_be_refused_for_want_of_room() {
    let yaml = "concurrency: {key: k, limit: 1, on_limit: reject}\nsteps: {a: {skill: x}}";
    assert_eq!(Run::of(yaml).held(1).try_begin().err().unwrap().code, "concurrency_limit");
    Run::of(yaml).held(0).begin().is(Running);
}

#[test]
fn a_key_that_is_not_a_text_is_refused() {
    for payload in ["{}", r#"{"k":null}"#, r#"{"k":[1]}"#] {
        assert!(Run::of(KEYED).payload(payload).try_begin().is_err());
    }
}

#[test]
fn an_approved_or_due_run_asks_for_its_slot_then() {
    let mut run = Run::of(&format!("approval: true\n{KEYED}")).payload(r#"{"k":"a"}"#).begin();
    run.signal("APPROVE").is(Approved);
    run.command(Command::SlotsHeld { held: 0 }).unwrap();
    run.is(Running);
    let mut run = Run::of(KEYED).payload(r#"{"k":"a"}"#).request(|r| r.start_at = Some(START.plus_ms(9))).begin();
    assert_eq!(code(run.command(Command::SlotsHeld { held: 0 })), "not_waiting");
    run.next_timer().command(Command::SlotsHeld { held: 0 }).unwrap();
    assert_eq!(run.slots, ["wait", "hold"]);
    run.signal("CANCEL").is(Cancelled);
}

#[test]
fn expressions_see_the_run() {
    let mut run = Run::of("steps: {a: {skill: x, input: {p: '${{ run.priority }}', w: '${{ run.workflow }}'}}}")
        .request(|request| request.priority = 3)
        .begin();
    run.dispatch_all();
    assert_eq!(run.input("a"), r#"{"p":3,"w":"t"}"#);
}

#[test]
fn of_two_runs_the_later_has_the_greater_id() {
    let limits = Limits::default();
    let id = |us: i64, seed: u64| Context::new(Timestamp(us), seed, &limits).draw_run_id();
    let moment = 1_800_000_000_000_000;
    for seed in 0..100 {
        for later in [1, 7, 999, 1000, 1001, 5_000_000] {
            assert!(id(moment + 998, seed) < id(moment + 998 + later, 99 - seed), "{later} µs later");
        }
    }
    assert_eq!(id(moment, 3).0.get_version_num(), 7);
    assert_ne!(id(moment, 3), id(moment, 4));
}
