//! Files that runs leave: content in the blob store by its hash, and references to it in the log.
//!
//! ```text
//!   upload ─► content by hash ─► outcome or recording names it ─► event, row (one commit)
//!                   │                                                  │
//!                   └────────── nobody names it for a while ◄──────────┘ expired, or forgotten with its run
//! ```
//!
//! **Invariant:** an event that names content of ours is written after the content is on disk and was looked for.

mod admit;
mod collect;
mod content;
mod list;
mod outputs;
mod record;
mod upload;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use milepost_core::limits::Limits;
use milepost_core::run::{Rejection, RejectionKind};
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::blobs::Blobs;

use crate::clock::Clock;
use crate::error::EngineError;

pub(crate) use admit::Kept;
pub(crate) use collect::Keeper;
pub use collect::Removed;
pub use content::Found;
pub use list::ArtifactPage;
pub(crate) use list::all;
pub(crate) use outputs::lost;
pub use record::{NewRecord, Recorded};
pub use upload::Uploaded;
pub use view::ArtifactView;

/// How files are kept.
#[derive(Clone, Debug)]
pub struct ArtifactsConfig {
    /// By kind: for how long an artifact that says nothing else is kept. All others are kept as long as their runs.
    pub retention: BTreeMap<String, Duration>,
    /// For how long content is kept that nobody names: its uploader may be about to.
    pub grace: Duration,
}

impl Default for ArtifactsConfig {
    fn default() -> ArtifactsConfig {
        ArtifactsConfig { retention: BTreeMap::new(), grace: Duration::from_secs(24 * 3600) }
    }
}

/// The files of runs, and the way to their content.
#[derive(Debug)]
pub struct Artifacts {
    store: Arc<dyn Store>,
    blobs: Option<Blobs>,
    clock: Arc<dyn Clock>,
    limits: Limits,
    config: ArtifactsConfig,
    at_hand: outputs::AtHand,
}

impl Artifacts {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        blobs: Option<Blobs>,
        clock: Arc<dyn Clock>,
        limits: Limits,
        config: ArtifactsConfig,
    ) -> Artifacts {
        Artifacts { store, blobs, clock, limits, config, at_hand: outputs::AtHand::default() }
    }

    pub(crate) fn has_place(&self) -> bool {
        self.blobs.is_some()
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn blobs(&self) -> Result<&Blobs, EngineError> {
        self.blobs.as_ref().ok_or_else(|| {
            let message = "this server has no place for files; start it with --blobs, or record a `uri` of your own";
            rejected(RejectionKind::Conflict, "no_blob_store", message)
        })
    }

    /// Until when an artifact of this kind is kept that is recorded now.
    pub(crate) fn expires_at(&self, kind: &str, now: Timestamp) -> Option<Timestamp> {
        let keep = self.config.retention.get(kind)?;
        Some(now.plus_ms(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX)))
    }
}

fn rejected(kind: RejectionKind, code: &'static str, message: impl Into<String>) -> EngineError {
    Rejection { kind, code, message: message.into() }.into()
}
