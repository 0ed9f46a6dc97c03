//! Random graphs and random changes: what an update run has is what a run from scratch has, and it ran nothing that was
//! there.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Map, Value, json as value};

use super::begin::Start;
use super::harness::{Run, json, load, run_id};
use super::kept::SharedResults;
use crate::cache::StepSurroundings;
use crate::canonical;
use crate::codec;
use crate::event::{Body, StepRef};
use crate::hash::Digest;
use crate::plan::Rebuild;
use crate::run::{Command, StepOutlook, StepPreview};
use crate::status::RunStatus;

/// Payloads have so many fields.
const FIELDS: usize = 4;

#[derive(Clone, Debug)]
struct StepSpec {
    deps: u16,
    field: Option<usize>,
    each: bool,
    cached: bool,
    /// So many different outputs: with few, much that runs again has the output that it had.
    coarse: u8,
    skill: u8,
}

#[derive(Clone, Debug)]
enum Change {
    Field(usize, u8),
    Skill(usize, u8),
    Epoch(Option<usize>),
    Rebuild(usize),
    Crash,
    Nothing,
}

fn graph() -> impl Strategy<Value = Vec<StepSpec>> {
    let step = (any::<u16>(), prop::option::of(0..FIELDS), 0..5_u8, 0..6_u8, 1..5_u8).prop_map(
        |(deps, field, each, cached, coarse)| StepSpec {
            deps: deps & deps.rotate_left(3),
            field,
            each: each == 0,
            cached: cached > 0,
            coarse,
            skill: 0,
        },
    );
    prop::collection::vec(step, 1..=10)
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let change = prop_oneof![
        4 => (0..FIELDS, 0..3_u8).prop_map(|(field, to)| Change::Field(field, to)),
        2 => (0..10_usize, 0..2_u8).prop_map(|(step, to)| Change::Skill(step, to)),
        1 => prop::option::of(0..10_usize).prop_map(Change::Epoch),
        1 => (0..10_usize).prop_map(Change::Rebuild),
        1 => Just(Change::Crash),
        1 => Just(Change::Nothing),
    ];
    prop::collection::vec(prop::collection::vec(change, 0..=2), 1..=5)
}

fn id(index: usize) -> String {
    format!("s{index}")
}

fn document(steps: &[StepSpec]) -> String {
    let step = |(index, spec): (usize, &StepSpec)| {
        let mut input = value!({});
        if let Some(field) = spec.field {
            input["field"] = value!(format!("${{{{ payload.f{field} }}}}"));
        }
        for dep in (0..index).filter(|dep| spec.deps & (1 << dep) != 0) {
            input[id(dep)] = value!(format!("${{{{ steps.{}.output }}}}", id(dep)));
        }
        let mut step = value!({"skill": format!("x{}", spec.skill), "input": input, "cache": {"enabled": spec.cached}});
        if spec.each {
            step["foreach"] = value!("${{ payload.list }}");
            step["input"]["item"] = value!("${{ item }}");
        }
        (id(index), step)
    };
    let steps: Map<String, Value> = steps.iter().enumerate().map(step).collect();
    format!("steps: {}", Value::Object(steps))
}

/// What a skill makes of its input: the same of the same, and not much.
fn work(steps: &[StepSpec], name: &str, input: &str) -> String {
    let index: usize = name[1..].split('[').next().unwrap().parse().unwrap();
    let bytes = Digest::of_parts([&index.to_be_bytes()[..], &[steps[index].skill], input.as_bytes()]).0;
    format!("{{\"is\":{}}}", bytes[0] % steps[index].coarse)
}

struct World {
    steps: Vec<StepSpec>,
    fields: [u8; FIELDS],
    runs: u128,
}

impl World {
    fn payload(&self) -> String {
        let mut payload = value!({"list": [self.fields[0], 7, self.fields[1]]});
        for (field, is) in self.fields.iter().enumerate() {
            payload[format!("f{field}")] = value!(is);
        }
        canonical::write(&payload)
    }

    fn start(&mut self, results: &SharedResults, rebuild: &BTreeSet<u32>) -> Run {
        self.next(results, rebuild).begin()
    }

    fn next(&mut self, results: &SharedResults, rebuild: &BTreeSet<u32>) -> Start {
        self.runs += 1;
        let (run, payload) = (run_id(self.runs), self.payload());
        let rebuild: Vec<u32> = rebuild.iter().copied().collect();
        let rebuild = (!rebuild.is_empty()).then_some(Rebuild::Steps(rebuild));
        let start = Run::of_loaded(load(&document(&self.steps))).payload(&payload).results(results);
        start
            .limits(|limits| limits.continue_steps = 4)
            .request(|request| (request.run, request.rebuild) = (run, rebuild))
    }

    fn finish(&self, run: &mut Run, crashes: bool) {
        for round in 0.. {
            run.dispatch_all();
            if crashes && round % 2 == 0 {
                run.evict().crash().dispatch_all();
            }
            let Some((step, task)) = run.tasks.pop_first() else { break };
            let name = step.name(&run.plan);
            let output = work(&self.steps, &name, run.input(&name));
            run.command(Command::Complete { task, output: json(&output) }).unwrap();
        }
        run.is(RunStatus::Completed);
    }
}

/// Every step's output.
fn outputs(run: &mut Run) -> Vec<Value> {
    // All that may have been forgotten.
    for row in &run.rows {
        if let Ok(Some(json)) = codec::carried_value(row) {
            run.state.learn(row.seq, json);
        }
    }
    let steps = 0..run.plan.steps.len() as u32;
    steps.map(|step| run.state.step_output(StepRef::whole(step)).unwrap().unwrap().to_value()).collect()
}

/// The keys of what ran, but for steps that had to.
fn ran(run: &Run, forced: &BTreeSet<u32>) -> Vec<Digest> {
    let key = |event: &crate::event::Event| match &event.body {
        Body::StepStarted(started) if !forced.contains(&event.step.unwrap().step) => started.cache_key,
        _ => None,
    };
    run.events.iter().filter_map(key).collect()
}

/// What a preview promised, and what then happened, step by step.
fn kept_its_word(foreseen: &[StepPreview], run: &Run) -> Result<(), TestCaseError> {
    let hits = |step: u32, item: bool| {
        let taken = |event: &&crate::event::Event| {
            event.step.is_some_and(|at| at.step == step && at.item.is_some() == item)
                && matches!(event.body, Body::StepReused(_))
        };
        run.events.iter().filter(taken).count() as u32
    };
    for step in foreseen {
        let told = || format!("{} was foreseen as {step:?}\n{}", run.plan.step(step.step).id, run.log());
        match (&step.outlook, step.items) {
            (_, Some(items)) => {
                let reused = hits(step.step, true);
                prop_assert!((items.reuse..=items.reuse + items.unknown).contains(&reused), "{}", told());
                prop_assert_eq!(items.total, items.run + items.reuse + items.unknown, "{}", told());
            }
            (StepOutlook::Reused { .. }, None) => prop_assert_eq!(hits(step.step, false), 1, "{}", told()),
            (StepOutlook::Runs(_), None) => prop_assert_eq!(hits(step.step, false), 0, "{}", told()),
            (StepOutlook::Unknown(on), None) => prop_assert!(!on.is_empty(), "{}", told()),
            (StepOutlook::Fails(_) | StepOutlook::Skipped(_), None) => prop_assert!(false, "{}", told()),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(200), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_update_has_what_a_run_from_scratch_has_and_runs_nothing_that_is_there(
        steps in graph(),
        updates in changes(),
    ) {
        let results = SharedResults::default();
        let mut world = World { steps, fields: [0; FIELDS], runs: 0 };
        let mut base = world.start(&results, &BTreeSet::new());
        world.finish(&mut base, false);
        for update in updates {
            let (mut rebuild, mut crashes) = (BTreeSet::new(), false);
            for change in &update {
                let count = world.steps.len();
                match *change {
                    Change::Field(field, to) => world.fields[field] = to,
                    Change::Skill(step, to) => world.steps[step % count].skill = to,
                    Change::Epoch(None) => results.borrow_mut().surroundings.epoch += 1,
                    Change::Epoch(Some(step)) => {
                        let around = &mut results.borrow_mut().surroundings.steps;
                        around.entry(id(step % count).into()).or_insert_with(StepSurroundings::default).epoch += 1;
                    }
                    Change::Rebuild(step) => drop(rebuild.insert(step % count)),
                    Change::Crash => crashes = true,
                    Change::Nothing => {}
                }
            }
            // Steps are numbered in the order of their ids.
            let mut ids: Vec<String> = (0..world.steps.len()).map(id).collect();
            ids.sort();
            let rebuild = rebuild.into_iter().map(|step| ids.iter().position(|other| *other == id(step)).unwrap() as u32).collect();
            let before: BTreeSet<Digest> = results.borrow().kept.keys().map(|(key, _)| *key).collect();
            let foreseen = world.next(&results, &rebuild).preview();
            let mut run = world.start(&results, &rebuild);
            world.finish(&mut run, crashes);
            kept_its_word(&foreseen, &run)?;
            let again: Vec<Digest> = ran(&run, &rebuild).into_iter().filter(|key| before.contains(key)).collect();
            prop_assert!(again.is_empty(), "ran what was there\n{}", run.log());
            let mut scratch = world.start(&SharedResults::default(), &BTreeSet::new());
            world.finish(&mut scratch, false);
            prop_assert_eq!(outputs(&mut run), outputs(&mut scratch), "{}", run.log());
        }
    }
}
