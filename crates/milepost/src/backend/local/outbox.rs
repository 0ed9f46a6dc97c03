//! The outbox of a database.

use milepost_core::id::{OrgId, OutboxId};
use milepost_engine::list_outbox;
use milepost_store::rows::OutboxFilter;

use super::Local;
use crate::person;
use crate::wire::{Delivery, Page, Retried, Said};

impl Local {
    pub(in crate::backend) async fn outbox(
        &self,
        dead: bool,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Delivery>>> {
        let filter = if dead { OutboxFilter::Dead } else { OutboxFilter::All };
        let after = cursor.map(str::parse::<OutboxId>).transpose()?;
        let mut items = list_outbox(&self.store, OrgId::DEFAULT, filter, after, limit.saturating_add(1)).await?;
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next_cursor = items.last().filter(|_| more).map(|item| item.id.to_string());
        Ok(Page { items: items.iter().map(Said::of).collect::<anyhow::Result<_>>()?, next_cursor })
    }

    pub(in crate::backend) async fn retry_delivery(&self, id: OutboxId) -> anyhow::Result<Said<Retried>> {
        Said::of(&self.engine().await?.retry_delivery(id, Some(person::name())).await?)
    }
}
