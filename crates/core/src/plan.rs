//! A plan: a document that was read, checked and made ready to run. Immutable and shared by all runs of that document.
//!
//! **Invariant:** a plan is a function of its stored text alone. Steps are numbered in the order of their ids, so a
//! checkpoint's bitmap means the same for ever; a plan that a patch made says in its text which numbers its steps have.
//! **Invariant:** a step's number never changes while its run lasts, and is never another's: who has a task in hand may be
//! told from its number, whatever was patched meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::expression::{Expression, Template};
use crate::hash::Digest;

/// Position of a step in [`Plan::steps`].
pub type StepIndex = u32;

/// What a document says, ready to run.
#[derive(Debug)]
pub struct Plan {
    /// SHA-256 of the canonical document.
    pub hash: Digest,
    pub kind: DocumentKind,
    pub name: Arc<str>,
    pub version: Arc<str>,
    /// The payload's JSON Schema, compiled; `None` takes any payload.
    pub params: Option<crate::document::PayloadSchema>,
    /// The run waits for `APPROVE` before its first step.
    pub approval: bool,
    pub on_failure: OnFailure,
    pub concurrency: Option<Concurrency>,
    /// Steps may return patches of their own run, so many and so large.
    pub self_patch: Option<SelfPatch>,
    /// The plan that the run had before this one, if it is one that a patch made.
    pub after: Option<Digest>,
    /// By number: sorted by id. In a plan that a patch made, the steps of the plan before it keep their numbers, those that
    /// are gone as well, and new ones follow.
    pub steps: Vec<PlanStep>,
    /// Every step after all that it depends on; ties by number. Steps that are gone are not among them.
    pub order: Vec<StepIndex>,
    /// Steps that nothing depends on: their outputs are the run's output.
    pub last_steps: Vec<StepIndex>,
    /// About what it takes of the memory.
    pub memory: usize,
    /// What change requests do, by type.
    pub changes: BTreeMap<Arc<str>, Change>,
    pub(crate) index: HashMap<Arc<str>, StepIndex>,
}

impl Plan {
    /// A plan of which nothing is known but its name: for what is written of a run that is ended without its plan being looked
    /// at. It has no steps, so nothing that is about one can be read or written with it.
    #[must_use]
    pub fn unseen(hash: Digest, name: Arc<str>, version: Arc<str>) -> Plan {
        Plan {
            hash,
            kind: DocumentKind::Workflow,
            name,
            version,
            params: None,
            approval: false,
            on_failure: OnFailure::Stop,
            concurrency: None,
            self_patch: None,
            after: None,
            steps: Vec::new(),
            order: Vec::new(),
            last_steps: Vec::new(),
            memory: 0,
            changes: BTreeMap::new(),
            index: HashMap::new(),
        }
    }

    #[must_use]
    pub fn find(&self, id: &str) -> Option<StepIndex> {
        self.index.get(id).copied()
    }

    #[must_use]
    pub fn step(&self, index: StepIndex) -> &PlanStep {
        &self.steps[index as usize]
    }

    /// How many steps there are to run.
    #[must_use]
    pub fn steps_total(&self) -> u32 {
        u32::try_from(self.order.len()).unwrap_or(u32::MAX)
    }

    /// The workflows that its steps run as children, as far as the document names them. In no order, perhaps repeated.
    pub fn children(&self) -> impl Iterator<Item = &str> {
        let steps = self.steps.iter().filter(|step| step.action == Action::Child && !step.removed);
        steps.filter_map(|step| step.input.constant_under("ref")?.as_str()).filter(|reference| !reference.is_empty())
    }
}

/// How far steps may change the plan of their own run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelfPatch {
    /// Patches of one run.
    pub max_patches: u32,
    /// Steps that the plan may have after one.
    pub max_steps: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentKind {
    Workflow,
    Pipeline,
    Experiment,
}

/// What a failed step does to the rest of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// No new steps start.
    Stop,
    /// Independent branches go on.
    Continue,
}

/// How many runs with the same key may be under way at once.
#[derive(Debug)]
pub struct Concurrency {
    /// Sees `payload` and `run`; yields a string, a number or a boolean.
    pub key: Template,
    pub limit: u32,
    pub on_limit: OnLimit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLimit {
    Queue,
    Reject,
}

/// How many steps with the same key may be in the hands of workers at once, whatever their runs and workflows.
#[derive(Debug, PartialEq)]
pub struct StepConcurrency {
    /// Sees what the step's input sees; yields a string, a number or a boolean.
    pub key: Template,
    pub limit: u32,
}

/// What a change request of one type does to the run it makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// RFC 7396 merge of the change's payload at this JSON pointer of the run's payload.
    Merge(Arc<str>),
    /// The change's payload stands where this JSON pointer leads.
    Replace(Arc<str>),
    Rebuild(Rebuild),
}

/// Steps that run whatever was kept of earlier runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rebuild {
    All,
    /// Sorted, without repeats.
    Steps(Vec<StepIndex>),
}

/// One step of a plan, with the document's defaults filled in.
#[derive(Debug)]
pub struct PlanStep {
    pub id: Arc<str>,
    pub skill: Arc<str>,
    pub action: Action,
    pub input: Template,
    /// False: the step is skipped with the reason `condition`.
    pub when: Option<Expression>,
    /// One sub-step per item of the list this yields.
    pub foreach: Option<Expression>,
    /// Named in `depends_on` or referred to by an expression; sorted, without repeats.
    pub depends_on: Vec<StepIndex>,
    /// The steps that depend on this one; sorted, without repeats.
    pub dependents: Vec<StepIndex>,
    pub retry: RetryPolicy,
    pub timeout_ms: Option<u64>,
    pub heartbeat_timeout_ms: Option<u64>,
    pub runtime: Option<Runtime>,
    pub queue: Option<Arc<str>>,
    /// How many tasks with the same key workers may have at once.
    pub concurrency: Option<StepConcurrency>,
    /// Of a step with `runtime: push`, and of no other.
    pub push: Option<Push>,
    pub cache: CachePolicy,
    /// Environment variables that reach the step, by name.
    pub env: Vec<Arc<str>>,
    /// Name inside the step → reference (`secret://…`).
    pub secrets: Vec<(Arc<str>, Arc<str>)>,
    /// SHA-256 of the step's definition with the defaults filled in, part of its cache key.
    pub digest: Digest,
    /// A patch took it away. What it did is in the log, and its number is nobody else's.
    pub removed: bool,
}

impl PlanStep {
    /// Whether a result of one is a result of the other. How often, how long and in which line it is tried does not count.
    #[must_use]
    pub fn does_the_same(&self, other: &PlanStep) -> bool {
        (&self.skill, &self.input, &self.when, &self.foreach)
            == (&other.skill, &other.input, &other.when, &other.foreach)
            && (&self.depends_on, self.runtime, &self.push) == (&other.depends_on, other.runtime, &other.push)
            && (&self.env, &self.secrets) == (&other.env, &other.secrets)
    }

    /// Whether nothing about it differs but words.
    #[must_use]
    pub fn is_the_same(&self, other: &PlanStep) -> bool {
        self.does_the_same(other)
            && (&self.retry, self.timeout_ms, self.heartbeat_timeout_ms)
                == (&other.retry, other.timeout_ms, other.heartbeat_timeout_ms)
            && (&self.queue, &self.concurrency, self.cache) == (&other.queue, &other.concurrency, other.cache)
    }
}

/// Who carries a step out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A skill, run by an executor or a worker.
    Task,
    /// `sleep`: a timer, no executor.
    Sleep,
    /// `wait`: a signal, no executor.
    Wait,
    /// `workflow`: a child run, no executor.
    Child,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Inline,
    Queue,
    Push,
}

/// Where a step is pushed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// `http` or `https`, without credentials.
    pub url: Arc<str>,
    /// The url's host with its port, in small letters.
    pub host: Arc<str>,
    /// References (`secret://…`) to what requests are signed with; without any, with what the server has.
    pub signing_secrets: Vec<Arc<str>>,
    /// How long one request may take.
    pub timeout_ms: u64,
}

impl Push {
    /// How the queues begin in which steps wait that are pushed: the host follows.
    pub const QUEUE: &'static str = "push:";

    /// The queue of all that is pushed to the same host.
    #[must_use]
    pub fn queue(&self) -> Arc<str> {
        format!("{}{}", Push::QUEUE, self.host).into()
    }
}

/// When a failed attempt is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// 1 means no retry.
    pub max_attempts: u32,
    /// Delay before the second attempt; doubles with each further one.
    pub backoff_ms: u64,
    pub max_backoff_ms: u64,
    /// Error codes that are never tried again.
    pub non_retryable: Vec<Arc<str>>,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        RetryPolicy { max_attempts: 1, backoff_ms: 500, max_backoff_ms: 60_000, non_retryable: Vec::new() }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachePolicy {
    pub enabled: bool,
    pub scope: CacheScope,
}

/// Who finds a step's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// Every run of the workflow.
    #[default]
    Global,
    /// The run that made it, as long as it lasts.
    RunOnly,
}

impl CacheScope {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CacheScope::Global => "global",
            CacheScope::RunOnly => "run_only",
        }
    }
}
