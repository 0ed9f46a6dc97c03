//! Why a step stands as it does.

use milepost_core::id::RunId;
use milepost_core::time::Timestamp;
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) step_id: String,
    pub(crate) decision: String,
    pub(crate) message: String,
    pub(crate) cache_key: Option<String>,
    pub(crate) result: Option<Origin>,
    pub(crate) nearest: Option<Nearest>,
    #[serde(default)]
    pub(crate) differences: Vec<Difference>,
    #[serde(default)]
    pub(crate) more_differences: usize,
    #[serde(default)]
    pub(crate) waits: Vec<Wait>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Origin {
    pub(crate) run_id: RunId,
    pub(crate) created_at: Option<Timestamp>,
    pub(crate) duration_ms: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Nearest {
    pub(crate) cache_key: String,
    pub(crate) run_id: RunId,
    #[serde(default)]
    pub(crate) of_base_run: bool,
    pub(crate) began_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Difference {
    pub(crate) part: String,
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default, deserialize_with = "super::some")]
    pub(crate) before: Option<Value>,
    #[serde(default, deserialize_with = "super::some")]
    pub(crate) after: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Wait {
    pub(crate) message: String,
}
