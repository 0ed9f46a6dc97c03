//! Sees what other nodes and processes wrote to the runs that are watched here: one question for all of them, and none
//! while nobody watches.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_store::{Result, Store};

use super::hub::Hub;
use super::topic::Topic;

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
            let last: HashMap<(OrgId, RunId), u64> = last_seqs(self.hub.store(), &runs).await?;
            for topic in chunk {
                match last.get(&(topic.org, topic.run)) {
                    Some(seq) => topic.raise(*seq),
                    None => topic.lose(),
                }
            }
        }
        Ok(())
    }

    pub(crate) async fn run(self) {
        loop {
            // Those who come are given what is there already: nothing is late before the interval has passed.
            drop(self.hub.watched().await);
            tokio::time::sleep(INTERVAL).await;
            let topics = self.hub.watched().await;
            if let Err(error) = self.run_once(&topics).await {
                tracing::warn!(%error, "the runs that are watched here cannot be looked at");
            }
        }
    }
}

async fn last_seqs(store: &dyn Store, runs: &[(OrgId, RunId)]) -> Result<HashMap<(OrgId, RunId), u64>> {
    let mut last = HashMap::with_capacity(runs.len());
    for (org, run) in runs {
        if let Some(head) = store.head(*org, *run).await? {
            last.insert((*org, *run), head.last_seq);
        }
    }
    Ok(last)
}
