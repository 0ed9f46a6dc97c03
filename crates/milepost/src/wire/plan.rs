//! What a run would do.

use serde::Deserialize;

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Planned {
    pub(crate) workflow: String,
    #[serde(default)]
    pub(crate) workflow_version: String,
    pub(crate) steps: Vec<PlannedStep>,
    #[serde(default)]
    pub(crate) counts: Counts,
    pub(crate) predicted_ms: Option<u64>,
    #[serde(default)]
    pub(crate) saved_ms: u64,
    /// Steps that run, and of which nobody knows how long they take.
    #[serde(default)]
    pub(crate) unpredicted: u32,
}

/// How many steps there are of each decision.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Counts {
    pub(crate) run: u64,
    pub(crate) reuse: u64,
    pub(crate) unknown: u64,
    pub(crate) skip: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct PlannedStep {
    pub(crate) step_id: String,
    /// `run`, `reuse`, `skip` or `unknown`.
    pub(crate) decision: String,
    /// A word for programs.
    #[serde(default)]
    pub(crate) reason: String,
    /// The same for people.
    #[serde(default)]
    pub(crate) message: String,
    pub(crate) items: Option<Items>,
    pub(crate) predicted_ms: Option<u64>,
    pub(crate) saved_ms: Option<u64>,
}

/// The items of a `foreach` step.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Items {
    pub(crate) total: u64,
}
