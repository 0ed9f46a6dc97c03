//! What a server is asked about its outbox.

use milepost_core::id::OutboxId;
use serde_json::json;

use super::Client;
use crate::wire::{Delivery, Page, Retried, Said};

impl Client {
    pub(crate) async fn outbox(
        &self,
        dead: bool,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Delivery>>> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend(dead.then(|| ("status", "dead".to_owned())));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["outbox"], &query).await
    }

    pub(crate) async fn retry_delivery(&self, id: OutboxId) -> anyhow::Result<Said<Retried>> {
        Ok(self.post(&["outbox", &id.to_string(), "retry"], &json!({})).await?.1)
    }
}
