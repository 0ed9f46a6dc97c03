//! What a database has of definitions.

use milepost_core::document::{self, Loaded};
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_engine::EngineError;
use milepost_engine::definitions::Moving;
use milepost_store::rows::TagRow;
use serde_json::json;

use super::Local;
use crate::backend::Mover;
use crate::wire::{Definition, Deployed, Page, Said, Workflow};

const ORG: OrgId = OrgId::DEFAULT;

impl Local {
    pub(in crate::backend) async fn deploy(
        &self,
        document: Loaded,
        tag: Option<&str>,
        mover: &Mover,
    ) -> anyhow::Result<Said<Deployed>> {
        if mover.expect.is_some() {
            return self.needs_server();
        }
        let tag = tag.map_or_else(|| document.plan.name.to_string(), ToOwned::to_owned);
        let (_, moved) = self.definitions()?.deploy(ORG, &tag, document, &Moving::default()).await?;
        Said::of(&json!({
            "revision_id": moved.tag.revision_id,
            "version_hash": format!("sha256:{}", moved.tag.version_hash),
            "tag": tag,
            "tag_version": moved.tag.version,
        }))
    }

    pub(in crate::backend) async fn workflows(
        &self,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Workflow>>> {
        let mut rows = self.definitions()?.tags(ORG, cursor, limit.saturating_add(1)).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.tag.clone());
        let workflow = |row: &TagRow| {
            Said::of(&json!({
                "tag": row.tag,
                "version_hash": format!("sha256:{}", row.version_hash),
                "revision_id": row.revision_id,
                "tag_version": row.version,
                "moved_at": row.moved_at,
            }))
        };
        Ok(Page { items: rows.iter().map(workflow).collect::<anyhow::Result<_>>()?, next_cursor })
    }

    pub(in crate::backend) async fn workflow(&self, reference: &str) -> anyhow::Result<Said<Definition>> {
        let definitions = self.definitions()?;
        let target = definitions.resolve(ORG, reference).await?;
        let document = Json::trusted(definitions.document(ORG, &target).await?);
        let plan = document::load_stored(document.as_str()).map_err(EngineError::Invalid)?;
        Said::of(&json!({
            "ref": reference,
            "name": plan.name,
            "version": plan.version,
            "revision_id": target.revision_id,
            "version_hash": format!("sha256:{}", target.version_hash),
            "document": document,
        }))
    }
}
