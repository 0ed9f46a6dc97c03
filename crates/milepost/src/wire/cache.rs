//! Results that are kept.

use milepost_core::hash::Digest;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use serde::Deserialize;

/// What results come to.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CacheStats {
    #[serde(flatten)]
    pub(crate) total: CacheCounts,
    #[serde(default)]
    pub(crate) steps: Vec<StepCacheStats>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CacheCounts {
    pub(crate) results: u64,
    pub(crate) bytes: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) hit_ratio: Option<f64>,
    pub(crate) saved_ms: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct StepCacheStats {
    pub(crate) workflow: String,
    pub(crate) step_id: String,
    #[serde(flatten)]
    pub(crate) counts: CacheCounts,
}

/// A result.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CacheResult {
    pub(crate) key: Digest,
    pub(crate) workflow: String,
    pub(crate) step_id: String,
    #[serde(default)]
    pub(crate) trust: String,
    pub(crate) run_id: Option<RunId>,
    pub(crate) producer_run_id: RunId,
    pub(crate) created_at: Timestamp,
    pub(crate) last_hit_at: Option<Timestamp>,
    #[serde(default)]
    pub(crate) hits: u64,
    #[serde(default)]
    pub(crate) bytes: u64,
    #[serde(default)]
    pub(crate) duration_ms: u64,
}

/// A key, what it is made of, and what is kept under it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CacheKey {
    pub(crate) key: Digest,
    pub(crate) made_of: Option<Json>,
    #[serde(default)]
    pub(crate) items: Vec<CacheResultDetail>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct CacheResultDetail {
    #[serde(flatten)]
    pub(crate) result: CacheResult,
    pub(crate) output_preview: String,
    #[serde(default)]
    pub(crate) output_is_cut: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Evicted {
    pub(crate) evicted: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Disowned {
    pub(crate) epoch: u64,
    #[serde(default)]
    pub(crate) results: u64,
}
