//! A changed definition by its fields, where both documents are at hand; by its digests else.

use std::sync::Arc;

use milepost_core::difference::{Differences, Part};
use milepost_core::hash::Digest;
use serde_json::{Map, Value};

use super::Subject;
use super::nearest::Nearest;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::Lane;

/// What the digest of a step's definition covers.
const COVERED: [&str; 6] = ["skill", "input", "foreach", "runtime", "env", "secrets"];

impl Engine {
    /// The differences, with the fields of the definition in the place of its digest.
    pub(super) async fn with_definitions(
        &self,
        subject: &Subject,
        nearest: &Nearest,
    ) -> Result<Differences, EngineError> {
        let found = nearest.differences.clone();
        if !found.list.iter().any(|difference| difference.part == Part::Definition) {
            return Ok(found);
        }
        let Some(head) = self.store.head(self.org, nearest.row.run).await? else { return Ok(found) };
        let (Some(before), Some(after)) = (self.text_of(head.plan_hash).await?, self.text_of(subject.plan.hash).await?)
        else {
            return Ok(found);
        };
        let (bytes, step) = (before.len() + after.len(), subject.step_id().to_owned());
        let compare = move || match (covered(&before, &step), covered(&after, &step)) {
            (Some(before), Some(after)) => {
                found.with_part(Part::Definition, Differences::of_part(Part::Definition, &before, &after))
            }
            _ => found,
        };
        Ok(self.work().sized(Lane::Stored, bytes, compare).await?)
    }

    /// The document of a plan; none if it is gone with its runs.
    async fn text_of(&self, plan: Digest) -> Result<Option<Arc<str>>, EngineError> {
        match self.plans.text(self.org, plan).await {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.is_passing() => Err(error),
            Err(_) => Ok(None),
        }
    }
}

/// What a document says of a step, with its defaults, as far as its digest covers it.
fn covered(text: &str, step: &str) -> Option<Value> {
    let document = serde_json::from_str::<Value>(text).ok()?;
    let step = document.get("steps")?.get(step)?;
    let field = |name: &str| step.get(name).or_else(|| document.get("defaults")?.get(name)).cloned();
    let fields: Map<String, Value> =
        COVERED.iter().filter_map(|name| Some(((*name).to_owned(), field(name)?))).collect();
    Some(Value::Object(fields))
}
