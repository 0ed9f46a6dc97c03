//! Places for blobs, by their addresses. Credentials and all else come from the variables that the clouds' own tools read.

use std::path;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{ObjectStore, RetryConfig};
use url::Url;

use super::folder::Folder;
use super::{BlobError, Blobs, Place, Result};

/// Whoever waits for a blob has other work, so it is told soon.
const RETRIES: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(20);

/// What an address looks like.
const ADDRESSES: &str = "write s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///folder or a path";

impl Blobs {
    /// Opens the place at an address: `s3://bucket/prefix`, `gs://…`, `az://…`, `file:///…`, or a path. Whether a bucket is
    /// there and lets us in is seen when it is used.
    ///
    /// # Errors
    /// It is no such address, something about it is missing in the environment, or the folder cannot be made.
    pub fn open(address: &str) -> Result<Blobs> {
        if !address.contains("://") {
            return Blobs::in_folder(path::Path::new(address)).made();
        }
        let unusable =
            |why: String| BlobError::Unusable(format!("`{address}` cannot be used for blobs: {why}; {ADDRESSES}"));
        let url: Url = address.parse().map_err(|error| unusable(format!("it is no address ({error})")))?;
        if url.scheme() == "file" {
            let folder = url.to_file_path().map_err(|()| unusable("it names another machine".to_owned()))?;
            return Blobs::in_folder(&folder).made();
        }
        let has_more = !url.username().is_empty() || url.query().is_some() || url.fragment().is_some();
        if url.host_str().is_none_or(str::is_empty) || has_more {
            return Err(unusable("it has a bucket, perhaps a prefix, and nothing else".to_owned()));
        }
        let store = match url.scheme() {
            "s3" | "s3a" => built(AmazonS3Builder::from_env().with_url(address).with_retry(retry()).build()),
            "gs" => built(GoogleCloudStorageBuilder::from_env().with_url(address).with_retry(retry()).build()),
            "az" => built(MicrosoftAzureBuilder::from_env().with_url(address).with_retry(retry()).build()),
            other => Err(format!("there is nothing for {other}://")),
        };
        let root = Path::from_url_path(url.path()).map_err(|error| unusable(error.to_string()))?;
        let shown = address.trim_end_matches('/').to_owned();
        Ok(Blobs { place: store.map_err(unusable)?, root, shown })
    }

    /// A folder, which is made when something is written.
    #[must_use]
    pub fn in_folder(folder: &path::Path) -> Blobs {
        let shown = folder.display().to_string();
        Blobs { place: Place::Folder(Arc::new(Folder::at(folder))), root: Path::default(), shown }
    }

    /// One that somebody named is made at once: if it cannot be, that is known early.
    fn made(self) -> Result<Blobs> {
        if let Place::Folder(folder) = &self.place {
            folder.made()?;
        }
        Ok(self)
    }
}

fn built<S: ObjectStore + Signer>(store: object_store::Result<S>) -> std::result::Result<Place, String> {
    let store = Arc::new(store.map_err(|error| error.to_string())?);
    Ok(Place::Bucket(store.clone(), store))
}

fn retry() -> RetryConfig {
    RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_mean_nothing_are_refused_with_those_that_do() {
        for address in ["ftp://h/x", "s3://", "s3://u:p@b/x", "s3://b/x?y=1", "http://h/b", "file://h/x", "s3:// b"] {
            let refused = Blobs::open(address).unwrap_err().to_string();
            assert!(refused.contains("write s3://bucket/prefix"), "{refused}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let refused = Blobs::open(file.path().to_str().unwrap()).unwrap_err().to_string();
        assert!(refused.contains("choose another"), "{refused}");
    }

    #[test]
    fn an_address_is_a_bucket_and_perhaps_a_prefix() {
        let opened = Blobs::open("s3://bucket/some/prefix/").unwrap();
        assert_eq!((opened.to_string().as_str(), opened.root.as_ref()), ("s3://bucket/some/prefix", "some/prefix"));
        assert_eq!(Blobs::open("gs://bucket").unwrap().root.as_ref(), "");
    }
}
