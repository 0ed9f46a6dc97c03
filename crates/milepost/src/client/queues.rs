//! What a server is asked about queues.

use serde_json::json;

use super::Client;
use crate::commands::queues::NewLimits;
use crate::wire::{Limited, Page, Queue, Said};

impl Client {
    pub(crate) async fn queues(&self) -> anyhow::Result<Page<Said<Queue>>> {
        self.get(&["queues"], &[]).await
    }

    pub(crate) async fn limit_queue(&self, new: &NewLimits) -> anyhow::Result<Said<Limited>> {
        let body = json!({ "concurrency": new.concurrency, "rate": new.rate });
        self.put(&["queues", &new.queue], &body).await
    }
}
