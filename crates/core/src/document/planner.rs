//! From a tree to a plan: the document's own keys, then its steps, then their order.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::compile::template;
use super::node::{Data, Node};
use super::numbered::Numbering;
use super::problem::{Problems, Trail};
use super::schema::PayloadSchema;
use super::section::Section;
use super::settings::{self, Settings};
use super::steps::{self, Planner, Written};
use super::{extras, graph};
use crate::canonical::glance;
use crate::expression::{Bindings, CompileError};
use crate::hash::Digest;
use crate::limits::Limits;
use crate::plan::{Change, Concurrency, DocumentKind, OnFailure, OnLimit, Plan, PlanStep, SelfPatch, StepIndex};

const KEYS: [&str; 13] = [
    "kind",
    "name",
    "version",
    "description",
    "params",
    "defaults",
    "on_failure",
    "concurrency",
    "approval",
    "self_patch",
    "steps",
    "changes",
    "tunables",
];
static ROOT: Trail<'static> = Trail::Root;

/// Plans a document; of one that a patch made, `numbering` says which numbers its steps have. What it returns counts only
/// when no problem was added.
pub(super) fn plan(
    node: &Node,
    canonical: &str,
    numbering: Option<&Numbering>,
    limits: &Limits,
    problems: &mut Problems,
) -> Option<Plan> {
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
    let self_patch = self_patch(&section, problems);
    let Steps { steps, order, last_steps, changes, index } = plan_steps(&section, numbering, limits, problems)?;
    let of_schema = params.as_ref().map_or(0, PayloadSchema::memory);
    Some(Plan {
        hash: Digest::of(canonical.as_bytes()),
        memory: glance(canonical).memory(canonical).saturating_add(of_schema),
        kind,
        name: name.into(),
        version: version.into(),
        params,
        approval,
        on_failure,
        concurrency,
        self_patch,
        after: numbering.map(|numbering| numbering.after),
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

/// Without this section, what steps return is data and nothing else.
fn self_patch(section: &Section<'_, '_>, problems: &mut Problems) -> Option<SelfPatch> {
    const MAX_PATCHES: u32 = 10;
    const MAX_STEPS: u32 = 100;
    let trail = ROOT.key("self_patch");
    let inner = Section::of(&section.get("self_patch")?.node, &trail, problems)?;
    inner.only(&["max_patches", "max_steps"], problems);
    let mut number = |key, otherwise| {
        let given = inner.integer(key, 1, u64::from(u32::MAX), problems);
        given.map_or(otherwise, |number| u32::try_from(number).unwrap_or(u32::MAX))
    };
    Some(SelfPatch { max_patches: number("max_patches", MAX_PATCHES), max_steps: number("max_steps", MAX_STEPS) })
}

struct Steps {
    steps: Vec<PlanStep>,
    order: Vec<StepIndex>,
    last_steps: Vec<StepIndex>,
    changes: BTreeMap<Arc<str>, Change>,
    index: HashMap<Arc<str>, StepIndex>,
}

impl Steps {
    fn without_removed(mut self) -> Steps {
        self.order.retain(|step| !self.steps[*step as usize].removed);
        self.last_steps.retain(|step| !self.steps[*step as usize].removed);
        self
    }
}

fn plan_steps(
    section: &Section<'_, '_>,
    numbering: Option<&Numbering>,
    limits: &Limits,
    problems: &mut Problems,
) -> Option<Steps> {
    let defaults = defaults(section, limits, problems);
    let entry = section.required("steps", problems)?;
    let written = steps::find(&entry.node, limits, problems);
    if written.len() > limits.steps {
        let message = format!("the document has {} steps; {} are allowed", written.len(), limits.steps);
        problems.add("too_many_steps", entry.at, &ROOT.key("steps"), message);
        return None;
    }
    let ids: Vec<Arc<str>> = written.iter().map(|step| Arc::from(step.id)).collect();
    let index = match numbering {
        None => ids.iter().cloned().zip(0..).collect(),
        Some(numbering) => numbering.index_of(&ids, problems)?,
    };
    let changes = extras(section, &index, problems);
    let planner = Planner { limits, defaults: &defaults, index: &index, ids: &ids, suggestions_left: Cell::new(50) };
    let planned: Vec<Option<PlanStep>> =
        written.iter().zip(&ids).map(|(step, id)| planner.plan(step, id, problems)).collect();
    let steps = planned.into_iter().collect::<Option<Vec<PlanStep>>>()?;
    match numbering {
        None => connect(steps, index, changes, &written, problems),
        // A patch made it of a document without circles, so none is told of at its place.
        Some(numbering) => {
            Some(connect(numbering.place(steps), numbering.all(), changes, &[], problems)?.without_removed())
        }
    }
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
    let at = written.get(circle[0] as usize).map_or_else(Default::default, |first| first.at);
    let all = ROOT.key("steps");
    let message = format!("steps wait for each other: {}", way.join(" → "));
    problems.add("cycle", at, &all.key(&steps[circle[0] as usize].id), message);
}
