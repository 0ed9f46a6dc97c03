//! A few connections that only read. Under write-ahead logging each statement sees all that was committed before it
//! began, and none waits for the writer.
//!
//! What is short runs where it is asked for; what may take longer goes to a thread that may block, and holds up nobody.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::open;
use crate::meter::Meter;
use crate::{Result, StoreError};

/// More at a time would only take turns on the processor.
const CONNECTIONS: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    idle: Mutex<Vec<Connection>>,
    permits: Semaphore,
    meter: Meter,
}

impl Readers {
    /// Opens one connection at once, so that a database that cannot be read is noticed here.
    pub(super) fn open(path: &Path, meter: Meter) -> Result<Arc<Readers>> {
        let first = open::reader(path)?;
        Ok(Arc::new(Readers {
            path: path.to_owned(),
            idle: Mutex::new(vec![first]),
            permits: Semaphore::new(CONNECTIONS),
            meter,
        }))
    }

    /// Runs `work` in a read transaction on a thread that may block.
    pub(super) async fn run<T: Send + 'static>(
        self: &Arc<Readers>,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.meter.read();
        self.elsewhere(work).await
    }

    /// Runs `work` in a read transaction at once, on the calling thread: for what takes less time than two hand-overs to
    /// another. While all connections are in use it waits for one, and is run as any other.
    pub(super) async fn run_short<T: Send + 'static>(
        self: &Arc<Readers>,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.meter.read();
        match self.permits.try_acquire() {
            Ok(_permit) => self.run_here(work),
            Err(_) => self.elsewhere(work).await,
        }
    }

    async fn elsewhere<T: Send + 'static>(
        self: &Arc<Readers>,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let readers = Arc::clone(self);
        let gone = |error: &dyn std::fmt::Display| StoreError::Unavailable(format!("a read did not end: {error}"));
        let _permit = self.permits.acquire().await.map_err(|error| gone(&error))?;
        tokio::task::spawn_blocking(move || readers.run_here(work)).await.map_err(|error| gone(&error))?
    }

    fn run_here<T>(&self, work: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let conn = idle.map_or_else(|| open::reader(&self.path), Ok)?;
        let tx = conn.unchecked_transaction()?;
        let done = work(&tx);
        drop(tx);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
        done
    }
}

#[cfg(test)]
mod tests {
    use std::thread::{ThreadId, current};

    use tempfile::TempDir;

    use super::*;

    fn readers() -> (Arc<Readers>, TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        drop(open::writer(&path, true).unwrap());
        (Readers::open(&path, Meter::of("sqlite")).unwrap(), folder)
    }

    fn where_it_runs(_: &Connection) -> Result<ThreadId> {
        Ok(current().id())
    }

    #[tokio::test]
    async fn only_what_is_short_runs_on_the_callers_thread() {
        let (readers, _folder) = readers();
        assert_eq!(readers.run_short(where_it_runs).await.unwrap(), current().id());
        assert_ne!(readers.run(where_it_runs).await.unwrap(), current().id());
    }

    #[tokio::test]
    async fn what_finds_no_connection_holds_up_no_thread() {
        let (readers, _folder) = readers();
        let all = readers.permits.acquire_many(CONNECTIONS as u32).await.unwrap();
        let mut short = std::pin::pin!(readers.run_short(where_it_runs));
        tokio::select! {
            biased;
            _ = &mut short => panic!("it ran without a connection"),
            () = std::future::ready(()) => {}
        }
        drop(all);
        assert_ne!(short.await.unwrap(), current().id());
    }
}
