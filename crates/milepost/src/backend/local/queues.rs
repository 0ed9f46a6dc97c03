//! The queues of a database.

use milepost_core::id::OrgId;
use milepost_engine::workers::{self, list_queues};

use super::Local;
use crate::commands::queues::NewLimits;
use crate::wire::{Limited, Page, Queue, Rate, Said};

impl Local {
    pub(in crate::backend) async fn queues(&self) -> anyhow::Result<Page<Said<Queue>>> {
        let queues = list_queues(&self.store, OrgId::DEFAULT).await?;
        let rate = |workers::Rate { limit, per_ms }| Rate { limit, per_ms };
        let items = queues.into_iter().map(|state| {
            Said::of(&Queue {
                queue: state.queue.to_string(),
                waiting: state.waiting,
                running: state.running,
                oldest_ready_at: state.oldest,
                concurrency: state.concurrency,
                rate: state.rate.map(rate),
            })
        });
        Ok(Page { items: items.collect::<anyhow::Result<_>>()?, next_cursor: None })
    }

    pub(in crate::backend) async fn limit_queue(&self, new: &NewLimits) -> anyhow::Result<Said<Limited>> {
        let NewLimits { queue, concurrency, rate } = new.clone();
        let limit = rate.map(|Rate { limit, per_ms }| workers::Rate { limit, per_ms });
        self.engine().await?.limit_queue(queue.as_str().into(), concurrency, limit).await?;
        Said::of(&Limited { queue, concurrency, rate })
    }
}
