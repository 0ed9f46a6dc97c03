//! Evaluation is bounded: whatever documents, payloads and patches say, memory is a small multiple of what their limits allow.
//! The allocator counts for the whole process, so all of it is one test.

use std::sync::Arc;

use milepost_core::cache::Trust;
use milepost_core::document::{self, load_all, patch};
use milepost_core::event::{Body, ErrorInfo};
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::run::{Command, Context, Decision, Effect, RunState, StartRun, Starting, decide};
use milepost_core::time::Timestamp;
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Value, json};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const MIB: usize = 1024 * 1024;
/// What rendering one input may take, all in all.
const RENDERING: usize = 24 * MIB;
/// What one expression may take: a text of all its work, copied twice, with its parts.
const EXPRESSION: usize = 96 * MIB;

/// What was made, and the most memory that was taken on the way, beyond what was taken before.
fn measured<T>(work: impl FnOnce() -> T) -> (T, usize) {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let made = work();
    (made, MEMORY.peak_usage().saturating_sub(before))
}

struct Run {
    state: RunState,
    limits: Limits,
    failures: Vec<ErrorInfo>,
    /// The most that one decision took.
    most: usize,
    decisions: u64,
}

impl Run {
    fn start(document: &Value, payload: &Value) -> Run {
        let limits = Limits::default();
        let plan = document::load_value(document, &limits).unwrap_or_else(|problems| panic!("{problems:?}")).plan;
        let request = StartRun {
            org: OrgId::DEFAULT,
            run: RunId(uuid::Uuid::from_u128(7)),
            payload: Json::of(payload),
            request: None,
            priority: 0,
            start_at: None,
            parent: None,
            submitted_by: None,
            trace: None,
            base: None,
            definition: None,
            trust: Trust::Open,
            rebuild: None,
        };
        let context = Context::new(Timestamp(1_800_000_000_000_000), 1, &limits);
        let ((state, decision), most) = measured(|| {
            let starting = Starting::check(request, Arc::new(plan), &context).expect("it may start");
            starting.begin(None, &context).expect("it starts")
        });
        let mut run = Run { state, limits, failures: Vec::new(), most, decisions: 1 };
        run.follow(decision);
        run
    }

    /// Hands out what is ready, and goes on as long as the run says that there is more.
    fn follow(&mut self, decision: Decision) {
        let mut ready = self.note(&decision);
        let mut more = decision.more;
        drop(decision);
        while more || !ready.is_empty() {
            let command = match more {
                true => Command::Continue,
                false => Command::Dispatch { step: ready.remove(0), worker: NodeId(1) },
            };
            self.decisions += 1;
            let context = Context::new(Timestamp(1_800_000_000_000_000), self.decisions, &self.limits);
            let (decision, peak) = measured(|| decide(&mut self.state, command, &context).expect("it fits"));
            self.most = self.most.max(peak);
            more = decision.more;
            ready.extend(self.note(&decision));
        }
    }

    fn note(&mut self, decision: &Decision) -> Vec<milepost_core::event::StepRef> {
        self.failures.extend(decision.events.iter().filter_map(|event| match &event.body {
            Body::StepFailed { error } => Some(error.clone()),
            _ => None,
        }));
        let ready = decision.effects.iter().filter_map(|effect| match effect {
            Effect::Ready { step, .. } => Some(*step),
            _ => None,
        });
        ready.collect()
    }

    #[track_caller]
    fn failed(&self, code: &str) {
        assert_eq!(self.failures.first().map(|error| error.code.as_str()), Some(code), "{:?}", self.failures.first());
    }
}

fn one_step(input: Value) -> Value {
    json!({"name": "t", "on_failure": "continue", "steps": {"a": {"skill": "x", "cache": {"enabled": false}, "input": input}}})
}

fn expression(source: &str) -> Value {
    one_step(json!({"x": format!("${{{{ {source} }}}}")}))
}

fn inputs_that_multiply_the_payload() {
    let payload = json!({"s": "x".repeat(200_000), "l": vec!["y"; 20_000]});
    for piece in [
        "${{ payload.s }}",
        "${{ payload }}",
        "${{ payload.l }}",
        "${{ payload.s ~ '' }}",
        "a ${{ payload.s }} ${{ payload.l }}",
    ] {
        let many = vec![piece; 20_000];
        for input in [json!({"l": many}), json!({"m": {"n": [many.clone(), many]}}), json!({"t": piece.repeat(20_000)})]
        {
            let run = Run::start(&one_step(input), &payload);
            run.failed("input_too_large");
            assert!(run.most < RENDERING, "{piece}: {} KiB", run.most / 1024);
        }
    }
}

fn expressions_that_multiply_the_payload() {
    let payload = json!({"s": "x".repeat(1_000_000), "l": []});
    for operator in ["~", "+"] {
        let run = Run::start(&expression(&vec!["payload.s"; 300].join(operator)), &payload);
        run.failed("expression_failed");
        assert!(run.failures[0].message.contains("more work"), "{}", run.failures[0].message);
        assert!(run.most < 8 * MIB, "{operator}: {} KiB", run.most / 1024);
    }
    // The payload itself is most of it.
    let payload = json!({"s": "", "l": vec![json!(1); 400_000]});
    let run = Run::start(&expression(&format!("[{}] | length", vec!["payload.l"; 300].join(", "))), &payload);
    assert!(run.failures.is_empty() && run.most < 48 * MIB, "{} KiB", run.most / 1024);
}

fn many_steps_in_one_decision() {
    let payload = json!({"s": "x".repeat(900_000), "xs": (0..100).collect::<Vec<_>>()});
    let document = json!({"name": "t", "steps": {"a": {
        "skill": "workflow", "foreach": "${{ payload.xs }}",
        "input": {"ref": "r", "payload": {"s": "${{ payload.s }}", "x": "${{ item }}"}},
    }}});
    let run = Run::start(&document, &payload);
    assert!(run.failures.is_empty() && run.decisions > 3, "{} decisions", run.decisions);
    assert!(run.most < 96 * MIB, "{} KiB", run.most / 1024);
}

/// Expressions made of what costs most.
fn any_hostile() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "payload.s",
        "payload.l",
        "payload.m",
        "payload",
        "'x'",
        "range(100000)",
        "[payload.s]",
        "[payload.l]",
        "1000",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(6, 40, 2, |inner| {
        let around = prop::sample::select(vec![
            "(@) * 1000",
            "(@) | string",
            "(@) | list",
            "(@) | tojson",
            "(@) | join('-')",
            "(@) | sort | list",
            "(@) | unique",
            "(@) | reverse | list",
            "(@) | map('string') | list",
            "(@) | upper",
            "(@) | split('x')",
            "(@) | lines",
            "(@) | batch(2)",
            "(@)[1:]",
            "(@)[::-1]",
            "(@) | replace('x', 'xxxxxxxxxx')",
            "[@] * 1000",
            "(@) | groupby('k')",
            "(@) | items | list",
            "(@) | dictsort",
            "{'a': @, 'b': @}",
            "(@) | sum(start='')",
            "(@) | chain(@) | list",
            "(@) | zip(@) | list",
            "(@) == (@)",
            "(@) | select('in', @) | list",
            "(@) | max",
        ]);
        let two = (inner.clone(), inner.clone(), prop::sample::select(vec!["~", "+", "==", "<", "in", "and", "*"]));
        prop_oneof![
            3 => (inner, around).prop_map(|(inside, around)| around.replace('@', &inside)),
            1 => two.prop_map(|(a, b, operator)| format!("({a}) {operator} ({b})")),
        ]
    })
}

fn expressions_of_all_that_costs() {
    let payload = json!({
        "s": "x,y\nz".repeat(50_000), "l": vec![json!({"k": 1, "t": "text"}); 10_000],
        "m": (0..5000).map(|n| (format!("key{n}"), json!([n]))).collect::<serde_json::Map<_, _>>(),
    });
    // Maps take far more memory than their text.
    for source in ["[payload.l] * 1000", "((([payload.l]) | list) | list) * 1000", "[payload.m] * 1000"] {
        let run = Run::start(&expression(source), &payload);
        run.failed("expression_failed");
        assert!(run.most < EXPRESSION, "{source}: {} KiB", run.most / 1024);
    }
    let cases = std::env::var("MILEPOST_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(4) * 25;
    let mut runner = TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() });
    let checked = runner.run(&any_hostile(), |source| {
        let document = expression(&source);
        if document::load_value(&document, &Limits::default()).is_ok() {
            let run = Run::start(&document, &payload);
            prop_assert!(run.most < EXPRESSION, "{}: {} KiB", source, run.most / 1024);
        }
        Ok(())
    });
    checked.unwrap_or_else(|error| panic!("{error}"));
}

fn documents_that_say_more_than_they_are() {
    let text = "x".repeat(100_000);
    let aliases = format!("a: &a \"{text}\"\nname: t\nsteps: {{b: {{skill: x, input: [{}]}}}}\n", "*a, ".repeat(5000));
    let nested = (1..60)
        .fold(format!("a0: &a0 [\"{text}\"]\n"), |text, n| format!("{text}a{n}: &a{n} [*a{m}, *a{m}]\n", m = n - 1));
    let anchors = format!("name: t\nsteps: &a [{text}]\n");
    let deep_anchors =
        format!("name: {}\"{text}\"{}\n", (0..60).map(|n| format!("&a{n} [")).collect::<String>(), "]".repeat(60));
    let long_key = "k".repeat(200_000);
    let unknown = (0..1000).map(|n| format!("  {long_key}{n}: {{skill: x}}\n")).take(15).collect::<String>();
    let paths =
        format!("name: t\nsteps:\n  {long_key}: {{{}}}\n", (0..2000).map(|n| format!("u{n}: 1, ")).collect::<String>());
    let tags = format!("name: t\n{long_key}: [{}]\n", "!x 1, ".repeat(20_000));
    for source in [aliases, nested, anchors, deep_anchors, format!("name: t\nsteps:\n{unknown}"), paths, tags] {
        let (result, peak) = measured(|| load_all(&source, &Limits::default()).map(|all| all.len()));
        let problems = result.expect_err("it is refused");
        let told: usize = problems.iter().map(|problem| problem.to_string().len()).sum();
        assert!(told < MIB / 2, "{told} bytes of problems");
        assert!(peak < 40 * source.len() + 32 * MIB, "{} KiB of a source of {}", peak / 1024, source.len());
    }
}

fn patches_that_multiply_the_document() {
    let document =
        json!({"name": "t", "steps": {"a": {"skill": "x", "input": {"s": "x".repeat(100_000)}}}}).to_string();
    let copies: Vec<Value> = (0..20_000)
        .map(|n| json!({"op": "copy", "from": "/steps/a/input", "path": format!("/steps/a/input/c{n}")}))
        .collect();
    let (result, peak) = measured(|| patch(&document, &json!(copies), &Limits::default()).map(|_| ()));
    assert!(result.expect_err("it is refused").to_string().contains("bytes"));
    assert!(peak < 48 * MIB, "{} KiB", peak / 1024);
}

/// Lists and maps in brackets, which the reader of YAML keeps until it knows that they are no keys.
fn yaml_in_brackets() {
    const SIZE: usize = 4_000_000;
    let filled = |begin: &str, piece: &str| begin.to_owned() + &piece.repeat((SIZE - begin.len()) / piece.len());
    let cases = [
        filled("", "["),
        filled("", "[ "),
        filled("[", ","),
        filled("[", "a: ,"),
        filled("[", "a: , ]: [ "),
        filled("{", "a: 1,"),
        filled("[", "[],"),
        filled("[", "[] : "),
        filled("[", "\"\" "),
        filled("[", "*a "),
        filled("[", "!a "),
        filled("[", "&a "),
        filled("[", "? "),
        filled("[", "a\n,"),
        filled(&"[".repeat(250), "[],"),
        filled("a: &a [", "x,"),
        filled("", "{a: "),
        filled("", "- "),
        filled("", "? "),
        filled("", "a: \n "),
        filled("name: x\nsteps: {", "\"a\": {\"skill\": \"x\"}, "),
    ];
    for (number, source) in cases.iter().enumerate() {
        let (result, peak) = measured(|| load_all(source, &Limits::default()).map(|all| all.len()));
        assert!(result.is_err(), "case {number} is refused");
        assert!(peak < 128 * MIB, "case {number}: {} KiB", peak / 1024);
    }
    let text = "1,2,3,4: [5], ".repeat(200_000);
    let document = format!("name: t\nsteps: {{a: {{skill: x, input: [\"{text}\", '{text}']}}}}\n");
    let lines = text.replace(": ", ":\n      ");
    let in_lines = format!("name: t\nsteps:\n  a:\n    skill: x\n    input: |\n      {lines}\n");
    let limits = Limits { document_bytes: 16 * MIB, ..Limits::default() };
    for source in [document, in_lines] {
        assert_eq!(load_all(&source, &limits).map(|all| all.len()), Ok(1), "long texts are no lists");
    }
}

/// Payloads that do not fit in many ways, each of which would repeat them, or the schema.
fn problems_of_payloads() {
    let (text, key) = ("x".repeat(1_000_000), "k".repeat(1000));
    let branches = |schema: Value| json!(vec![schema; 2000]);
    let items = |schema: Value| json!({"items": schema});
    let many: Value = (0..20_000).map(|n| (format!("name{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
    let deep = (0..25).fold(json!([1, 2, 3]), |inner, _| json!({ key.clone(): inner }));
    let reach = (0..25).fold(
        json!({"items": {"anyOf": branches(json!({"type": "null"}))}}),
        |inner, _| json!({"properties": {key.clone(): inner}}),
    );
    let cases = [
        (json!({"anyOf": branches(json!({"type": "integer"}))}), json!(text)),
        (json!({"oneOf": branches(json!({"required": ["a"]}))}), json!({"b": text})),
        (json!({"anyOf": vec![json!({"pattern": "^a(?=b)"}); 1000]}), json!(text)),
        (json!({"anyOf": branches(json!({"additionalProperties": false}))}), many.clone()),
        (json!({"anyOf": branches(json!({"unevaluatedProperties": false}))}), many),
        (json!({"anyOf": branches(json!({"unevaluatedItems": false}))}), json!(vec![text; 1])),
        (items(json!({"not": {"const": 1, "title": "x".repeat(1_000_000)}})), json!(vec![1; 100_000])),
        (items(json!({"required": ["x".repeat(1_000_000)]})), json!(vec![json!({}); 100_000])),
        (items(json!({"pattern": "x".repeat(100_000)})), json!(vec!["y"; 100_000])),
        (items(json!({"propertyNames": {"maxLength": 1}})), json!(vec![json!({"aa": 1}); 100_000])),
        (reach, deep),
    ];
    for (number, (schema, payload)) in cases.iter().enumerate() {
        let document = json!({"name": "t", "params": schema, "steps": {"a": {"skill": "x"}}});
        let plan = document::load_value(&document, &Limits::default()).unwrap_or_else(|all| panic!("{all:?}")).plan;
        let params = plan.params.as_ref().expect("there is a schema");
        let (problems, peak) = measured(|| params.check(payload));
        assert!(!problems.is_empty() && problems.len() <= 100, "case {number}: {} problems", problems.len());
        assert!(peak < 64 * MIB, "case {number}: {} KiB", peak / 1024);
    }
}

/// Schemas that are none, nested where their own schema has alternatives, and large at the bottom.
fn schemas_that_are_none() {
    for draft in [
        "http://json-schema.org/draft-07/schema#",
        "http://json-schema.org/draft-04/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "http://json-schema.org/other",
    ] {
        for keyword in ["items", "not"] {
            let bottom = json!({"type": 7, "enum": (0..300_000).collect::<Vec<u32>>()});
            let mut schema = (0..55).fold(bottom, |inner, _| json!({ keyword: inner }));
            schema["$schema"] = json!(draft);
            let document = json!({"name": "t", "params": schema, "steps": {"a": {"skill": "x"}}});
            let (result, peak) = measured(|| document::load_value(&document, &Limits::default()).map(drop));
            assert_eq!(result.expect_err("it is refused")[0].code, "bad_schema");
            assert!(peak < 160 * MIB, "{draft} {keyword}: {} KiB", peak / 1024);
        }
    }
}

#[test]
fn memory_is_a_small_multiple_of_what_limits_allow() {
    inputs_that_multiply_the_payload();
    expressions_that_multiply_the_payload();
    many_steps_in_one_decision();
    expressions_of_all_that_costs();
    documents_that_say_more_than_they_are();
    patches_that_multiply_the_document();
    yaml_in_brackets();
    problems_of_payloads();
    schemas_that_are_none();
}
