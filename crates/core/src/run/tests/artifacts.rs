//! Files that runs leave, and outputs that are too large for the log.

use super::harness::{Run, code, json, run_id};
use super::kept::SharedResults;
use crate::artifact::{Artifact, Beyond, BlobRef, nothing, uri_of};
use crate::hash::Digest;
use crate::id::{ArtifactId, SignalId};
use crate::json::Json;
use crate::run::{Command, Outcome, RecordArtifact, Rejection};
use crate::status::RunStatus::{Completed, Failed, Running};

const ONE: &str = "steps: {a: {skill: x}, b: {skill: x, input: {n: '${{ steps.a.output.n }}'}}}";

pub(super) fn artifact(id: u128, content: &str, training_step: Option<i64>) -> Artifact {
    let sha256 = Digest::of(content.as_bytes());
    Artifact {
        id: ArtifactId(uuid::Uuid::from_u128(id)),
        kind: "checkpoint".to_owned(),
        uri: uri_of(sha256),
        sha256: Some(sha256),
        size_bytes: Some(content.len() as u64),
        media_type: None,
        filename: None,
        training_step,
        metadata: nothing(),
        expires_at: None,
    }
}

pub(super) fn record(
    run: &mut Run,
    artifact: Artifact,
    step: Option<&str>,
    request: Option<u128>,
) -> Result<(), Rejection> {
    let request = request.map(|id| SignalId(uuid::Uuid::from_u128(id)));
    let record = RecordArtifact { artifact, step: step.map(str::to_owned), request };
    run.command(Command::Record(Box::new(record)))
}

pub(super) fn leaving(run: &mut Run, step: &str, output: &str, artifacts: Vec<Artifact>) -> Result<(), Rejection> {
    let outcome = Box::new(Command::Complete { task: run.task(step), output: json(output) });
    let beyond = Box::new(Beyond { artifacts, ..Beyond::default() });
    run.command(Command::Leaving { outcome, beyond })
}

/// Completes a step with an output that is somewhere else.
pub(super) fn large(run: &mut Run, step: &str, output: &Json) {
    let sha256 = Digest::of(output.as_str().as_bytes());
    run.blobs.insert(sha256, output.clone());
    let outcome = Box::new(Command::Complete { task: run.task(step), output: output.clone() });
    let blob = BlobRef { sha256, size_bytes: output.len() as u64 };
    let beyond = Box::new(Beyond { output_blob: Some(blob), ..Beyond::default() });
    run.command(Command::Leaving { outcome, beyond }).unwrap();
}

fn padded(n: u32) -> Json {
    json(&format!(r#"{{"n":{n},"pad":"{}"}}"#, "x".repeat(300_000)))
}

#[test]
fn files_are_recorded_with_an_outcome_and_on_their_own() {
    let mut run = Run::start(ONE, "{}");
    run.dispatch_all();
    record(&mut run, artifact(1, "one", None), None, None).unwrap();
    record(&mut run, artifact(2, "two", None), Some("a"), None).unwrap();
    assert_eq!(code(record(&mut run, artifact(3, "three", None), Some("c"), None)), "unknown_step");
    leaving(&mut run, "a", r#"{"n":1}"#, vec![artifact(4, "four", None), artifact(5, "five", None)]).unwrap();
    run.is(Running);
    run.dispatch_all().complete("b", "{}").is(Completed);
    record(&mut run, artifact(6, "six", None), None, None).unwrap();
    run.is(Completed);
    let ids: Vec<u128> = run.events.iter().flat_map(|event| event.artifacts().0).map(|a| a.id.0.as_u128()).collect();
    assert_eq!(ids, [1, 2, 4, 5, 6]);
}

#[test]
fn a_request_that_comes_again_records_nothing() {
    let mut run = Run::start(ONE, "{}");
    record(&mut run, artifact(1, "one", None), None, Some(7)).unwrap();
    let length = run.events.len();
    record(&mut run, artifact(1, "one", None), None, Some(7)).unwrap();
    run.crash();
    record(&mut run, artifact(1, "one", None), None, Some(7)).unwrap();
    let events = run.events.iter().filter(|event| event.body.event_type() == "ArtifactRecorded").count();
    assert_eq!((events, run.events.len() >= length), (1, true));
}

#[test]
fn there_is_one_of_a_kind_for_each_step_of_a_training() {
    let mut run = Run::of(ONE).limits(|limits| limits.continue_steps = 1).begin();
    run.dispatch_all();
    record(&mut run, artifact(1, "one", Some(100)), None, None).unwrap();
    let length = run.events.len();
    record(&mut run, artifact(2, "one", Some(100)), None, None).unwrap();
    assert_eq!(run.events.len(), length, "the same content is the same artifact");
    assert_eq!(code(record(&mut run, artifact(2, "two", Some(100)), None, None)), "artifact_exists");
    record(&mut run, artifact(2, "two", Some(200)), None, None).unwrap();
    // Those that are recorded already are not recorded again with the outcome.
    let both = vec![artifact(3, "two", Some(200)), artifact(4, "three", Some(300)), artifact(5, "three", Some(300))];
    leaving(&mut run, "a", r#"{"n":1}"#, both).unwrap();
    let recorded = run.events.iter().flat_map(|event| event.artifacts().0).count();
    assert_eq!(recorded, 3);
    run.crash();
    assert_eq!(code(record(&mut run, artifact(6, "other", Some(300)), None, None)), "artifact_exists");
    // An executor in this process cannot say it again, so its attempt has failed.
    run.dispatch_all();
    leaving(&mut run, "b", "1", vec![artifact(7, "other", Some(100))]).unwrap();
    run.is(Failed);
}

#[test]
fn a_worker_whose_files_do_not_fit_is_told_and_may_say_it_again() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    record(&mut run, artifact(1, "one", Some(100)), None, None).unwrap();
    let step = run.step("a");
    run.lease(step).unwrap();
    let (task, nonce) = (run.task("a"), run.leased[&step]);
    let report = |artifacts| Command::Leaving {
        outcome: Box::new(Command::Report { task, nonce, outcome: Outcome::Completed(json("1")) }),
        beyond: Box::new(Beyond { artifacts, ..Beyond::default() }),
    };
    assert_eq!(code(run.command(report(vec![artifact(2, "two", Some(100))]))), "artifact_exists");
    run.is(Running);
    for _ in 0..2 {
        run.command(report(vec![artifact(2, "two", Some(101))])).unwrap();
        run.is(Completed);
    }
}

#[test]
fn a_result_leaves_its_files_to_whoever_takes_it_unless_they_do_not_fit() {
    let document = "defaults: {cache: {enabled: true}}\nsteps: {a: {skill: x}}";
    let results = SharedResults::default();
    let nth = |n: u128| Run::of(document).results(&results).request(|request| request.run = run_id(n));
    let mut first = nth(1).begin();
    first.dispatch_all();
    leaving(&mut first, "a", "1", vec![artifact(1, "one", Some(100))]).unwrap();
    let second = nth(2).begin();
    let inherited: Vec<&Artifact> = second.events.iter().flat_map(|event| event.artifacts().0).collect();
    let expected = artifact(1, "one", Some(100));
    assert_eq!((inherited.len(), inherited[0].sha256), (1, expected.sha256));
    assert_ne!(inherited[0].id, expected.id, "an artifact is of one run");
}

#[test]
fn an_output_that_is_elsewhere_is_seen_as_any_other() {
    let document = "
steps:
  a: {skill: x}
  b: {skill: x, input: {n: '${{ steps.a.output.n }}'}}
  c: {skill: x, depends_on: [b], input: {n: '${{ steps.a.output.n + 1 }}'}}
";
    let mut run = Run::of(document).limits(|limits| limits.continue_steps = 1).begin();
    run.dispatch_all();
    large(&mut run, "a", &padded(7));
    assert!(run.rows.iter().all(|row| row.data.len() < 1000), "the log says where it is");
    run.dispatch_all();
    assert_eq!(run.inputs["b"], json(r#"{"n":7}"#));
    // Nothing is at hand after a crash.
    run.crash();
    run.dispatch_all().complete("b", "{}").dispatch_all();
    assert_eq!(run.inputs["c"], json(r#"{"n":8}"#));
    run.complete("c", "{}").is(Completed);
}

#[test]
fn whoever_needs_an_output_that_is_gone_fails_and_nobody_else() {
    let document = "
on_failure: continue
steps:
  a: {skill: x}
  b: {skill: x, depends_on: [a]}
  c: {skill: x, depends_on: [b], input: {n: '${{ steps.a.output.n }}'}}
  d: {skill: x, depends_on: [b], foreach: '${{ steps.a.output.list }}'}
  e: {skill: x, depends_on: [b]}
";
    let mut run = Run::start(document, "{}");
    run.dispatch_all();
    large(&mut run, "a", &padded(7));
    run.crash();
    run.blobs.clear();
    run.dispatch_all().complete("b", "{}").dispatch_all().complete("e", "{}").is(Failed);
    let failures: Vec<String> =
        run.rows.iter().filter(|row| row.event_type == "StepFailed").map(|row| row.data.as_str().to_owned()).collect();
    assert_eq!(failures.len(), 2);
    assert!(failures.iter().all(|failure| failure.contains(r#""code":"output_lost""#)), "{failures:?}");
}

#[test]
fn without_a_place_elsewhere_an_output_has_less_room() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all();
    let output = padded(7);
    run.complete("a", output.as_str()).is(Failed);
    assert!(run.rows.iter().any(|row| row.data.as_str().contains("output_too_large")));
}
