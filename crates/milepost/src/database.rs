//! Which database: a file (SQLite), or a `postgres://` address.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;
use milepost_store::{Result, Store};

/// Where runs are kept when nothing else is said.
pub(crate) const DEFAULT: &str = ".milepost/milepost.db";

/// A database as it is named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite(PathBuf),
    Postgres(String),
}

impl Database {
    /// `postgres://…` is a server, anything else a file; `sqlite:` may stand before a file.
    pub(crate) fn parse(text: &str) -> Database {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Database::Postgres(text.to_owned());
        }
        let path = text.strip_prefix("sqlite://").or_else(|| text.strip_prefix("sqlite:")).unwrap_or(text);
        Database::Sqlite(Path::new(path).to_owned())
    }

    /// Opens it for writing; makes or migrates its tables.
    pub(crate) async fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Database::Sqlite(path) => Arc::new(SqliteStore::open(path)?),
            Database::Postgres(url) => Arc::new(PostgresStore::connect(url).await?),
        })
    }
}
