//! Results that are kept: a ready step whose key has one is not run.
//!
//! ```text
//!   ready ──► surroundings at hand? ──no──► ask for them
//!                     │ yes
//!                     ▼
//!              key, asked for ──► found: StepSkipped (cache_hit) with the output, and its dependents are ready
//!                     ├─────────► somebody makes it: waits (`flight.rs`)
//!                     └─────────► not found: in line; StepStarted has the key; completed: kept under it
//! ```
//!
//! Both are asked within the transaction that holds the decision, so a row of results costs one commit.
//!
//! **Invariant:** a result is kept under the key that its attempt began with, whatever was disowned meanwhile, and only
//! with the outcome's own commit.
//! **Invariant:** answers count for the decision that they were given to; a later one asks again.

use std::sync::Arc;

use super::evaluate::{Input, NoValue};
use super::state::RunState;
use super::{Decider, Effect};
use crate::artifact::Beyond;
use crate::cache::{Cached, Flight, KeyParts, Surroundings, Trust, key_of};
use crate::event::{Body, Reused, StepRef};
use crate::hash::Digest;
use crate::json::Json;
use crate::plan::{CacheScope, Rebuild, StepIndex};
use crate::time::Timestamp;

/// So many results are asked for at once, lest a long list and all that is found of it are in memory together.
pub(super) const AT_ONCE: usize = 256;

/// What must be known of results that are kept, at the moment of the commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheQuestions {
    /// What are the surroundings of the plan's steps? Answered with [`RunState::learn_surroundings`].
    pub surroundings: bool,
    /// Answered with [`RunState::learn_cached`] and, where somebody makes it, [`RunState::learn_flight`], each.
    pub lookups: Vec<Lookup>,
}

impl CacheQuestions {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.surroundings && self.lookups.is_empty()
    }
}

/// Is there a result under one of these keys?
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub step: StepRef,
    /// The first that has one counts.
    pub keys: Vec<Digest>,
    pub scope: CacheScope,
}

/// What becomes of results, in the commit of the events that it follows from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheChange {
    /// An attempt began: what its key is made of, kept by the key.
    Preimage { key: Digest, step: StepIndex, preimage: Json },
    /// An attempt succeeded.
    Keep(Box<Kept>),
    /// A result was taken.
    Used { key: Digest, scope: CacheScope },
    /// The run has ended, and with it what it kept for itself.
    RunEnded,
    /// The step makes this result from now on, and nobody else does. If somebody does after all, nothing of the decision
    /// counts; the same if there is a result, unless it is of no use (`anyway`).
    Lead { key: Digest, scope: CacheScope, step: StepRef, anyway: bool },
    /// The step makes no result any more.
    Land { step: StepRef },
    /// No step of the run does but these.
    LandAll { but: Vec<StepRef> },
}

/// A result to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub key: Digest,
    pub step: StepIndex,
    pub scope: CacheScope,
    pub trust: Trust,
    /// Null if it is in the blob store.
    pub output: Json,
    /// Files that it names, and where a large output is.
    pub beyond: Option<Box<Beyond>>,
    /// The event that has it.
    pub seq: u64,
    /// How long the attempt took.
    pub duration_ms: u64,
}

/// How far the question about a ready step has come. Not part of the state.
#[derive(Clone, Debug)]
pub(super) enum Looking {
    Asked(Keyed),
    Answered {
        keyed: Keyed,
        found: Option<Cached>,
        flight: Option<Flight>,
        /// There is one, but not all of it.
        damaged: bool,
    },
    /// It has to run: it makes the result, or nothing was asked.
    Missed(Keyed),
}

#[derive(Clone, Debug)]
pub(super) struct Keyed {
    pub(super) key: Digest,
    pub(super) input_hash: Digest,
    surroundings: Arc<Surroundings>,
}

/// What an attempt under way began with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) key: Digest,
    pub(super) at: Timestamp,
}

impl Decider<'_> {
    /// Whether a ready step has to run. If not, it has its result now, or waits for an answer.
    pub(super) fn has_to_run(&mut self, step: StepRef) -> Result<bool, NoValue> {
        if !self.state.plan.step(step.step).cache.enabled {
            return Ok(true);
        }
        match self.state.scratch.cache.remove(&step) {
            // A result that would patch its run was kept when it could not.
            Some(Looking::Answered { keyed, found: Some(found), flight, .. })
                if self.returned_patch(step, &found.output).is_none() =>
            {
                if self.reuse(step, &keyed, found) {
                    self.land_if_own(step, flight);
                    return Ok(false);
                }
                return Ok(self.lead_or_wait_for(step, keyed, flight, true));
            }
            Some(Looking::Answered { keyed, found, flight, damaged }) => {
                return Ok(self.lead_or_wait_for(step, keyed, flight, damaged || found.is_some()));
            }
            Some(asked @ Looking::Asked(_)) => {
                self.state.scratch.cache.insert(step, asked);
                self.state.scratch.blocked.push(step);
                return Ok(false);
            }
            Some(Looking::Missed(_)) | None => {}
        }
        self.ask(step)
    }

    fn lead_or_wait_for(&mut self, step: StepRef, keyed: Keyed, flight: Option<Flight>, useless: bool) -> bool {
        let leads = self.lead_or_wait(step, keyed.key, flight, useless);
        if leads {
            self.state.scratch.cache.insert(step, Looking::Missed(keyed));
        }
        leads
    }

    /// Asks for all that is not known of a step's result. Answers whether nothing is left to ask.
    fn ask(&mut self, step: StepRef) -> Result<bool, NoValue> {
        self.state.scratch.awaited.remove(&step);
        let Some(surroundings) = self.state.scratch.surroundings.clone() else {
            self.decision.cache.surroundings = true;
            self.state.scratch.blocked.push(step);
            return Ok(false);
        };
        if self.decision.cache.lookups.len() >= AT_ONCE {
            self.state.scratch.unasked.push_back(step);
            return Ok(false);
        }
        let input = self.state.input(step, self.context.limits)?;
        let trust = self.state.trust();
        let key = key_of(&self.state.preimage(step, &input.json, &surroundings, trust));
        if self.state.is_rebuilt(step.step) {
            let keyed = Keyed { key, input_hash: input.hash, surroundings };
            self.state.scratch.cache.insert(step, Looking::Missed(keyed));
            return Ok(true);
        }
        let mut keys = Vec::with_capacity(2);
        for read in trust.reads() {
            match *read == trust {
                true => keys.push(key),
                false => keys.push(key_of(&self.state.preimage(step, &input.json, &surroundings, *read))),
            }
        }
        let scope = self.state.plan.step(step.step).cache.scope;
        self.decision.cache.lookups.push(Lookup { step, keys, scope });
        let keyed = Keyed { key, input_hash: input.hash, surroundings };
        self.state.scratch.cache.insert(step, Looking::Asked(keyed));
        self.state.scratch.blocked.push(step);
        Ok(false)
    }

    /// Answers whether it fits what the run has already.
    fn reuse(&mut self, step: StepRef, keyed: &Keyed, found: Cached) -> bool {
        let Cached { key, output, run, seq, beyond } = found;
        let beyond = match beyond.map(|beyond| self.inherited(&beyond)) {
            Some(None) => return false,
            inherited => inherited.flatten().map(Box::new),
        };
        let elsewhere = beyond.as_ref().is_some_and(|beyond| beyond.output_blob.is_some());
        let scope = self.state.plan.step(step.step).cache.scope;
        self.effect(Effect::Cache(CacheChange::Used { key, scope }));
        let attempt = self.next_attempt(step);
        let output = (!elsewhere).then_some(output);
        let reused = Reused { key, input_hash: keyed.input_hash, output, run, seq, beyond };
        self.emit_step(step, attempt, 0, Body::StepReused(Box::new(reused)));
        self.item_has_ended(step);
        true
    }

    /// The key of an attempt that is about to begin: `None` where no result is kept. `Err`: it waits for an answer.
    pub(super) fn key_of_start(&mut self, step: StepRef, input: &Input) -> Result<Option<Digest>, ()> {
        if !self.state.plan.step(step.step).cache.enabled {
            return Ok(None);
        }
        let Some(Looking::Missed(keyed)) = self.state.scratch.cache.remove(&step) else {
            // In line since before this state was read: perhaps somebody has the result by now.
            self.state.scratch.blocked.push(step);
            self.decision.cache.surroundings = true;
            return Err(());
        };
        let preimage = self.state.preimage(step, &input.json, &keyed.surroundings, self.state.trust());
        debug_assert_eq!(keyed.key, key_of(&preimage), "the input of a ready step does not change");
        self.effect(Effect::Cache(CacheChange::Preimage { key: keyed.key, step: step.step, preimage }));
        Ok(Some(keyed.key))
    }

    /// The attempt that ends now succeeded: its result is kept if it began with a key.
    pub(super) fn keep(&mut self, step: StepRef, output: &Json) {
        let Some(begun) = self.state.running.get(&step).and_then(|running| running.begun) else { return };
        let beyond =
            self.beyond.clone().filter(|beyond| !beyond.is_empty()).map(|beyond| Box::new(beyond.for_others()));
        let elsewhere = beyond.as_ref().is_some_and(|beyond| beyond.output_blob.is_some());
        self.effect(Effect::Cache(CacheChange::Keep(Box::new(Kept {
            key: begun.key,
            step: step.step,
            scope: self.state.plan.step(step.step).cache.scope,
            trust: self.state.trust(),
            output: if elsewhere { Json::null() } else { output.clone() },
            beyond,
            seq: self.state.last_seq + 1,
            duration_ms: self.context.now.ms_since(begun.at),
        }))));
    }

    pub(super) fn forget_kept(&mut self) {
        let run_only = |scope| scope == CacheScope::RunOnly;
        // A patch may have taken away the step that kept something.
        let patched = self.state.plan.after.is_some();
        if patched || self.state.plan.steps.iter().any(|step| step.cache.enabled && run_only(step.cache.scope)) {
            self.effect(Effect::Cache(CacheChange::RunEnded));
        }
    }
}

impl RunState {
    /// Tells the state what its plan's steps depend on beyond the run. Counts until the next command but `Continue`.
    pub fn learn_surroundings(&mut self, surroundings: Arc<Surroundings>) {
        self.scratch.surroundings = Some(surroundings);
    }

    /// Tells the state whether there is a result for a step that asked. If the step asks no more, it changes nothing.
    pub fn learn_cached(&mut self, step: StepRef, found: Option<Cached>) {
        match self.scratch.cache.remove(&step) {
            Some(Looking::Asked(keyed)) => {
                self.scratch.cache.insert(step, Looking::Answered { keyed, found, flight: None, damaged: false });
            }
            Some(other) => drop(self.scratch.cache.insert(step, other)),
            None => {}
        }
    }

    /// Tells the state that there is a result for a step that asked, but not all of it: it has to be made again.
    pub fn learn_damaged(&mut self, step: StepRef) {
        self.learn_cached(step, None);
        if let Some(Looking::Answered { damaged, .. }) = self.scratch.cache.get_mut(&step) {
            *damaged = true;
        }
    }

    /// What was answered for the sake of an earlier command may not be true any more.
    pub(super) fn forget_answers(&mut self) {
        self.scratch.surroundings = None;
        if !self.scratch.cache.is_empty() {
            self.scratch.cache.retain(|_, looking| !matches!(looking, Looking::Answered { .. }));
        }
    }

    /// A run whose definition was changed no longer follows the tag that it was started from.
    pub(super) fn trust(&self) -> Trust {
        match self.plan.after {
            None => self.trust,
            Some(_) => Trust::Open,
        }
    }

    /// Somebody wants the step to run, whatever is kept.
    #[must_use]
    pub fn is_rebuilt(&self, step: StepIndex) -> bool {
        match &self.rebuild {
            None => false,
            Some(Rebuild::All) => true,
            Some(Rebuild::Steps(steps)) => steps.binary_search(&step).is_ok(),
        }
    }

    pub(super) fn preimage(&mut self, step: StepRef, input: &Json, surroundings: &Surroundings, trust: Trust) -> Json {
        let artifacts = self.artifacts_before(step.step);
        let planned = self.plan.step(step.step);
        let parts = KeyParts {
            org: self.org,
            trust,
            workflow: &self.plan.name,
            step: &planned.id,
            definition: planned.digest,
            input,
            artifacts: &artifacts,
            surroundings,
        };
        parts.preimage()
    }
}
