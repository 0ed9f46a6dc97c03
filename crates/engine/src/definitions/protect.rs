//! Protected tags: who may move them, what they may point at, and how far what their runs keep is trusted.

use milepost_core::document;
use milepost_core::id::OrgId;
use milepost_core::plan::Plan;
use milepost_core::text::check_name;
use milepost_store::StoreError;
use milepost_store::rows::TagRow;
use serde::{Deserialize, Serialize};

use super::moves::Destination;
use super::reference::Target;
use super::{DefinitionError, Definitions, Moving};
use crate::error::EngineError;
use crate::work::Lane;

/// What protects a tag. While there is any, it only points at documents that pass today's checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protection {
    /// Who may move it; anybody if there is none.
    #[serde(default)]
    pub movers: Vec<String>,
    /// Whose results its runs may reuse.
    #[serde(default)]
    pub trust: Trust,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Those of protected tags.
    #[default]
    Protected,
    /// Anybody's.
    Any,
}

impl Protection {
    /// # Errors
    /// What is stored is none.
    pub fn of(tag: &TagRow) -> Result<Option<Protection>, EngineError> {
        let read = |text: &String| {
            serde_json::from_str(text)
                .map_err(|error| StoreError::Corrupt(format!("the protection of tag `{}`: {error}", tag.tag)))
        };
        Ok(tag.protection.as_ref().map(read).transpose()?)
    }
}

impl Definitions {
    /// Protects a tag, otherwise than before if it was protected; or takes the protection away. Only those who may move the
    /// tag may do it.
    ///
    /// # Errors
    /// There is no such tag, or the caller may not.
    pub async fn protect(
        &self,
        org: OrgId,
        tag: &str,
        protection: Option<&Protection>,
        by: Option<&str>,
    ) -> Result<TagRow, EngineError> {
        for mover in protection.iter().flat_map(|protection| &protection.movers) {
            check_name("the name of a mover", mover, self.limits.name_chars, "bad_actor")?;
        }
        let now = self.tag(org, tag).await?;
        let moving = Moving { by: by.map(ToOwned::to_owned), ..Moving::default() };
        self.check_mover(tag, &moving, Some(&now))?;
        let text = protection.map(|protection| serde_json::to_string(protection).expect("names can be written"));
        if !self.store.definitions().protect(org, tag, text.as_deref()).await? {
            return Err(EngineError::NoSuchWorkflow(tag.to_owned()));
        }
        tracing::info!(tag, by, protection = text, "what protects a tag was changed");
        Ok(TagRow { protection: text, ..now })
    }

    /// Whose results the steps of a run may have that follows what a reference means: those of a protected tag that is
    /// where the reference found it. Costs nothing where no results are kept.
    pub(crate) async fn trust_in(
        &self,
        org: OrgId,
        plan: &Plan,
        target: &Target,
    ) -> Result<milepost_core::cache::Trust, EngineError> {
        use milepost_core::cache::Trust as RunTrust;
        let Some((tag, _)) = target.tag.as_ref().filter(|_| plan.steps.iter().any(|step| step.cache.enabled)) else {
            return Ok(RunTrust::Open);
        };
        let row = self.store.definitions().tag(org, tag).await?;
        let Some(row) = row.filter(|row| row.revision_id == target.revision_id) else { return Ok(RunTrust::Open) };
        Ok(match Protection::of(&row)? {
            Some(Protection { trust: Trust::Protected, .. }) => RunTrust::Protected,
            // What takes anybody's results may have made its own of them.
            Some(Protection { trust: Trust::Any, .. }) | None => RunTrust::Open,
        })
    }

    pub(super) fn check_mover(&self, tag: &str, moving: &Moving, now: Option<&TagRow>) -> Result<(), EngineError> {
        let Some(Protection { movers, .. }) = now.map(Protection::of).transpose()?.flatten() else { return Ok(()) };
        match movers.is_empty() || moving.by.as_ref().is_some_and(|by| movers.contains(by)) {
            true => Ok(()),
            false => Err(DefinitionError::Protected { tag: tag.to_owned(), movers }.into()),
        }
    }

    /// Documents were checked when they were stored, by the rules of that day.
    pub(super) async fn check_target(
        &self,
        org: OrgId,
        now: Option<&TagRow>,
        to: &Destination,
    ) -> Result<(), EngineError> {
        if now.is_none_or(|now| now.protection.is_none()) {
            return Ok(());
        }
        let text = self.documents.text(org, to.version_hash, to.revision_id).await?;
        let (bytes, limits) = (text.len(), self.limits.clone());
        let check = move || document::load(&text, &limits).map(drop);
        self.work.sized(Lane::Documents, bytes, check).await?.map_err(EngineError::Invalid)
    }
}
