//! Which database: a file (SQLite), or a `postgres://` address.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use milepost_store::postgres::{self, PostgresStore};
use milepost_store::sqlite::{self, SqliteStore};
use milepost_store::{Result, Store};

use crate::files;

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
            Database::Sqlite(path) => {
                if let Some(folder) = path.parent() {
                    // If that cannot be, the store says so.
                    let _ = files::make_folder(folder);
                }
                Arc::new(SqliteStore::open(path)?)
            }
            Database::Postgres(url) => Arc::new(PostgresStore::connect(url).await?),
        })
    }

    /// Opens one that is there, with the schema it must have; nothing is made.
    pub(crate) async fn open_existing(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Database::Sqlite(path) => {
                let options = sqlite::Options { migrate: false, read_only: false };
                Arc::new(SqliteStore::open_with(path, options)?)
            }
            Database::Postgres(_) => self.open_to_read().await?,
        })
    }

    /// Opens it beside whoever writes; nothing is changed.
    pub(crate) async fn open_to_read(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Database::Sqlite(path) => {
                let options = sqlite::Options { migrate: false, read_only: true };
                Arc::new(SqliteStore::open_with(path, options)?)
            }
            Database::Postgres(url) => {
                let options = postgres::Options { migrate: false, ..postgres::Options::default() };
                Arc::new(PostgresStore::connect_with(url, options).await?)
            }
        })
    }

    /// Brings its schema up to date. Answers the schema's number.
    pub(crate) async fn migrate(&self) -> Result<u32> {
        match self {
            Database::Sqlite(path) => SqliteStore::open(path)?.schema_version().await,
            Database::Postgres(url) => PostgresStore::connect(url).await?.schema_version().await,
        }
    }

    /// A file that nobody has made yet.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Database::Sqlite(path) if !path.exists())
    }

    /// The flag that names it, for a command that is shown to somebody; nothing for the default.
    pub(crate) fn as_flag(&self) -> String {
        match self {
            Database::Sqlite(path) if path == Path::new(DEFAULT) => String::new(),
            Database::Sqlite(path) => format!(" --db {}", path.display()),
            // The address may hold a password; whoever has it knows where it came from.
            Database::Postgres(_) => " --db \"$MILEPOST_DB\"".to_owned(),
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => path.display().fmt(f),
            Database::Postgres(_) => f.write_str("the Postgres database"),
        }
    }
}
