//! What a database says of single steps, and what they said.

use milepost_core::id::RunId;

use super::Local;
use crate::wire::{Explanation, LogLine, Page, Said, StepDetail};

impl Local {
    pub(in crate::backend) async fn step(&self, run: RunId, step: &str) -> anyhow::Result<Said<StepDetail>> {
        Said::of(&self.engine().await?.step(run, step).await?)
    }

    pub(in crate::backend) async fn explain(&self, run: RunId, step: &str) -> anyhow::Result<Said<Explanation>> {
        Said::of(&self.engine().await?.explain(run, step).await?)
    }

    pub(in crate::backend) async fn log_page(
        &self,
        run: RunId,
        step: Option<&str>,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<LogLine>>> {
        let page = self.engine().await?.logs(run, step, cursor.map(ToOwned::to_owned), limit).await?;
        let items = page.items.iter().map(Said::of).collect::<anyhow::Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    }
}
