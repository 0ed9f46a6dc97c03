//! A blob that comes piece by piece and is never whole in memory.
//!
//! What is small is put in one go when it is all there. What is larger goes in parts: to a file beside, which gets its name
//! when it is complete, or to a multipart upload of a bucket.
//!
//! **Invariant:** nothing is under the key before `finish`. An upload that is dropped leaves nothing, unless the process ends
//! with it: then a folder has a file beside, which goes with the key's own folder ([`Blobs::delete_prefix`]), and a bucket
//! parts that its rules for incomplete uploads remove.

use std::fmt;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt as _, PutPayload, WriteMultipart};

use super::{Blobs, Place, Result};

/// A part. Buckets take ten thousand of them, and none but the last may have less than 5 MiB.
const PART_BYTES: usize = 8 * 1024 * 1024;
/// Parts on their way at once; so many and one more are in memory.
const AT_ONCE: usize = 4;

/// A blob on its way.
pub struct Upload {
    blobs: Blobs,
    path: Path,
    /// What came so far, as long as it fits into one part.
    pieces: Vec<Bytes>,
    parts: Option<WriteMultipart>,
    size: u64,
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upload").field("path", &self.path).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Blobs {
    /// Begins a blob that comes piece by piece.
    ///
    /// # Errors
    /// That is no key.
    pub fn upload(&self, key: &str) -> Result<Upload> {
        let path = self.path(key)?;
        Ok(Upload { blobs: self.clone(), path, pieces: Vec::new(), parts: None, size: 0 })
    }
}

impl Upload {
    /// How much came so far.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Takes the next piece; waits while too much is on its way.
    ///
    /// # Errors
    /// It cannot be stored. What came so far is given up.
    pub async fn write(&mut self, piece: Bytes) -> Result<()> {
        self.size += piece.len() as u64;
        if self.parts.is_none() {
            self.pieces.push(piece);
            if self.size <= PART_BYTES as u64 {
                return Ok(());
            }
            self.begin_parts().await?;
        } else if let Some(parts) = &mut self.parts {
            parts.put(piece);
        }
        let Some(parts) = &mut self.parts else { return Ok(()) };
        match parts.wait_for_capacity(AT_ONCE).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let error = self.blobs.failed(&error);
                self.give_up().await;
                Err(error)
            }
        }
    }

    async fn begin_parts(&mut self) -> Result<()> {
        let begun = match &self.blobs.place {
            Place::Folder(folder) => folder.made()?.put_multipart(&self.path).await,
            Place::Bucket(bucket, _) => bucket.put_multipart(&self.path).await,
        };
        let upload = begun.map_err(|error| self.blobs.failed(&error))?;
        let mut parts = WriteMultipart::new_with_chunk_size(upload, PART_BYTES);
        self.pieces.drain(..).for_each(|piece| parts.put(piece));
        self.parts = Some(parts);
        Ok(())
    }

    /// Puts the blob under its key, and returns when it is safe.
    ///
    /// # Errors
    /// It was not written, or that is not known.
    pub async fn finish(mut self) -> Result<()> {
        let done = match self.parts.take() {
            Some(parts) => parts.finish().await.map(drop),
            None => {
                let content: PutPayload = self.pieces.drain(..).collect();
                match &self.blobs.place {
                    Place::Folder(folder) => folder.made()?.put(&self.path, content).await.map(drop),
                    Place::Bucket(bucket, _) => bucket.put(&self.path, content).await.map(drop),
                }
            }
        };
        if let Place::Folder(folder) = &self.blobs.place {
            folder.close(&self.path).await;
        }
        done.map_err(|error| self.blobs.failed(&error))
    }

    /// Leaves nothing of it.
    pub async fn give_up(&mut self) {
        self.pieces.clear();
        if let Some(parts) = self.parts.take() {
            give_up(parts).await;
        }
    }
}

/// What cannot be removed now goes by the rules of the bucket.
async fn give_up(parts: WriteMultipart) {
    if let Err(error) = parts.abort().await {
        tracing::debug!(%error, "parts of a blob that was given up cannot be removed");
    }
}

/// Whoever sent it has gone.
impl Drop for Upload {
    fn drop(&mut self) {
        let Some(parts) = self.parts.take() else { return };
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(give_up(parts));
        }
    }
}
