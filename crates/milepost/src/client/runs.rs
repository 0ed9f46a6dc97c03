//! What a server is asked about runs.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_engine::view::EventView;
use serde::Deserialize;

use super::Client;
use crate::backend::{BulkOrder, NewPatch, NewSignal, RunFilter, UndoPatch, joined};
use crate::output::error::Refusal;
use crate::wire::{
    Accepted, Bulk, Explanation, Page, PatchOutlook, Patched, Run, Said, StepDetail, Summary, Transition,
};

/// A list without pages.
#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

impl Client {
    pub(crate) async fn list(
        &self,
        filter: &RunFilter,
        cursor: Option<RunId>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Summary>>> {
        self.get(&["runs"], &list_query(filter, cursor, limit)).await
    }

    /// Whether there is such a run.
    pub(crate) async fn has(&self, run: RunId) -> anyhow::Result<bool> {
        match self.events(run, 0, 1).await {
            Ok(_) => Ok(true),
            Err(error) if error.downcast_ref().is_some_and(|refusal: &Refusal| refusal.code() == "unknown_run") => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn show(&self, run: RunId) -> anyhow::Result<Said<Run>> {
        self.get(&["runs", &run.to_string()], &[]).await
    }

    pub(crate) async fn transitions(&self, run: RunId) -> anyhow::Result<Vec<Transition>> {
        let list: Items<Transition> = self.get(&["runs", &run.to_string(), "transitions"], &[]).await?;
        Ok(list.items)
    }

    pub(crate) async fn events(&self, run: RunId, after_seq: u64, limit: u32) -> anyhow::Result<Page<Said<EventView>>> {
        let query = [("after_seq", after_seq.to_string()), ("limit", limit.to_string())];
        self.get(&["runs", &run.to_string(), "events"], &query).await
    }

    pub(crate) async fn step(&self, run: RunId, step: &str) -> anyhow::Result<Said<StepDetail>> {
        self.get(&["runs", &run.to_string(), "steps", step], &[]).await
    }

    pub(crate) async fn explain(&self, run: RunId, step: &str) -> anyhow::Result<Said<Explanation>> {
        self.get(&["runs", &run.to_string(), "steps", step, "explain"], &[]).await
    }

    pub(crate) async fn bulk(&self, order: &BulkOrder) -> anyhow::Result<Said<Bulk>> {
        Ok(self.post(&["runs", "bulk"], order).await?.1)
    }

    pub(crate) async fn signal(&self, run: RunId, signal: &NewSignal) -> anyhow::Result<Said<Accepted>> {
        Ok(self.post(&["runs", &run.to_string(), "signals"], signal).await?.1)
    }

    pub(crate) async fn patch_run(&self, run: RunId, patch: &NewPatch) -> anyhow::Result<Said<Patched>> {
        Ok(self.post(&["runs", &run.to_string(), "patch"], patch).await?.1)
    }

    pub(crate) async fn preview_patch(
        &self,
        run: RunId,
        ops: &Json,
        rerun: bool,
    ) -> anyhow::Result<Said<PatchOutlook>> {
        let body = serde_json::json!({ "ops": ops, "rerun": rerun });
        Ok(self.post(&["runs", &run.to_string(), "patch", "preview"], &body).await?.1)
    }

    pub(crate) async fn undo_patch(&self, run: RunId, undo: &UndoPatch) -> anyhow::Result<Said<Patched>> {
        Ok(self.post(&["runs", &run.to_string(), "patch", "undo"], undo).await?.1)
    }
}

fn list_query(filter: &RunFilter, cursor: Option<RunId>, limit: u32) -> Vec<(&'static str, String)> {
    let pairs = [
        ("status", Some(joined(&filter.status)).filter(|status| !status.is_empty())),
        ("workflow", filter.workflow.clone()),
        ("created_after", filter.created_after.map(|at| at.to_string())),
        ("created_before", filter.created_before.map(|at| at.to_string())),
        ("request_id", filter.request_id.clone()),
        ("base_run_id", filter.base_run_id.map(|run| run.to_string())),
        ("submitted_by", filter.submitted_by.clone()),
        ("stuck", filter.stuck.then(|| "true".to_owned())),
        ("cursor", cursor.map(|run| run.to_string())),
        ("limit", Some(limit.to_string())),
    ];
    pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use milepost_core::status::RunStatus;
    use milepost_core::time::Timestamp;

    use super::*;

    #[test]
    fn a_filter_asks_for_what_it_names_and_nothing_else() {
        let filter = RunFilter {
            status: vec![RunStatus::Failed, RunStatus::Paused],
            created_after: Some(Timestamp(0)),
            ..RunFilter::default()
        };
        let pairs = list_query(&filter, None, 20);
        let shown: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["status=failed,paused", "created_after=1970-01-01T00:00:00.000000Z", "limit=20"]);
    }
}
