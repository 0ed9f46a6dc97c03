//! What a server is asked about secrets.

use serde::Serialize;
use serde_json::json;

use super::Client;
use crate::backend::NewSecret;
use crate::wire::{Page, Rotated, Said, Secret, SecretSet};

#[derive(Serialize)]
struct SecretBody<'a> {
    value: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    queues: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    workflows: Option<&'a [String]>,
}

impl Client {
    pub(crate) async fn set_secret(&self, new: &NewSecret) -> anyhow::Result<Said<SecretSet>> {
        let NewSecret { name, value, queues, workflows } = new;
        let body = SecretBody { value, queues: queues.as_deref(), workflows: workflows.as_deref() };
        self.put(&["secrets", name], &body).await
    }

    pub(crate) async fn secrets(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Secret>>> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["secrets"], &query).await
    }

    pub(crate) async fn remove_secret(&self, name: &str, version: Option<u32>) -> anyhow::Result<()> {
        let query: Vec<(&str, String)> = version.iter().map(|version| ("version", version.to_string())).collect();
        self.delete(&["secrets", name], &query).await
    }

    pub(crate) async fn rotate_secrets(&self) -> anyhow::Result<Said<Rotated>> {
        Ok(self.post(&["rotate-secrets"], &json!({})).await?.1)
    }
}
