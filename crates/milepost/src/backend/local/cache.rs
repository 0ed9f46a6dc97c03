//! Results that are kept in a database, in the words of a server.

use milepost_api::cache_answers as answers;
use milepost_core::hash::Digest;
use milepost_engine::cache::{cursor_of, describe_key, evict_results, key_range, read_cursor};
use milepost_store::rows::ResultFilter;

use super::Local;
use super::definitions::ORG;
use crate::backend::ResultsOf;
use crate::output::error::Refusal;
use crate::wire::{CacheKey, CacheResult, CacheStats, Disowned, Evicted, Page, Said};

impl Local {
    pub(in crate::backend) async fn cache_stats(&self, of: &ResultsOf) -> anyhow::Result<Said<CacheStats>> {
        let stats = self.store.cache().result_stats(ORG, &filter(of)?).await?;
        Said::of(&answers::CacheStats::from(stats))
    }

    pub(in crate::backend) async fn cache_list(
        &self,
        of: &ResultsOf,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<CacheResult>>> {
        let after = cursor.and_then(read_cursor);
        let mut rows = self.store.cache().results(ORG, &filter(of)?, after.as_ref(), limit.saturating_add(1)).await?;
        let more = rows.len() > limit as usize;
        rows.truncate(limit as usize);
        let next_cursor = rows.last().filter(|_| more).map(cursor_of);
        let items = rows.into_iter().map(|row| Said::of(&answers::CacheResult::from(row)));
        Ok(Page { items: items.collect::<anyhow::Result<_>>()?, next_cursor })
    }

    pub(in crate::backend) async fn cache_key(&self, key: Digest) -> anyhow::Result<Said<CacheKey>> {
        let found = describe_key(&self.store, ORG, key).await?.ok_or_else(|| nothing_kept(&key.to_string()))?;
        Said::of(&answers::CacheKeyDetail::from(found))
    }

    pub(in crate::backend) async fn evict(&self, of: &ResultsOf) -> anyhow::Result<Said<Evicted>> {
        let evicted = evict_results(&self.store, ORG, &filter(of)?).await?;
        match of {
            ResultsOf::Key(key) if evicted == 0 => Err(nothing_kept(key).into()),
            _ => Said::of(&answers::Evicted { evicted }),
        }
    }

    pub(in crate::backend) async fn disown(
        &self,
        workflow: &str,
        step: Option<&str>,
    ) -> anyhow::Result<Said<Disowned>> {
        let of = ResultsOf::Workflow { workflow: workflow.to_owned(), step: step.map(ToOwned::to_owned) };
        let epoch = self.store.cache().disown(ORG, workflow, step).await?;
        let results = self.store.cache().result_stats(ORG, &filter(&of)?).await?.iter().map(|s| s.results).sum();
        let (workflow, step_id) = (workflow.to_owned(), step.map(ToOwned::to_owned));
        Said::of(&answers::Disowned { workflow, step_id, epoch, results })
    }
}

fn filter(of: &ResultsOf) -> Result<ResultFilter, Refusal> {
    match of.clone() {
        ResultsOf::All => Ok(ResultFilter::All),
        ResultsOf::Workflow { workflow, step: None } => Ok(ResultFilter::Workflow(workflow)),
        ResultsOf::Workflow { workflow, step: Some(step_id) } => Ok(ResultFilter::Step { workflow, step_id }),
        ResultsOf::Key(digits) => key_range(&digits).ok_or_else(|| {
            Refusal::new("bad_key", "a key begins with 6 to 64 hexadecimal digits, in lower case; give more of it")
        }),
    }
}

fn nothing_kept(key: &str) -> Refusal {
    Refusal::new("unknown_key", format!("nothing is kept under {key}; `milepost cache list` has what is"))
}
