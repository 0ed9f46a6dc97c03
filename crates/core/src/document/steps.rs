//! The steps of a document: found by id whether they are written as a map or a list, then planned one by one.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::builtin;
use super::compile::{expression, template};
use super::near::near_name;
use super::node::{Data, Entry, Node, Position};
use super::problem::{Problems, Trail};
use super::push;
use super::section::{Section, name_fault};
use super::settings::{self, Settings};
use crate::canonical;
use crate::expression::{Bindings, CompileError, Expression, Template};
use crate::hash::Digest;
use crate::limits::Limits;
use crate::patience;
use crate::plan::{PlanStep, Push, Runtime, StepConcurrency, StepIndex};

const KEYS: [&str; 7] = ["skill", "description", "input", "depends_on", "when", "foreach", "concurrency"];

/// The way to the steps.
static STEPS: Trail<'static> = Trail::Key(&Trail::Root, "steps");

/// A step as it is written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'n> {
    pub(super) id: &'n str,
    pub(super) at: Position,
    pub(super) node: &'n Node,
    /// Whether it stands in a list, with its id as a key.
    in_list: bool,
}

/// All steps, sorted by id.
pub(super) fn find<'n>(node: &'n Node, limits: &Limits, problems: &mut Problems) -> Vec<Written<'n>> {
    let mut steps = match &node.data {
        Data::Map(entries) => entries.iter().map(by_key).collect(),
        Data::List(items) => by_id(items, problems),
        _ => {
            let message = format!("`steps` is a map by id or a list, not {}", node.kind());
            problems.add("wrong_type", node.at, &STEPS, message);
            return Vec::new();
        }
    };
    if node.as_map().is_some_and(<[_]>::is_empty) || node.as_list().is_some_and(<[_]>::is_empty) {
        problems.add("bad_value", node.at, &STEPS, "a document has at least one step");
    }
    steps.sort_by(|a, b| a.id.cmp(b.id));
    refuse_repeats(&mut steps, problems);
    for step in &steps {
        check_id(step, limits, problems);
    }
    steps
}

fn by_key(entry: &Entry) -> Written<'_> {
    Written { id: &entry.key, at: entry.at, node: &entry.node, in_list: false }
}

fn by_id<'n>(items: &'n [Node], problems: &mut Problems) -> Vec<Written<'n>> {
    let mut steps = Vec::with_capacity(items.len());
    for (i, node) in items.iter().enumerate() {
        let trail = STEPS.index(i);
        let Some(section) = Section::of(node, &trail, problems) else { continue };
        if section.required("id", problems).is_none() {
            continue;
        }
        let at = section.get("id").map_or(node.at, |entry| entry.node.at);
        steps.extend(section.text("id", problems).map(|id| Written { id, at, node, in_list: true }));
    }
    steps
}

/// The sort before was stable, so the later one of two is the repeat.
fn refuse_repeats(steps: &mut Vec<Written<'_>>, problems: &mut Problems) {
    steps.dedup_by(|later, earlier| {
        let repeated = later.id == earlier.id;
        if repeated {
            problems.add(
                "duplicate_step",
                later.at,
                &STEPS.key(later.id),
                format!("the step `{}` appears twice", later.id),
            );
        }
        repeated
    });
}

fn check_id(step: &Written<'_>, limits: &Limits, problems: &mut Problems) {
    let mut chars = step.id.chars();
    let fits = chars.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic())
        && chars.all(|c| c == '_' || c == '-' || c.is_ascii_alphanumeric());
    let fault = name_fault(step.id, limits.name_chars).or_else(|| {
        (!fits).then(|| "may have only letters, digits, `_` and `-`, and may not start with a digit".into())
    });
    if let Some(fault) = fault {
        problems.add("bad_name", step.at, &STEPS.key(step.id), format!("the step id `{}` {fault}", step.id));
    }
}

/// What is said of a step that is referred to and does not exist.
pub(super) fn no_such_step(id: &str) -> String {
    format!("there is no step `{id}`")
}

/// What planning a step needs to know of the rest.
pub(super) struct Planner<'a> {
    pub(super) limits: &'a Limits,
    pub(super) defaults: &'a Settings,
    pub(super) index: &'a HashMap<Arc<str>, StepIndex>,
    /// The ids in their order, for suggestions.
    pub(super) ids: &'a [Arc<str>],
    /// Unknown steps that still get a suggestion: each looks at every id.
    pub(super) suggestions_left: Cell<u32>,
}

impl Planner<'_> {
    /// Plans one step, `None` when what it is cannot be told.
    pub(super) fn plan(&self, written: &Written<'_>, id: &Arc<str>, problems: &mut Problems) -> Option<PlanStep> {
        let trail = STEPS.key(written.id);
        let section = Section::of(written.node, &trail, problems)?;
        let id_key = written.in_list.then_some(&"id");
        let known: Vec<&str> = KEYS.iter().chain(&settings::KEYS).chain(id_key).copied().collect();
        section.only(&known, problems);
        section.text("description", problems);
        section.required("skill", problems);
        let skill = section.name("skill", self.limits.name_chars, problems).unwrap_or_default();
        patience::look();
        let settings = Settings::read(&section, self.defaults, self.limits, problems);
        let compiled = self.compile(&section, problems);
        let input_at = trail.key("input");
        builtin::check(skill, section.get("input").map(|entry| &entry.node), section.at, &input_at, problems);
        let depends_on = self.depends_on(&section, &compiled, problems);
        let action = builtin::action(skill);
        let push = push::of_step(&section, settings.push.as_ref(), settings.runtime, action, problems);
        let digest = digest(skill, &section, &settings);
        Some(step(id.clone(), skill, settings, compiled, depends_on, push, digest))
    }

    fn compile(&self, section: &Section<'_, '_>, problems: &mut Problems) -> Compiled {
        let find = |id: &str| self.find(id);
        let once = Bindings::new(self.limits, &find, false);
        let foreach = section.get("foreach");
        let each = Bindings::new(self.limits, &find, foreach.is_some());
        let boolean = |data: &Data| matches!(data, Data::Bool(_));
        let list = |data: &Data| matches!(data, Data::List(_));
        let when = section.get("when");
        Compiled {
            input: match section.get("input") {
                Some(entry) => template(&entry.node, &section.trail.key("input"), &each, problems),
                None => Template::new(crate::expression::Part::Constant(Value::Object(Map::new()))),
            },
            when: when.and_then(|e| expression(&e.node, &section.trail.key("when"), &once, boolean, problems)),
            foreach: foreach.and_then(|e| expression(&e.node, &section.trail.key("foreach"), &once, list, problems)),
            concurrency: self.concurrency(section, &each, problems),
        }
    }

    /// Of tasks of workers: what is carried out in the server's own process is not counted.
    fn concurrency(
        &self,
        section: &Section<'_, '_>,
        bindings: &Bindings<'_>,
        problems: &mut Problems,
    ) -> Option<StepConcurrency> {
        let entry = section.get("concurrency")?;
        let trail = section.trail.key("concurrency");
        let text = |key| section.get(key).and_then(|entry| entry.node.as_text());
        if text("skill").is_some_and(builtin::is_built_in) && !matches!(text("runtime"), Some("queue" | "push")) {
            let message = "`concurrency` of a step counts tasks of workers, and this skill is built in; \
                           limit the runs instead, by `concurrency` of the document";
            problems.add("bad_value", entry.at, &trail, message);
        }
        let inner = Section::of(&entry.node, &trail, problems)?;
        inner.only(&["key", "limit"], problems);
        inner.required("limit", problems);
        let limit = inner.integer("limit", 1, u64::from(u32::MAX), problems).unwrap_or(1);
        let key = inner.required("key", problems)?;
        if matches!(key.node.data, Data::Null | Data::List(_) | Data::Map(_)) {
            inner.wrong_type(key, "a text, a number or a boolean", None, problems);
        }
        let key = template(&key.node, &trail.key("key"), bindings, problems);
        Some(StepConcurrency { key, limit: u32::try_from(limit).unwrap_or(u32::MAX) })
    }

    fn find(&self, id: &str) -> Result<StepIndex, CompileError> {
        self.index.get(id).copied().ok_or_else(|| {
            let left = self.suggestions_left.get();
            self.suggestions_left.set(left.saturating_sub(1));
            let near = (left > 0).then(|| near_name(id, self.ids.iter().map(|id| &**id))).flatten();
            CompileError {
                suggestion: near.map(|near| format!("did you mean `{near}`?")),
                ..CompileError::new("unknown_step", no_such_step(id))
            }
        })
    }

    /// What it says it depends on, and what its expressions refer to.
    fn depends_on(&self, section: &Section<'_, '_>, compiled: &Compiled, problems: &mut Problems) -> Vec<StepIndex> {
        let mut all = compiled.steps();
        let trail = section.trail.key("depends_on");
        let items = section.get("depends_on").and_then(|entry| entry.node.as_list()).unwrap_or_default();
        section.texts("depends_on", problems);
        for (i, item) in items.iter().enumerate() {
            let Some(id) = item.as_text() else { continue };
            match self.index.get(id) {
                Some(step) => all.push(*step),
                None => {
                    let suggestion = problems.suggest(id, self.ids.iter().map(|id| &**id));
                    problems.add_with("unknown_step", item.at, &trail.index(i), no_such_step(id), suggestion);
                }
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }
}

struct Compiled {
    input: Template,
    when: Option<Expression>,
    foreach: Option<Expression>,
    concurrency: Option<StepConcurrency>,
}

impl Compiled {
    fn steps(&self) -> Vec<StepIndex> {
        let of = |expression: &Option<Expression>| expression.as_ref().map_or(Vec::new(), |e| e.steps().to_vec());
        let key = self.concurrency.as_ref().map_or(Vec::new(), |concurrency| concurrency.key.steps().to_vec());
        [self.input.steps().to_vec(), of(&self.when), of(&self.foreach), key].concat()
    }
}

fn step(
    id: Arc<str>,
    skill: &str,
    settings: Settings,
    compiled: Compiled,
    depends_on: Vec<StepIndex>,
    push: Option<Push>,
    digest: Digest,
) -> PlanStep {
    PlanStep {
        id,
        skill: skill.into(),
        action: builtin::action(skill),
        input: compiled.input,
        when: compiled.when,
        foreach: compiled.foreach,
        depends_on,
        dependents: Vec::new(),
        retry: settings.retry.unwrap_or_default(),
        timeout_ms: settings.timeout_ms,
        heartbeat_timeout_ms: settings.heartbeat_timeout_ms,
        runtime: settings.runtime,
        queue: settings.queue,
        concurrency: compiled.concurrency,
        push,
        cache: settings.cache.unwrap_or_default(),
        env: settings.env.unwrap_or_default(),
        secrets: settings.secrets.unwrap_or_default(),
        digest,
        removed: false,
    }
}

/// Covers what changes a step's result and nothing else: retries, timeouts, queues and words about it do not count.
fn digest(skill: &str, section: &Section<'_, '_>, settings: &Settings) -> Digest {
    let mut parts = Map::new();
    parts.insert("skill".into(), skill.into());
    for key in ["input", "foreach"] {
        if let Some(entry) = section.get(key) {
            parts.insert(key.into(), entry.node.to_value());
        }
    }
    if let Some(runtime) = settings.runtime {
        let name = match runtime {
            Runtime::Inline => "inline",
            Runtime::Queue => "queue",
            Runtime::Push => "push",
        };
        parts.insert("runtime".into(), name.into());
    }
    let env: Vec<&str> = settings.env.iter().flatten().map(|name| &**name).collect();
    parts.insert("env".into(), env.into());
    let secrets = settings.secrets.iter().flatten();
    let secrets = secrets.map(|(name, reference)| (name.to_string(), Value::from(&**reference)));
    parts.insert("secrets".into(), Value::Object(secrets.collect()));
    Digest::of(canonical::write(&Value::Object(parts)).as_bytes())
}
