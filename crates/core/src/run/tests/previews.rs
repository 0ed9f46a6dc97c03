//! What a run would do, before it does it.

use std::sync::Arc;

use super::begin::Start;
use super::harness::{Run, START, run_id};
use super::kept::SharedResults;
use crate::plan::Rebuild;
use crate::run::{Context, ItemsPreview, Starting, StepOutlook, StepPreview, WhyRun};
use crate::status::RunStatus;

impl Start {
    /// What would become of the steps.
    pub(super) fn preview(self) -> Vec<StepPreview> {
        let context = Context::new(START, 7, &self.limits);
        let starting = Starting::check(self.request, self.plan, &context).unwrap();
        let results = self.results.borrow();
        let mut preview = starting.preview(Arc::new(results.surroundings.clone()), &context).unwrap();
        loop {
            let asked = preview.ask().unwrap();
            if asked.is_empty() {
                return preview.steps();
            }
            for lookup in asked {
                let found = lookup.keys.iter().find_map(|key| results.kept.get(&(*key, None)));
                preview.answer(lookup.step, found.cloned());
            }
        }
    }
}

/// `a runs (no_result) #, b unknown (a)`: what would become of the steps; `#` where the hash of the input is known.
fn shown(start: Start) -> String {
    let plan = start.plan.clone();
    let line = |step: &StepPreview| {
        let outlook = match &step.outlook {
            StepOutlook::Runs(WhyRun::NotKept) => "runs".to_owned(),
            StepOutlook::Runs(why) => format!("runs ({why:?})"),
            StepOutlook::Reused { .. } => "reused".to_owned(),
            StepOutlook::Fails(_) => "fails".to_owned(),
            StepOutlook::Skipped(reason) => format!("skipped ({reason})"),
            StepOutlook::Unknown(on) => {
                let names: Vec<&str> = on.iter().map(|step| &*plan.step(*step).id).collect();
                format!("unknown ({})", names.join(" "))
            }
        };
        let items = step.items.map(|ItemsPreview { total, run, reuse, unknown }| {
            format!(" [{total}: {run} run, {reuse} reused, {unknown} unknown]")
        });
        let hash = if step.input_hash.is_some() { " #" } else { "" };
        format!("{} {outlook}{}{hash}", plan.step(step.step).id, items.unwrap_or_default())
    };
    start.preview().iter().map(line).collect::<Vec<_>>().join(", ")
}

fn preview(yaml: &str, payload: &str) -> String {
    shown(Run::of(yaml).payload(payload))
}

#[test]
fn a_condition_on_the_payload_is_known_beforehand() {
    let yaml = "steps: {a: {skill: x, when: '${{ payload.video }}'}, b: {skill: x, when: false}, c: {skill: x}}";
    assert_eq!(preview(yaml, r#"{"video":1}"#), "a runs #, b skipped (condition), c runs #");
    assert_eq!(preview(yaml, r#"{"video":0}"#), "a skipped (condition), b skipped (condition), c runs #");
}

#[test]
fn what_depends_on_outputs_is_not_known_and_says_on_whose() {
    let yaml = "steps: {a: {skill: x}, b: {skill: x, when: '${{ steps.a.output.ok }}'}, \
                c: {skill: x, foreach: '${{ steps.a.output }}'}, d: {skill: x, input: {n: '${{ steps.a.output }}'}}, \
                e: {skill: x, depends_on: [b]}, f: {skill: x, cache: {enabled: true}, input: '${{ steps.e.output }}'}}";
    let expected = "a runs #, b unknown (a) #, c unknown (a), d runs, e runs #, f unknown (e)";
    assert_eq!(preview(yaml, "{}"), expected);
}

#[test]
fn outputs_that_are_known_beforehand_are_used() {
    let yaml = "steps: {a: {skill: x, when: false}, b: {skill: x, when: '${{ steps.a.output }}'}, \
                c: {skill: x, input: {n: '${{ steps.b.output }}'}}, s: {skill: sleep, input: {ms: 5}}, \
                t: {skill: x, input: '${{ steps.s.output }}', when: '${{ steps.s.output == {} }}'}}";
    assert_eq!(preview(yaml, "{}"), "a skipped (condition), b skipped (condition), c runs #, s runs #, t runs #");
}

#[test]
fn the_hash_of_what_looks_at_the_run_itself_is_not_known() {
    let yaml = "steps: {a: {skill: x, input: {n: '${{ run.id }}'}, cache: {enabled: true}}, \
                b: {skill: x, when: '${{ run.priority > 3 }}'}}";
    assert_eq!(preview(yaml, "{}"), "a runs (NoResult), b skipped (condition)");
}

#[test]
fn what_cannot_be_evaluated_would_fail_and_hides_no_other() {
    let yaml = "steps: {a: {skill: x, when: '${{ payload.no }}'}, b: {skill: x, input: {n: '${{ payload.no }}'}, cache: {enabled: true}}, \
                c: {skill: x, foreach: '${{ payload.text }}'}, d: {skill: x, foreach: '${{ payload.xs }}'}, \
                e: {skill: x, depends_on: [b]}, f: {skill: sleep, input: {ms: '${{ payload.text }}'}}}";
    assert_eq!(
        preview(yaml, r#"{"text":"t","xs":[1]}"#),
        "a fails #, b fails, c fails, d runs [1: 1 run, 0 reused, 0 unknown], e skipped (upstream_failed), f fails #"
    );
}

#[test]
fn nothing_keeps_a_preview_back() {
    let yaml = "approval: true\nconcurrency: {key: k, limit: 1}\nsteps: {a: {skill: x}}";
    let later = Run::of(yaml).request(|request| request.start_at = Some(START.plus_ms(1000)));
    assert_eq!(shown(later), "a runs #");
}

#[test]
fn the_hash_of_an_input_is_the_one_that_the_run_records() {
    let yaml = "steps: {a: {skill: x, input: {n: '${{ payload.n + 1 }}', t: 'n = ${{ payload.n }}'}}}";
    let mut run = Run::start(yaml, r#"{"n":1}"#);
    run.dispatch_all();
    let recorded = run.rows.last().unwrap().data.to_value()["input_hash"].clone();
    let foreseen = Run::of(yaml).payload(r#"{"n":1}"#).preview()[0].input_hash;
    assert_eq!(serde_json::json!(foreseen), recorded);
}

const GRAPH: &str = "
defaults: {cache: {enabled: true}}
steps:
  a: {skill: x, input: {n: '${{ payload.a }}'}}
  b: {skill: x, input: {of: '${{ steps.a.output }}'}}
  c: {skill: x, input: {of: '${{ steps.b.output }}', n: '${{ payload.c }}'}}
  d: {skill: x, input: 1, depends_on: [c]}
  each: {skill: x, foreach: '${{ payload.xs }}', input: '${{ item }}'}
";

fn of(n: u128, payload: &str, results: &SharedResults) -> Start {
    Run::of(GRAPH).payload(payload).results(results).request(|request| request.run = run_id(n))
}

fn done() -> SharedResults {
    let results = SharedResults::default();
    let mut run = of(1, r#"{"a":1,"c":1,"xs":[1,2]}"#, &results).begin();
    run.run_steps(&["a", "each[0]", "each[1]", "b", "c", "d"]).is(RunStatus::Completed);
    results
}

#[test]
fn results_that_are_there_are_reused_and_what_runs_says_why() {
    let results = done();
    let same = "a reused #, b reused #, c reused #, d reused #, each reused [2: 0 run, 2 reused, 0 unknown]";
    assert_eq!(shown(of(2, r#"{"a":1,"c":1,"xs":[2,1]}"#, &results)), same);
    let changed = "a reused #, b reused #, c runs (NoResult) #, d reused #, \
                   each runs (NoResult) [5: 2 run, 2 reused, 1 unknown]";
    assert_eq!(shown(of(2, r#"{"a":1,"c":2,"xs":[2,3,1,4,3]}"#, &results)), changed);
    let upstream = "a runs (NoResult) #, b unknown (a), c unknown (b), d reused #, each runs (NoItems) [0: 0 run, 0 reused, 0 unknown]";
    assert_eq!(shown(of(2, r#"{"a":2,"c":1,"xs":[]}"#, &results)), upstream);
    assert_eq!(results.borrow().hits, 0);
}

#[test]
fn what_is_rebuilt_runs_whatever_is_kept_or_unknown() {
    let results = done();
    let rebuild = |steps| of(2, r#"{"a":1,"c":1,"xs":[1]}"#, &results).request(|request| request.rebuild = Some(steps));
    assert_eq!(
        shown(rebuild(Rebuild::Steps(vec![0, 2]))),
        "a runs (Rebuilt) #, b unknown (a), c runs (Rebuilt), d reused #, each reused [1: 0 run, 1 reused, 0 unknown]"
    );
    assert_eq!(
        shown(rebuild(Rebuild::All)),
        "a runs (Rebuilt) #, b runs (Rebuilt), c runs (Rebuilt), d runs (Rebuilt) #, \
         each runs (Rebuilt) [1: 1 run, 0 reused, 0 unknown]"
    );
}

#[test]
fn a_preview_has_the_keys_that_the_run_has() {
    let results = done();
    let payload = r#"{"a":1,"c":7,"xs":[]}"#;
    let foreseen = of(2, payload, &results).preview();
    let mut run = of(2, payload, &results).begin();
    run.dispatch_all();
    let recorded = run.rows.last().unwrap().data.to_value()["cache_key"].clone();
    assert_eq!(serde_json::json!(foreseen[2].cache_key), recorded);
}
