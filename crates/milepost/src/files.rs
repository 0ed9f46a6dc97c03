//! The folder with what Milepost keeps, and whether others on this machine may look into it.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use milepost_store::own;

use crate::config::ServerConfig;
use crate::database::Database;
use crate::server::file;

/// What the folder is called unless somebody names one. One of this name has nothing else in it.
const FOLDER: &str = ".milepost";

/// Makes a folder for its user alone. One that is there with another name is somebody's who knows what it is for.
pub(crate) fn make_folder(path: &Path) -> io::Result<()> {
    own::make_folder(path)?;
    if path.file_name().is_some_and(|name| name == FOLDER) {
        own::narrow(path);
    }
    Ok(())
}

impl ServerConfig {
    /// Files and folders that hold what is kept, and that everybody on this machine may read or write.
    pub(crate) fn open_to_all(&self) -> Vec<PathBuf> {
        let mut kept = vec![self.secrets_key_file.value.clone(), self.data.value.join(file::NAME)];
        if let Database::Sqlite(path) = &self.db.value {
            kept.extend(["", "-wal", "-shm", ".nodes"].map(|end| {
                let mut file = OsString::from(path);
                file.push(end);
                PathBuf::from(file)
            }));
        }
        kept.extend(self.blobs.value.as_ref().filter(|address| !address.contains("://")).map(PathBuf::from));
        kept.retain(|path| own::open_to_all(path));
        kept
    }
}

/// What to do about one of them.
pub(crate) fn close_it(path: &Path) -> String {
    let path = path.display();
    format!("every user of this machine can read or write {path}; chmod o-rwx {path}")
}
