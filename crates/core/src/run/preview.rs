//! What a run would do, before it does it: the run is begun in memory, and decides as it always does. A step that would run
//! is taken to have ended well with an output that nobody knows. What needs that output is not known; all else goes on.
//!
//! ```text
//!   begin ──► decide ──► asks for results ──► answered ──► decide ──► …
//!                │
//!                └──► would be handed out, or needs what nobody knows: taken to have ended ──► its dependents are looked at
//! ```
//!
//! **Invariant:** nothing here decides whether a step runs; `ready.rs` and `cache.rs` do.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::cache::{Looking, Lookup};
use super::state::{Phase, RunState};
use super::{Context, Decider, Decision, Effect, Rejection, Starting};
use crate::cache::{Cached, Surroundings};
use crate::event::{Body, ErrorInfo, Started, StepRef};
use crate::hash::Digest;
use crate::id::RunId;
use crate::json::Json;
use crate::limits::Limits;
use crate::patience;
use crate::plan::{Action, CacheScope, PlanStep, StepIndex};
use crate::status::SkipReason;
use crate::time::Timestamp;

/// So many of the steps that decide about another are named.
const NAMED: usize = 10;

/// What would become of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepPreview {
    pub step: StepIndex,
    pub outlook: StepOutlook,
    /// Of the input, where nothing that is unknown is part of it.
    pub input_hash: Option<Digest>,
    /// Where the step would look for a result, or would keep its own.
    pub cache_key: Option<Digest>,
    /// Of a `foreach` step whose list is known.
    pub items: Option<ItemsPreview>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepOutlook {
    Runs(WhyRun),
    /// It has the result of this event; of a `foreach` step, all items have one.
    Reused {
        from: Option<(RunId, u64)>,
    },
    /// It would run into this.
    Fails(String),
    Skipped(SkipReason),
    /// The outputs of these steps decide; a few of them.
    Unknown(Vec<StepIndex>),
}

/// Why a step would run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyRun {
    /// Its results are not kept.
    NotKept,
    /// Its results serve nobody but the run that made them.
    RunOnly,
    /// There is no result under its key.
    NoResult,
    /// Somebody wants it to.
    Rebuilt,
    /// The list that it goes over is empty, so nothing runs.
    NoItems,
}

/// What would become of the items of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemsPreview {
    pub total: u32,
    pub run: u32,
    pub reuse: u32,
    pub unknown: u32,
}

/// A run that is only looked at.
#[derive(Debug)]
pub struct Preview {
    state: RunState,
    limits: Limits,
    now: Timestamp,
    /// To be taken as ended before the next look.
    assumed: Vec<StepRef>,
    /// By number.
    notes: Vec<Note>,
}

#[derive(Clone, Debug, Default)]
struct Note {
    outlook: Option<StepOutlook>,
    input_hash: Option<Digest>,
    cache_key: Option<Digest>,
    items: Option<ItemsPreview>,
    /// Keys of items under which there is nothing.
    missed: BTreeSet<Digest>,
}

impl Starting {
    /// Begins the run as if nothing kept it back: no approval, no moment to wait for, no concurrency key.
    ///
    /// # Errors
    /// A rule was broken in here.
    pub fn preview(self, surroundings: Arc<Surroundings>, context: &Context<'_>) -> Result<Preview, Rejection> {
        let Starting { request, plan, .. } = self;
        let (notes, now) = (vec![Note::default(); plan.steps.len()], context.now);
        // The history of a run that is not stored need not be short.
        let limits = Limits { continue_steps: u32::MAX, continue_bytes: u64::MAX, ..context.limits.clone() };
        let (mut state, _) = Starting::queue(super::StartRun { start_at: None, ..request }, plan, None, true, now)?;
        state.scratch.preview = true;
        state.learn_surroundings(surroundings);
        state.scratch.timer_changes.clear();
        let mut decider = Decider::new(&mut state, context);
        decider.emit_run(Body::RunStarted(None));
        if let Some(illegal) = decider.broken {
            return Err(Rejection::new(super::RejectionKind::Bug, "internal", illegal.to_string()));
        }
        Ok(Preview { state, limits, now, assumed: Vec::new(), notes })
    }
}

impl Preview {
    /// Goes on as far as it can. Answers which results it must know of before it can go further; none, and that was all.
    ///
    /// # Errors
    /// A rule was broken in here.
    pub fn ask(&mut self) -> Result<Vec<Lookup>, Rejection> {
        loop {
            let assumed = std::mem::take(&mut self.assumed);
            let context = Context::new(self.now, self.state.last_seq, &self.limits);
            let mut decider = Decider::new(&mut self.state, &context);
            assumed.into_iter().for_each(|step| decider.assume(step));
            decider.unblock();
            let decision = decider.finish()?;
            self.note(&decision);
            let over = self.assumed.is_empty() && !decision.more;
            if !decision.cache.lookups.is_empty() || over {
                return Ok(decision.cache.lookups);
            }
        }
    }

    /// Whether there is a result for a step that asked.
    pub fn answer(&mut self, step: StepRef, found: Option<Cached>) {
        self.state.learn_cached(step, found);
    }

    /// The run that is looked at. There is no other with its id.
    #[must_use]
    pub fn run(&self) -> RunId {
        self.state.run
    }

    /// What the key of a step is made of, where its input is known.
    pub fn preimage(&mut self, step: StepIndex) -> Option<Json> {
        let surroundings = self.state.scratch.surroundings.clone()?;
        let input = self.state.input(StepRef::whole(step), &self.limits).ok()?;
        Some(self.state.preimage(StepRef::whole(step), &input.json, &surroundings, self.state.trust()))
    }

    /// What would become of each step, every one after all that it depends on.
    pub fn steps(&mut self) -> Vec<StepPreview> {
        let plan = self.state.plan.clone();
        plan.order.iter().map(|step| self.step(*step, plan.step(*step))).collect()
    }

    fn step(&mut self, step: StepIndex, planned: &PlanStep) -> StepPreview {
        patience::look();
        let Note { outlook, input_hash, cache_key, items, .. } = std::mem::take(&mut self.notes[step as usize]);
        let outlook = match (outlook, items) {
            (Some(outlook), _) => outlook,
            (None, Some(items)) if items.total == 0 => StepOutlook::Runs(WhyRun::NoItems),
            // What of its items runs or is unknown was noted with the first of them.
            (None, _) => StepOutlook::Reused { from: None },
        };
        let shown = !planned.input.sees_run();
        let input_hash = input_hash.or_else(|| self.input_hash(step, planned));
        StepPreview {
            step,
            outlook,
            input_hash: input_hash.filter(|_| shown),
            cache_key: cache_key.filter(|_| shown),
            items,
        }
    }

    /// Each item of a `foreach` step has an input of its own.
    fn input_hash(&mut self, step: StepIndex, planned: &PlanStep) -> Option<Digest> {
        let known = planned.foreach.is_none() && self.undecided(planned.input.steps()).is_empty();
        let skipped = matches!(self.state.step(StepRef::whole(step))?.phase, Phase::Skipped(_));
        if !known || skipped || planned.input.sees_run() {
            return None;
        }
        self.state.input(StepRef::whole(step), &self.limits).ok().map(|input| input.hash)
    }

    fn note(&mut self, decision: &Decision) {
        for event in &decision.events {
            let Some(step) = event.step else { continue };
            match &event.body {
                Body::StepReused(reused) => {
                    let note = &mut self.notes[step.step as usize];
                    match (step.item, &mut note.items) {
                        (Some(_), Some(items)) => items.reuse += 1,
                        _ => {
                            note.outlook = Some(StepOutlook::Reused { from: Some((reused.run, reused.seq)) });
                            (note.cache_key, note.input_hash) = (Some(reused.key), Some(reused.input_hash));
                        }
                    }
                }
                Body::StepSkipped { reason } => {
                    self.notes[step.step as usize].outlook = Some(StepOutlook::Skipped(*reason));
                }
                Body::StepFailed { error } => self.note_failure(step, error),
                Body::StepStarted(started) => self.note_start(step, started),
                _ => {}
            }
        }
        for effect in &decision.effects {
            match effect {
                Effect::Ready { step, .. } => self.would_run(*step),
                // Another item does the same work.
                Effect::Await { step, flight, .. } => {
                    self.runs(*step, self.why_it_runs(step.step), None, Some(flight.key));
                    self.assumed.push(*step);
                }
                _ => {}
            }
        }
        for step in self.state.scratch.blocked.clone() {
            let asked = matches!(self.state.scratch.cache.get(&step), Some(Looking::Asked(_)));
            if !asked {
                self.is_unknown(step);
            }
        }
    }

    /// The first failure of an item says more than that of its step.
    fn note_failure(&mut self, step: StepRef, error: &ErrorInfo) {
        let note = &mut self.notes[step.step as usize];
        if !matches!(note.outlook, Some(StepOutlook::Fails(_))) {
            note.outlook = Some(StepOutlook::Fails(error.message.clone()));
        }
    }

    fn note_start(&mut self, step: StepRef, started: &Started) {
        if let Some(total) = started.items {
            self.notes[step.step as usize].items = Some(ItemsPreview { total, ..ItemsPreview::default() });
        } else if let Some(hash) = started.input_hash {
            // Nobody has to be handed a sleep, a wait or a child.
            self.runs(step, WhyRun::NotKept, Some(hash), None);
            self.assumed.push(step);
        }
    }

    /// Somebody would be given the step.
    fn would_run(&mut self, step: StepRef) {
        let missed = match self.state.scratch.cache.get(&step) {
            Some(Looking::Missed(keyed)) => Some((keyed.input_hash, keyed.key)),
            _ => None,
        };
        let why = self.why_it_runs(step.step);
        self.runs(step, why, missed.map(|(hash, _)| hash), missed.map(|(_, key)| key));
        self.assumed.push(step);
    }

    fn why_it_runs(&self, step: StepIndex) -> WhyRun {
        let planned = self.state.plan.step(step);
        match planned.action == Action::Task && planned.cache.enabled {
            false => WhyRun::NotKept,
            true if self.state.is_rebuilt(step) => WhyRun::Rebuilt,
            true if planned.cache.scope == CacheScope::RunOnly => WhyRun::RunOnly,
            true => WhyRun::NoResult,
        }
    }

    fn runs(&mut self, step: StepRef, why: WhyRun, input_hash: Option<Digest>, key: Option<Digest>) {
        let note = &mut self.notes[step.step as usize];
        match (step.item, &mut note.items) {
            (Some(_), Some(items)) => {
                // The same work twice: perhaps the second has what the first made.
                let again = key.is_some_and(|key| !note.missed.insert(key)) && why != WhyRun::Rebuilt;
                *if again { &mut items.unknown } else { &mut items.run } += 1;
                if !matches!(note.outlook, Some(StepOutlook::Fails(_))) {
                    note.outlook = Some(StepOutlook::Runs(why));
                }
            }
            _ => {
                note.outlook = Some(StepOutlook::Runs(why));
                (note.input_hash, note.cache_key) = (input_hash, key);
            }
        }
    }

    /// The step lacks what nobody knows. It may be certain to run all the same.
    fn is_unknown(&mut self, step: StepRef) {
        self.assumed.push(step);
        let plan = self.state.plan.clone();
        let planned = plan.step(step.step);
        let why = self.why_it_runs(step.step);
        let certain = matches!(why, WhyRun::Rebuilt | WhyRun::NotKept) && self.is_reached(step, planned);
        if certain {
            return self.runs(step, why, None, None);
        }
        let of = |steps: Option<&[StepIndex]>| steps.unwrap_or_default().to_vec();
        let mut deciding = of(planned.when.as_ref().map(|when| when.steps()));
        deciding.extend(of(planned.foreach.as_ref().map(|foreach| foreach.steps())));
        deciding.extend_from_slice(planned.input.steps());
        deciding.extend(of(planned.concurrency.as_ref().map(|concurrency| concurrency.key.steps())));
        deciding.sort_unstable();
        deciding.dedup();
        let deciding = self.undecided(&deciding);
        let note = &mut self.notes[step.step as usize];
        if let (Some(_), Some(items)) = (step.item, &mut note.items) {
            items.unknown += 1;
        }
        note.outlook.get_or_insert(StepOutlook::Unknown(deciding));
    }

    /// Whether the step begins, whatever its input is.
    fn is_reached(&mut self, step: StepRef, planned: &PlanStep) -> bool {
        step.item.is_some()
            || (planned.foreach.is_none() && matches!(self.state.condition(step.step, &self.limits), Ok(true)))
    }

    /// Those whose outputs nobody knows.
    fn undecided(&mut self, steps: &[StepIndex]) -> Vec<StepIndex> {
        let mut found = Vec::new();
        for step in steps {
            let mut missing = Vec::new();
            if self.state.output_json(*step, &mut missing).is_none() {
                found.push(*step);
                if found.len() == NAMED {
                    break;
                }
            }
        }
        found
    }
}

impl Decider<'_> {
    /// Takes a step to have ended well. What it yields is not known, unless it always yields the same.
    fn assume(&mut self, step: StepRef) {
        if self.state.step(step).is_some_and(|state| state.phase != Phase::Running) {
            let (logical, engine) = self.attempts_of_start(step);
            self.emit_step(step, logical, engine, Body::StepStarted(Started::default()));
        }
        let Some(state) = self.state.step(step).copied() else { return };
        let sleeps = self.state.plan.step(step.step).action == Action::Sleep;
        let whole = step.item.is_none() && self.state.plan.step(step.step).foreach.is_some();
        let output = (sleeps && !whole).then(|| Json::trusted("{}"));
        self.emit_step(step, state.logical_attempt, state.engine_attempt, Body::StepCompleted { output, beyond: None });
        self.item_has_ended(step);
    }
}
