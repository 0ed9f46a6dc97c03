//! Content by its digest: small ones in the database, large ones in the blob store.
//!
//! ```text
//!   note the key ─► put the content ─► the row that names it (with the revision that needs it)
//! ```
//!
//! **Invariant:** content is compared with its digest whenever it is read. A key is used once, so removing what one row named
//! never takes anything from another.

use std::sync::Arc;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::time::Timestamp;
use milepost_store::blobs::Blobs;
use milepost_store::rows::BlobRow;
use milepost_store::{Store, StoreError};
use uuid::Uuid;

use crate::error::EngineError;

/// What has no more bytes is in the database.
const INLINE_BYTES: usize = 256 * 1024;

#[derive(Debug)]
pub(crate) struct Content {
    store: Arc<dyn Store>,
    blobs: Option<Blobs>,
}

impl Content {
    pub(crate) fn new(store: Arc<dyn Store>, blobs: Option<Blobs>) -> Content {
        Content { store, blobs }
    }

    pub(crate) fn blobs(&self) -> Option<&Blobs> {
        self.blobs.as_ref()
    }

    /// The row of some content, to be written with what needs it. What is large is put into the blob store now; if it is
    /// there already there is no row to write: should it be removed meanwhile, what needs it is not written either.
    pub(crate) async fn row(
        &self,
        org: OrgId,
        media_type: &str,
        content: Vec<u8>,
        now: Timestamp,
    ) -> Result<Option<BlobRow>, EngineError> {
        let (hash, size) = (Digest::of(&content), content.len());
        let mut row = BlobRow {
            hash,
            media_type: media_type.to_owned(),
            size: size as u64,
            content,
            blob: None,
            created_at: now,
        };
        let Some(blobs) = self.blobs.as_ref().filter(|_| size > INLINE_BYTES) else { return Ok(Some(row)) };
        if self.store.definitions().blob(org, hash).await?.is_some() {
            return Ok(None);
        }
        let hex = hash.to_string();
        let key = format!("cas/{}/{}/{hex}-{}", org.0, &hex[..2], Uuid::now_v7());
        self.store.definitions().note_key(&key, now).await?;
        blobs.put(&key, std::mem::take(&mut row.content).into()).await?;
        row.blob = Some(key);
        Ok(Some(row))
    }

    /// What a row stands for, compared with its digest.
    pub(crate) async fn of(&self, row: BlobRow) -> Result<String, EngineError> {
        let hash = row.hash;
        let content = match (&row.blob, &self.blobs) {
            (None, _) => row.content,
            (Some(key), Some(blobs)) => {
                let found = blobs.get(key).await?;
                found.ok_or_else(|| corrupt(hash, &format!("the blob store has nothing under `{key}`")))?.to_vec()
            }
            (Some(_), None) => {
                let reason = "it is in the blob store, and it is not known where that is; name it (--blobs)";
                return Err(StoreError::Unusable(format!("document sha256:{hash}: {reason}")).into());
            }
        };
        if Digest::of(&content) != hash {
            return Err(corrupt(hash, "its content does not have that hash").into());
        }
        Ok(String::from_utf8(content).map_err(|error| corrupt(hash, &error.to_string()))?)
    }

    pub(crate) async fn get(&self, org: OrgId, hash: Digest) -> Result<Option<String>, EngineError> {
        match self.store.definitions().blob(org, hash).await? {
            Some(row) => self.of(row).await.map(Some),
            None => Ok(None),
        }
    }
}

pub(crate) fn corrupt(hash: Digest, reason: &str) -> StoreError {
    StoreError::Corrupt(format!("document sha256:{hash}: {reason}"))
}
