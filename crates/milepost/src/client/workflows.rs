//! What a server is asked about definitions.

use milepost_core::document::Loaded;
use milepost_core::json::Json;
use serde::Serialize;

use super::Client;
use crate::backend::Mover;
use crate::wire::{Definition, Deployed, Page, Said, Workflow};

#[derive(Serialize)]
struct DeployBody<'a> {
    document: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    tag: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl Client {
    pub(crate) async fn deploy(
        &self,
        document: &Loaded,
        tag: Option<&str>,
        mover: &Mover,
    ) -> anyhow::Result<Said<Deployed>> {
        let message = mover.message.as_deref();
        let body = DeployBody { document: Json::trusted(document.canonical.as_str()), tag, message };
        self.post_as(&["workflows"], &body, mover).await
    }

    pub(crate) async fn workflows(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Workflow>>> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["workflows"], &query).await
    }

    pub(crate) async fn workflow(&self, reference: &str) -> anyhow::Result<Said<Definition>> {
        self.get(&["workflows", reference], &[]).await
    }
}
