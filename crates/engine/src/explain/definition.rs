//! A changed definition by its fields, where both documents are at hand; by its digests else.

use milepost_core::difference::{Difference, Part, compare};
use milepost_core::hash::Digest;
use serde_json::{Map, Value};

use super::Subject;
use super::nearest::Nearest;
use crate::engine::Engine;
use crate::error::EngineError;

/// What the digest of a step's definition covers.
const COVERED: [&str; 6] = ["skill", "input", "foreach", "runtime", "env", "secrets"];

impl Engine {
    /// The differences, with the fields of the definition in the place of its digest.
    pub(super) async fn with_definitions(
        &self,
        subject: &Subject,
        nearest: &Nearest,
    ) -> Result<Vec<Difference>, EngineError> {
        let mut found = nearest.differences.clone();
        let Some(place) = found.iter().position(|difference| difference.part == Part::Definition) else {
            return Ok(found);
        };
        let Some(head) = self.store.head(self.org, nearest.row.run).await? else { return Ok(found) };
        let before = self.covered(head.plan_hash, subject.step_id()).await?;
        let after = self.covered(subject.plan.hash, subject.step_id()).await?;
        let (Some(before), Some(after)) = (before, after) else { return Ok(found) };
        let mut fields = Vec::new();
        compare(Part::Definition, String::new(), Some(&before), Some(&after), &mut fields);
        if !fields.is_empty() {
            found.splice(place..=place, fields);
        }
        Ok(found)
    }

    /// What a document says of a step, with its defaults, as far as its digest covers it.
    async fn covered(&self, plan: Digest, step: &str) -> Result<Option<Value>, EngineError> {
        let text = match self.plans.text(self.org, plan).await {
            Ok(text) => text,
            Err(error) if error.is_passing() => return Err(error),
            // The document is gone with its runs.
            Err(_) => return Ok(None),
        };
        let Ok(document) = serde_json::from_str::<Value>(&text) else { return Ok(None) };
        let Some(step) = document.get("steps").and_then(|steps| steps.get(step)) else { return Ok(None) };
        let field = |name: &str| step.get(name).or_else(|| document.get("defaults")?.get(name)).cloned();
        let fields: Map<String, Value> =
            COVERED.iter().filter_map(|name| Some(((*name).to_owned(), field(name)?))).collect();
        Ok(Some(Value::Object(fields)))
    }
}
