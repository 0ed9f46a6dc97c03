//! A run's definition is changed while it runs.

use super::harness::{Run, code};
use crate::run::{Command, PatchRun};
use crate::status::RunStatus;

const CHAIN: &str = "steps: {a: {skill: x}, b: {skill: x, depends_on: [a]}, c: {skill: x, depends_on: [b]}}";

fn add(id: &str, definition: &str) -> String {
    format!(r#"[{{"op":"add","path":"/steps/{id}","value":{definition}}}]"#)
}

#[test]
fn steps_are_added_changed_and_removed_ahead_of_the_run() {
    let mut run = Run::start(CHAIN, "{}");
    run.run_steps(&["a"]).patch(
        r#"[{"op":"remove","path":"/steps/c"},
            {"op":"add","path":"/steps/b/input","value":{"n":"${{ steps.a.output }}"}},
            {"op":"add","path":"/steps/d","value":{"skill":"y","depends_on":["b"]}}]"#,
    );
    run.ends_with(&["4 StepCompleted a 1/1", "5 RunPatched +d ~b -c"]);
    run.dispatch_all().complete("b", "1").run_steps(&["d"]).is(RunStatus::Completed);
    assert_eq!(run.output(), serde_json::json!({"d": {}}));
    assert_eq!(run.input("b"), r#"{"n":{}}"#);
}

#[test]
fn what_a_patch_makes_ready_begins_in_the_same_decision() {
    let mut run = Run::start(CHAIN, "{}");
    run.dispatch_all().patch(r#"[{"op":"remove","path":"/steps/c/depends_on"}]"#);
    run.dispatch_all().complete("c", "{}");
    run.patch(&add("w", r#"{"skill":"wait","input":{"signal":"go"}}"#));
    run.ends_with(&["7 RunPatched +w", "8 StepStarted w 1/1"]);
    run.signal("go").run_steps(&["a", "b"]).is(RunStatus::Completed);
}

#[test]
fn a_step_with_more_to_wait_for_leaves_the_line() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}}", "{}");
    run.dispatch("b").unwrap();
    run.patch(
        r#"[{"op":"add","path":"/steps/z","value":{"skill":"x"}},
            {"op":"add","path":"/steps/a/depends_on","value":["z"]}]"#,
    );
    assert_eq!(code(run.dispatch("a")), "stale_attempt");
    run.run_steps(&["z", "a", "b"]).is(RunStatus::Completed);
}

#[test]
fn what_has_begun_is_named_and_not_changed() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}, c: {skill: x}}", "{}");
    run.run_steps(&["a"]).dispatch_all();
    let ops = r#"[{"op":"remove","path":"/steps/a"},{"op":"add","path":"/steps/b/input","value":1},
                  {"op":"add","path":"/steps/c/retry","value":{"max_attempts":3}}]"#;
    for rerun in [false, true] {
        let rejection = run.try_patch(ops, rerun).unwrap_err();
        assert_eq!(rejection.code, "step_started");
        assert!(rejection.message.contains("`b`") && !rejection.message.contains("`c`"), "{rejection}");
        assert_eq!(rejection.message.contains("`a`"), !rerun, "{rejection}");
    }
}

#[test]
fn how_often_a_step_is_tried_may_change_while_it_is_under_way() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all()
        .patch(r#"[{"op":"add","path":"/defaults","value":{"retry":{"max_attempts":2,"backoff_ms":0}}}]"#);
    run.fail("a", "broke", true).run_steps(&["a"]).is(RunStatus::Completed);
}

#[test]
fn changed_steps_that_have_ended_run_again_with_all_that_saw_their_results() {
    let mut run = Run::start(CHAIN, "{}");
    run.run_steps(&["a", "b"]);
    let ops = r#"[{"op":"add","path":"/steps/a/input","value":1}]"#;
    let rejection = run.try_patch(ops, false).unwrap_err();
    assert!(rejection.message.contains("`rerun`"), "{rejection}");
    run.patch_rerun(ops).ends_with(&["6 StepCompleted b 1/1", "7 RunPatched ~a !a !b"]);
    run.dispatch_all().ends_with(&["8 StepStarted a 2/1"]);
    run.complete("a", "{}").run_steps(&["b", "c"]).is(RunStatus::Completed);
    assert!(run.log().contains("StepCompleted b 2/1") && run.log().contains("StepCompleted c 1/1"));
}

#[test]
fn a_step_under_way_with_a_result_that_would_change_keeps_the_patch_away() {
    let mut run = Run::start(CHAIN, "{}");
    run.run_steps(&["a"]).dispatch_all();
    let rejection = run.try_patch(r#"[{"op":"add","path":"/steps/a/input","value":1}]"#, true).unwrap_err();
    assert!(rejection.code == "step_started" && rejection.message.contains("`b`"), "{rejection}");
}

#[test]
fn a_failed_step_that_is_mended_runs_again_and_frees_what_waited_for_it() {
    let mut run = Run::start(&format!("on_failure: continue\n{}", CHAIN.replace("c: {", "d: {skill: x}, c: {")), "{}");
    run.dispatch_all().fail("a", "broke", false).patch(r#"[{"op":"add","path":"/steps/a/input","value":1}]"#);
    assert!(run.log().contains("RunPatched ~a ^b ^c !a"), "{}", run.log());
    run.run_steps(&["a", "b", "c", "d"]).is(RunStatus::Completed);
}

#[test]
fn a_new_step_behind_a_failed_one_is_skipped_at_once() {
    let mut run = Run::start("on_failure: continue\nsteps: {a: {skill: x}, b: {skill: x}}", "{}");
    run.dispatch_all().fail("a", "broke", false).patch(&add("c", r#"{"skill":"x","depends_on":["a"]}"#));
    run.ends_with(&["6 RunPatched +c", "7 StepSkipped c 0/0 upstream_failed"]);
    run.complete("b", "{}").is(RunStatus::Failed);
    run.advance_ms(1000).signal_step("RETRY_STEP", "a").run_steps(&["a", "c"]).is(RunStatus::Completed);
}

#[test]
fn a_removed_failure_holds_nothing_back() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}, c: {skill: x, depends_on: [b]}}", "{}");
    run.dispatch_all().fail("a", "broke", false).patch(r#"[{"op":"remove","path":"/steps/a"}]"#);
    run.complete("b", "{}").run_steps(&["c"]).is(RunStatus::Completed);
}

#[test]
fn a_step_that_is_back_counts_its_attempts_on() {
    let mut run = Run::start("steps: {a: {skill: x}, b: {skill: x}}", "{}");
    run.dispatch_all().complete("a", "1").patch_rerun(r#"[{"op":"remove","path":"/steps/a"}]"#);
    run.patch(&add("a", r#"{"skill":"x"}"#)).dispatch_all().ends_with(&["8 StepStarted a 2/1"]);
    run.complete("a", "2").complete("b", "{}").is(RunStatus::Completed);
    assert_eq!(run.output(), serde_json::json!({"a": 2, "b": {}}));
}

#[test]
fn a_run_without_steps_left_is_over() {
    let mut run = Run::start("steps: {a: {skill: x}, w: {skill: x, depends_on: [a]}}", "{}");
    run.run_steps(&["a"]).patch(r#"[{"op":"remove","path":"/steps/w"}]"#).is(RunStatus::Completed);
    assert_eq!(code(run.try_patch(&add("z", r#"{"skill":"x"}"#), false)), "run_ended");
}

#[test]
fn a_retry_that_waits_uses_the_new_definition() {
    let yaml = "steps: {a: {skill: x, retry: {max_attempts: 2, backoff_ms: 100}}}";
    let mut run = Run::start(yaml, "{}");
    run.dispatch_all().fail("a", "broke", true).patch(r#"[{"op":"add","path":"/steps/a/input","value":{"n":2}}]"#);
    run.next_timer().dispatch_all();
    assert_eq!(run.input("a"), r#"{"n":2}"#);
    run.complete("a", "{}").is(RunStatus::Completed);
}

#[test]
fn a_paused_run_and_one_that_has_not_started_can_be_patched() {
    let mut run = Run::start("approval: true\nsteps: {a: {skill: x}}", "{}");
    run.patch(&add("b", r#"{"skill":"x"}"#)).signal("APPROVE").dispatch_all().complete("a", "{}");
    run.signal("PAUSE").patch(&add("c", r#"{"skill":"x","depends_on":["a"]}"#)).dispatch_all();
    assert!(!run.log().contains("StepStarted c"));
    run.complete("b", "{}").signal("RESUME").run_steps(&["c"]).is(RunStatus::Completed);
}

#[test]
fn items_that_have_begun_are_not_changed_and_ended_ones_run_again() {
    let each = "steps: {f: {skill: x, foreach: '${{ payload.xs }}'}, g: {skill: x, depends_on: [f]}}";
    let mut run = Run::start(each, r#"{"xs":[1,2,3],"ys":[1]}"#);
    let ops = r#"[{"op":"replace","path":"/steps/f/foreach","value":"${{ payload.ys }}"}]"#;
    assert_eq!(code(run.try_patch(ops, true)), "step_started");
    run.run_steps(&["f[0]", "f[1]", "f[2]"]).patch_rerun(ops).run_steps(&["f[0]", "g"]).is(RunStatus::Completed);
    assert_eq!(run.state.step_output(run.step("f")).unwrap().unwrap().as_str(), "[{}]");
}

#[test]
fn a_patch_is_undone_while_nothing_of_it_has_begun() {
    let mut run = Run::start(CHAIN, "{}");
    run.run_steps(&["a"]).patch(&add("d", r#"{"skill":"x","depends_on":["c"]}"#));
    run.patch(r#"[{"op":"add","path":"/steps/c/input","value":7}]"#).undo();
    run.ends_with(&["5 RunPatched +d", "6 RunPatched ~c", "7 RunPatched ~c"]);
    run.undo().ends_with(&["8 RunPatched -d"]);
    run.run_steps(&["b"]).patch(&add("d", r#"{"skill":"x"}"#)).dispatch_all();
    let rejection = run.try_undo().unwrap_err();
    assert!(rejection.code == "patch_touched" && rejection.message.contains("`d`"), "{rejection}");
    run.run_steps(&["d", "c"]).is(RunStatus::Completed);
}

#[test]
fn an_earlier_patch_is_not_undone_before_a_later_one() {
    let mut run = Run::start(CHAIN, "{}");
    run.patch(&add("d", r#"{"skill":"x","depends_on":["c"]}"#));
    let (first, _) = run.state.newest_patch().unwrap();
    run.patch(&add("e", r#"{"skill":"x","depends_on":["c"]}"#));
    for (undone, expected) in [(first, "patch_touched"), (run.next_signal(), "unknown_patch")] {
        let plan = run.patched(&add("z", r#"{"skill":"x"}"#)).unwrap();
        let id = run.next_signal();
        let patch = PatchRun {
            id,
            plan,
            ops: None,
            rerun: false,
            message: None,
            actor: None,
            undoes: Some(undone),
            expected_seq: None,
        };
        assert_eq!(code(run.send_patch(patch)), expected);
    }
}

#[test]
fn the_same_patch_sent_twice_is_one_patch() {
    let mut run = Run::start(CHAIN, "{}");
    let plan = run.patched(&add("d", r#"{"skill":"x"}"#)).unwrap();
    let id = run.next_signal();
    let (ops, message) = (None, Some("more".to_owned()));
    let patch = PatchRun { id, plan, ops, rerun: false, message, actor: None, undoes: None, expected_seq: Some(2) };
    run.command(Command::Patch(Box::new(patch.clone()))).unwrap();
    let length = run.events.len();
    run.command(Command::Patch(Box::new(patch.clone()))).unwrap();
    assert_eq!(run.events.len(), length);
    let late = PatchRun { id: run.next_signal(), ..patch.clone() };
    assert_eq!(code(run.command(Command::Patch(Box::new(late)))), "precondition_failed");
    let late = PatchRun { id: run.next_signal(), expected_seq: None, ..patch };
    assert_eq!(code(run.command(Command::Patch(Box::new(late)))), "plan_moved");
}

#[test]
fn a_step_grows_the_plan_of_its_own_run() {
    let yaml =
        "self_patch: {max_patches: 2, max_steps: 3}\nsteps: {plan: {skill: x}, end: {skill: x, depends_on: [plan]}}";
    let mut run = Run::start(yaml, "{}");
    let grown = r#"{"n":7,"patch":[
        {"op":"add","path":"/steps/act","value":{"skill":"x","input":"${{ steps.plan.output.n }}"}},
        {"op":"add","path":"/steps/end/depends_on/-","value":"act"}]}"#;
    run.dispatch_all().complete("plan", grown);
    run.ends_with(&["4 StepCompleted plan 1/1", "5 RunPatched +act ~end"]);
    run.dispatch_all();
    assert_eq!(run.input("act"), "7");
    run.complete("act", r#"{"patch":[{"op":"add","path":"/steps/b","value":{"skill":"x"}}]}"#);
    let told = &run.state.first_failure.as_ref().unwrap().error;
    assert!(told.code == "patch_refused" && told.message.contains("4 steps"), "{told:?}");
    run.is(RunStatus::Failed);
}

#[test]
fn a_returned_patch_that_does_not_fit_fails_its_step_for_good() {
    for (patch, told) in [
        (r#"[{"op":"remove","path":"/steps/nope"}]"#, "/steps/nope"),
        (r#"{"op":"remove"}"#, "a list of operations"),
        (r#"[{"op":"add","path":"/steps/a/input","value":1}]"#, "`a`"),
        (r#"[{"op":"add","path":"/steps/b/depends_on","value":["zz"]}]"#, "no step `zz`"),
        (r#"[{"op":"replace","path":"/self_patch","value":{"max_patches":99}}]"#, "`self_patch`"),
        (r#"[{"op":"replace","path":"/name","value":"other"}]"#, "`name`"),
    ] {
        let yaml = "self_patch: {}\nsteps: {a: {skill: x, retry: {max_attempts: 5}}, b: {skill: x, depends_on: [a]}}";
        let mut run = Run::start(yaml, "{}");
        run.dispatch_all().complete("a", &format!(r#"{{"patch":{patch}}}"#)).is(RunStatus::Failed);
        let error = &run.state.first_failure.as_ref().unwrap().error;
        assert!(error.code == "patch_refused" && error.message.contains(told), "{error:?}");
    }
}

#[test]
fn without_the_setting_a_patch_in_an_output_is_data() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().complete("a", r#"{"patch":[{"op":"remove","path":"/steps/a"}]}"#).is(RunStatus::Completed);
    let mut run = Run::start("self_patch: {}\nsteps: {a: {skill: x}}", "{}");
    run.dispatch_all().complete("a", r#"{"patch":[]}"#).is(RunStatus::Completed);
}

#[test]
fn a_node_that_dies_before_the_returned_patch_is_in_force_leaves_the_step_under_way() {
    let mut run = Run::start("self_patch: {}\nsteps: {a: {skill: x}}", "{}");
    run.dispatch_all();
    let task = run.task("a");
    let output = crate::json::Json::trusted(r#"{"patch":[{"op":"add","path":"/steps/b","value":{"skill":"x"}}]}"#);
    let context = crate::run::Context::new(run.now, 1, &run.limits);
    let asked = crate::run::decide(&mut run.state, Command::Complete { task, output }, &context).unwrap();
    assert!(asked.events.is_empty() && asked.effects.is_empty() && asked.patch.is_some());
    run.crash().dispatch_all().ends_with(&["4 StepRetryScheduled a 1/2", "5 StepStarted a 1/2"]);
}
