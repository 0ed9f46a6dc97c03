//! Signals: repeated ones, limits, refusals.

use super::harness::{Run, code, json};
use crate::codec;
use crate::id::SignalId;
use crate::json::Json;
use crate::run::{Command, Rejection, Signal};
use crate::status::RunStatus::{Cancelled, Paused, Running, Terminated};

const ONE: &str = "steps: {a: {skill: x}}";

fn signal(run: &mut Run, name: &str) -> Signal {
    Signal { id: run.next_signal(), name: name.to_owned(), step: None, payload: json("{}"), actor: None }
}

#[test]
fn the_same_signal_sent_twice_is_one_signal() {
    let mut run = Run::start(ONE, "{}");
    let pause = signal(&mut run, "PAUSE");
    run.command(Command::Signal(pause.clone())).unwrap();
    run.signal("RESUME").command(Command::Signal(pause.clone())).unwrap();
    run.is(Running);
    run.signal("TERMINATE").crash().command(Command::Signal(pause)).unwrap();
    run.is(Terminated);
}

#[test]
fn a_refused_signal_sent_twice_is_refused_once() {
    let mut run = Run::start(ONE, "{}");
    let resume = signal(&mut run, "RESUME");
    run.command(Command::Signal(resume.clone())).unwrap();
    run.signal("PAUSE").crash().command(Command::Signal(resume)).unwrap();
    run.is(Paused);
    assert_eq!(run.log().matches("SignalRejected RESUME").count(), 1);
}

#[test]
fn a_signal_for_a_certain_event_is_refused_once_the_run_went_on() {
    let mut run = Run::start(ONE, "{}");
    let seen = run.state.last_seq;
    run.dispatch_all();
    let pause = signal(&mut run, "PAUSE");
    let at = |expected_seq| Command::SignalAt { signal: pause.clone(), expected_seq };
    assert_eq!(code(run.command(at(seen))), "precondition_failed");
    assert_eq!(code(run.command(at(seen + 2))), "precondition_failed");
    run.command(at(seen + 1)).unwrap();
    run.is(Paused);
    // Its sender did not hear the answer and asks again: the run went on by this very signal.
    run.command(at(seen + 1)).unwrap();
    assert_eq!(run.log().matches("SignalAccepted PAUSE").count(), 1);
}

#[test]
fn a_signal_has_a_name_of_bounded_length_and_a_payload_of_bounded_size() {
    let mut run = Run::of(ONE).limits(|limits| limits.signal_bytes = 10).begin();
    assert_eq!(code(run.send("", None, "1")), "bad_signal");
    assert_eq!(code(run.send(&"x".repeat(256), None, "1")), "bad_signal");
    assert_eq!(code(run.send("go", None, r#""0123456789""#)), "signal_too_large");
    assert_eq!(code(run.send("go", Some("nowhere"), "1")), "unknown_step");
    let mut run = Run::start(ONE, "{}");
    assert_eq!(code(run.send("go", None, &format!("{}{}", "[".repeat(100), "]".repeat(100)))), "bad_signal");
}

#[test]
fn so_many_signals_are_taken_in_a_minute() {
    let mut run = Run::start(ONE, "{}");
    for n in 0..60 {
        // Refused ones count, too: they are in the log as well.
        run.signal(if n % 2 == 0 { "go" } else { "RESUME" });
    }
    assert_eq!(code(run.send("go", None, "{}")), "too_many_signals");
    run.evict().advance_ms(59_999);
    assert_eq!(code(run.send("PAUSE", None, "{}")), "too_many_signals");
    run.advance_ms(1).signal("PAUSE").is(Paused);
}

#[test]
fn a_flooded_run_can_still_be_stopped() {
    let mut run = Run::of(ONE).limits(|limits| limits.signals_per_minute = 2).begin();
    run.dispatch_all().signal("go").signal("go").signal("CANCEL").is(Running);
    assert_eq!(code(run.send("CANCEL", None, "{}")), "too_many_signals");
    run.signal("TERMINATE").is(Terminated);
}

#[test]
fn so_many_signals_are_kept_for_steps_that_may_want_them() {
    let mut run = Run::of(ONE).limits(|limits| limits.buffered_signals = 2).begin();
    run.signal("go").signal("stay");
    assert_eq!(code(run.send("go", None, "{}")), "too_many_signals");
    run.signal("PAUSE").is(Paused);
    run.signal("CANCEL").is(Cancelled);
}

#[test]
fn a_step_has_one_name() {
    let mut run = Run::start("steps: {f: {skill: wait, foreach: '${{ [1, 2] }}', input: {signal: go}}}", "{}");
    for name in ["f[+1]", "f[01]", "f[2]", "f[]", "f[", "f]", "[0]"] {
        assert_eq!(code(run.send("go", Some(name), "{}")), "unknown_step", "{name}");
    }
    run.signal_step("go", "f[1]");
    run.ends_with(&["6 SignalAccepted go", "7 StepCompleted f[1] 1/1"]);
    // A signal to the whole step is for any of its items.
    run.signal_step("go", "f");
    run.ends_with(&["9 StepCompleted f[0] 1/1", "10 StepCompleted f 1/1", "11 RunCompleted"]);
}

#[test]
fn an_id_that_the_state_may_have_forgotten_is_looked_for_in_the_log() {
    let start = Run::of("steps: {w: {skill: wait, input: {signal: go}}}").limits(|limits| {
        limits.signals_per_minute = 100_000;
        limits.buffered_signals = 100_000;
    });
    let mut run = start.begin();
    let send = |run: &mut Run, id: u128, unseen: bool| {
        let id = SignalId(uuid::Uuid::from_u128(id));
        let signal =
            Command::Signal(Signal { id, name: "other".to_owned(), step: None, payload: Json::null(), actor: None });
        run.command(if unseen { Command::Unseen(Box::new(signal)) } else { signal })
    };
    for id in 1..=1000 {
        send(&mut run, id, false).unwrap();
    }
    let length = run.events.len();
    // What is remembered is known, and a full memory cannot tell the rest from what is new.
    send(&mut run, 1, false).unwrap();
    assert_eq!(code(send(&mut run, 1001, false)), Rejection::UNSURE);
    assert_eq!(run.events.len(), length);
    send(&mut run, 1001, true).unwrap();
    assert_eq!(run.events.len(), length + 1);
    assert_eq!(code(send(&mut run, 1, false)), Rejection::UNSURE);
    // One that is found out to be new, and has come meanwhile.
    send(&mut run, 1001, true).unwrap();
    assert_eq!(run.events.len(), length + 1);
}

#[test]
fn the_log_says_who_asked_for_what_came_about() {
    let yaml = "approval: true\nsteps: {a: {skill: x}, b: {skill: x, depends_on: [a]}}";
    let mut run = Run::of(yaml).request(|request| request.submitted_by = Some("ada".to_owned())).begin();
    let say = |run: &mut Run, name: &str, step: Option<&str>, actor: &str| {
        let signal = Signal { step: step.map(str::to_owned), actor: Some(actor.to_owned()), ..signal(run, name) };
        run.command(Command::Signal(signal)).map(drop)
    };
    assert_eq!(code(say(&mut run, "APPROVE", None, "a\nb")), "bad_actor");
    assert_eq!(code(say(&mut run, "APPROVE", None, "")), "bad_actor");
    say(&mut run, "APPROVE", None, "bob").unwrap();
    say(&mut run, "RESUME", None, "eve").unwrap();
    say(&mut run, "PAUSE", None, "bob").unwrap();
    run.crash().signal("RESUME").dispatch_all().fail("a", "broke", false);
    say(&mut run, "RETRY_STEP", Some("a"), "cyd").unwrap();
    run.dispatch_all();
    say(&mut run, "CANCEL", None, "bob").unwrap();
    run.fail("a", "cancelled", false);
    run.is(Cancelled);
    let told = run.events.iter().filter_map(|event| {
        let row = codec::encode(event, run.state.run, &run.plan, event.at);
        assert_eq!(codec::decode(&row, &run.plan).unwrap(), *event);
        Some(format!("{} {}", row.event_type, event.actor.as_deref()?))
    });
    let told: Vec<String> = told.collect();
    assert_eq!(
        told,
        [
            "SignalAccepted bob",
            "RunApproved bob",
            "SignalRejected eve",
            "SignalAccepted bob",
            "RunPaused bob",
            "SignalAccepted cyd",
            "RunReopened cyd",
            "SignalAccepted bob",
        ]
    );
    let queued = run.rows[0].data.to_value();
    assert_eq!(queued["submitted_by"], "ada");
}
