//! How a run is started in a test.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::harness::{Run, START, json, load, run_id};
use super::invariants::Watcher;
use super::kept::SharedResults;
use crate::cache::Trust;
use crate::document::Loaded;
use crate::event::ParentStep;
use crate::id::{NodeId, OrgId, RunId};
use crate::limits::Limits;
use crate::plan::Plan;
use crate::run::{Context, Rejection, StartRun, Starting, check_payload};

/// How a run is started.
pub(super) struct Start {
    pub(super) plan: Arc<Plan>,
    /// The document's canonical form.
    text: String,
    pub(super) request: StartRun,
    pub(super) limits: Limits,
    held: u32,
    pub(super) results: SharedResults,
}

impl Start {
    pub(super) fn payload(mut self, text: &str) -> Start {
        self.request.payload = json(text);
        self
    }

    pub(super) fn request(mut self, change: impl FnOnce(&mut StartRun)) -> Start {
        change(&mut self.request);
        self
    }

    pub(super) fn limits(mut self, change: impl FnOnce(&mut Limits)) -> Start {
        change(&mut self.limits);
        self
    }

    /// So many other runs hold a slot under the key.
    pub(super) fn held(mut self, held: u32) -> Start {
        self.held = held;
        self
    }

    /// Takes results of other runs, and keeps its own for them.
    pub(super) fn results(mut self, results: &SharedResults) -> Start {
        self.results = results.clone();
        self
    }

    pub(super) fn child_of(self, parent: RunId) -> Start {
        self.request(|request| {
            request.parent = Some(ParentStep { run: parent, step: "call".to_owned(), logical_attempt: 1, depth: 1 });
        })
    }

    pub(super) fn begin(self) -> Run {
        self.try_begin().unwrap()
    }

    pub(super) fn try_begin(self) -> Result<Run, Rejection> {
        let context = Context::new(START, 7, &self.limits);
        check_payload(&self.plan, &self.request.payload, &self.limits)?;
        let starting = Starting::check(self.request.clone(), self.plan.clone(), &context)?;
        let held = starting.question(START).map(|_| self.held);
        let (state, decision) = starting.begin(held, &context)?;
        let mut run = Run {
            state,
            plans: vec![(self.plan.clone(), self.text)],
            plan: self.plan,
            limits: self.limits,
            now: START,
            node: NodeId(1),
            entropy: 8,
            rows: Vec::new(),
            events: Vec::new(),
            timers: BTreeMap::new(),
            offered: BTreeSet::new(),
            tasks: BTreeMap::new(),
            leased: BTreeMap::new(),
            asked_to_stop: BTreeSet::new(),
            children: BTreeMap::new(),
            stopped_children: Vec::new(),
            told_parent: Vec::new(),
            slots: Vec::new(),
            checkpoints: Vec::new(),
            inputs: BTreeMap::new(),
            signals: 0,
            results: self.results,
            blobs: BTreeMap::new(),
            decisions: 0,
            watcher: Watcher::default(),
        };
        run.follow(decision);
        Ok(run)
    }
}

impl Run {
    pub(super) fn of(yaml: &str) -> Start {
        Run::of_loaded(load(yaml))
    }

    pub(super) fn of_loaded(loaded: Loaded) -> Start {
        let request = StartRun {
            org: OrgId::DEFAULT,
            run: run_id(1),
            payload: json("{}"),
            request: None,
            priority: 0,
            start_at: None,
            parent: None,
            trace: None,
            base: None,
            definition: None,
            trust: Trust::Open,
            rebuild: None,
            submitted_by: None,
        };
        Start {
            plan: Arc::new(loaded.plan),
            text: loaded.canonical,
            request,
            limits: Limits::default(),
            held: 0,
            results: SharedResults::default(),
        }
    }

    pub(super) fn start(yaml: &str, payload: &str) -> Run {
        Run::of(yaml).payload(payload).begin()
    }
}
