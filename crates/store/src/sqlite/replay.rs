//! The same rows through the same statements with nothing around them: what the engine is measured against.

use std::path::Path;
use std::time::{Duration, Instant};

use super::{open, write};
use crate::rows::Recorded;
use crate::{Result, StoreError};

/// Writes recorded calls to a new database at `path`, one transaction each, on the calling thread.
/// Answers how long the writing took, without making the database.
///
/// # Errors
/// There is something at `path` already, or SQLite fails.
pub fn replay(path: &Path, recorded: &[Recorded]) -> Result<Duration> {
    if path.exists() {
        return Err(StoreError::Unusable(format!("{} exists already; a replay needs a new file", path.display())));
    }
    let mut conn = open::writer(path, true)?;
    let start = Instant::now();
    for call in recorded {
        write::in_transaction(&mut conn, |tx| match call {
            Recorded::Commit(batch) => write::batch(tx, batch).map(drop),
            Recorded::Project(writes) => write::projections(tx, writes).map(drop),
        })?;
    }
    Ok(start.elapsed())
}
