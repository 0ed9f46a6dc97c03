//! Pause, cancel, terminate: in every phase, and in every order with what is under way.

use super::harness::{Run, START, code};
use crate::run::ChildOutcome;
use crate::status::RunStatus::{self, Cancelled, Completed, Failed, Paused, Running, Terminated};

const CHAIN: &str = "steps: {a: {skill: x}, b: {skill: x, depends_on: [a]}}";

#[test]
fn a_cancelled_run_says_why() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all();
    run.send("CANCEL", None, r#"{"reason":"wrong city"}"#).unwrap();
    run.fail("a", "cancelled", false);
    run.ends_with(&["6 RunCancelled wrong city"]);
}

#[test]
fn pause_holds_back_ready_steps_until_resume() {
    let mut run = Run::start(CHAIN, "{}");
    run.signal("PAUSE").is(Paused);
    assert_eq!(code(run.dispatch("a")), "stale_attempt");
    run.crash();
    assert!(run.offered.is_empty());
    run.signal("RESUME").run_steps(&["a", "b"]).is(Completed);
}

#[test]
fn a_completion_after_the_pause_is_kept_and_what_follows_waits() {
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().signal("PAUSE").complete("a", "1");
    run.ends_with(&["4 SignalAccepted PAUSE", "5 RunPaused", "6 StepCompleted a 1/1"]);
    run.signal("RESUME").run_steps(&["b"]).is(Completed);
}

#[test]
fn a_completion_before_the_pause_offers_what_follows_in_vain() {
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().complete("a", "1").signal("PAUSE").dispatch_all();
    run.ends_with(&["5 SignalAccepted PAUSE", "6 RunPaused"]);
    run.signal("RESUME").run_steps(&["b"]).is(Completed);
}

#[test]
fn a_run_whose_last_step_ends_in_a_pause_ends_when_it_is_resumed() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().signal("PAUSE").complete("a", "1").is(Paused);
    run.signal("RESUME").is(Completed);
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().signal("PAUSE").fail("a", "broke", false).is(Paused);
    run.signal("RESUME").is(Failed);
}

#[test]
fn timers_that_ring_in_a_pause_are_not_lost() {
    let yaml = "steps: {a: {skill: x, retry: {max_attempts: 2}}, s: {skill: sleep, input: {ms: 10}}, t: {skill: x, depends_on: [s]}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all().fail("a", "broke", true).signal("PAUSE").advance_ms(5000).fire_due_timers().fire_due_timers();
    run.ends_with(&["8 RunPaused", "9 StepCompleted s 1/1"]);
    run.crash().signal("RESUME").run_steps(&["a", "t"]).is(Completed);
}

#[test]
fn pause_and_resume_may_be_repeated() {
    let mut run = Run::start(CHAIN, "{}");
    for _ in 0..3 {
        run.signal("PAUSE").signal("PAUSE").signal("RESUME").signal("RESUME");
    }
    run.ends_with(&[
        "17 SignalRejected PAUSE",
        "18 SignalAccepted RESUME",
        "19 RunResumed",
        "20 SignalRejected RESUME",
    ]);
    run.run_steps(&["a", "b"]).is(Completed);
}

#[test]
fn cancel_asks_tasks_to_stop_and_ends_with_the_last() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}, c: {skill: x}}", "{}");
    run.dispatch("a").unwrap();
    run.dispatch("b").unwrap();
    run.signal("CANCEL").is(Running);
    assert_eq!(run.asked_to_stop.len(), 2);
    assert_eq!(code(run.dispatch("c")), "stale_attempt");
    run.complete("a", "1").is(Running);
    run.fail("b", "cancelled", false);
    run.ends_with(&[
        "6 StepCompleted a 1/1",
        "7 StepSkipped b 1/1 cancelled",
        "8 StepSkipped c 0/0 run_stopped",
        "9 RunCancelled cancelled",
    ]);
}

#[test]
fn a_task_that_fails_while_it_is_asked_to_stop_is_not_tried_again() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 5}}}", "{}");
    run.dispatch_all().signal("CANCEL").fail("a", "broke", true);
    run.ends_with(&["5 StepFailed a 1/1 broke", "6 RunCancelled cancelled"]);
}

#[test]
fn cancel_ends_at_once_what_nobody_has_in_hand() {
    let starts: [(&str, &[&str]); 5] = [
        (
            "approval: true\nsteps: {a: {skill: x}}",
            &["2 SignalAccepted CANCEL", "3 StepSkipped a 0/0 run_stopped", "4 RunCancelled cancelled"],
        ),
        (
            "steps: {a: {skill: x}}",
            &["3 SignalAccepted CANCEL", "4 StepSkipped a 0/0 run_stopped", "5 RunCancelled cancelled"],
        ),
        (
            "steps: {a: {skill: sleep, input: {ms: 1000}}}",
            &["5 StepSkipped a 1/1 cancelled", "6 RunCancelled cancelled"],
        ),
        (
            "steps: {a: {skill: wait, input: {signal: go}}}",
            &["5 StepSkipped a 1/1 cancelled", "6 RunCancelled cancelled"],
        ),
        (
            "concurrency: {key: k, limit: 1}\nsteps: {a: {skill: x}}",
            &["2 SignalAccepted CANCEL", "3 StepSkipped a 0/0 run_stopped", "4 RunCancelled cancelled"],
        ),
    ];
    for (yaml, expected) in starts {
        let mut run = Run::of(yaml).held(1).begin();
        run.signal("CANCEL");
        run.ends_with(expected);
        assert_eq!(code(run.send("CANCEL", None, "{}")), "run_ended");
    }
}

#[test]
fn cancel_ends_a_run_that_was_to_start_later() {
    let mut run = Run::of(CHAIN).request(|request| request.start_at = Some(START.plus_ms(1000))).begin();
    run.signal("CANCEL").is(Cancelled);
}

#[test]
fn cancel_ends_a_paused_run() {
    let mut run = Run::start(CHAIN, "{}");
    run.signal("PAUSE").signal("CANCEL").is(Cancelled);
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().signal("PAUSE").signal("CANCEL").is(Paused);
    run.fail("a", "cancelled", false).is(Cancelled);
}

#[test]
fn a_run_in_backoff_can_be_cancelled() {
    let mut run = Run::start("steps: {a: {skill: x, retry: {max_attempts: 2}}}", "{}");
    run.dispatch_all().fail("a", "broke", true).signal("CANCEL").is(Cancelled);
}

#[test]
fn cancel_stops_the_child_and_waits_for_it() {
    let mut run = Run::start("steps: {a: {skill: workflow, input: {ref: other}}}", "{}");
    let child = run.only_child();
    run.signal("CANCEL").is(Running);
    assert_eq!(run.stopped_children, [(child, false)]);
    run.child_ended(child, ChildOutcome::Stopped);
    run.ends_with(&["5 StepSkipped a 1/1 cancelled", "6 RunCancelled cancelled"]);
}

#[test]
fn a_second_cancel_is_refused_and_terminate_goes_further() {
    let mut run = Run::start("steps: {a: {skill: x}, c: {skill: workflow, input: {ref: other}}}", "{}");
    let child = run.only_child();
    run.dispatch_all().signal("CANCEL").signal("CANCEL").signal("PAUSE");
    run.send("TERMINATE", None, r#"{"reason":"enough"}"#).unwrap();
    run.ends_with(&[
        "6 SignalRejected CANCEL",
        "7 SignalRejected PAUSE",
        "8 SignalAccepted TERMINATE",
        "9 StepSkipped c 1/1 cancelled",
        "10 StepSkipped a 1/1 cancelled",
        "11 RunTerminated enough",
    ]);
    assert_eq!(run.stopped_children, [(child, false), (child, true)]);
}

#[test]
fn terminate_ends_every_run_at_once() {
    let yamls = ["approval: true\nsteps: {a: {skill: x}}", CHAIN, "steps: {a: {skill: sleep, input: {ms: 5}}}"];
    for yaml in yamls {
        let mut run = Run::start(yaml, "{}");
        run.dispatch_all().signal("TERMINATE").is(Terminated);
    }
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().signal("PAUSE").signal("TERMINATE").is(Terminated);
    assert!(run.asked_to_stop.contains(&run.step("a")));
}

#[test]
fn nothing_is_taken_after_the_end_but_retry_of_a_failed_run() {
    let ends: [(&str, RunStatus); 3] = [("CANCEL", Cancelled), ("TERMINATE", Terminated), ("", Completed)];
    for (signal, status) in ends {
        let mut run = Run::start("steps: {a: {skill: x}}", "{}");
        match signal {
            "" => drop(run.run_steps(&["a"])),
            _ => drop(run.signal(signal)),
        }
        run.is(status);
        for name in ["PAUSE", "RESUME", "CANCEL", "TERMINATE", "APPROVE", "go"] {
            assert_eq!(code(run.send(name, None, "{}")), "run_ended");
        }
        assert_eq!(code(run.send("RETRY_STEP", Some("a"), "{}")), "run_ended");
        run.crash().is(status);
    }
}

#[test]
fn what_never_began_is_skipped_with_a_reason_of_its_own_when_the_run_stops() {
    let yaml = "steps: {a: {skill: x}, b: {skill: x, depends_on: [a]}, c: {skill: x, depends_on: [b]}, d: {skill: x}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch("a").unwrap();
    run.signal("TERMINATE");
    run.ends_with(&[
        "5 StepSkipped a 1/1 cancelled",
        "6 StepSkipped b 0/0 run_stopped",
        "7 StepSkipped c 0/0 run_stopped",
        "8 StepSkipped d 0/0 run_stopped",
        "9 RunTerminated terminated",
    ]);
    let mut run = Run::start(yaml, "{}");
    run.dispatch("a").unwrap();
    run.fail("a", "broke", false);
    run.ends_with(&[
        "4 StepFailed a 1/1 broke",
        "5 StepSkipped b 0/0 upstream_failed",
        "6 StepSkipped c 0/0 upstream_failed",
        "7 StepSkipped d 0/0 run_stopped",
        "8 RunFailed broke",
    ]);
    assert_eq!(run.events.iter().filter_map(|event| event.parent).collect::<Vec<_>>(), [4, 4, 4, 4]);
}

#[test]
fn what_never_began_goes_on_when_the_run_is_reopened_as_often_as_that_happens() {
    let yaml = "
steps:
  a: {skill: x}
  b: {skill: x, retry: {max_attempts: 3, backoff_ms: 60000}}
  c: {skill: x, depends_on: [b]}
  d: {skill: x, depends_on: [a, c]}
";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all().fail("b", "broke", true).fail("a", "broke", false);
    run.ends_with(&[
        "8 StepSkipped d 0/0 upstream_failed",
        "9 StepSkipped b 2/0 run_stopped",
        "10 StepSkipped c 0/0 run_stopped",
        "11 RunFailed broke",
    ]);
    run.crash().signal_step("RETRY_STEP", "a");
    run.ends_with(&["13 RunReopened", "14 StepRetryScheduled a 2/1 reset b,c,d"]);
    run.dispatch_all().fail("a", "broke", false).complete("b", "1");
    run.ends_with(&[
        "18 StepSkipped d 0/0 upstream_failed",
        "19 StepCompleted b 2/1",
        "20 StepSkipped c 0/0 run_stopped",
        "21 RunFailed broke",
    ]);
    run.crash().signal_step("RETRY_STEP", "a").run_steps(&["a", "c", "d"]).is(Completed);
}

#[test]
fn of_many_steps_that_never_began_the_log_has_one_event() {
    let steps: Vec<String> = (0..10_000).map(|n| format!("s{n:04}: {{skill: x, depends_on: [a]}}")).collect();
    let yaml = format!("on_failure: stop\nsteps: {{a: {{skill: x}}, z: {{skill: x}}, {}}}", steps.join(", "));
    let mut run = Run::start(&yaml, "{}");
    run.dispatch("z").unwrap();
    run.fail("z", "broke", false).is(Failed);
    let stopped: Vec<&crate::record::EventRow> =
        run.rows.iter().filter(|row| row.event_type == "StepSkipped").collect();
    assert_eq!(stopped.len(), 1);
    let data = stopped[0].data.to_value();
    assert_eq!((stopped[0].step_id.as_deref(), &data["reason"]), (None, &serde_json::json!("run_stopped")));
    assert_eq!(data["steps"].as_array().map(Vec::len), Some(10_001));
    assert!(run.state.steps.iter().all(|step| step.phase.status().is_terminal()));
    run.crash().signal_step("RETRY_STEP", "z").dispatch("a").unwrap();
    run.complete("a", "1");
    assert_eq!(run.offered.len(), 10_001, "with the step that failed");
}
