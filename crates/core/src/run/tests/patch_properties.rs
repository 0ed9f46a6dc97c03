//! Random documents, patched at random moments in random ways, with crashes in between: every invariant holds after every
//! command, what has completed never runs again unless somebody says so, and in the end exactly the steps of the last plan
//! are done.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::harness::Run;
use super::properties::{act, drive, mend};
use super::random::{Op, op, spec};
use crate::document;
use crate::event::Body;
use crate::run::state::Phase;
use crate::status::{RunStatus, SkipReason};

/// One thing that a patch does to the steps of a document; the numbers choose which.
#[derive(Clone, Debug)]
enum Edit {
    Add(u8, u8),
    Remove(u8),
    Input(u8, u8),
    Edges(u8, u8),
    Retry(u8),
    Foreach(u8, u8),
}

#[derive(Clone, Debug)]
enum Deed {
    Op(Op),
    Patch {
        edits: Vec<Edit>,
        rerun: bool,
    },
    Undo,
    /// A task under way returns a patch.
    Returned {
        which: u8,
        edits: Vec<Edit>,
    },
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        4 => (any::<u8>(), any::<u8>()).prop_map(|(deps, kind)| Edit::Add(deps, kind)),
        2 => any::<u8>().prop_map(Edit::Remove),
        3 => (any::<u8>(), any::<u8>()).prop_map(|(which, value)| Edit::Input(which, value)),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(which, deps)| Edit::Edges(which, deps)),
        1 => any::<u8>().prop_map(Edit::Retry),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(which, list)| Edit::Foreach(which, list)),
    ]
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    prop::collection::vec(edit(), 1..4)
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => op().prop_map(Deed::Op),
        3 => (edits(), any::<bool>()).prop_map(|(edits, rerun)| Deed::Patch { edits, rerun }),
        1 => Just(Deed::Undo),
        2 => (any::<u8>(), edits()).prop_map(|(which, edits)| Deed::Returned { which, edits }),
    ]
}

/// The operations that make these edits of the document that the run has now.
fn operations(run: &Run, edits: &[Edit]) -> String {
    let plain = document::without_numbers(&run.text()).unwrap();
    let document: Value = serde_json::from_str(&plain).unwrap();
    let mut steps = document["steps"].as_object().unwrap().clone();
    for (number, edit) in edits.iter().enumerate() {
        make(&mut steps, edit, run.events.len() * 10 + number);
    }
    json!([{"op": "replace", "path": "/steps", "value": steps}]).to_string()
}

fn ids(steps: &Map<String, Value>) -> Vec<String> {
    steps.keys().cloned().collect()
}

/// Dependencies only ever go to ids that come before, so there is no circle.
fn earlier(steps: &Map<String, Value>, id: &str, mask: u8) -> Vec<String> {
    let before = ids(steps).into_iter().filter(|other| order_of(other) < order_of(id));
    before.enumerate().filter(|(at, _)| mask & (1 << (at % 8)) != 0).map(|(_, other)| other).collect()
}

fn order_of(id: &str) -> (usize, String) {
    (id[1..].parse().unwrap_or(0), id.to_owned())
}

fn make(steps: &mut Map<String, Value>, edit: &Edit, fresh: usize) {
    let pick = |steps: &Map<String, Value>, which: u8| ids(steps)[usize::from(which) % steps.len()].clone();
    match *edit {
        Edit::Add(deps, kind) => {
            let id = format!("s{}", 100 + fresh);
            let deps = earlier(steps, &id, deps);
            let step = match kind % 4 {
                0 => json!({"skill": "sleep", "input": {"ms": 500}, "depends_on": deps}),
                1 => json!({"skill": "x", "foreach": "${{ payload.three }}", "depends_on": deps}),
                _ => json!({"skill": "x", "depends_on": deps}),
            };
            steps.insert(id, step);
        }
        Edit::Remove(which) if steps.len() > 1 => {
            let id = pick(steps, which);
            steps.remove(&id);
            for step in steps.values_mut() {
                if step["input"]["of"].as_str().is_some_and(|of| of.contains(&format!("steps.{id}."))) {
                    step["input"] = json!({});
                }
                if let Some(deps) = step.get_mut("depends_on").and_then(Value::as_array_mut) {
                    deps.retain(|dep| dep != &Value::from(id.as_str()));
                }
            }
        }
        Edit::Remove(_) => {}
        Edit::Input(which, value) => {
            let id = pick(steps, which);
            let step = &mut steps[&id];
            if step["skill"] == "x" {
                step["input"] = json!({"value": value});
            }
        }
        Edit::Edges(which, deps) => {
            let id = pick(steps, which);
            let deps = earlier(steps, &id, deps);
            steps[&id]["depends_on"] = json!(deps);
        }
        Edit::Retry(which) => {
            let id = pick(steps, which);
            steps[&id]["retry"] = json!({"max_attempts": 1 + which % 3, "backoff_ms": 0});
        }
        Edit::Foreach(which, list) => {
            let id = pick(steps, which);
            let lists = ["${{ payload.none }}", "${{ payload.one }}", "${{ payload.three }}"];
            match lists.get(usize::from(list % 4)) {
                Some(list) => steps[&id]["foreach"] = json!(list),
                None => drop(steps[&id].as_object_mut().unwrap().remove("foreach")),
            }
        }
    }
}

fn do_deed(run: &mut Run, deed: &Deed) {
    match deed {
        Deed::Op(op) => act(run, op),
        Deed::Patch { edits, rerun } => {
            let ops = operations(run, edits);
            // Some edits cancel each other out, and some lists need items where there are none.
            let Ok(plan) = run.patched(&ops) else { return };
            let completed = completed(run);
            let patch = run.patch_run(plan, Some(&ops), *rerun);
            if run.send_patch(patch).is_ok() && !rerun {
                assert!(all_of(&completed, run), "what had completed runs again\n{}", run.log());
            }
        }
        Deed::Undo => {
            if run.state.newest_patch().is_some() {
                let completed = completed(run);
                if run.try_undo().is_ok() {
                    assert!(all_of(&completed, run), "an undone patch takes results\n{}", run.log());
                }
            }
        }
        Deed::Returned { which, edits } => {
            let tasks: Vec<_> = run.tasks.values().copied().collect();
            let Some(task) = tasks.get(usize::from(*which) % tasks.len().max(1)).copied() else { return };
            let output = format!(r#"{{"patch":{}}}"#, operations(run, edits));
            let output = crate::json::Json::parse(&output).unwrap();
            let _ = run.command(crate::run::Command::Complete { task, output });
        }
    }
}

/// Who has completed, by the event that says so.
fn completed(run: &Run) -> BTreeMap<String, u64> {
    let live = run.plan.order.iter().map(|index| (run.plan.step(*index), run.state.steps[*index as usize]));
    live.filter(|(_, state)| state.phase == Phase::Completed)
        .map(|(step, state)| (step.id.to_string(), state.output_seq))
        .collect()
}

/// Steps without items may complete with the patch; those that had before still have.
fn all_of(before: &BTreeMap<String, u64>, run: &Run) -> bool {
    let now = completed(run);
    before.iter().all(|(id, seq)| now.get(id) == Some(seq))
}

/// A run that has completed did all that its last plan asks for and has nothing else to show.
fn check_end(run: &mut Run) {
    if run.status() != RunStatus::Completed {
        return;
    }
    for (step, state) in run.plan.steps.iter().zip(&run.state.steps) {
        let fits = match state.phase {
            Phase::Skipped(SkipReason::Removed) => step.removed,
            // For a failure that is gone, behind something that an operator skipped.
            Phase::Completed | Phase::Skipped(_) => !step.removed,
            _ => false,
        };
        assert!(fits, "`{}` ends as {:?}\n{}", step.id, state.phase, run.log());
    }
    let last: Vec<String> = run.plan.last_steps.iter().map(|step| run.plan.step(*step).id.to_string()).collect();
    let missing: Vec<u64> = match run.state.output() {
        Ok(_) => Vec::new(),
        Err(missing) => missing,
    };
    for seq in missing {
        let row = &run.rows[usize::try_from(seq).unwrap() - 1];
        run.state.learn(seq, crate::codec::carried_value(row).unwrap().unwrap());
    }
    let output = run.output();
    assert!(output.as_object().unwrap().keys().all(|id| last.contains(id)), "{output}\n{}", run.log());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_run_that_is_patched_again_and_again_keeps_the_rules_and_comes_to_its_end(
        spec in spec(),
        deeds in prop::collection::vec(deed(), 0..40),
    ) {
        let mut run = spec.growing().start();
        for deed in &deeds {
            run.advance_ms(1500);
            do_deed(&mut run, deed);
        }
        drive(&mut run);
        if spec.can_succeed() {
            mend(&mut run);
        }
        check_end(&mut run);
        let patches = run.events.iter().filter(|event| matches!(event.body, Body::RunPatched(_))).count();
        prop_assert_eq!(patches + 1, run.plans.len());
    }
}
