//! What an engine does with workflows before they are runs: stores them, finds them, makes plans of them.

use std::sync::Arc;

use milepost_core::document::{self, Loaded};
use milepost_core::json::Json;
use milepost_core::plan::Plan;

use crate::definitions::{Definitions, Moved, Moving, Target};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::work::Lane;

impl Engine {
    /// Reads a document, YAML or JSON, and checks it, beside the runtime if it is large.
    ///
    /// # Errors
    /// All that is wrong with it, or it could not be checked.
    pub async fn load(&self, source: String) -> Result<Loaded, EngineError> {
        let limits = self.limits().clone();
        let (bytes, load) = (source.len(), move || document::load(&source, &limits));
        self.work().sized(Lane::Documents, bytes, load).await?.map_err(EngineError::Invalid)
    }

    /// Stores a document and points its name at it, so that `workflow` steps and `start` find it.
    ///
    /// # Errors
    /// The document has problems, or the store cannot be written.
    pub async fn deploy(&self, source: &str) -> Result<Arc<Plan>, EngineError> {
        let loaded = self.load(source.to_owned()).await?;
        self.deploy_loaded(loaded).await
    }

    /// The same for a document that was read before.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn deploy_loaded(&self, loaded: Loaded) -> Result<Arc<Plan>, EngineError> {
        let name = loaded.plan.name.clone();
        Ok(self.deploy_as(&name, loaded, &Moving::default()).await?.0)
    }

    /// The same under a name of the caller's choice; says what became of it.
    ///
    /// # Errors
    /// The name cannot be one, the tag moved or may not be moved, or the store cannot be written.
    pub async fn deploy_as(
        &self,
        tag: &str,
        loaded: Loaded,
        moving: &Moving,
    ) -> Result<(Arc<Plan>, Moved), EngineError> {
        let (plan, moved) = self.definitions.deploy(self.org, tag, loaded, moving).await?;
        Ok((self.plans.keep(self.org, Arc::new(plan)), moved))
    }

    /// Documents in versions, tags and their history.
    #[must_use]
    pub fn definitions(&self) -> &Arc<Definitions> {
        &self.definitions
    }

    /// A deployed workflow, by any reference.
    ///
    /// # Errors
    /// There is no such workflow.
    pub async fn resolve(&self, reference: &str) -> Result<Arc<Plan>, EngineError> {
        Ok(self.resolve_target(reference).await?.0)
    }

    /// The same, with what the reference means.
    ///
    /// # Errors
    /// There is no such workflow.
    pub async fn resolve_target(&self, reference: &str) -> Result<(Arc<Plan>, Target), EngineError> {
        let (plan, target) = self.plans.resolve(self.org, reference).await?;
        Ok((self.unnumbered(plan).await?, target))
    }

    /// A deployed workflow with its canonical document.
    ///
    /// # Errors
    /// There is no such workflow.
    pub async fn document(&self, reference: &str) -> Result<(Arc<Plan>, Target, Json), EngineError> {
        let (plan, target) = self.resolve_target(reference).await?;
        let text = self.definitions.document(self.org, &target).await?;
        // Of a plan that a patch made, the numbers of its steps are nothing to people.
        let text = match target.version_hash == plan.hash {
            true => text,
            false => self.without_numbers(text).await?,
        };
        Ok((plan, target, Json::trusted(text)))
    }

    /// Stores a document that was read before, without a name, so that it can be run.
    ///
    /// # Errors
    /// Nobody here knows some of its skills, or the store cannot be written.
    pub async fn add(&self, loaded: Loaded) -> Result<Arc<Plan>, EngineError> {
        self.check_skills(&loaded.plan)?;
        self.plans.add(self.org, loaded).await
    }
}
