//! Results of steps that are kept.

use std::sync::Arc;

use milepost_core::artifact::Beyond;
use milepost_core::cache::{Cached, Trust};
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::FlightWrite;
use crate::{Result, StoreError};

/// Where a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResultKey {
    pub key: Digest,
    /// The one run that it serves; `None` is every run of its workflow.
    pub run: Option<RunId>,
}

/// What one run's write does to results. Written with it or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheWrite {
    pub at: Timestamp,
    /// What keys are made of. One that is there stays as it is.
    pub preimages: Vec<PreimageWrite>,
    /// Inserted, or in the place of the result that was there; how often that one was taken stays.
    pub kept: Vec<KeptWrite>,
    /// Taken once more, each. One that is gone meanwhile is passed over.
    pub used: Vec<ResultKey>,
    /// Attempts that began for want of a result.
    pub missed: Vec<MissedWrite>,
    /// What serves only this run goes.
    pub run_ended: bool,
    /// Results that are being made, or no more.
    pub flights: FlightWrite,
}

/// So many attempts of one step had to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissedWrite {
    pub workflow: Arc<str>,
    pub step_id: Arc<str>,
    pub times: u64,
}

/// What a key is made of that an attempt of the run that is written began with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreimageWrite {
    pub key: Digest,
    pub workflow: Arc<str>,
    pub step_id: Arc<str>,
    pub preimage: Json,
}

/// What a key is made of, and who began with it first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreimageRow {
    pub key: Digest,
    pub run: RunId,
    pub created_at: Timestamp,
    pub preimage: Json,
}

/// A result of the run that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptWrite {
    pub key: ResultKey,
    pub workflow: Arc<str>,
    pub step_id: Arc<str>,
    pub trust: Trust,
    pub output: Json,
    /// The SHA-256 of the output.
    pub output_hash: Digest,
    /// Files that it names.
    pub beyond: Option<Box<Beyond>>,
    /// The event that has it.
    pub seq: u64,
    pub duration_ms: u64,
}

/// A result that was asked for and is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundResult {
    pub key: ResultKey,
    /// The run that made it, and its event.
    pub producer: (RunId, u64),
    pub output_hash: Digest,
    /// `None`: whoever asked has it, by its hash.
    pub output: Option<Json>,
    /// Files that it names.
    pub beyond: Option<Box<Beyond>>,
    /// How long it took to make.
    pub duration_ms: u64,
}

impl FoundResult {
    /// The result as a run takes it, if its output was sent.
    #[must_use]
    pub fn cached(self) -> Option<Cached> {
        let (run, seq) = self.producer;
        let (key, beyond) = (self.key.key, self.beyond);
        self.output.map(|output| Cached { key, output, run, seq, beyond })
    }
}

/// A result, without its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultRow {
    pub key: ResultKey,
    pub workflow: String,
    pub step_id: String,
    pub trust: Trust,
    /// The run that made it, and its event.
    pub producer: (RunId, u64),
    pub created_at: Timestamp,
    pub last_hit_at: Option<Timestamp>,
    pub hits: u64,
    /// How long it took to make.
    pub duration_ms: u64,
    /// Of the output.
    pub bytes: u64,
}

impl KeptWrite {
    /// The files that it names, as they are stored.
    pub(crate) fn artifacts(&self) -> Option<String> {
        self.beyond.as_ref().and_then(|beyond| serde_json::to_string(beyond).ok())
    }
}

/// What [`KeptWrite::artifacts`] stored.
pub(crate) fn read_beyond(text: Option<&str>) -> Result<Option<Box<Beyond>>> {
    let read = |text| serde_json::from_str(text).map(Box::new);
    text.map(read).transpose().map_err(|error| StoreError::Corrupt(format!("files of a result: {error}")))
}

impl ResultRow {
    #[must_use]
    pub fn position(&self) -> ResultPosition {
        ResultPosition { workflow: self.workflow.clone(), step_id: self.step_id.clone(), key: self.key }
    }
}

/// A result's place in lists.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResultPosition {
    pub workflow: String,
    pub step_id: String,
    pub key: ResultKey,
}

/// Which results are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResultFilter {
    All,
    Workflow(String),
    Step {
        workflow: String,
        step_id: String,
    },
    /// Whomever they serve.
    Key(Digest),
    /// All keys from the first to the last.
    Keys {
        first: Digest,
        last: Digest,
    },
}

impl ResultFilter {
    #[must_use]
    pub fn matches(&self, row: &ResultRow) -> bool {
        match self {
            ResultFilter::All => true,
            ResultFilter::Workflow(workflow) => row.workflow == *workflow,
            ResultFilter::Step { workflow, step_id } => row.workflow == *workflow && row.step_id == *step_id,
            ResultFilter::Key(key) => row.key.key == *key,
            ResultFilter::Keys { first, last } => (first..=last).contains(&&row.key.key),
        }
    }
}

/// When a result was last of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResultAge {
    pub org: OrgId,
    pub key: ResultKey,
    /// When it was taken last; when it was made, if that is later.
    pub used_at: Timestamp,
    pub bytes: u64,
}

impl ResultAge {
    #[must_use]
    pub fn place(&self) -> (OrgId, ResultKey) {
        (self.org, self.key)
    }
}

/// What the results of one step come to. Hits count whether or not the result is still there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultStats {
    pub workflow: String,
    pub step_id: String,
    pub results: u64,
    pub bytes: u64,
    pub hits: u64,
    /// Attempts that had to run.
    pub misses: u64,
    /// What was taken would have taken so long to make.
    pub saved_ms: u64,
}

/// How often results were disowned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochRow {
    /// `None`: those of the whole workflow.
    pub step_id: Option<String>,
    pub epoch: u64,
}
