//! A folder for blobs. It is made when the first one is written, for its user alone.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;

use super::{BlobError, Result};
use crate::own;

pub(super) struct Folder {
    path: PathBuf,
    opened: OnceLock<LocalFileSystem>,
}

impl Folder {
    pub(super) fn at(path: &Path) -> Folder {
        Folder { path: path.to_owned(), opened: OnceLock::new() }
    }

    /// For reading.
    pub(super) fn if_there(&self) -> Result<Option<&dyn ObjectStore>> {
        if self.opened.get().is_none() && !self.path.exists() {
            return Ok(None);
        }
        self.made().map(Some)
    }

    /// For writing.
    pub(super) fn made(&self) -> Result<&dyn ObjectStore> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        make(&self.path).map_err(|error| self.unusable(&error))?;
        let opened = LocalFileSystem::new_with_prefix(&self.path).map_err(|error| self.unusable(&error))?;
        Ok(self.opened.get_or_init(|| opened.with_fsync(true)))
    }

    /// Keeps others from a blob that was just written, and from the folders that were made for it.
    pub(super) async fn close(&self, key: &Key) {
        let (root, blob) = (self.path.clone(), self.path.join(key.as_ref()));
        // What is left open is in a folder that is not.
        let _ = tokio::task::spawn_blocking(move || {
            blob.ancestors().take_while(|path| *path != root).for_each(own::narrow);
        })
        .await;
    }

    /// Removes all below a key, with what a process left that died in the middle of a write.
    pub(super) async fn remove_below(&self, key: &str) -> Result<()> {
        let below = self.path.join(key);
        match tokio::fs::remove_dir_all(&below).await {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BlobError::Unavailable(format!("{} cannot be removed: {error}", below.display())))
            }
            _ => Ok(()),
        }
    }

    fn unusable(&self, error: &dyn std::fmt::Display) -> BlobError {
        let folder = self.path.display();
        BlobError::Unusable(format!("the folder {folder} cannot be used for blobs: {error}; choose another"))
    }
}

/// Makes a folder, and sees to it that it stays made.
fn make(folder: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> =
        folder.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    own::make_folder(folder)?;
    for path in missing {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::File::open(parent)?.sync_all()?;
    }
    Ok(())
}
