//! Definitions for one run: a stored document with a patch of its own.

use std::sync::Arc;

use milepost_core::document::{self, Loaded, PatchError};
use milepost_core::plan::Plan;
use milepost_core::run::{Rejection, RejectionKind};
use serde_json::Value;

use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::{Lane, weight};

impl Engine {
    /// A stored document with RFC 6902 operations applied to its canonical form, stored as a document of its own. No name
    /// points at it.
    ///
    /// # Errors
    /// An operation does not fit (`patch_failed`), the result has problems, or nobody here knows some of its skills.
    pub async fn patched(&self, plan: &Arc<Plan>, ops: &Value) -> Result<Arc<Plan>, EngineError> {
        let loaded = self.patch(plan, ops).await?;
        self.add(loaded).await
    }

    /// The same, and nothing is stored.
    ///
    /// # Errors
    /// An operation does not fit (`patch_failed`), or the result has problems.
    pub async fn patch(&self, plan: &Plan, ops: &Value) -> Result<Loaded, EngineError> {
        let text = self.plans.text(self.org, plan.hash).await?;
        self.patch_text(text, ops).await
    }

    /// The same with a document that was read before.
    ///
    /// # Errors
    /// An operation does not fit (`patch_failed`), or the result has problems.
    pub async fn patch_text(&self, text: Arc<str>, ops: &Value) -> Result<Loaded, EngineError> {
        let (bytes, ops, limits) = (text.len() + weight(ops), ops.clone(), self.limits().clone());
        let patch = move || document::patch(&document::without_numbers(&text)?, &ops, &limits);
        Ok(self.work().sized(Lane::Documents, bytes, patch).await??)
    }

    /// A document as people wrote it, of one that a patch of a run made.
    pub(crate) async fn without_numbers(&self, text: Arc<str>) -> Result<Arc<str>, EngineError> {
        let bytes = text.len();
        let plain = move || document::without_numbers(&text).map(Arc::from);
        Ok(self.work().sized(Lane::Stored, bytes, plain).await??)
    }
}

impl From<PatchError> for EngineError {
    fn from(error: PatchError) -> EngineError {
        match error {
            PatchError::Failed(message) => {
                Rejection { kind: RejectionKind::Invalid, code: "patch_failed", message }.into()
            }
            PatchError::Invalid(problems) => EngineError::Invalid(problems),
        }
    }
}
