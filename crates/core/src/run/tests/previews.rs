//! What a run would do, before it does it.

use std::sync::Arc;

use super::harness::{Run, START, json, plan, run_id};
use crate::cache::Trust;
use crate::id::OrgId;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::run::{Context, StartRun, Starting, StepOutlook, StepPreview};

/// `a runs #, b skipped`: what would become of the steps; `#` where the hash of the input is known.
fn preview(yaml: &str, payload: &str) -> String {
    let plan = plan(yaml);
    let line = |step: &StepPreview| {
        let outlook = match &step.outlook {
            StepOutlook::Runs => "runs",
            StepOutlook::Fails(_) => "fails",
            StepOutlook::Skipped => "skipped",
            StepOutlook::Unknown => "unknown",
        };
        format!("{} {outlook}{}", plan.step(step.step).id, if step.input_hash.is_some() { " #" } else { "" })
    };
    steps(&plan, payload).iter().map(line).collect::<Vec<_>>().join(", ")
}

fn steps(plan: &Arc<Plan>, payload: &str) -> Vec<StepPreview> {
    let limits = Limits::default();
    let request = StartRun {
        org: OrgId::DEFAULT,
        run: run_id(1),
        payload: json(payload),
        request_id: None,
        priority: 0,
        start_at: None,
        parent: None,
        base: None,
        definition: None,
        trust: Trust::Open,
        rebuild: None,
        trace: None,
    };
    let starting = Starting::check(request, plan.clone(), &Context::new(START, 7, &limits)).unwrap();
    starting.preview(&limits)
}

#[test]
fn a_condition_on_the_payload_is_known_beforehand() {
    let yaml = "steps: {a: {skill: x, when: '${{ payload.video }}'}, b: {skill: x, when: false}, c: {skill: x}}";
    assert_eq!(preview(yaml, r#"{"video":1}"#), "a runs #, b skipped, c runs #");
    assert_eq!(preview(yaml, r#"{"video":0}"#), "a skipped, b skipped, c runs #");
}

#[test]
fn what_depends_on_outputs_is_not_known() {
    let yaml = "steps: {a: {skill: x}, b: {skill: x, when: '${{ steps.a.output.ok }}'}, \
                c: {skill: x, foreach: '${{ steps.a.output }}'}, d: {skill: x, input: {n: '${{ steps.a.output }}'}}, \
                e: {skill: x, depends_on: [b]}}";
    assert_eq!(preview(yaml, "{}"), "a runs #, b unknown #, c unknown, d runs, e runs #");
}

#[test]
fn the_output_of_a_skipped_step_is_known() {
    let yaml = "steps: {a: {skill: x, when: false}, b: {skill: x, when: '${{ steps.a.output }}'}, \
                c: {skill: x, input: {n: '${{ steps.b.output }}'}}}";
    assert_eq!(preview(yaml, "{}"), "a skipped, b skipped, c runs #");
}

#[test]
fn what_looks_at_the_run_itself_is_not_known() {
    let yaml = "steps: {a: {skill: x, input: {n: '${{ run.id }}'}}, b: {skill: x, when: '${{ run.priority > 3 }}'}}";
    assert_eq!(preview(yaml, "{}"), "a runs, b unknown #");
}

#[test]
fn what_cannot_be_evaluated_would_fail() {
    let yaml = "steps: {a: {skill: x, when: '${{ payload.no }}'}, b: {skill: x, input: {n: '${{ payload.no }}'}}, \
                c: {skill: x, foreach: '${{ payload.text }}'}, d: {skill: x, foreach: '${{ payload.xs }}'}}";
    assert_eq!(preview(yaml, r#"{"text":"t","xs":[1]}"#), "a fails #, b fails, c fails, d runs");
}

#[test]
fn the_hash_of_an_input_is_the_one_that_the_run_records() {
    let yaml = "steps: {a: {skill: x, input: {n: '${{ payload.n + 1 }}', t: 'n = ${{ payload.n }}'}}}";
    let mut run = Run::start(yaml, r#"{"n":1}"#);
    run.dispatch_all();
    let recorded = run.rows.last().unwrap().data.to_value()["input_hash"].clone();
    assert_eq!(serde_json::json!(steps(&run.plan, r#"{"n":1}"#)[0].input_hash), recorded);
}
