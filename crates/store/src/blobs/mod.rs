//! What is too large for a database: a folder, or a bucket of S3, Google or Azure.
//!
//! Blobs have keys like paths, `runs/1/3f/…/logs/…`; all that belongs to a run is under one prefix. They are written whole and
//! never changed.
//!
//! **Invariant:** when `put` returns, the blob survives the loss of power: in a folder, file and folders are on disk.

mod download;
mod folder;
mod open;
mod upload;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use milepost_core::id::{OrgId, RunId};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt as _};

use folder::Folder;

pub use download::Download;
pub use upload::Upload;

/// Cut by what the caller does next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// Try again: it is out of reach or overloaded.
    #[error("the blob store cannot be reached or is busy: {0}")]
    Unavailable(String),
    /// No room left on its disk.
    #[error("the disk of the blob store is full: {0}; free some space")]
    Full(String),
    /// It cannot be used as it is set up; the text says why and what to do.
    #[error("{0}")]
    Unusable(String),
}

pub type Result<T, E = BlobError> = std::result::Result<T, E>;

/// A place for blobs. Cheap to clone.
#[derive(Clone)]
pub struct Blobs {
    place: Place,
    /// What all keys begin with.
    root: Path,
    shown: String,
}

#[derive(Clone)]
enum Place {
    Folder(Arc<Folder>),
    Bucket(Arc<dyn ObjectStore>, Arc<dyn Signer>),
}

impl fmt::Debug for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blobs").field(&self.shown).finish()
    }
}

/// Where it is, without anything secret.
impl fmt::Display for Blobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// What all keys of a run begin with. Runs are spread over 256 folders by the end of their ids, which is random.
#[must_use]
pub fn prefix_of(org: OrgId, run: RunId) -> String {
    let id = run.to_string();
    format!("runs/{}/{}/{id}", org.0, &id[id.len() - 2..])
}

impl Blobs {
    /// Writes a blob, and returns when it is safe. One that is there is replaced.
    ///
    /// # Errors
    /// It was not written, or that is not known.
    pub async fn put(&self, key: &str, content: Bytes) -> Result<()> {
        let path = self.path(key)?;
        let put = match &self.place {
            Place::Folder(folder) => {
                let put = folder.made()?.put(&path, content.into()).await;
                folder.close(&path).await;
                put
            }
            Place::Bucket(bucket, _) => bucket.put(&path, content.into()).await,
        };
        put.map(drop).map_err(|error| self.failed(&error))
    }

    /// # Errors
    /// It cannot be read; one that is not there is `None`.
    pub async fn get(&self, key: &str) -> Result<Option<Bytes>> {
        self.read(key, GetOptions::default()).await
    }

    /// Some bytes of a blob, as far as it has them.
    ///
    /// # Errors
    /// It cannot be read; one that is not there is `None`.
    pub async fn get_range(&self, key: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let Some(size) = self.size(key).await? else { return Ok(None) };
        let range = range.start..range.end.min(size);
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        self.read(key, GetOptions { range: Some(GetRange::Bounded(range)), ..GetOptions::default() }).await
    }

    async fn read(&self, key: &str, options: GetOptions) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        let Some(store) = self.store()? else { return Ok(None) };
        let read = match store.get_opts(&path, options).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        self.unless_missing(read)
    }

    /// How many bytes it has.
    ///
    /// # Errors
    /// That cannot be found out; one that is not there is `None`.
    pub async fn size(&self, key: &str) -> Result<Option<u64>> {
        let path = self.path(key)?;
        let Some(store) = self.store()? else { return Ok(None) };
        let meta = self.unless_missing(store.head(&path).await)?;
        Ok(meta.map(|meta| meta.size))
    }

    /// # Errors
    /// That cannot be found out.
    pub async fn exists(&self, key: &str) -> Result<bool> {
        Ok(self.size(key).await?.is_some())
    }

    /// Removes a blob; one that is not there is gone already.
    ///
    /// # Errors
    /// It may still be there.
    pub async fn delete(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        let Some(store) = self.store()? else { return Ok(()) };
        self.unless_missing(store.delete(&path).await).map(drop)
    }

    /// Removes all blobs whose keys begin with `prefix` and a `/`.
    ///
    /// # Errors
    /// Some of them may still be there.
    pub async fn delete_prefix(&self, prefix: &str) -> Result<()> {
        let path = self.path(prefix)?;
        match &self.place {
            Place::Folder(folder) => folder.remove_below(prefix).await,
            Place::Bucket(bucket, _) => {
                let keys = bucket.list(Some(&path)).map_ok(|meta| meta.location).boxed();
                let deleted = bucket.delete_stream(keys).try_for_each(|_| async { Ok(()) }).await;
                self.unless_missing(deleted).map(drop)
            }
        }
    }

    /// Where to read; nothing, if nothing was ever written.
    fn store(&self) -> Result<Option<&dyn ObjectStore>> {
        match &self.place {
            Place::Folder(folder) => folder.if_there(),
            Place::Bucket(bucket, _) => Ok(Some(&**bucket)),
        }
    }

    fn path(&self, key: &str) -> Result<Path> {
        let bad = |why: String| BlobError::Unusable(format!("`{key}` is no key of a blob: {why}"));
        // Without any, everything would be meant.
        if key.is_empty() || key.starts_with('/') || key.ends_with('/') {
            return Err(bad("it has parts, and `/` between them".to_owned()));
        }
        let key = Path::parse(key).map_err(|error| bad(error.to_string()))?;
        Ok(self.root.parts().chain(key.parts()).collect())
    }

    fn unless_missing<T>(&self, read: object_store::Result<T>) -> Result<Option<T>> {
        match read {
            Ok(value) => Ok(Some(value)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn failed(&self, error: &Error) -> BlobError {
        let mut message = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            if inner.downcast_ref().is_some_and(|error: &std::io::Error| {
                error.kind() == std::io::ErrorKind::StorageFull || error.kind() == std::io::ErrorKind::QuotaExceeded
            }) {
                return BlobError::Full(self.shown.clone());
            }
            if !message.contains(&inner.to_string()) {
                message = format!("{message}: {inner}");
            }
            cause = inner.source();
        }
        match error {
            Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                BlobError::Unusable(format!("{self} lets nobody in with these credentials: {message}; check them"))
            }
            _ => BlobError::Unavailable(format!("{self}: {message}")),
        }
    }
}
