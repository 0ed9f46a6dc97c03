//! What a database has of definitions.

use milepost_core::document::{self, Loaded};
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_engine::EngineError;
use serde_json::json;

use super::Local;
use crate::output::time;
use crate::wire::{Definition, Deployed, Page, Said, Workflow};

const ORG: OrgId = OrgId::DEFAULT;

impl Local {
    pub(in crate::backend) async fn deploy(
        &self,
        document: Loaded,
        tag: Option<&str>,
    ) -> anyhow::Result<Said<Deployed>> {
        let plan = self.engine().await?.deploy_loaded(document).await?;
        let tag = tag.unwrap_or(&plan.name);
        self.store.set_tag(ORG, tag, plan.hash, time::now()).await?;
        Said::of(&json!({ "version_hash": format!("sha256:{}", plan.hash), "tag": tag }))
    }

    pub(in crate::backend) async fn workflows(
        &self,
        _cursor: Option<&str>,
        _limit: u32,
    ) -> anyhow::Result<Page<Said<Workflow>>> {
        Ok(Page { items: Vec::new(), next_cursor: None })
    }

    pub(in crate::backend) async fn workflow(&self, reference: &str) -> anyhow::Result<Said<Definition>> {
        let unknown = || EngineError::NoSuchWorkflow(reference.to_owned());
        let hash: Digest = match reference.strip_prefix("sha256:") {
            Some(hex) => hex.parse().map_err(|_| unknown())?,
            None => self.store.tag(ORG, reference).await?.ok_or_else(unknown)?,
        };
        let blob = self.store.blob(ORG, hash).await?.ok_or_else(unknown)?;
        let document = Json::parse(&String::from_utf8(blob.content)?)?;
        let plan = document::load_stored(document.as_str()).map_err(EngineError::Invalid)?;
        Said::of(&json!({
            "ref": reference,
            "name": plan.name,
            "version": plan.version,
            "version_hash": format!("sha256:{hash}"),
            "document": document,
        }))
    }
}
