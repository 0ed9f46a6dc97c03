//! Which nodes of this machine live.
//!
//! Each node holds a lock on a file of its own beside the database. The kernel gives the lock back the moment the process
//! ends, however it ends; a process that is merely slow or stopped keeps it, and so keeps its runs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use milepost_core::id::NodeId;

use crate::own;
use crate::{Result, StoreError};

#[derive(Debug)]
pub(super) struct NodeLocks {
    database: PathBuf,
    folder: PathBuf,
    /// The nodes of this store. Closing a file gives its lock back.
    held: Mutex<BTreeMap<NodeId, File>>,
}

/// What a node's lock file tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    Held,
    /// The file is there and nobody holds it: the process has died.
    Free,
    Missing,
}

impl NodeLocks {
    pub(super) fn beside(database: &Path) -> NodeLocks {
        let mut folder = OsString::from(database);
        folder.push(".nodes");
        NodeLocks { database: database.to_owned(), folder: folder.into(), held: Mutex::default() }
    }

    fn file(&self, node: NodeId) -> PathBuf {
        self.folder.join(format!("{node}.lock"))
    }

    pub(super) fn holds(&self, node: NodeId) -> bool {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&node)
    }

    /// Takes the node's lock, unless this store has it already.
    pub(super) fn hold(&self, node: NodeId) -> Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.contains_key(&node) {
            return Ok(());
        }
        let file = self.take(node).map_err(|error| {
            StoreError::Unusable(format!(
                "the lock file {} cannot be made: {error}; check who may write in that folder",
                self.file(node).display()
            ))
        })?;
        held.insert(node, file);
        Ok(())
    }

    /// The file gets its name only when it is locked, so nobody ever sees it without its lock while the node lives.
    fn take(&self, node: NodeId) -> io::Result<File> {
        // Whoever may use the database looks for the locks of others.
        let database = fs::metadata(&self.database)?;
        own::make_folder(&self.folder)?;
        own::liken(&self.folder, &database)?;
        let unnamed = self.folder.join(format!("{node}.new"));
        let file = own::create_like(&unnamed, &database)?;
        file.try_lock()?;
        fs::rename(&unnamed, self.file(node))?;
        Ok(file)
    }

    pub(super) fn give_back(&self, node: NodeId) {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.remove(&node).is_some() {
            self.remove(node);
        }
    }

    /// Removes a lock file that has served its purpose. One that stays is found again by the next look.
    pub(super) fn remove(&self, node: NodeId) {
        if let Err(error) = fs::remove_file(self.file(node))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%node, %error, "a lock file of a dead node stays");
        }
    }

    pub(super) fn look(&self, node: NodeId) -> Result<Lock> {
        if self.holds(node) {
            return Ok(Lock::Held);
        }
        let file = match File::open(self.file(node)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Lock::Missing),
            Err(error) => return Err(self.unreadable(&error)),
        };
        // Shared, so that two who look at the same time do not take each other for the node.
        match file.try_lock_shared() {
            Ok(()) => Ok(Lock::Free),
            Err(TryLockError::WouldBlock) => Ok(Lock::Held),
            Err(TryLockError::Error(error)) => Err(self.unreadable(&error)),
        }
    }

    /// All nodes that have a lock file.
    pub(super) fn files(&self) -> Result<Vec<NodeId>> {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unreadable(&error)),
        };
        let node_of = |name: OsString| name.to_str()?.strip_suffix(".lock")?.parse().ok();
        Ok(entries.filter_map(|entry| node_of(entry.ok()?.file_name())).collect())
    }

    fn unreadable(&self, error: &io::Error) -> StoreError {
        StoreError::Unavailable(format!("the lock files in {} cannot be read: {error}", self.folder.display()))
    }
}

impl Drop for NodeLocks {
    /// The locks go with the files, as they would if the process died; the files stay and say so.
    fn drop(&mut self) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
