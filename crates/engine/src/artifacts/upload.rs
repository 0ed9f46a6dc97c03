//! Content comes in: hashed while it is stored, never whole in memory.
//!
//! **Invariant:** content is named only when it is whole, safe, and has the hash that was said of it. What breaks off, or has
//! another hash, leaves nothing but a note that its key goes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use milepost_core::artifact::uri_of;
use milepost_core::hash::{Digest, Hashing};
use milepost_core::id::OrgId;
use milepost_core::run::RejectionKind;
use milepost_store::blobs::Upload;
use milepost_store::rows::ContentRow;
use uuid::Uuid;

use super::{Artifacts, rejected};
use crate::error::EngineError;

/// What takes longer is noted again before it is put under its key, lest its note is taken for an old one.
const LONG: Duration = Duration::from_secs(600);

/// Content that is in the blob store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uploaded {
    pub sha256: Digest,
    pub size_bytes: u64,
    /// It was not there before.
    pub new: bool,
}

impl Uploaded {
    #[must_use]
    pub fn uri(&self) -> String {
        uri_of(self.sha256)
    }
}

/// How much there may be.
struct Measured {
    hashing: Hashing,
    size: u64,
    most: u64,
}

impl Measured {
    fn new(most: u64) -> Measured {
        Measured { hashing: Hashing::default(), size: 0, most }
    }

    fn take(&mut self, piece: &[u8]) -> Result<(), EngineError> {
        self.size += piece.len() as u64;
        if self.size > self.most {
            return Err(too_large(self.most));
        }
        self.hashing.update(piece);
        Ok(())
    }
}

fn too_large(most: u64) -> EngineError {
    let message =
        format!("it has more than {most} bytes, the limit `artifact_bytes`; store it elsewhere and record its uri");
    rejected(RejectionKind::Invalid, "blob_too_large", message)
}

impl Artifacts {
    /// Takes content in. With `expected` it must have that hash; what is there already is read and compared, and not stored
    /// again.
    ///
    /// # Errors
    /// It broke off, is too large, has another hash, or cannot be stored. Nothing of it is kept.
    pub async fn upload<E: std::fmt::Display>(
        &self,
        org: OrgId,
        expected: Option<Digest>,
        pieces: impl Stream<Item = Result<Bytes, E>> + Send,
    ) -> Result<Uploaded, EngineError> {
        let there = match expected {
            Some(hash) => self.look_for(org, hash).await?,
            None => None,
        };
        let mut measured = Measured::new(self.limits.artifact_bytes);
        if there.as_ref().is_some_and(|(_, whole)| *whole) {
            take(pieces, &mut measured, None).await?;
            check_hash(expected, measured.hashing.finish())?;
            self.touch(org, expected).await?;
            return Ok(Uploaded { sha256: expected.unwrap_or(Digest([0; 32])), size_bytes: measured.size, new: false });
        }
        let instead_of = there.map(|(row, _)| row.blob);
        let key = new_key(org);
        let begun = Instant::now();
        self.store.artifacts().note_key(&key, self.clock.now()).await?;
        let mut upload = self.blobs()?.upload(&key)?;
        let taken = take(pieces, &mut measured, Some(&mut upload)).await;
        let sha256 = measured.hashing.finish();
        if let Err(error) = taken.and_then(|()| check_hash(expected, sha256)) {
            upload.give_up().await;
            self.discard(&key).await;
            return Err(error);
        }
        if begun.elapsed() > LONG {
            self.store.artifacts().note_key(&key, self.clock.now()).await?;
        }
        upload.finish().await?;
        let (size_bytes, used_at) = (measured.size, self.clock.now());
        let row = ContentRow { sha256, blob: key, size_bytes, used_at };
        let new = self.name(org, &row, instead_of).await?;
        Ok(Uploaded { sha256, size_bytes, new })
    }

    /// Whoever uploads content is about to name it, be it there already.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn touch(&self, org: OrgId, content: Option<Digest>) -> Result<(), EngineError> {
        let hashes: Vec<Digest> = content.into_iter().collect();
        self.store.artifacts().touch_contents(org, &hashes, self.clock.now()).await?;
        Ok(())
    }

    /// Answers whether it was not there before.
    async fn name(&self, org: OrgId, row: &ContentRow, instead_of: Option<String>) -> Result<bool, EngineError> {
        if self.store.artifacts().name_content(org, row, instead_of.as_deref()).await? {
            return Ok(true);
        }
        // Somebody uploaded the same meanwhile, or before, when its hash was not known beforehand.
        match self.look_for(org, row.sha256).await? {
            Some((there, false)) => {
                self.store.artifacts().name_content(org, row, Some(&there.blob)).await?;
                Ok(true)
            }
            _ => {
                self.discard(&row.blob).await;
                self.touch(org, Some(row.sha256)).await?;
                Ok(false)
            }
        }
    }

    /// What is under a key that nobody will name. If it cannot be removed now, the note is still there.
    async fn discard(&self, key: &str) {
        let Ok(blobs) = self.blobs() else { return };
        if let Err(error) = blobs.delete_prefix(folder_of(key)).await {
            return tracing::debug!(%error, key, "what was given up is removed later");
        }
        if let Err(error) = self.store.artifacts().clear_key(key).await {
            tracing::debug!(%error, key, "what was given up is forgotten later");
        }
    }
}

/// A key that is used once. Each has a folder of its own, so that whatever a process leaves beside it goes with it.
fn new_key(org: OrgId) -> String {
    let id = Uuid::now_v7().to_string();
    format!("artifacts/{}/{}/{id}/blob", org.0, &id[id.len() - 2..])
}

pub(super) fn folder_of(key: &str) -> &str {
    key.rsplit_once('/').map_or(key, |(folder, _)| folder)
}

async fn take<E: std::fmt::Display>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send,
    measured: &mut Measured,
    mut upload: Option<&mut Upload>,
) -> Result<(), EngineError> {
    let mut pieces = std::pin::pin!(pieces);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| {
            let message = format!("the upload broke off: {error}; send it again");
            rejected(RejectionKind::Invalid, "upload_broken", message)
        })?;
        measured.take(&piece)?;
        if let Some(upload) = &mut upload {
            upload.write(piece).await?;
        }
    }
    Ok(())
}

fn check_hash(expected: Option<Digest>, found: Digest) -> Result<(), EngineError> {
    match expected.filter(|expected| *expected != found) {
        None => Ok(()),
        Some(expected) => {
            let message = format!(
                "what came has the hash sha256:{found}, not sha256:{expected}; nothing was stored, send it again"
            );
            Err(rejected(RejectionKind::Invalid, "hash_mismatch", message))
        }
    }
}
