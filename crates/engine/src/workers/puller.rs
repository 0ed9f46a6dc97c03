//! Steps that wait on other nodes come to where workers wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use milepost_core::id::NodeId;
use milepost_core::time::Timestamp;
use milepost_store::{Result, Store};
use tokio::sync::oneshot;

use crate::clock::Clock;
use crate::committer::{Inbox, Message, in_line};
use crate::supervisor::Pulse;

/// How often that is looked after while there are workers.
const INTERVAL: Duration = Duration::from_millis(300);
/// What has been with another node for less may be about to begin there.
const PATIENCE_MS: u64 = 150;
/// Of each node, org and workflow at a time: also a node with a long line of its own takes in a neighbour's one step.
const PAGE: u32 = 20;

pub(crate) struct Puller {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inbox: Inbox,
}

impl Puller {
    /// Asks nothing of the database when there are no workers.
    pub(crate) async fn run_once(&self, now: Timestamp) -> Result<()> {
        let (reply, answer) = oneshot::channel();
        if self.inbox.send(Message::WantedQueues(reply)).await.is_err() {
            return Ok(());
        }
        let queues: Vec<String> = answer.await.unwrap_or_default().into_iter().collect();
        if queues.is_empty() {
            return Ok(());
        }
        let before = Timestamp(now.0 - i64::try_from(PATIENCE_MS * 1000).unwrap_or(0));
        let rows = self.store.pull_tasks(self.node, &queues, before, now, PAGE).await?;
        if !rows.is_empty() {
            let waiting = rows.iter().map(|row| in_line(row, Instant::now())).collect();
            // After shutdown another node pulls them.
            let _ = self.inbox.send(Message::Waiting(waiting)).await;
        }
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            pulse.rest(tokio::time::sleep(INTERVAL)).await;
            if let Err(error) = self.run_once(self.clock.now()).await {
                tracing::warn!(%error, "what waits on other nodes cannot be read");
            }
        }
    }
}
