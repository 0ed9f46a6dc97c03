//! The artifacts of steps that have ended well, as steps after them see them: values in expressions, a hash in cache keys.
//!
//! A result has the artifacts that came with its outcome, those that were recorded for the step before it ended, or those
//! that came with the result it was given. What is recorded for a step after its end is no part of its result: whoever
//! depends on it may have begun.
//!
//! **Invariant:** the artifacts of a result never change. So the input and the key of a step are the same whenever they are
//! worked out.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Decider;
use super::state::{Phase, RunState};
use crate::artifact::{Artifact, Beyond};
use crate::event::{Body, Event, StepRef};
use crate::hash::Digest;
use crate::plan::StepIndex;
use crate::status::SkipReason;

/// Of those that are recorded for a step before it ends, its result has so many, the newest.
const RECORDED: usize = 1000;

/// Which results have artifacts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Upstream {
    /// Steps and items that have ended well, with the hash of what they left.
    pub(super) left: BTreeMap<StepRef, Digest>,
    /// What was recorded for steps and items that have not ended.
    pub(super) recorded: BTreeMap<StepRef, VecDeque<Artifact>>,
}

impl Upstream {
    /// The step runs again, or is gone: what it left is nobody's.
    pub(super) fn forget(&mut self, step: StepIndex) {
        if self.left.is_empty() && self.recorded.is_empty() {
            return;
        }
        self.left.retain(|of, _| of.step != step);
        self.recorded.retain(|of, _| of.step != step);
    }
}

impl RunState {
    /// What an event means for what a step leaves.
    pub(super) fn artifacts_left(&mut self, event: &Event) {
        let Some(step) = event.step else { return };
        let beyond = match &event.body {
            Body::ArtifactRecorded(artifact) => return self.recorded_early(step, artifact),
            Body::StepCompleted { beyond, .. } => beyond.as_deref(),
            Body::StepReused(reused) => reused.beyond.as_deref(),
            // Its turn may yet come.
            Body::StepSkipped { reason: SkipReason::RunStopped } => return,
            Body::StepSkipped { .. } => None,
            _ => return,
        };
        if !self.upstream.recorded.is_empty() {
            self.upstream.recorded.remove(&step);
        }
        let Some(digest) = beyond.and_then(Beyond::artifacts_digest) else { return };
        self.upstream.left.insert(step, digest);
        self.scratch.digests.remove(&step.step);
        self.learn_artifacts(event.seq, beyond.into_iter().flat_map(Beyond::result));
    }

    fn recorded_early(&mut self, step: StepRef, artifact: &Artifact) {
        let ended = |phase| matches!(phase, Phase::Completed | Phase::Skipped(_));
        let whole_list = step.item.is_none() && self.plan.step(step.step).foreach.is_some();
        if whole_list || self.step(step).is_none_or(|state| ended(state.phase)) {
            return;
        }
        let recorded = self.upstream.recorded.entry(step).or_default();
        if recorded.len() == RECORDED {
            recorded.pop_front();
        }
        recorded.push_back(artifact.clone());
    }

    /// Tells the state which artifacts the result of an event has.
    pub fn learn_artifacts<'a>(&mut self, seq: u64, artifacts: impl IntoIterator<Item = &'a Artifact>) {
        let (value, bytes) = value_of(artifacts);
        if self.scratch.artifacts.insert(seq, Arc::new(value)).is_none() {
            self.scratch.artifact_bytes += bytes;
        }
    }

    /// The artifacts of a step that has ended well, or the events to read for it. `None`: it has not, or they are missing.
    pub(super) fn artifacts_value(&self, step: StepIndex, missing: &mut Vec<u64>) -> Option<Arc<Value>> {
        let listed = self.plan.step(step).foreach.is_some();
        let state = self.steps[step as usize];
        match state.phase {
            Phase::Completed | Phase::Skipped(SkipReason::CacheHit) => {}
            Phase::Skipped(SkipReason::Condition) => return Some(Arc::new(if listed { json!([]) } else { json!({}) })),
            _ => return None,
        }
        let Some(items) = self.items.get(&step).filter(|_| listed) else {
            return self.left_by(StepRef::whole(step), state.phase, state.output_seq, missing);
        };
        let before = missing.len();
        let of_items = items.steps.iter().enumerate().map(|(item, state)| {
            let left = self.left_by(StepRef::item(step, item as u32), state.phase, state.output_seq, missing);
            left.map_or_else(|| json!({}), |value| (*value).clone())
        });
        let list: Vec<Value> = of_items.collect();
        (missing.len() == before).then(|| Arc::new(Value::Array(list)))
    }

    fn left_by(&self, step: StepRef, phase: Phase, seq: u64, missing: &mut Vec<u64>) -> Option<Arc<Value>> {
        // Nobody knows what a step would leave that is only taken to have ended.
        let assumed = self.scratch.preview && phase == Phase::Completed;
        if !assumed && !self.upstream.left.contains_key(&step) {
            return Some(Arc::new(json!({})));
        }
        let known = self.scratch.artifacts.get(&seq).cloned();
        if known.is_none() {
            missing.push(seq);
        }
        known
    }

    /// The hashes of what the steps before this one left, by their ids. Those that left nothing are not among them.
    pub(super) fn artifacts_before(&mut self, step: StepIndex) -> BTreeMap<Arc<str>, Digest> {
        if self.upstream.left.is_empty() {
            return BTreeMap::new();
        }
        let plan = self.plan.clone();
        let left = |before: &StepIndex| Some((plan.step(*before).id.clone(), self.digest_of(*before)?));
        plan.step(step).depends_on.iter().filter_map(left).collect()
    }

    /// Of a list all of what its items left, and which item left what.
    fn digest_of(&mut self, step: StepIndex) -> Option<Digest> {
        if self.plan.step(step).foreach.is_none() {
            return self.upstream.left.get(&StepRef::whole(step)).copied();
        }
        if let Some(known) = self.scratch.digests.get(&step) {
            return *known;
        }
        let of_step = StepRef::item(step, 0)..=StepRef::item(step, u32::MAX);
        let mut parts = Vec::new();
        for (item, digest) in self.upstream.left.range(of_step) {
            let mut part = item.item.unwrap_or(0).to_be_bytes().to_vec();
            part.extend_from_slice(&digest.0);
            parts.push(part);
        }
        let digest = (!parts.is_empty()).then(|| Digest::of_parts(parts.iter().map(Vec::as_slice)));
        self.scratch.digests.insert(step, digest);
        digest
    }
}

impl Decider<'_> {
    /// What was recorded for a step that is about to end well is part of its result.
    pub(super) fn gather_recorded(&mut self, step: StepRef) {
        let Some(early) = self.state.upstream.recorded.get(&step) else { return };
        let beyond = self.beyond.get_or_insert_default();
        for artifact in early {
            if !beyond.recorded.iter().any(|known| known.is_the_same(artifact)) {
                beyond.recorded.push(artifact.clone());
            }
        }
    }
}

/// By kind and name, as expressions see them, and roughly how many bytes that takes.
fn value_of<'a>(artifacts: impl IntoIterator<Item = &'a Artifact>) -> (Value, usize) {
    let mut artifacts: Vec<&Artifact> = artifacts.into_iter().collect();
    // Of those with one name the last one counts.
    artifacts.sort_by_key(|artifact| artifact.training_step);
    let (mut kinds, mut bytes) = (Map::new(), 0);
    for artifact in artifacts {
        let kind = kinds.entry(artifact.kind.clone()).or_insert_with(|| json!({}));
        let Value::Object(names) = kind else { continue };
        let name = artifact.name();
        bytes += 200 + name.len() + artifact.uri.len();
        names.insert(name, json!({"uri": artifact.uri, "sha256": artifact.sha256, "size": artifact.size_bytes}));
    }
    (Value::Object(kinds), bytes)
}
