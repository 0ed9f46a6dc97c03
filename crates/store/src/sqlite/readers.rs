//! A few connections that only read. Under write-ahead logging each statement sees all that was committed before it
//! began, and none waits for the writer.

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
