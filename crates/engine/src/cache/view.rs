//! Results for their keepers. Needs no engine.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_store::Store;
use milepost_store::rows::{ResultFilter, ResultKey, ResultPosition, ResultRow};
use uuid::Uuid;

use crate::error::EngineError;

/// So much of an output is shown.
const PREVIEW_CHARS: u32 = 1000;
/// So many results of one key are shown: one for all runs, and those that serve one run each.
const SHOWN: u32 = 100;
/// Results that go at once, so that no commit waits long.
const EVICTED_AT_ONCE: u32 = 200;
/// Fewer digits mean too much.
const FEWEST_DIGITS: usize = 6;

/// A key, what it is made of, and what is kept under it.
#[derive(Clone, Debug)]
pub struct CacheKey {
    pub key: Digest,
    /// `None` if nobody has begun anything under it for long.
    pub preimage: Option<Json>,
    pub entries: Vec<CacheEntry>,
}

/// A result with the beginning of its output.
#[derive(Clone, Debug)]
pub struct CacheEntry {
    pub row: ResultRow,
    pub preview: String,
    /// There is more of it.
    pub is_cut: bool,
}

/// What a key is made of and what is kept under it. `None` if nothing is known of it.
///
/// # Errors
/// The store cannot be read.
pub async fn describe_key(store: &Arc<dyn Store>, org: OrgId, key: Digest) -> Result<Option<CacheKey>, EngineError> {
    let preimage = store.cache().preimage(org, key).await?;
    let mut entries = Vec::new();
    for row in store.cache().results(org, &ResultFilter::Key(key), None, SHOWN).await? {
        // It may have gone in between.
        let Some(preview) = store.cache().output(org, &row.key, PREVIEW_CHARS).await? else { continue };
        let is_cut = (preview.len() as u64) < row.bytes;
        entries.push(CacheEntry { row, preview, is_cut });
    }
    Ok((preimage.is_some() || !entries.is_empty()).then_some(CacheKey { key, preimage, entries }))
}

/// Removes results, a few at a time. Answers how many went. Runs that ask for one of them from now on run its step.
///
/// # Errors
/// The store cannot be written; some may be gone.
pub async fn evict_results(store: &Arc<dyn Store>, org: OrgId, filter: &ResultFilter) -> Result<u64, EngineError> {
    let mut gone = 0;
    loop {
        let batch = store.cache().evict(org, filter, EVICTED_AT_ONCE).await?;
        gone += batch;
        if batch < u64::from(EVICTED_AT_ONCE) {
            return Ok(gone);
        }
    }
}

/// A place in a list as text, for whoever asks for the next page.
#[must_use]
pub fn cursor_of(row: &ResultRow) -> String {
    let ResultPosition { workflow, step_id, key } = row.position();
    let run = key.run.map(|run| run.0);
    let parts = serde_json::to_vec(&(workflow, step_id, key.key, run)).expect("text and ids are JSON");
    URL_SAFE_NO_PAD.encode(parts)
}

/// The place that [`cursor_of`] wrote. `None` if it did not.
#[must_use]
pub fn read_cursor(text: &str) -> Option<ResultPosition> {
    let parts = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (workflow, step_id, key, run): (String, String, Digest, Option<Uuid>) = serde_json::from_slice(&parts).ok()?;
    let storable = |text: &str| !text.contains('\0');
    (storable(&workflow) && storable(&step_id)).then_some(ResultPosition {
        workflow,
        step_id,
        key: ResultKey { key, run: run.map(RunId) },
    })
}

/// The keys that begin with these hexadecimal digits. `None` if that is no beginning of a key, or too short a one.
#[must_use]
pub fn key_range(digits: &str) -> Option<ResultFilter> {
    if !(FEWEST_DIGITS..=64).contains(&digits.len()) {
        return None;
    }
    let filled = |with: &str| format!("{digits}{}", with.repeat(64 - digits.len())).parse().ok();
    let (first, last): (Digest, Digest) = (filled("0")?, filled("f")?);
    Some(if first == last { ResultFilter::Key(first) } else { ResultFilter::Keys { first, last } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_key_means_all_that_begin_so() {
        let whole = Digest::of(b"key");
        assert_eq!(key_range(&whole.to_string()), Some(ResultFilter::Key(whole)));
        let Some(ResultFilter::Keys { first, last }) = key_range(&whole.to_string()[..7]) else { panic!("a range") };
        assert!(first < whole && whole < last && first.0[..3] == last.0[..3]);
        for wrong in ["", "abcde", "abcdeg", "ABCDEF0é", &"a".repeat(65)] {
            assert_eq!(key_range(wrong), None, "{wrong}");
        }
    }
}
