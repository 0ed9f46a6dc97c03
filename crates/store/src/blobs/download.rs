//! Blobs that are read piece by piece, and addresses under which others read them.

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use object_store::signer::Method;
use object_store::{GetOptions, GetRange, ObjectStoreExt as _};

use super::{BlobError, Blobs, Place, Result};

/// A blob, or a part of one, on its way out.
pub struct Download {
    /// Of the whole blob.
    pub size: u64,
    pub range: Range<u64>,
    pub pieces: BoxStream<'static, Result<Bytes>>,
}

impl std::fmt::Debug for Download {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Download").field("size", &self.size).field("range", &self.range).finish_non_exhaustive()
    }
}

impl Blobs {
    /// Reads a blob, or those bytes of it.
    ///
    /// # Errors
    /// It cannot be read; one that is not there is `None`.
    pub async fn download(&self, key: &str, range: Option<Range<u64>>) -> Result<Option<Download>> {
        let path = self.path(key)?;
        let Some(store) = self.store()? else { return Ok(None) };
        let empty = range.as_ref().is_some_and(Range::is_empty);
        if empty {
            // No server has a way to ask for nothing.
            let meta = self.unless_missing(store.head(&path).await)?;
            let pieces = || futures::stream::empty().boxed();
            return Ok(meta.map(|meta| Download { size: meta.size, range: range.unwrap_or(0..0), pieces: pieces() }));
        }
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let Some(found) = self.unless_missing(store.get_opts(&path, options).await)? else { return Ok(None) };
        let (size, range) = (found.meta.size, found.range.clone());
        let blobs = self.clone();
        let pieces = found.into_stream().map(move |piece| piece.map_err(|error| blobs.failed(&error))).boxed();
        Ok(Some(Download { size, range, pieces }))
    }

    /// Whether others can be given addresses to read from.
    #[must_use]
    pub fn can_presign(&self) -> bool {
        matches!(self.place, Place::Bucket(..))
    }

    /// An address to read this blob from, for so long. Whether there is such a blob is seen when it is used.
    ///
    /// # Errors
    /// It is in a folder, or the bucket's credentials cannot sign.
    pub async fn presign(&self, key: &str, expires_in: Duration) -> Result<String> {
        let path = self.path(key)?;
        let Place::Bucket(_, signer) = &self.place else {
            let why = "a folder has no addresses that others can read from; download it from this server";
            return Err(BlobError::Unusable(why.to_owned()));
        };
        let url = signer.signed_url(Method::GET, &path, expires_in).await.map_err(|error| self.failed(&error))?;
        Ok(url.into())
    }
}
