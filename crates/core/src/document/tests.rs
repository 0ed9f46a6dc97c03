use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::plan::{Action, CacheScope, DocumentKind, OnFailure, OnLimit, Runtime};

pub(super) mod random;
mod refusals;

fn loaded(source: &str) -> Loaded {
    load(source, &Limits::default()).unwrap_or_else(|problems| panic!("{}", shown(&problems)))
}

fn shown(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("{} {problem}\n", problem.code)).collect()
}

const CAMPAIGN: &str = r#"
kind: workflow
name: campaign.build
version: 1.0.0
description: Builds a campaign
params: {type: object, required: [topic]}
defaults:
  retry: {max_attempts: 3, backoff_ms: 500, max_backoff_ms: 60000, non_retryable: [bad_input]}
  timeout_ms: 300000
  cache: {enabled: false, scope: global}
on_failure: continue
concurrency: {key: "${{ payload.customer }}", limit: 2, on_limit: reject}
steps:
  brief:
    skill: text.brief
    input: {topic: "${{ payload.topic }}"}
  bgm:
    skill: audio.generate
    input: {prompt: "${{ payload.audio.prompt }}", mood: "${{ steps.brief.output.mood }}"}
    cache: {enabled: true}
    runtime: queue
    queue: audio
    heartbeat_timeout_ms: 30000
    retry: {max_attempts: 5}
    secrets: {API_KEY: "secret://audio/api-key"}
    env: [REGION]
  cut:
    skill: video.cut
    depends_on: [bgm]
    when: "${{ payload.video }}"
  shots:
    skill: image.render
    foreach: "${{ steps.brief.output.shots }}"
    input: {shot: "${{ item }}", n: "${{ index }}"}
changes:
  audio.update: {merge: /audio}
  asset3d.replace: {replace: /assets/3d}
  full_rebuild: {rebuild: all}
  some: {rebuild: [bgm, cut]}
tunables:
  - {path: optimizer.lr, type: number, min: 1.0e-6, max: 0.1}
"#;

#[test]
fn a_whole_document_becomes_a_plan() {
    let Loaded { plan, hash, canonical } = loaded(CAMPAIGN);
    assert_eq!((plan.hash, Digest::of(canonical.as_bytes())), (hash, hash));
    assert_eq!((&*plan.name, &*plan.version, plan.kind), ("campaign.build", "1.0.0", DocumentKind::Workflow));
    assert_eq!((plan.on_failure, plan.approval), (OnFailure::Continue, false));
    let ids: Vec<&str> = plan.steps.iter().map(|step| &*step.id).collect();
    assert_eq!(ids, ["bgm", "brief", "cut", "shots"]);
    assert_eq!((plan.order, plan.last_steps), (vec![1, 0, 2, 3], vec![2, 3]));
    assert_eq!((plan.steps[0].depends_on.clone(), plan.steps[1].dependents.clone()), (vec![1], vec![0, 3]));
    let concurrency = plan.concurrency.unwrap();
    assert_eq!((concurrency.limit, concurrency.on_limit), (2, OnLimit::Reject));
}

#[test]
fn steps_take_what_they_do_not_say_from_the_defaults() {
    let plan = loaded(CAMPAIGN).plan;
    let bgm = plan.step(plan.find("bgm").unwrap());
    assert_eq!((bgm.retry.max_attempts, bgm.retry.backoff_ms, bgm.retry.non_retryable.len()), (5, 500, 1));
    assert_eq!((bgm.timeout_ms, bgm.heartbeat_timeout_ms), (Some(300_000), Some(30_000)));
    assert_eq!((bgm.cache.enabled, bgm.cache.scope), (true, CacheScope::Global));
    assert_eq!((bgm.runtime, bgm.queue.as_deref()), (Some(Runtime::Queue), Some("audio")));
    assert_eq!((bgm.env[0].as_ref(), bgm.secrets[0].1.as_ref()), ("REGION", "secret://audio/api-key"));
    let cut = plan.step(plan.find("cut").unwrap());
    assert_eq!((cut.retry.max_attempts, cut.cache.enabled, cut.runtime), (3, false, None));
    assert_eq!(cut.input.constant(), Some(&json!({})));
}

#[test]
fn a_small_document_has_defaults_for_all_else() {
    let plan = loaded("name: x\nsteps: {a: {skill: noop}}").plan;
    assert_eq!((plan.kind, &*plan.version, plan.on_failure), (DocumentKind::Workflow, "0.0.0", OnFailure::Stop));
    assert_eq!((plan.steps[0].retry.max_attempts, plan.steps[0].action), (1, Action::Task));
    assert!(plan.params.is_none() && plan.concurrency.is_none() && plan.find("b").is_none());
}

#[test]
fn the_hash_never_drifts() {
    assert_eq!(loaded(CAMPAIGN).hash.to_string(), "d68cd1a6725df1f01531dcf940b286558d03d23acbec13ead36694d21b7c81a6");
    let small = loaded("name: x\nsteps: {b: {skill: noop}, a: {skill: echo, input: [1.0, é, 2e3, null, yes]}}");
    let canonical =
        r#"{"name":"x","steps":{"a":{"input":[1,"é",2000,null,"yes"],"skill":"echo"},"b":{"skill":"noop"}}}"#;
    assert_eq!(small.canonical, canonical);
    assert_eq!(small.hash.to_string(), "649799cee93ba437e4c624d3e61d7e66a25acec8bf1b098fc95be76adca4d5c1");
    assert_eq!(
        small.plan.steps[0].digest.to_string(),
        "f0d743c461e1b0767b2cb2750e99e5669d4a5231c59fa058e78e55c2a4812783"
    );
}

#[test]
fn list_and_map_yaml_and_json_are_the_same_document() {
    let map = loaded("name: x\nsteps:\n  b: {skill: noop}\n  a: {skill: echo, input: {k: \"${{ payload }}\"}}");
    let list =
        loaded("steps:\n- {id: a, skill: echo, input: {k: \"${{ payload }}\"}}\n- {skill: noop, id: b}\nname: x");
    let json = loaded(
        r#"{"name": "x", "steps": {"a": {"skill": "echo", "input": {"k": "${{ payload }}"}},
        "b": {"skill": "noop"}}}"#,
    );
    assert_eq!((map.hash, map.hash), (list.hash, json.hash));
    let value: Value = serde_json::from_str(&map.canonical).unwrap();
    assert_eq!(load_value(&value, &Limits::default()).unwrap().hash, map.hash);
    let stored = load_stored(&map.canonical).unwrap();
    assert_eq!((stored.hash, stored.steps[0].digest), (map.hash, list.plan.steps[0].digest));
}

#[test]
fn a_stored_document_gives_the_same_plan() {
    let fresh = loaded(CAMPAIGN);
    let stored = load_stored(&fresh.canonical).unwrap();
    let numbers = "name: n\nsteps: {a: {skill: noop, input: [1.5, 1e20, 1e16, -0.0, 1.0e-7, 12345678901234567890.5]}}";
    let odd = loaded(numbers);
    assert_eq!(load_stored(&odd.canonical).unwrap().steps[0].digest, odd.plan.steps[0].digest);
    assert_eq!((stored.hash, stored.order), (fresh.hash, fresh.plan.order));
    let digests = |steps: &[crate::plan::PlanStep]| steps.iter().map(|step| step.digest).collect::<Vec<_>>();
    assert_eq!(digests(&stored.steps), digests(&fresh.plan.steps));
    assert!(load_stored("{").is_err() && load_stored("{}").is_err());
}

#[test]
fn a_digest_covers_what_changes_the_result_and_no_more() {
    let digest =
        |step: &str| loaded(&format!("name: x\nsteps: {{a: {{{step}}}, b: {{skill: noop}}}}")).plan.steps[0].digest;
    let base = digest("skill: s, input: {k: 1}");
    assert_eq!(
        base,
        digest("skill: s, input: {k: 1}, retry: {max_attempts: 2}, timeout_ms: 5, queue: q, description: d")
    );
    assert_eq!(base, digest("skill: s, input: {k: 1}, cache: {enabled: true}, depends_on: [b], when: true"));
    for other in [
        "skill: t, input: {k: 1}",
        "skill: s, input: {k: 2}",
        "skill: s, input: {k: 1}, runtime: push, push: {url: 'https://e.com'}",
        "skill: s, input: {k: 1}, env: [A]",
        "skill: s, input: {k: 1}, secrets: {A: 'secret://a'}",
        "skill: s, input: {k: 1}, foreach: [1]",
    ] {
        assert_ne!(base, digest(other), "{other}");
    }
}

#[test]
fn a_step_is_pushed_where_it_or_the_defaults_say() {
    let plan = loaded(concat!(
        "name: x\n",
        "defaults: {runtime: push, push: {url: 'https://Example.com:8443/hook', timeout_ms: 5000}}\n",
        "steps:\n",
        "  a: {skill: s}\n",
        "  b: {skill: s, push: {timeout_ms: 7, signing_secret: 'secret://hook'}}\n",
        "  c: {skill: s, push: {url: 'http://localhost/c'}}\n",
        "  d: {skill: s, runtime: queue}\n",
        "  e: {skill: sleep, input: {ms: 1}}\n",
    ))
    .plan;
    let pushed = |at: usize| plan.steps[at].push.as_ref().map(|push| (&*push.url, &*push.host, push.timeout_ms));
    assert_eq!(pushed(0), Some(("https://Example.com:8443/hook", "example.com:8443", 5000)));
    assert_eq!(pushed(1).map(|(.., ms)| ms), Some(7));
    let keys = |at: usize| plan.steps[at].push.as_ref().map_or(0, |push| push.signing_secrets.len());
    assert_eq!((keys(0), keys(1)), (0, 1));
    assert_eq!(pushed(2), Some(("http://localhost/c", "localhost", 5000)));
    assert_eq!((pushed(3), pushed(4)), (None, None));
    let digest = |url: &str| {
        loaded(&format!("name: x\nsteps: {{a: {{skill: s, runtime: push, push: {{url: '{url}'}}}}}}")).plan.steps[0]
            .digest
    };
    assert_eq!(digest("https://a"), digest("https://b"), "where it is done changes no result");
}

#[test]
fn words_stay_words() {
    let plan =
        loaded("name: x\nsteps: {a: {skill: echo, input: [no, yes, on, 010, 1_000, 0x1F, 0o17, 1.0e-6, ~, '1', -3]}}")
            .plan;
    let expected = json!(["no", "yes", "on", "010", "1_000", "0x1F", "0o17", 1.0e-6, null, "1", -3]);
    assert_eq!(plan.steps[0].input.constant(), Some(&expected));
}

#[test]
fn anchors_are_copied_where_they_are_named() {
    let plan = loaded("name: x\nsteps: {a: {skill: echo, input: {p: &p {k: [1]}, q: *p}}}").plan;
    assert_eq!(plan.steps[0].input.constant(), Some(&json!({"p": {"k": [1]}, "q": {"k": [1]}})));
}

#[test]
fn templates_keep_types_and_mix_text() {
    struct One(Arc<Value>);
    impl crate::expression::StepOutputs for One {
        fn output(&self, _: crate::plan::StepIndex) -> Option<&Arc<Value>> {
            Some(&self.0)
        }
    }
    let source = r#"{"name": "x", "steps": {"a": {"skill": "noop"}, "b": {"skill": "echo", "input": {
        "n": "${{ steps.a.output.n }}", "t": "n=${{ steps.a.output.n }}, s=${{ steps.a.output.s }}${{ steps.a.output.l }}",
        "e": "$${{ x }}", "c": [1, {"d": "${{ payload }}"}]}}}}"#;
    let plan = loaded(source).plan;
    let steps = One(Arc::new(json!({"n": 1.5, "s": "x y", "l": [1, "z"]})));
    let (payload, run) = (Arc::new(json!(true)), Arc::new(json!({})));
    let budget = crate::expression::Budget::new(1000, &Limits::default());
    let scope = crate::expression::Scope {
        payload: &payload,
        run: &run,
        steps: &steps,
        item: None,
        index: None,
        budget: &budget,
    };
    let expected = json!({"n": 1.5, "t": "n=1.5, s=x y[1,\"z\"]", "e": "${{ x }}", "c": [1, {"d": true}]});
    assert_eq!(plan.steps[1].input.render(&scope).unwrap(), expected);
    assert_eq!((plan.steps[1].input.steps(), plan.steps[1].input.constant()), (&[0][..], None));
}

#[test]
fn built_in_skills_that_need_no_executor_are_known() {
    let source = "name: x\nsteps: {a: {skill: sleep, input: {ms: 1}}, b: {skill: wait, input: {signal: s}}, \
                  c: {skill: workflow, input: {ref: r}}, d: {skill: my.skill}, e: {skill: sleep, input: {ms: '${{ payload }}'}}}";
    let actions: Vec<Action> = loaded(source).plan.steps.iter().map(|step| step.action).collect();
    assert_eq!(actions, [Action::Sleep, Action::Wait, Action::Child, Action::Task, Action::Sleep]);
}

#[test]
fn a_stream_holds_several_documents() {
    let source = "name: x\nsteps: {a: {skill: noop}}\n---\nname: y\nsteps: {a: {skill: noop}}\n---\n";
    let names: Vec<String> =
        load_all(source, &Limits::default()).unwrap().iter().map(|loaded| loaded.plan.name.to_string()).collect();
    assert_eq!(names, ["x", "y"]);
    assert_eq!(load(source, &Limits::default()).unwrap_err()[0].code, "bad_value");
}

#[test]
fn payloads_are_checked_by_their_schema() {
    let plan = loaded(
        "name: x\nparams: {type: object, required: [n], properties: {n: {type: integer}}}\nsteps: {a: {skill: noop}}",
    )
    .plan;
    let params = plan.params.unwrap();
    assert_eq!(params.check(&json!({"n": 1})), []);
    let problems = params.check(&json!({"n": "secret"}));
    assert_eq!(shown(&problems), "payload_invalid /n: the value is not of type \"integer\"\n");
    assert_eq!(params.check(&json!({})).len(), 1);
}

/// A chain is the worst case for recursion, its ids sort unlike they run.
fn chain(steps: usize) -> String {
    let mut source = String::from("{\"name\":\"chain\",\"steps\":{\"s0\":{\"skill\":\"noop\"}");
    for i in 1..steps {
        source +=
            &format!(",\"s{i}\":{{\"skill\":\"echo\",\"input\":{{\"v\":\"${{{{ steps.s{}.output }}}}\"}}}}", i - 1);
    }
    source + "}}"
}

#[test]
fn a_long_chain_is_planned_or_refused_by_the_limit() {
    let source = chain(20_000);
    let limits = Limits { steps: 20_000, ..Limits::default() };
    let loaded = load(&source, &limits).unwrap();
    assert_eq!((loaded.plan.order.len(), loaded.plan.last_steps.len()), (20_000, 1));
    assert_eq!(load(&source, &Limits { steps: 19_999, ..limits }).unwrap_err()[0].code, "too_many_steps");
    let small = Limits { document_bytes: 1000, ..Limits::default() };
    assert_eq!(load(&source, &small).unwrap_err()[0].code, "document_too_large");
}

proptest! {
    #[test]
    fn junk_never_panics(source in "[a-z0-9:{}\\[\\]&*!|>'\"#,?\\- \\n$\\\\]{0,80}") {
        let _ = load_all(&source, &Limits::default());
        let _ = load_stored(&source);
    }

    #[test]
    fn a_damaged_document_never_panics_and_its_problems_have_places(at in 0..CAMPAIGN.len(), junk in "[a-z:{}\\[\\]'\"\\n $-]{0,4}") {
        let source = format!("{}{junk}{}", &CAMPAIGN[..at], &CAMPAIGN[at + 1..]);
        for problem in load(&source, &Limits::default()).err().unwrap_or_default() {
            prop_assert!(problem.line.is_some() || problem.code == "bad_value" || problem.code == "empty_document", "{problem}");
        }
    }

    #[test]
    fn what_loads_loads_again_from_its_canonical_form(at in 0..CAMPAIGN.len()) {
        let source = format!("{}{}", &CAMPAIGN[..at], &CAMPAIGN[at + 1..]);
        if let Ok(loaded) = load(&source, &Limits::default()) {
            let stored = load_stored(&loaded.canonical).unwrap();
            let digests = |plan: &Plan| plan.steps.iter().map(|step| step.digest).collect::<Vec<_>>();
            prop_assert_eq!(digests(&stored), digests(&loaded.plan));
            let value: Value = serde_json::from_str(&loaded.canonical).unwrap();
            prop_assert_eq!(canonical::to_string(&value).unwrap(), loaded.canonical);
        }
    }
}
