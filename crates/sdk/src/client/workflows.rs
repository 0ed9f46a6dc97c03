//! Definitions.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::Client;
use crate::error::Error;
use crate::wire::{Deployed, Move, Page, Revision, Workflow};

#[derive(Serialize)]
struct DeployBody<'a> {
    /// Its text, YAML or JSON.
    document: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    meta: Option<&'a Value>,
}

impl Client {
    /// Stores a document, YAML or JSON, and points its name at it.
    ///
    /// # Errors
    /// The document has problems (`Refused`, with all of them), or the server does not answer.
    pub async fn deploy(&self, document: &str) -> Result<Deployed, Error> {
        Ok(self.post(&["workflows"], &DeployBody { document, tag: None, meta: None }).await?.1)
    }

    /// Stores a document and points another name than its own at it.
    ///
    /// # Errors
    /// As of `deploy`.
    pub async fn deploy_as(&self, tag: &str, document: &str) -> Result<Deployed, Error> {
        Ok(self.post(&["workflows"], &DeployBody { document, tag: Some(tag), meta: None }).await?.1)
    }

    /// The same with an object of your own that is kept with the revision.
    ///
    /// # Errors
    /// As of `deploy`.
    pub async fn deploy_with(&self, tag: Option<&str>, document: &str, meta: &Value) -> Result<Deployed, Error> {
        Ok(self.post(&["workflows"], &DeployBody { document, tag, meta: Some(meta) }).await?.1)
    }

    /// A revision: what it is, where it came from, and what its author noted beside it. Nothing is put together.
    ///
    /// # Errors
    /// There is none, or the server does not answer.
    pub async fn revision(&self, revision_id: Uuid) -> Result<Revision, Error> {
        self.get(&["revisions", &revision_id.to_string()], &[]).await
    }

    /// The moves of a name, the newest first.
    ///
    /// # Errors
    /// There is no such name, or the server does not answer.
    pub async fn moves(&self, tag: &str, cursor: Option<&str>, limit: u32) -> Result<Page<Move>, Error> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["tags", tag, "history"], &query).await
    }

    /// Names and what they point at, by name.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn workflows(&self, cursor: Option<&str>, limit: u32) -> Result<Page<Workflow>, Error> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["workflows"], &query).await
    }

    /// The document behind a name or a hash, as it is stored.
    ///
    /// # Errors
    /// There is none, or the server does not answer.
    pub async fn document(&self, reference: &str) -> Result<Value, Error> {
        #[derive(serde::Deserialize)]
        struct Definition {
            document: Value,
        }
        let definition: Definition = self.get(&["workflows", reference], &[]).await?;
        Ok(definition.document)
    }
}
