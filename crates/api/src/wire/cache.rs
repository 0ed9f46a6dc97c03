//! Answers about results that are kept. Whoever answers in a server's place, on a database alone, says the same: these
//! types are public.

use milepost_core::hash::Digest;
use milepost_core::json::Json;
use milepost_engine::cache::{CacheEntry, CacheKey};
use milepost_store::rows::{ResultRow, ResultStats};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Any;

/// What results come to.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub struct CacheCounts {
    /// Results that are kept.
    pub results: u64,
    /// Of their outputs.
    pub bytes: u64,
    /// Steps that took a result, whether or not it is still kept.
    pub hits: u64,
    /// Attempts that had to run: no result was there, or none was wanted.
    pub misses: u64,
    /// Hits of hits and misses; null where there are neither.
    #[schema(minimum = 0.0, maximum = 1.0)]
    pub hit_ratio: Option<f64>,
    /// What was taken took so long to make.
    pub saved_ms: u64,
}

impl CacheCounts {
    fn of(stats: &[ResultStats]) -> CacheCounts {
        let sum = |of: fn(&ResultStats) -> u64| stats.iter().map(of).sum::<u64>();
        let (hits, misses) = (sum(|stats| stats.hits), sum(|stats| stats.misses));
        CacheCounts {
            results: sum(|stats| stats.results),
            bytes: sum(|stats| stats.bytes),
            hits,
            misses,
            // To four digits, which is more than anybody reads.
            hit_ratio: (hits + misses > 0)
                .then(|| (hits as f64 / (hits + misses) as f64 * 10_000.0).round() / 10_000.0),
            saved_ms: sum(|stats| stats.saved_ms),
        }
    }
}

/// What results come to, in all and step by step.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CacheStats {
    #[serde(flatten)]
    pub total: CacheCounts,
    pub steps: Vec<StepCacheStats>,
}

/// What the results of one step come to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct StepCacheStats {
    pub workflow: String,
    pub step_id: String,
    #[serde(flatten)]
    pub counts: CacheCounts,
}

impl From<Vec<ResultStats>> for CacheStats {
    fn from(stats: Vec<ResultStats>) -> CacheStats {
        let step = |stats: &ResultStats| StepCacheStats {
            workflow: stats.workflow.clone(),
            step_id: stats.step_id.clone(),
            counts: CacheCounts::of(std::slice::from_ref(stats)),
        };
        CacheStats { total: CacheCounts::of(&stats), steps: stats.iter().map(step).collect() }
    }
}

/// A result that is kept.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CacheResult {
    /// The SHA-256 of what it depends on.
    #[schema(value_type = String, example = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")]
    pub key: Digest,
    pub workflow: String,
    pub step_id: String,
    /// `protected`: made by a run that followed a protected tag. `open`: by any other.
    #[schema(example = "open")]
    pub trust: &'static str,
    /// `global`: every run of the workflow may take it. `run_only`: the run in `run_id`, as long as it lasts.
    #[schema(example = "global")]
    pub scope: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Uuid>,
    /// Who made it, and the event that says so. The run may be forgotten by now.
    pub producer_run_id: Uuid,
    pub producer_seq: u64,
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it was taken last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub last_hit_at: Option<String>,
    pub hits: u64,
    /// Of its output.
    pub bytes: u64,
    /// How long it took to make.
    pub duration_ms: u64,
}

impl From<ResultRow> for CacheResult {
    fn from(row: ResultRow) -> CacheResult {
        CacheResult {
            key: row.key.key,
            workflow: row.workflow,
            step_id: row.step_id,
            trust: row.trust.as_str(),
            scope: if row.key.run.is_some() { "run_only" } else { "global" },
            run_id: row.key.run.map(|run| run.0),
            producer_run_id: row.producer.0.0,
            producer_seq: row.producer.1,
            created_at: row.created_at.to_string(),
            last_hit_at: row.last_hit_at.map(|at| at.to_string()),
            hits: row.hits,
            bytes: row.bytes,
            duration_ms: row.duration_ms,
        }
    }
}

/// A key, what it is made of, and what is kept under it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CacheKeyDetail {
    #[schema(value_type = String)]
    pub key: Digest,
    /// What the result depends on: the step's definition and input, epochs, hashes of variables, versions of secrets. The
    /// key is its SHA-256. Null when it is not known any more.
    #[schema(value_type = Option<Any>)]
    pub made_of: Option<Json>,
    /// One for all runs, and those that serve one run each.
    pub items: Vec<CacheResultDetail>,
}

/// A result with the beginning of its output.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct CacheResultDetail {
    #[serde(flatten)]
    pub result: CacheResult,
    /// The first thousand characters of its JSON.
    pub output_preview: String,
    /// There is more of it.
    pub output_is_cut: bool,
}

impl From<CacheKey> for CacheKeyDetail {
    fn from(key: CacheKey) -> CacheKeyDetail {
        let item = |entry: CacheEntry| CacheResultDetail {
            result: entry.row.into(),
            output_preview: entry.preview,
            output_is_cut: entry.is_cut,
        };
        CacheKeyDetail { key: key.key, made_of: key.preimage, items: key.entries.into_iter().map(item).collect() }
    }
}

/// What went.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub struct Evicted {
    /// Results that are gone.
    pub evicted: u64,
}

/// What is not taken any more.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Disowned {
    pub workflow: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// How often it was disowned.
    pub epoch: u64,
    /// Results that are kept of it, and that nobody takes any more.
    pub results: u64,
}
