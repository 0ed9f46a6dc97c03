//! What a database has of definitions.

use milepost_api::answers;
use milepost_core::document::{self, Loaded};
use milepost_core::json::Json;
use milepost_engine::EngineError;

use super::Local;
use super::definitions::{ORG, cut, moving, refused};
use crate::backend::Mover;
use crate::wire::{Definition, Deployed, Page, Said, Workflow};

impl Local {
    pub(in crate::backend) async fn deploy(
        &self,
        document: Loaded,
        tag: Option<&str>,
        mover: &Mover,
    ) -> anyhow::Result<Said<Deployed>> {
        let tag = tag.map_or_else(|| document.plan.name.to_string(), ToOwned::to_owned);
        let (_, moved) = self.definitions()?.deploy(ORG, &tag, document, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::Deployed::from(moved.tag))
    }

    pub(in crate::backend) async fn workflows(
        &self,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Workflow>>> {
        let rows = self.definitions()?.tags(ORG, cursor, limit.saturating_add(1)).await.map_err(refused)?;
        cut(rows, limit, |row| row.tag.clone(), |row| Ok(answers::Tag::try_from(row)?))
    }

    pub(in crate::backend) async fn workflow(&self, reference: &str) -> anyhow::Result<Said<Definition>> {
        let definitions = self.definitions()?;
        let target = definitions.resolve(ORG, reference).await.map_err(refused)?;
        let document = Json::trusted(definitions.document(ORG, &target).await.map_err(refused)?);
        let plan = document::load_stored(document.as_str()).map_err(EngineError::Invalid).map_err(refused)?;
        Said::of(&answers::Workflow::of(reference.to_owned(), &plan, &target, document))
    }
}
