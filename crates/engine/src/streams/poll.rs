//! Sees what other nodes and processes wrote to the runs that are watched here: one question for all of them, and none
//! while nobody watches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_store::Result;

use super::hub::Hub;
use super::topic::Topic;
use crate::supervisor::Pulse;

const INTERVAL: Duration = Duration::from_millis(400);
/// Runs in one question.
const CHUNK: usize = 1000;

#[derive(Debug)]
pub(crate) struct Poll {
    pub(super) hub: Arc<Hub>,
}

impl Poll {
    pub(super) async fn run_once(&self, topics: &[Arc<Topic>]) -> Result<()> {
        for chunk in topics.chunks(CHUNK) {
            let runs: Vec<(OrgId, RunId)> = chunk.iter().map(|topic| (topic.org, topic.run)).collect();
            let last = self.hub.store().last_seqs(&runs).await?;
            let last: HashMap<_, u64> = last.into_iter().map(|(org, run, seq)| ((org, run), seq)).collect();
            for topic in chunk {
                match last.get(&(topic.org, topic.run)) {
                    Some(seq) => topic.raise(*seq),
                    None => topic.lose(),
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn run(self, pulse: Arc<Pulse>) {
        loop {
            // Those who come are given what is there already: nothing is late before the interval has passed.
            drop(pulse.rest(self.hub.watched()).await);
            pulse.rest(tokio::time::sleep(INTERVAL)).await;
            // Those who came may have left meanwhile; then this waits for the next, however long that takes.
            let topics = pulse.rest(self.hub.watched()).await;
            if let Err(error) = self.run_once(&topics).await {
                tracing::warn!(%error, "the runs that are watched here cannot be looked at");
            }
        }
    }
}
