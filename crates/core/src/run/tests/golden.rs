//! Runs that were recorded once and must replay for ever: rows, keys and checkpoints as some release wrote them.
//!
//! `MILEPOST_WRITE_GOLDEN=1 cargo test -p milepost-core golden` records those that are missing. It never changes one that
//! is there: a change of format gets a new number and keeps reading the old ones.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::harness::{Run, run_id};
use crate::codec;
use crate::document;
use crate::event::Event;
use crate::hash::Digest;
use crate::id::{EventId, RunId, SignalId};
use crate::json::Json;
use crate::limits::Limits;
use crate::plan::Plan;
use crate::record::EventRow;
use crate::run::{CHECKPOINT_FORMAT, ChildOutcome, RunState};
use crate::status::RunStatus;
use crate::time::Timestamp;

#[derive(Serialize, Deserialize)]
struct Golden {
    run: RunId,
    /// In its canonical form.
    document: String,
    /// The plans that patches made of it, as they are stored, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patched: Vec<String>,
    rows: Vec<Row>,
    status: RunStatus,
    checkpoint_format: i16,
    /// Of the state after the last row.
    checkpoint_sha256: Digest,
    /// Those written on the way: the sequence number and the bytes in hexadecimal.
    checkpoints: Vec<(u64, String)>,
}

#[derive(Serialize, Deserialize)]
struct Row {
    seq: u64,
    format: i16,
    event_type: String,
    step_id: Option<String>,
    logical_attempt: Option<u32>,
    engine_attempt: Option<u32>,
    data: Json,
    idempotency_key: Digest,
    signal: Option<SignalId>,
    parent_seq: Option<u64>,
    emitted_at: Timestamp,
}

impl Row {
    fn of(row: &EventRow) -> Row {
        Row {
            seq: row.seq,
            format: row.format,
            event_type: row.event_type.to_string(),
            step_id: row.step_id.as_deref().map(str::to_owned),
            logical_attempt: row.logical_attempt,
            engine_attempt: row.engine_attempt,
            data: row.data.clone(),
            idempotency_key: row.idempotency_key,
            signal: row.signal,
            parent_seq: row.parent_seq,
            emitted_at: row.emitted_at,
        }
    }

    fn into_row(self) -> EventRow {
        EventRow {
            seq: self.seq,
            format: self.format,
            event_type: self.event_type.into(),
            step_id: self.step_id.map(Arc::from),
            logical_attempt: self.logical_attempt,
            engine_attempt: self.engine_attempt,
            data: self.data,
            idempotency_key: self.idempotency_key,
            signal: self.signal,
            parent_seq: self.parent_seq,
            emitted_at: self.emitted_at,
            persisted_at: self.emitted_at,
        }
    }
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

const RETRY: &str = "defaults: {retry: {max_attempts: 3, backoff_ms: 100}}\n";

/// What is recorded: a name, a document, and what happens to a run of it.
type Recording = (&'static str, String, fn(&mut Run));

fn recordings() -> Vec<Recording> {
    let each = "steps: {f: {skill: x, foreach: '${{ payload.xs }}', input: {x: '${{ item }}'}}, g: {skill: x, depends_on: [f]}}";
    vec![
        ("chain", "steps: {a: {skill: x}, b: {skill: x, input: '${{ steps.a.output }}'}}".to_owned(), |run| {
            run.dispatch_all().complete("a", r#"{"n":1}"#).dispatch_all().complete("b", "null");
        }),
        ("foreach", each.to_owned(), |run| {
            run.dispatch_all()
                .complete("f[1]", "[1]")
                .complete("f[0]", "null")
                .signal_step("SKIP_STEP", "f[2]")
                .run_steps(&["g"]);
        }),
        ("retries", format!("{RETRY}steps: {{a: {{skill: x}}}}"), |run| {
            run.dispatch_all().crash().dispatch_all().fail("a", "broke", true).next_timer();
            run.dispatch_all().fail("a", "broke", true).next_timer().run_steps(&["a"]);
        }),
        ("pause_cancel", "steps: {a: {skill: x}, s: {skill: sleep, input: {ms: 9000}}}".to_owned(), |run| {
            run.dispatch_all().signal("PAUSE").signal("RESUME").signal("PAUSE").signal("CANCEL").fail(
                "a",
                "cancelled",
                false,
            );
        }),
        ("child", "steps: {c: {skill: workflow, input: {ref: other}, timeout_ms: 5000}}".to_owned(), |run| {
            let child = run.only_child();
            run.child_ended(child, ChildOutcome::Completed { output: Json::trusted(r#"{"z":[]}"#) });
        }),
        (
            "wait",
            "approval: true\nsteps: {w: {skill: wait, input: {signal: go}, timeout_ms: 5000}}".to_owned(),
            |run| {
                run.signal_step("go", "w").signal("RESUME").signal("APPROVE");
            },
        ),
        ("retry_step", each.to_owned(), |run| {
            run.dispatch_all().fail("f[0]", "broke", false).complete("f[1]", "1").complete("f[2]", "2");
            run.signal_step("RETRY_STEP", "f").run_steps(&["f[0]", "g"]);
        }),
        ("failed", each.to_owned(), |run| {
            run.dispatch_all().fail("f[0]", "broke", false).complete("f[1]", "1").crash();
        }),
        ("stopped", "steps: {a: {skill: x}, b: {skill: x}, c: {skill: x, depends_on: [b]}}".to_owned(), |run| {
            run.dispatch("a").unwrap();
            run.fail("a", "broke", false).crash().signal_step("RETRY_STEP", "a");
            run.run_steps(&["a"]).signal("TERMINATE");
        }),
        ("stopped_many", format!("steps: {{a: {{skill: x}}, {}}}", (0..70).map(|n| format!("s{n}: {{skill: x, depends_on: [a]}}")).collect::<Vec<_>>().join(", ")), |run| {
            run.dispatch_all().signal("CANCEL").complete("a", "1");
        }),
        ("artifacts", "steps: {a: {skill: x}, b: {skill: x, input: {all: '${{ steps.a.artifacts }}'}}}".to_owned(), |run| {
            let file = |n, content| super::artifacts::artifact(n, content, Some(1));
            run.dispatch_all();
            super::artifacts::record(run, file(1, "one"), Some("a"), None).unwrap();
            let later = super::artifacts::artifact(2, "two", Some(2));
            super::artifacts::leaving(run, "a", "1", vec![file(3, "one"), later]).unwrap();
            run.dispatch_all();
        }),
        ("terminated", "steps: {a: {skill: x}, c: {skill: workflow, input: {ref: other}}}".to_owned(), |run| {
            run.dispatch_all().signal("TERMINATE");
        }),
        ("patched", "steps: {a: {skill: x}, c: {skill: x, depends_on: [a]}, d: {skill: x, depends_on: [c]}}".to_owned(), |run| {
            run.run_steps(&["a"]).patch(
                r#"[{"op":"add","path":"/steps/b","value":{"skill":"x","input":"${{ steps.a.output }}"}},
                    {"op":"add","path":"/steps/d/depends_on/-","value":"b"}]"#,
            );
            run.run_steps(&["c", "b"]).patch(r#"[{"op":"remove","path":"/steps/d"},{"op":"add","path":"/steps/e","value":{"skill":"x","depends_on":["b"]}}]"#);
            run.undo().patch_rerun(r#"[{"op":"add","path":"/steps/b/input","value":2}]"#);
            run.run_steps(&["b", "d"]);
        }),
        (
            "self_patched",
            "self_patch: {}\nsteps: {plan: {skill: x}, each: {skill: x, foreach: '${{ payload.xs }}', depends_on: [plan]}}".to_owned(),
            |run| {
                run.dispatch_all().complete("plan", r#"{"patch":[{"op":"add","path":"/steps/act","value":{"skill":"x","input":"${{ steps.plan.output.n }}"}}],"n":1}"#);
                run.run_steps(&["act", "each[0]", "each[1]", "each[2]"]);
            },
        ),
        (
            "results",
            format!("{RETRY}steps: {{f: {{skill: x, foreach: [1, 1], input: 0, cache: {{enabled: true}}}}, g: {{skill: x, input: '${{{{ steps.f.output }}}}'}}}}"),
            |run| {
                run.dispatch_all().fail("f[0]", "broke", true).complete("f[1]", r#"{"n":1}"#).crash();
                run.next_timer().run_steps(&["g"]);
            },
        ),
        (
            "checkpoints",
            format!("on_failure: continue\n{RETRY}{}", each.replace("g:", "w: {skill: wait, input: {signal: go}}, g:")),
            |run| {
                run.dispatch_all()
                    .fail("f[0]", "broke", true)
                    .signal("other")
                    .complete("f[1]", "1")
                    .crash()
                    .next_timer();
                run.run_steps(&["f[0]"]).dispatch_all().fail("f[2]", "broke", false).signal("go");
            },
        ),
    ]
}

fn record(yaml: &str, play: fn(&mut Run)) -> Golden {
    let source = format!("kind: workflow\nname: t\nversion: 1.0.0\n{yaml}\n");
    let loaded = document::load(&source, &Limits::default()).unwrap();
    let document = loaded.canonical.clone();
    let start = Run::of_loaded(loaded).payload(r#"{"xs":["a",{"b":1},3]}"#);
    let mut run = start.limits(|limits| limits.continue_steps = 2).begin();
    play(&mut run);
    Golden {
        run: run.state.run,
        document,
        patched: run.plans.iter().skip(1).map(|(_, text)| text.clone()).collect(),
        rows: run.rows.iter().map(Row::of).collect(),
        status: run.status(),
        checkpoint_format: CHECKPOINT_FORMAT,
        checkpoint_sha256: Digest::of(&run.state.to_checkpoint()),
        checkpoints: run.checkpoints.iter().map(|(seq, bytes)| (*seq, to_hex(bytes))).collect(),
    }
}

#[test]
fn golden_runs_replay_for_ever() {
    if std::env::var_os("MILEPOST_WRITE_GOLDEN").is_some() {
        fs::create_dir_all(folder()).unwrap();
        for (name, yaml, play) in recordings() {
            let path = folder().join(format!("{name}.json"));
            if !path.exists() {
                fs::write(path, serde_json::to_string_pretty(&record(&yaml, play)).unwrap() + "\n").unwrap();
            }
        }
    }
    let files: Vec<PathBuf> = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= recordings().len(), "a golden run is missing");
    for file in files {
        let golden: Golden = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        replay(golden, &file.display().to_string());
    }
}

fn replay(golden: Golden, name: &str) {
    let texts = std::iter::once(&golden.document).chain(&golden.patched);
    let plans: Vec<Arc<Plan>> = texts.map(|text| Arc::new(document::load_stored(text).unwrap())).collect();
    // The last one knows all steps that there have ever been.
    let plan = plans.last().unwrap();
    let rows: Vec<EventRow> = golden.rows.into_iter().map(Row::into_row).collect();
    let events: Vec<Event> = rows.iter().map(|row| codec::decode(row, plan).unwrap()).collect();
    let again = codec::encode_all(&events, golden.run, plan, Timestamp(0));
    for ((row, event), again) in rows.iter().zip(&events).zip(again) {
        assert_eq!(again.idempotency_key, row.idempotency_key, "{name}: the key of event {}", row.seq);
        assert_eq!(codec::decode(&again, plan).unwrap(), *event, "{name}: event {}", row.seq);
    }
    let knowing = |mut state: RunState| {
        plans.iter().for_each(|plan| state.learn_plan(plan.clone()));
        state
    };
    let begun = || knowing(RunState::begin(golden.run, plans[0].clone(), &events[0]).unwrap());
    for length in 1..events.len() {
        begun().replay(&events[1..length]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let state = begun().replay(&events[1..]).unwrap();
    assert_eq!(state.status, golden.status, "{name}");
    if golden.checkpoint_format == CHECKPOINT_FORMAT {
        assert_eq!(Digest::of(&state.to_checkpoint()), golden.checkpoint_sha256, "{name}: the state is another");
    }
    for (seq, hex) in golden.checkpoints {
        let later = &events[usize::try_from(seq).unwrap()..];
        let patched = events.len() - later.len();
        let patched = events[..patched].iter().filter(|event| event.body.event_type() == "RunPatched").count();
        let (format, bytes) = (golden.checkpoint_format, from_hex(&hex));
        let read = RunState::from_checkpoint(golden.run, plans[patched].clone(), format, &bytes).unwrap();
        let after = knowing(read).replay(later).unwrap();
        assert_eq!(after.to_checkpoint(), state.to_checkpoint(), "{name}: from the checkpoint at {seq}");
    }
}

#[test]
fn event_ids_are_derived_from_run_and_number() {
    let id = |run, seq| EventId::of(run_id(run), seq).to_string();
    assert_eq!(id(1, 1), "e3f1d2a1-8961-80df-9d8f-a884ee5a3e6b");
    assert_eq!(id(1, 2), "c2251c3e-14e0-83d8-8c35-c7cba51f5f2f");
    assert_eq!(id(2, 1), "eddac60d-cab5-88d0-a2a8-de93dc4c61a8");
}

#[test]
fn idempotency_keys_are_these() {
    let mut run = Run::start("steps: {a: {skill: x}}", "{}");
    run.dispatch_all().crash().dispatch_all().signal("PAUSE").complete("a", "1").signal("RESUME");
    // The keys cover the plan; with another document they would be others.
    assert_eq!(run.plan.hash.to_string(), "715e6cb9b284fd137bcd1b6f264616f12ea5ecfcbe8dd490dbe48c86b15a6616");
    let keys: Vec<String> = run.rows.iter().map(|row| format!("{} {}", row.event_type, row.idempotency_key)).collect();
    assert_eq!(keys, KEYS);
}

// Worked out by another program: SHA-256 over run, step, occasion, type and plan, each preceded by its length.
const KEYS: &[&str] = &[
    "RunQueued 6dc3d99cbc63e69865682bc553fffc05c6be5230af4afdf9175413c05d09360d",
    "RunStarted 8cfacf56be42edda4723a7cd14151907a29111e180a238cd8ad9bcb7203f8006",
    "StepStarted 9126c2eced8c431bdf88f5eef327231ffdf20b6449e69857477eedaf59f950b6",
    "StepRetryScheduled 19209a87f0fe1a33806932f4c61e11b2b64e09f8e8faeaba067a0c57f4ecf6ba",
    "StepStarted 8eb8e4c65b4d6b96ccadb2b01bd6b16041bfb529d2d43925c5d5aec8e9dca794",
    "SignalAccepted 9ccbcb2fb1c551075f05b59a50d35c8f27f608936ad495a585d331280b2e21d6",
    "RunPaused e94d482de4ddf9453a31e4ead3b7f2223e3cb0e80e2bb4df9c1da3282023abf7",
    "StepCompleted 55bbc35f671591978977f04161ca17037c747d1752fbd76e3411dc18e159bf38",
    "SignalAccepted 4e2ab678aca509b506cef63fa423bc3ac73360c5d6f6f0a28af64f254a2e3434",
    "RunResumed 0e36b82e7a9669929667de9f5fb567a1989737f5e22bee2dd1c4795ad534af0a",
    "RunCompleted c8f3732dedf74716329ed977ad393ada85b0536aa08d9e6e9c308742867bc37c",
];
