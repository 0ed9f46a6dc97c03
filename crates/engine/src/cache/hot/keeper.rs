//! Makes the link to Redis, looks after it, and makes it anew when it broke.

use std::sync::Arc;
use std::time::Duration;

use super::link::{self, Link};

/// How long after a failure Redis is asked again.
const AGAIN: Duration = Duration::from_secs(2);
/// How often somebody looks whether an idle Redis is still there.
const LOOK: Duration = Duration::from_secs(5);

pub(super) struct Keeper {
    pub(super) client: redis::Client,
    /// Its address, for the log.
    pub(super) shown: String,
    pub(super) link: Arc<Link>,
}

impl Keeper {
    pub(super) async fn run(self) {
        let mut was_told = false;
        loop {
            match link::connect(&self.client).await {
                Ok(connection) => {
                    self.link.set(connection);
                    was_told = false;
                    tracing::info!(redis = self.shown, "Redis answers");
                    while tokio::time::timeout(LOOK, self.link.broken()).await.is_err() {
                        self.link.look().await;
                    }
                }
                Err(error) if !was_told => {
                    was_told = true;
                    let redis = &self.shown;
                    tracing::warn!(redis, %error, "Redis cannot be reached; results are read from the database until it can");
                }
                Err(_) => {}
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}
