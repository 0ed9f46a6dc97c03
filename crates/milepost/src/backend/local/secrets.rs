//! Secrets of a database.

use milepost_core::id::OrgId;
use milepost_engine::secrets::SecretAccess;
use milepost_store::rows::SecretRow;
use serde_json::{Value, json};

use super::Local;
use crate::backend::NewSecret;
use crate::wire::{Page, Rotated, Said, Secret, SecretSet};

const ORG: OrgId = OrgId::DEFAULT;

impl Local {
    pub(in crate::backend) async fn set_secret(&self, new: &NewSecret) -> anyhow::Result<Said<SecretSet>> {
        let NewSecret { name, value, queues, workflows } = new;
        let access = SecretAccess { queues: queues.clone(), workflows: workflows.clone() };
        let set = self.engine().await?.secrets().set(ORG, name, value, &access).await?;
        Said::of(&json!({ "name": name, "version": set.version }))
    }

    pub(in crate::backend) async fn secrets(
        &self,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Secret>>> {
        let mut rows = self.store.secrets().list(ORG, cursor, limit.saturating_add(1)).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.name.clone());
        let items = rows.iter().map(|row| Said::of(&shown(row))).collect::<anyhow::Result<_>>()?;
        Ok(Page { items, next_cursor })
    }

    pub(in crate::backend) async fn remove_secret(&self, name: &str, version: Option<u32>) -> anyhow::Result<()> {
        Ok(self.engine().await?.secrets().remove(ORG, name, version).await?)
    }

    pub(in crate::backend) async fn rotate_secrets(&self) -> anyhow::Result<Said<Rotated>> {
        let rotated = self.engine().await?.secrets().rotate().await?;
        Said::of(&json!({ "resealed": rotated.resealed, "unreadable": rotated.unreadable }))
    }
}

/// As a server shows it.
fn shown(row: &SecretRow) -> Value {
    let newest = row.versions.last();
    let versions = row.versions.iter().map(|(version, at)| json!({ "version": version, "created_at": at }));
    json!({
        "name": row.name,
        "version": newest.map_or(row.last_version, |(version, _)| *version),
        "versions": versions.collect::<Vec<_>>(),
        "queues": row.queues,
        "workflows": row.workflows,
        "created_at": newest.map(|(_, at)| at),
    })
}
