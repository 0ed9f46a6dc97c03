//! What must hold of every run after every command, worked out from the log without the code that decides.

use std::collections::{BTreeMap, BTreeSet};

use super::harness::Run;
use crate::codec;
use crate::event::{Body, Event, LeaseProof, Patched, StepRef};
use crate::hash::Digest;
use crate::plan::Plan;
use crate::record::EventRow;
use crate::run::state::{Phase, RunState, RunningKind};
use crate::status::RunStatus;

/// One line per event: number, type, step with its attempts, and what is particular to it.
pub(super) fn line(event: &Event, plan: &Plan) -> String {
    let mut line = format!("{} {}", event.seq, event.body.event_type());
    if let Some(step) = event.step {
        line += &format!(" {} {}/{}", step.name(plan), event.logical_attempt, event.engine_attempt);
    }
    let detail = match &event.body {
        Body::RunQueued(queued) => queued.status.to_string(),
        Body::RunFailed { error } | Body::StepFailed { error } => error.code.clone(),
        Body::RunCancelled { reason } | Body::RunTerminated { reason } => reason.clone(),
        Body::RunContinued { count } => count.to_string(),
        Body::StepSkipped { reason } => reason.to_string(),
        Body::StepsSkipped { steps } => {
            let names: Vec<&str> = steps.iter().map(|step| &*plan.step(*step).id).collect();
            format!("run_stopped {}", names.join(","))
        }
        Body::StepReused(reused) => {
            format!("cache_hit {}", reused.output.as_ref().map_or("elsewhere", |output| output.as_str()))
        }
        Body::SignalAccepted { name, .. } | Body::SignalRejected { name, .. } => name.clone(),
        Body::StepRetryScheduled { reset, .. } if !reset.is_empty() => {
            let names: Vec<&str> = reset.iter().map(|step| &*plan.step(*step).id).collect();
            format!("reset {}", names.join(","))
        }
        Body::RunPatched(patched) => {
            let mut parts = Vec::new();
            for (what, steps) in [("+", &patched.added), ("~", &patched.changed), ("^", &patched.reset)] {
                parts.extend(steps.iter().map(|step| format!("{what}{}", plan.step(*step).id)));
            }
            for (what, steps) in [("-", &patched.removed), ("!", &patched.rerun)] {
                parts.extend(steps.iter().map(|back| format!("{what}{}", plan.step(back.step).id)));
            }
            parts.join(" ")
        }
        Body::StepStarted(started) => match started.items {
            Some(items) => format!("{items} items"),
            None => String::new(),
        },
        _ => String::new(),
    };
    if !detail.is_empty() {
        line += &format!(" {detail}");
    }
    line
}

/// Follows the log with tables of its own.
#[derive(Default)]
pub(super) struct Watcher {
    last_seq: u64,
    run: &'static str,
    stopping: bool,
    steps: BTreeMap<String, &'static str>,
    keys: BTreeSet<Digest>,
    outcomes: BTreeSet<(String, u32)>,
}

/// Which status of a run may follow which: as the design has it.
const RUN_STATUSES: &[(&str, &[&str])] = &[
    ("", &["pending", "queued"]),
    ("pending", &["approved", "running", "cancelled", "terminated"]),
    ("approved", &["running", "cancelled", "terminated"]),
    ("queued", &["running", "cancelled", "terminated"]),
    ("running", &["paused", "completed", "failed", "cancelled", "terminated"]),
    ("paused", &["running", "cancelled", "terminated"]),
    ("failed", &["running"]),
];

const STEP_STATUSES: &[(&str, &[&str])] = &[
    ("pending", &["running", "failed", "skipped"]),
    ("running", &["completed", "failed", "skipped", "pending"]),
    ("failed", &["pending"]),
    ("skipped", &["pending"]),
];

fn allowed(table: &[(&str, &[&str])], from: &str, to: &str) -> bool {
    table.iter().any(|(before, after)| *before == from && after.contains(&to))
}

impl Watcher {
    pub(super) fn see(&mut self, event: &Event, row: &EventRow, plan: &Plan) {
        let text = line(event, plan);
        assert_eq!(event.seq, self.last_seq + 1, "a gap before `{text}`");
        self.last_seq = event.seq;
        assert!(self.keys.insert(row.idempotency_key), "the idempotency key of `{text}` is not unique");
        assert_eq!(codec::decode(row, plan).unwrap(), *event, "`{text}` does not survive the log");
        self.see_run(event, &text);
        if let Body::RunPatched(patched) = &event.body {
            self.see_patched(patched, plan);
        }
        self.see_step(event, &text, plan);
        super::kept::check_event(event, plan);
    }

    fn see_run(&mut self, event: &Event, text: &str) {
        let next = match &event.body {
            Body::RunQueued(queued) => queued.status.as_str(),
            Body::RunApproved => "approved",
            Body::RunStarted(_) | Body::RunResumed | Body::RunReopened => "running",
            Body::RunPaused => "paused",
            Body::RunCompleted => "completed",
            Body::RunFailed { .. } => "failed",
            Body::RunCancelled { .. } => "cancelled",
            Body::RunTerminated { .. } => "terminated",
            Body::SignalAccepted { name, .. } if name == "CANCEL" => {
                self.stopping = true;
                return;
            }
            _ => return,
        };
        assert!(allowed(RUN_STATUSES, self.run, next), "`{text}`: a run goes from {} to {next}", self.run);
        self.run = next;
    }

    /// Steps that are gone count as skipped; those that run again, or are back, wait. Their items come anew.
    fn see_patched(&mut self, patched: &Patched, plan: &Plan) {
        let id = |step: u32| plan.step(step).id.to_string();
        for back in patched.removed.iter().chain(&patched.rerun) {
            let prefix = format!("{}[", id(back.step));
            let is_item = |name: &str| name.starts_with(&prefix);
            assert!(
                !self.steps.iter().any(|(name, status)| is_item(name) && *status == "running"),
                "an item that is under way goes"
            );
            self.steps.retain(|name, _| !is_item(name));
            self.outcomes.retain(|(name, _)| !is_item(name));
        }
        let mut set = |step: u32, next: &'static str| {
            let before = self.steps.insert(id(step), next);
            assert_ne!(before, Some("running"), "a step that is under way is patched");
        };
        patched.removed.iter().for_each(|back| set(back.step, "skipped"));
        patched.rerun.iter().for_each(|back| set(back.step, "pending"));
        patched.added.iter().chain(&patched.reset).for_each(|step| set(*step, "pending"));
    }

    fn see_step(&mut self, event: &Event, text: &str, plan: &Plan) {
        if let Body::StepsSkipped { steps } = &event.body {
            steps.iter().for_each(|step| self.set_step(plan.step(*step).id.to_string(), "skipped", text));
        }
        let Some(step) = event.step else { return };
        let name = step.name(plan);
        let next = match &event.body {
            Body::StepStarted(_) => "running",
            Body::StepCompleted { .. } => "completed",
            Body::StepFailed { .. } => "failed",
            Body::StepSkipped { .. } | Body::StepReused(_) => "skipped",
            Body::StepRetryScheduled { reset, .. } => {
                for reset in reset {
                    self.set_step(plan.step(*reset).id.to_string(), "pending", text);
                }
                "pending"
            }
            // It says nothing of how the step stands.
            Body::ArtifactRecorded(_) => return,
            other => panic!("{} is not an event of a step", other.event_type()),
        };
        if next == "running" {
            assert_eq!(self.run, "running", "`{text}`: a step starts");
            assert!(!self.stopping, "`{text}`: a step starts in a run that is being cancelled");
        }
        // A foreach step that is tried again opens its failed items.
        if let Body::StepStarted(started) = &event.body
            && started.items.is_some()
        {
            let prefix = format!("{name}[");
            for (item, status) in
                self.steps.range_mut(prefix.clone()..).take_while(|(item, _)| item.starts_with(&prefix))
            {
                assert!(
                    matches!(*status, "failed" | "completed" | "skipped" | "pending"),
                    "`{text}`: {item} is {status}"
                );
                if *status == "failed" {
                    *status = "pending";
                }
            }
        }
        let ended = matches!(next, "completed" | "failed" | "skipped");
        // What is skipped for another step is no outcome of an attempt of its own.
        let followed = next == "skipped" && event.parent.is_some();
        if ended && event.logical_attempt > 0 && !followed {
            let attempt = (name.clone(), event.logical_attempt);
            assert!(self.outcomes.insert(attempt), "`{text}`: the attempt has an outcome already");
        }
        self.set_step(name, next, text);
    }

    fn set_step(&mut self, name: String, next: &'static str, text: &str) {
        let status = self.steps.entry(name).or_insert("pending");
        let again = *status == "pending" && next == "pending";
        assert!(!again && allowed(STEP_STATUSES, status, next), "`{text}`: a step goes from {status} to {next}");
        *status = next;
    }

    pub(super) fn check(&self, run: &Run) {
        let state = &run.state;
        assert_eq!(self.run, state.status.as_str());
        same(state, &run.replayed(), "replaying the log");
        same(state, &run.restored(), "the newest checkpoint and what came later");
        same(state, &run.read(&state.to_checkpoint()), "a checkpoint");
        let armed: BTreeMap<_, _> = state.armed_timers().collect();
        assert_eq!(run.timers, armed, "timers armed by effects and timers of the state");
        self.check_steps(state, run);
        check_counts(state);
        check_wake_up(run);
    }

    fn check_steps(&self, state: &RunState, run: &Run) {
        for (name, status) in &self.steps {
            let phase = state.step(run.step(name)).expect("the log names it").phase;
            assert_eq!(phase.status().as_str(), *status, "{name}\n{}", run.log());
        }
        if matches!(self.run, "completed" | "cancelled" | "terminated") {
            let open = self.steps.iter().find(|(_, status)| **status == "running");
            assert_eq!(open, None, "under way in a run that has ended\n{}", run.log());
        }
        if state.status.is_terminal() {
            let open = state.steps.iter().any(|step| !step.phase.status().is_terminal());
            assert!(!open, "the log does not say that a step never began\n{}", run.log());
        }
    }
}

/// A run that has not ended has something that will wake it.
fn check_wake_up(run: &Run) {
    let state = &run.state;
    let woken = state.needs_node()
        || state.has_leases()
        || !run.timers.is_empty()
        || state.awaited_children().next().is_some()
        || state.waits_for_people()
        || state.waits_for_slot(run.now);
    assert!(state.status.is_terminal() || woken, "nothing will ever wake this run\n{}", run.log());
    if state.status.is_terminal() {
        assert!(run.timers.is_empty(), "a timer of a run that has ended\n{}", run.log());
        assert!(!state.needs_node() && state.awaited_children().next().is_none(), "\n{}", run.log());
        assert!(run.offered.is_empty() || state.status == RunStatus::Failed, "still in line\n{}", run.log());
    }
    let leased = state.running.iter().filter_map(|(step, running)| match running.kind {
        RunningKind::Leased { proof } => Some((*step, proof)),
        _ => None,
    });
    let given = |(step, nonce): (&StepRef, &u64)| (*step, LeaseProof::new(state.run, run.tasks[step], *nonce));
    assert!(leased.eq(run.leased.iter().map(given)), "leases\n{}", run.log());
}

fn check_counts(state: &RunState) {
    let failed = |phase: Phase| u32::from(phase == Phase::Failed);
    let of_steps: u32 = state.steps.iter().map(|step| failed(step.phase)).sum();
    let of_items: u32 = state.items.values().flat_map(|items| items.steps.iter()).map(|item| failed(item.phase)).sum();
    assert_eq!(state.failures, of_steps + of_items, "failures");
    assert!(state.acknowledged <= state.failures, "acknowledged");
    for (step, items) in &state.items {
        let open = state.steps[*step as usize].phase == Phase::Running;
        let in_line = |phase: Phase| matches!(phase, Phase::Ready | Phase::Backoff | Phase::Running);
        assert!(open || !items.steps.iter().any(|item| in_line(item.phase)), "items in line whose step has ended");
    }
    if state.status == RunStatus::Failed {
        assert_eq!(state.active, 0, "a failed run has steps under way");
    }
}

/// Two states are the same in every part that is not scratch.
fn same(live: &RunState, other: &RunState, how: &str) {
    assert_eq!(live.to_checkpoint(), other.to_checkpoint(), "{how}: the bytes differ");
    macro_rules! equal {
        ($($field:ident),+) => {
            $(assert_eq!(live.$field, other.$field, "{how}: `{}` differs", stringify!($field));)+
        };
    }
    equal!(org, run, status, last_seq, priority, created_at, slot_key, parent, steps, items, ready, running, active);
    equal!(
        tasks,
        leased,
        waits,
        children,
        timers,
        backoff,
        unfinished,
        failures,
        acknowledged,
        first_failure,
        stopping,
        inbox
    );
    equal!(patches, self_patches, trust, rebuild, upstream);
    equal!(seen_signals, signal_times, continues, steps_since_continue, bytes_since_continue);
}
