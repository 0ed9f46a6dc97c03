//! What steps leave, as expressions and cache keys of later steps see it.

use super::artifacts::{artifact, leaving, record};
use super::begin::Start;
use super::harness::{Run, json, run_id};
use super::kept::SharedResults;
use crate::artifact::Artifact;
use crate::event::Body;
use crate::hash::Digest;
use crate::status::RunStatus::{Completed, Failed};

const SEES: &str = "
steps:
  a: {skill: x}
  b:
    skill: x
    input:
      model: \"${{ steps.a.artifacts.checkpoint['model.bin'] }}\"
      size: \"${{ steps.a.artifacts.checkpoint['model.bin'].size + 1 }}\"
      all: '${{ steps.a.artifacts }}'
  c: {skill: x, depends_on: [b], input: {hash: \"${{ steps.a.artifacts.checkpoint['model.bin'].sha256 }}\"}}
";

/// Nothing of its input tells what `a` left.
const FOLLOWS: &str = "
defaults: {cache: {enabled: true}}
steps:
  a: {skill: x, input: {n: '${{ payload.n }}'}}
  b: {skill: x, input: {of: '${{ steps.a.output }}'}}
  c: {skill: x, input: {of: '${{ steps.b.output }}'}}
";

fn file(id: u128, name: &str, content: &str) -> Artifact {
    Artifact { filename: Some(name.to_owned()), ..artifact(id, content, None) }
}

fn nth(n: u128, yaml: &str, payload: &str, results: &SharedResults) -> Start {
    Run::of(yaml).payload(payload).results(results).request(|request| request.run = run_id(n))
}

/// A run of `FOLLOWS` whose first step leaves this.
fn follow(results: &SharedResults, n: u128, artifacts: Vec<Artifact>) -> Run {
    let mut run = nth(n, FOLLOWS, &format!(r#"{{"n":{n}}}"#), results).begin();
    run.dispatch_all();
    leaving(&mut run, "a", "1", artifacts).unwrap();
    run
}

#[test]
fn expressions_see_artifacts_by_kind_and_name() {
    let mut run = Run::of(SEES).limits(|limits| limits.continue_steps = 1).begin();
    run.dispatch_all();
    let hash = Digest::of(b"weights");
    leaving(&mut run, "a", "null", vec![file(1, "model.bin", "weights"), artifact(2, "more", Some(100))]).unwrap();
    run.dispatch_all();
    let input = run.inputs["b"].to_value();
    let model = serde_json::json!({"uri": format!("milepost://blobs/sha256/{hash}"), "sha256": hash, "size": 7});
    assert_eq!((&input["model"], &input["size"]), (&model, &serde_json::json!(8)));
    assert_eq!(input["all"]["checkpoint"]["100"]["size"], 4);
    // Nothing is at hand after a crash, and it is read again.
    run.crash();
    run.dispatch_all().complete("b", "{}").crash();
    run.dispatch_all();
    assert_eq!(run.inputs["c"], json(&format!(r#"{{"hash":"{hash}"}}"#)));
    run.complete("c", "{}").is(Completed);
}

#[test]
fn an_artifact_that_is_not_there_is_undefined() {
    let document = "
on_failure: continue
steps:
  a: {skill: x}
  b: {skill: x, input: {f: '${{ steps.a.artifacts.custom.report.sha256 }}'}}
  c: {skill: x, input: {f: '${{ steps.a.artifacts.custom is defined }}'}}
  no: {skill: x, when: '${{ false }}'}
  d: {skill: x, input: {f: '${{ steps.no.artifacts }}'}}
";
    let mut run = Run::start(document, "{}");
    run.run_steps(&["a"]);
    run.dispatch_all();
    assert_eq!((&run.inputs["c"], &run.inputs["d"]), (&json(r#"{"f":false}"#), &json(r#"{"f":{}}"#)));
    run.complete("c", "1").complete("d", "1").is(Failed);
    assert!(
        run.rows.iter().any(|row| row.data.as_str().contains("`steps.a.artifacts.custom.report.sha256` is undefined"))
    );
}

#[test]
fn what_the_items_of_a_list_left_is_a_list() {
    let document = "
steps:
  f: {skill: x, foreach: '${{ payload.xs }}', input: '${{ item }}'}
  g: {skill: x, input: {second: \"${{ steps.f.artifacts[1].checkpoint['x'].size }}\", count: '${{ steps.f.artifacts | length }}'}}
";
    let mut run = Run::start(document, r#"{"xs":[1,2,3]}"#);
    run.dispatch_all().complete("f[0]", "0");
    leaving(&mut run, "f[1]", "1", vec![file(1, "x", "four")]).unwrap();
    run.signal_step("SKIP_STEP", "f[2]").crash();
    run.dispatch_all();
    assert_eq!(run.inputs["g"], json(r#"{"count":3,"second":4}"#));
}

#[test]
fn a_changed_file_with_an_equal_output_is_a_change() {
    let results = SharedResults::default();
    let mut first = follow(&results, 1, vec![file(1, "x", "one"), file(2, "y", "same")]);
    first.run_steps(&["b", "c"]).is(Completed);
    // The same files, in another order: all that follows is reused.
    follow(&results, 2, vec![file(3, "y", "same"), file(4, "x", "one")]).is(Completed);
    // Another content: what depends on it runs, and beyond that an equal result cuts it off.
    let mut third = follow(&results, 3, vec![file(5, "x", "two"), file(6, "y", "same")]);
    third.dispatch_all().complete("b", "{}");
    third.is(Completed);
    assert_eq!(third.log().matches("cache_hit").count(), 1);
    // Another name, and no file at all, are changes, too.
    for (n, artifacts) in [(4, vec![file(7, "z", "one"), file(8, "y", "same")]), (5, vec![])] {
        let mut run = follow(&results, n, artifacts);
        run.dispatch_all();
        assert!(run.inputs.contains_key("b"), "{}", run.log());
    }
}

#[test]
fn who_only_comes_after_depends_on_it_as_well() {
    let document = FOLLOWS.replace("input: {of: '${{ steps.a.output }}'}", "depends_on: [a]");
    let results = SharedResults::default();
    for (n, content, runs) in [(1, "one", true), (2, "one", false), (3, "two", true)] {
        let mut run = nth(n, &document, &format!(r#"{{"n":{n}}}"#), &results).begin();
        run.dispatch_all();
        leaving(&mut run, "a", "1", vec![file(n, "x", content)]).unwrap();
        run.dispatch_all();
        assert_eq!(run.inputs.contains_key("b"), runs, "{content}");
        if runs {
            run.complete("b", "{}");
            run.dispatch_all();
        }
        if n == 1 {
            run.complete("c", "{}");
        }
        run.is(Completed);
    }
}

#[test]
fn a_result_that_is_taken_has_the_files_it_was_made_with() {
    let document = "
defaults: {cache: {enabled: true}}
steps:
  a: {skill: x}
  b: {skill: x, input: {all: '${{ steps.a.artifacts }}'}}
  c: {skill: x, cache: {enabled: false}, input: {all: '${{ steps.a.artifacts }}'}}
";
    let results = SharedResults::default();
    let mut first = nth(1, document, "{}", &results).begin();
    first.dispatch_all();
    // One is recorded while the step is under way, and is told of once more with its outcome.
    record(&mut first, artifact(1, "early", Some(100)), Some("a"), None).unwrap();
    record(&mut first, file(2, "log", "lines"), Some("a"), None).unwrap();
    first.crash();
    first.dispatch_all();
    leaving(&mut first, "a", "1", vec![artifact(3, "early", Some(100)), file(4, "x", "one")]).unwrap();
    // What is recorded after the end of a step is the run's, and no part of its result.
    record(&mut first, file(5, "late", "late"), Some("a"), None).unwrap();
    first.dispatch_all();
    let all = first.inputs["b"].to_value();
    let names: Vec<&String> = all["all"]["checkpoint"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["100", "log", "x"]);
    first.complete("b", "{}").complete("c", "{}").is(Completed);
    let recorded: Vec<u128> =
        first.events.iter().flat_map(|event| event.artifacts().0).map(|a| a.id.0.as_u128()).collect();
    assert_eq!(recorded, [1, 2, 4, 5], "each is recorded once");

    let mut second = nth(2, document, "{}", &results).begin();
    second.dispatch_all();
    assert!(!second.inputs.contains_key("b"), "the key is the same");
    assert_eq!(second.inputs["c"], first.inputs["c"]);
    second.complete("c", "{}").is(Completed);
    let inherited = second.events.iter().flat_map(|event| event.artifacts().0).count();
    assert_eq!(inherited, 3);
}

#[test]
fn a_large_output_is_no_artifact_of_the_result() {
    let document = "steps: {a: {skill: x}, b: {skill: x, input: {all: '${{ steps.a.artifacts }}'}}}";
    let mut run = Run::start(document, "{}");
    run.dispatch_all();
    super::artifacts::large(&mut run, "a", &json(&format!(r#""{}""#, "x".repeat(300_000))));
    run.dispatch_all();
    assert_eq!(run.inputs["b"], json(r#"{"all":{}}"#));
}

#[test]
fn the_log_says_which_files_of_a_result_were_there_before() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all();
    record(&mut run, artifact(1, "early", Some(1)), Some("a"), None).unwrap();
    leaving(&mut run, "a", "1", vec![artifact(2, "late", Some(2))]).unwrap();
    let last = run.events.iter().rev().find_map(|event| match &event.body {
        Body::StepCompleted { beyond, .. } => beyond.clone(),
        _ => None,
    });
    let beyond = last.unwrap();
    let ids = |artifacts: &[Artifact]| artifacts.iter().map(|a| a.id.0.as_u128()).collect::<Vec<_>>();
    assert_eq!((ids(&beyond.artifacts), ids(&beyond.recorded)), (vec![2], vec![1]));
}
