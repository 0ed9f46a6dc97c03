//! How a `RunPatched` looks in the log: steps by their ids, items counted where there were any.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{read, text};
use crate::event::{Patched, SetBack, StepRef};
use crate::hash::Digest;
use crate::id::SignalId;
use crate::json::Json;
use crate::plan::{Plan, StepIndex};

#[derive(Serialize, Deserialize)]
struct PatchedData {
    plan_before: Digest,
    plan_hash: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The step that returned it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    by_step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    undoes: Option<SignalId>,
    steps_total: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    added: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changed: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    orphaned: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rerun: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reset: Vec<String>,
    /// How many items those of `removed` and `rerun` had that had some.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    items: BTreeMap<String, u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ops: Option<Json>,
}

#[derive(Deserialize)]
struct PlansData {
    plan_before: Digest,
    plan_hash: Digest,
}

pub(super) fn encode(patched: &Patched, plan: &Plan) -> Json {
    let id = |step: StepIndex| plan.step(step).id.to_string();
    let ids = |steps: &[StepIndex]| steps.iter().map(|step| id(*step)).collect();
    let set_back = |steps: &[SetBack]| steps.iter().map(|back| id(back.step)).collect();
    let with_items = patched.removed.iter().chain(&patched.rerun).filter(|back| back.items > 0);
    text(&PatchedData {
        plan_before: patched.before,
        plan_hash: patched.plan,
        message: patched.message.clone(),
        by_step: patched.step.map(|step| step.name(plan)),
        undoes: patched.undoes,
        steps_total: patched.steps_total,
        added: ids(&patched.added),
        changed: ids(&patched.changed),
        removed: set_back(&patched.removed),
        orphaned: ids(&patched.orphaned),
        rerun: set_back(&patched.rerun),
        reset: ids(&patched.reset),
        items: with_items.map(|back| (id(back.step), back.items)).collect(),
        ops: patched.ops.clone(),
    })
}

/// `plan` may be a later one of the same run: it knows all steps that the run has had.
pub(super) fn decode(data: &str, plan: &Plan) -> Result<Patched, String> {
    let data: PatchedData = read(data)?;
    let unknown = |id: &str| format!("the plan has no step `{id}`");
    let find = |id: &String| plan.find(id).ok_or_else(|| unknown(id));
    let ids = |ids: &[String]| ids.iter().map(find).collect::<Result<Vec<StepIndex>, String>>();
    let set_back = |ids: &[String]| {
        let items = |id: &String| data.items.get(id).copied().unwrap_or(0);
        ids.iter().map(|id| Ok(SetBack { step: find(id)?, items: items(id) })).collect::<Result<Vec<_>, String>>()
    };
    let step = match &data.by_step {
        None => None,
        Some(name) => Some(StepRef::parse(name, plan).ok_or_else(|| unknown(name))?),
    };
    Ok(Patched {
        before: data.plan_before,
        plan: data.plan_hash,
        step,
        undoes: data.undoes,
        added: ids(&data.added)?,
        changed: ids(&data.changed)?,
        removed: set_back(&data.removed)?,
        orphaned: ids(&data.orphaned)?,
        rerun: set_back(&data.rerun)?,
        reset: ids(&data.reset)?,
        steps_total: data.steps_total,
        ops: data.ops,
        message: data.message,
    })
}

/// The plan before, and the one after.
pub(super) fn plans(data: &str) -> Result<(Digest, Digest), String> {
    read::<PlansData>(data).map(|data| (data.plan_before, data.plan_hash))
}
