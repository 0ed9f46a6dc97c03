//! How a run is patched in a test: as the engine does it, with every plan kept as text.

use std::sync::Arc;

use serde_json::Value;

use super::harness::{Run, json};
use crate::document::{self, Loaded, PatchError};
use crate::json::Json;
use crate::plan::Plan;
use crate::run::{Command, PatchRun, Rejection};

impl Run {
    /// The document that the run follows now, as stored.
    pub(super) fn text(&self) -> String {
        let current = self.plans.iter().find(|(plan, _)| plan.hash == self.plan.hash);
        current.expect("every plan is kept").1.clone()
    }

    fn keep(&mut self, loaded: Loaded) -> Arc<Plan> {
        let plan = Arc::new(loaded.plan);
        self.plans.push((plan.clone(), loaded.canonical));
        plan
    }

    pub(super) fn patched(&mut self, ops: &str) -> Result<Arc<Plan>, PatchError> {
        let ops: Value = serde_json::from_str(ops).unwrap();
        let loaded = document::patch_run(&self.plan, &self.text(), &ops, &self.limits)?;
        Ok(self.keep(loaded))
    }

    pub(super) fn patch_run(&mut self, plan: Arc<Plan>, ops: Option<&str>, rerun: bool) -> PatchRun {
        PatchRun {
            id: self.next_signal(),
            plan,
            ops: ops.map(json),
            rerun,
            message: None,
            actor: None,
            undoes: None,
            expected_seq: None,
        }
    }

    pub(super) fn try_patch(&mut self, ops: &str, rerun: bool) -> Result<(), Rejection> {
        let plan = self.patched(ops).unwrap_or_else(|error| panic!("{ops}: {error:?}"));
        let patch = self.patch_run(plan, Some(ops), rerun);
        self.send_patch(patch)
    }

    /// A plan that was refused is not one that the run has had.
    pub(super) fn send_patch(&mut self, patch: PatchRun) -> Result<(), Rejection> {
        let answer = self.command(Command::Patch(Box::new(patch)));
        if answer.is_err() {
            self.plans.pop();
        }
        answer
    }

    #[track_caller]
    pub(super) fn patch(&mut self, ops: &str) -> &mut Run {
        self.try_patch(ops, false).unwrap();
        self
    }

    #[track_caller]
    pub(super) fn patch_rerun(&mut self, ops: &str) -> &mut Run {
        self.try_patch(ops, true).unwrap();
        self
    }

    pub(super) fn try_undo(&mut self) -> Result<(), Rejection> {
        let (id, before) = self.state.newest_patch().expect("there is a patch to undo");
        let former = self.plans.iter().find(|(plan, _)| plan.hash == before).unwrap().1.clone();
        let loaded = document::unpatch_run(&self.plan, &former).unwrap();
        let plan = self.keep(loaded);
        let patch = PatchRun { undoes: Some(id), ..self.patch_run(plan, None, false) };
        self.send_patch(patch)
    }

    #[track_caller]
    pub(super) fn undo(&mut self) -> &mut Run {
        self.try_undo().unwrap();
        self
    }

    /// A step returned a patch: the plan that it makes is stored, and the step's outcome is told again with it.
    pub(super) fn patch_itself(&mut self, outcome: Command, ops: &Json) -> Result<(), Rejection> {
        let before = self.plan.hash;
        let plan = self.patched(ops.as_str()).map_err(|error| error.reason());
        let answer = self.command(Command::Patching { outcome: Box::new(outcome), plan });
        if self.plan.hash == before && self.plans.last().is_some_and(|(plan, _)| plan.hash != before) {
            self.plans.pop();
        }
        answer
    }
}
