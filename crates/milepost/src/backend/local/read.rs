//! What a database says of its runs.

use milepost_core::id::{OrgId, RunId};
use milepost_engine::view::EventView;
use milepost_engine::{list_runs, read_run, transitions};
use milepost_store::rows;

use super::Local;
use crate::backend::RunFilter;
use crate::backend::feed::{Feed, LogReader};
use crate::wire::{Page, Run, Said, Summary, Transition};

const ORG: OrgId = OrgId::DEFAULT;

impl Local {
    pub(in crate::backend) async fn list(
        &self,
        filter: &RunFilter,
        cursor: Option<RunId>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Summary>>> {
        let filter = rows::RunFilter {
            statuses: filter.status.clone(),
            workflow: filter.workflow.clone(),
            created_from: filter.created_after,
            created_until: filter.created_before,
            request_id: filter.request_id.clone(),
            base_run: filter.base_run_id,
            stuck: filter.stuck,
            parent_run: None,
            submitted_by: filter.submitted_by.clone(),
            before: cursor,
            limit: limit.saturating_add(1),
        };
        let mut found = list_runs(&self.store, ORG, &filter).await?;
        let more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let next_cursor = found.last().filter(|_| more).map(|run| run.run_id.to_string());
        Ok(Page { items: found.iter().map(Said::of).collect::<anyhow::Result<_>>()?, next_cursor })
    }

    pub(in crate::backend) async fn has(&self, run: RunId) -> anyhow::Result<bool> {
        Ok(self.store.head(ORG, run).await?.is_some())
    }

    pub(in crate::backend) async fn show(&self, run: RunId) -> anyhow::Result<Said<Run>> {
        Said::of(&read_run(&self.store, self.blobs()?, ORG, run).await?)
    }

    pub(in crate::backend) async fn transitions(&self, run: RunId) -> anyhow::Result<Vec<Transition>> {
        let rows = transitions(&self.store, ORG, run).await?;
        let view = |row: &rows::TransitionRow| Transition {
            run_seq: row.seq,
            from: row.from,
            to: row.to,
            signal_id: row.signal,
            changed_by: row.changed_by.clone(),
            at: row.at,
        };
        Ok(rows.iter().map(view).collect())
    }

    pub(in crate::backend) async fn events(
        &self,
        run: RunId,
        after_seq: u64,
        limit: u32,
    ) -> anyhow::Result<Page<Said<EventView>>> {
        let mut rows = self.store.events(ORG, run, after_seq, limit.saturating_add(1)).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.seq.to_string());
        let items = rows.iter().map(|row| Said::of(&EventView::of(run, row))).collect::<anyhow::Result<_>>()?;
        Ok(Page { items, next_cursor })
    }

    pub(in crate::backend) fn feed(&self, run: RunId, after_seq: u64) -> Feed {
        // First ask to be told, then read: an event between the two is not missed.
        let live = self.engine.get().map(|engine| engine.watch(run));
        let store = self.store.clone();
        Feed::fill(|sender| LogReader { store, run, last_seq: after_seq, live, sender }.read_to_end())
    }
}
