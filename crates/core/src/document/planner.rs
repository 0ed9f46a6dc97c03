//! From a tree to a plan: the document's own keys, then its steps, then their order.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::compile::template;
use super::node::{Data, Node};
use super::problem::{Problems, Trail};
use super::schema::PayloadSchema;
use super::section::Section;
use super::settings::{self, Settings};
use super::steps::{self, Planner, Written};
use super::{extras, graph};
use crate::expression::{Bindings, CompileError};
use crate::hash::Digest;
use crate::limits::Limits;
use crate::plan::{Change, Concurrency, DocumentKind, OnFailure, OnLimit, Plan, PlanStep, StepIndex};

const KEYS: [&str; 12] = [
    "kind",
    "name",
    "version",
    "description",
    "params",
    "defaults",
    "on_failure",
    "concurrency",
    "approval",
    "steps",
    "changes",
    "tunables",
];
static ROOT: Trail<'static> = Trail::Root;

/// Plans a document. What it returns counts only when no problem was added.
pub(super) fn plan(node: &Node, hash: Digest, limits: &Limits, problems: &mut Problems) -> Option<Plan> {
    let section = Section::of(node, &ROOT, problems)?;
    section.only(&KEYS, problems);
    section.text("description", problems);
    let kinds = [
        ("workflow", DocumentKind::Workflow),
        ("pipeline", DocumentKind::Pipeline),
        ("experiment", DocumentKind::Experiment),
    ];
    let on_failure = [("stop", OnFailure::Stop), ("continue", OnFailure::Continue)];
    let kind = section.choice("kind", &kinds, problems).unwrap_or(DocumentKind::Workflow);
    let name = name(&section, limits, problems);
    let version = section.name("version", limits.name_chars, problems).unwrap_or("0.0.0");
    let params = params(&section, problems);
    let on_failure = section.choice("on_failure", &on_failure, problems).unwrap_or(OnFailure::Stop);
    let concurrency = concurrency(&section, limits, problems);
    let approval = section.flag("approval", problems).unwrap_or(false);
    let Steps { steps, order, last_steps, changes, index } = plan_steps(&section, limits, problems)?;
    Some(Plan {
        hash,
        kind,
        name: name.into(),
        version: version.into(),
        params,
        approval,
        on_failure,
        concurrency,
        steps,
        order,
        last_steps,
        changes,
        index,
    })
}

/// The document's name is also a tag and stands in addresses, so it has few characters to choose from.
fn name<'n>(section: &Section<'n, '_>, limits: &Limits, problems: &mut Problems) -> &'n str {
    section.required("name", problems);
    let Some(name) = section.name("name", limits.name_chars, problems) else { return "" };
    let odd = name.chars().find(|c| !c.is_ascii_alphanumeric() && !"._-".contains(*c));
    let fault = match odd {
        Some(odd) => format!("may not have `{odd}` in it; letters, digits, `.`, `_` and `-` may be used"),
        None if name.starts_with(['.', '-']) => "starts with a letter, a digit or `_`".to_owned(),
        None => return name,
    };
    let at = section.get("name").map_or(section.at, |entry| entry.node.at);
    problems.add("bad_name", at, &ROOT.key("name"), format!("the name {fault}"));
    name
}

fn params(section: &Section<'_, '_>, problems: &mut Problems) -> Option<PayloadSchema> {
    let entry = section.get("params")?;
    let trail = ROOT.key("params");
    Section::of(&entry.node, &trail, problems)?;
    let compiled = PayloadSchema::compile(&entry.node.to_value());
    compiled
        .map_err(|reason| problems.add("bad_schema", entry.node.at, &trail, format!("not a JSON Schema: {reason}")))
        .ok()
}

fn concurrency(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Concurrency> {
    let trail = ROOT.key("concurrency");
    let inner = Section::of(&section.get("concurrency")?.node, &trail, problems)?;
    inner.only(&["key", "limit", "on_limit"], problems);
    inner.required("limit", problems);
    let limit = inner.integer("limit", 1, u64::from(u32::MAX), problems).unwrap_or(1);
    let choices = [("queue", OnLimit::Queue), ("reject", OnLimit::Reject)];
    let on_limit = inner.choice("on_limit", &choices, problems).unwrap_or(OnLimit::Queue);
    let key = inner.required("key", problems)?;
    if matches!(key.node.data, Data::Null | Data::List(_) | Data::Map(_)) {
        inner.wrong_type(key, "a text, a number or a boolean", None, problems);
    }
    let no_steps =
        |_: &str| Err(CompileError::new("unknown_name", "`steps` is not known before the run starts".into()));
    let bindings = Bindings::new(limits, &no_steps, false);
    let key = template(&key.node, &trail.key("key"), &bindings, problems);
    Some(Concurrency { key, limit: u32::try_from(limit).unwrap_or(u32::MAX), on_limit })
}

struct Steps {
    steps: Vec<PlanStep>,
    order: Vec<StepIndex>,
    last_steps: Vec<StepIndex>,
    changes: BTreeMap<Arc<str>, Change>,
    index: HashMap<Arc<str>, StepIndex>,
}

fn plan_steps(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Option<Steps> {
    let defaults = defaults(section, limits, problems);
    let entry = section.required("steps", problems)?;
    let written = steps::find(&entry.node, limits, problems);
    if written.len() > limits.steps {
        let message = format!("the document has {} steps; {} are allowed", written.len(), limits.steps);
        problems.add("too_many_steps", entry.at, &ROOT.key("steps"), message);
        return None;
    }
    let ids: Vec<Arc<str>> = written.iter().map(|step| Arc::from(step.id)).collect();
    let index: HashMap<Arc<str>, StepIndex> = ids.iter().cloned().zip(0..).collect();
    let changes = extras(section, &index, problems);
    let planner = Planner { limits, defaults: &defaults, index: &index, ids: &ids, suggestions_left: Cell::new(50) };
    let planned: Vec<Option<PlanStep>> =
        written.iter().zip(&ids).map(|(step, id)| planner.plan(step, id, problems)).collect();
    let steps = planned.into_iter().collect::<Option<Vec<PlanStep>>>()?;
    connect(steps, index, changes, &written, problems)
}

fn defaults(section: &Section<'_, '_>, limits: &Limits, problems: &mut Problems) -> Settings {
    let trail = ROOT.key("defaults");
    let inner = section.get("defaults").and_then(|entry| Section::of(&entry.node, &trail, problems));
    let Some(inner) = inner else { return Settings::default() };
    inner.only(&settings::KEYS, problems);
    Settings::read(&inner, &Settings::default(), limits, problems)
}

fn extras(
    section: &Section<'_, '_>,
    index: &HashMap<Arc<str>, StepIndex>,
    problems: &mut Problems,
) -> BTreeMap<Arc<str>, Change> {
    let changes = section
        .get("changes")
        .map(|entry| extras::read_changes(&entry.node, &ROOT.key("changes"), &|id| index.get(id).copied(), problems));
    if let Some(entry) = section.get("tunables") {
        extras::check_tunables(&entry.node, &ROOT.key("tunables"), problems);
    }
    changes.unwrap_or_default()
}

/// Fills in who depends on whom, and the order.
fn connect(
    mut steps: Vec<PlanStep>,
    index: HashMap<Arc<str>, StepIndex>,
    changes: BTreeMap<Arc<str>, Change>,
    written: &[Written<'_>],
    problems: &mut Problems,
) -> Option<Steps> {
    let depends_on: Vec<Vec<StepIndex>> = steps.iter().map(|step| step.depends_on.clone()).collect();
    let dependents = graph::dependents(&depends_on);
    let order = match graph::order(&depends_on, &dependents) {
        Ok(order) => order,
        Err(circles) => {
            circles.iter().for_each(|circle| refuse_circle(circle, &steps, written, problems));
            return None;
        }
    };
    let last_steps = (0..).zip(&dependents).filter(|(_, after)| after.is_empty()).map(|(step, _)| step).collect();
    for (step, dependents) in steps.iter_mut().zip(dependents) {
        step.dependents = dependents;
    }
    Some(Steps { steps, order, last_steps, changes, index })
}

fn refuse_circle(circle: &[StepIndex], steps: &[PlanStep], written: &[Written<'_>], problems: &mut Problems) {
    const SHOWN: usize = 20;
    problems.add_circle(circle.iter().map(|step| steps[*step as usize].id.clone()).collect());
    let ids = circle.iter().map(|step| &*steps[*step as usize].id);
    let mut way: Vec<&str> = if circle.len() > SHOWN { ids.take(SHOWN).collect() } else { ids.collect() };
    if circle.len() > SHOWN {
        way.extend(["…", way[0]]);
    }
    let first = &written[circle[0] as usize];
    let steps = ROOT.key("steps");
    let message = format!("steps wait for each other: {}", way.join(" → "));
    problems.add("cycle", first.at, &steps.key(first.id), message);
}
