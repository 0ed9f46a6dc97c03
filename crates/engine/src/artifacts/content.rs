//! Content goes out: found by org and hash, whole or in part, from here or from an address of the bucket.

use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

use futures::StreamExt as _;
use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::run::RejectionKind;
use milepost_core::time::Timestamp;
use milepost_store::blobs::{BlobError, Download};
use milepost_store::rows::ContentRow;

use super::{Artifacts, rejected};
use crate::error::EngineError;

/// Asked for at once.
const AT_ONCE: usize = 16;
/// The longest that an address of the bucket is good for: a week, which is what S3 allows.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// Content that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub sha256: Digest,
    pub size_bytes: u64,
    pub(super) key: String,
}

impl Artifacts {
    /// Content by its hash. What another org has is not there.
    ///
    /// # Errors
    /// It is not there, or that cannot be found out.
    pub async fn find(&self, org: OrgId, sha256: Digest) -> Result<Found, EngineError> {
        match self.look_for(org, sha256).await? {
            Some((row, true)) => Ok(Found { sha256, size_bytes: row.size_bytes, key: row.blob }),
            _ => {
                let message = format!("there is no file sha256:{sha256}; upload it, it may also have been removed");
                Err(rejected(RejectionKind::NotFound, "unknown_blob", message))
            }
        }
    }

    /// Of which type some artifact says that this content is.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn media_type(&self, org: OrgId, sha256: Digest) -> Result<Option<String>, EngineError> {
        Ok(self.store.artifacts().media_type(org, sha256).await?)
    }

    /// Reads content, or those bytes of it.
    ///
    /// # Errors
    /// It is gone, or cannot be read.
    pub async fn download(&self, found: &Found, range: Option<Range<u64>>) -> Result<Download, EngineError> {
        let download = self.blobs()?.download(&found.key, range).await?;
        download.ok_or_else(|| {
            let message = format!("the file sha256:{} was removed just now", found.sha256);
            rejected(RejectionKind::NotFound, "unknown_blob", message)
        })
    }

    /// An address of the bucket to read content from, and until when it is good.
    ///
    /// # Errors
    /// The files are in a folder, or the bucket cannot sign addresses.
    pub async fn presign(&self, found: &Found, expires_in: Duration) -> Result<(String, Timestamp), EngineError> {
        let blobs = self.blobs()?;
        if !blobs.can_presign() {
            let message = "files of this server are in a folder, which has no addresses of its own; download with GET";
            return Err(rejected(RejectionKind::Conflict, "not_presignable", message));
        }
        if expires_in.is_zero() || expires_in > LONGEST {
            let message = format!("an address is good for 1 to {} seconds; ask for less", LONGEST.as_secs());
            return Err(rejected(RejectionKind::Invalid, "bad_expiry", message));
        }
        let now = self.clock.now();
        let url = blobs.presign(&found.key, expires_in).await?;
        Ok((url, now.plus_ms(u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX))))
    }

    /// A row, and whether the blob store has what it names.
    pub(super) async fn look_for(&self, org: OrgId, sha256: Digest) -> Result<Option<(ContentRow, bool)>, EngineError> {
        let blobs = self.blobs()?;
        let Some(row) = self.store.artifacts().contents(org, &[sha256]).await?.pop() else { return Ok(None) };
        let whole = blobs.size(&row.blob).await? == Some(row.size_bytes);
        Ok(Some((row, whole)))
    }

    /// Those of the rows whose content the blob store has. Where that cannot be found out, it is believed.
    pub(super) async fn with_content(&self, rows: Vec<ContentRow>) -> Result<HashMap<Digest, ContentRow>, EngineError> {
        let blobs = self.blobs()?;
        let look = |row: ContentRow| async move {
            let size: Result<_, BlobError> = blobs.size(&row.blob).await;
            (row, size)
        };
        let looked: Vec<_> = futures::stream::iter(rows).map(look).buffer_unordered(AT_ONCE).collect().await;
        let there = |(row, size): (ContentRow, Result<Option<u64>, BlobError>)| match size {
            Ok(size) => (size == Some(row.size_bytes)).then_some((row.sha256, row)),
            Err(error) => {
                tracing::warn!(%error, sha256 = %row.sha256, "whether a file is still there cannot be found out");
                Some((row.sha256, row))
            }
        };
        Ok(looked.into_iter().filter_map(there).collect())
    }
}
