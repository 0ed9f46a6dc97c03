//! Opening a database file: is it one, is it ours, is its schema the one this release knows.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};

use super::errors::needs_room;
use crate::migrations::{self, SQLITE};
use crate::own;
use crate::{Result, StoreError};

/// "Mile": marks a database file as ours.
const APPLICATION_ID: i32 = 0x4D69_6C65;

/// How long to wait for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that writes, to a database that has the newest schema. With `migrate`, it is made so.
pub(super) fn writer(path: &Path, migrate: bool) -> Result<Connection> {
    if migrate && let Some(folder) = path.parent() {
        own::make_folder(folder).map_err(|error| {
            StoreError::Unusable(format!(
                "the folder {} cannot be made: {error}; choose another path for the database or change who may write there",
                folder.display()
            ))
        })?;
    }
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if migrate {
        flags |= OpenFlags::SQLITE_OPEN_CREATE;
        // SQLite gives its other files the mode of this one. Where it cannot be made, SQLite says so below.
        let _ = own::make_file(path);
    } else {
        must_exist(path)?;
    }
    files(path).iter().for_each(|file| own::narrow(file));
    let mut conn = Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, &error))?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    if conn.is_readonly("main").map_err(|error| cannot_open(path, &error))? {
        return Err(StoreError::Unusable(format!(
            "{} may only be read; change who may write it, or choose another path",
            path.display()
        )));
    }
    let found = schema_of(path, &conn)?;
    if found < migrations::latest(SQLITE) && !migrate {
        return Err(behind(path, found));
    }
    write_ahead(path, &conn)?;
    if found < migrations::latest(SQLITE) {
        apply_migrations(path, &mut conn)?;
    }
    // 2,000 pages: a checkpoint writes each page once however often it changed since the last one, so rare ones are
    // cheaper; but until then the log of changes grows, and whoever reads has to look into it.
    conn.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY;
         PRAGMA wal_autocheckpoint = 2000;
         PRAGMA journal_size_limit = 67108864;
         PRAGMA cache_size = -32768;",
    )?;
    keep_plans(&conn)?;
    Ok(conn)
}

/// The database file and those that SQLite has beside it.
pub(super) fn files(path: &Path) -> [PathBuf; 3] {
    ["", "-wal", "-shm"].map(|end| {
        let mut file = OsString::from(path);
        file.push(end);
        file.into()
    })
}

/// A connection that only reads. The schema must be the one this release knows.
pub(super) fn reader(path: &Path) -> Result<Connection> {
    must_exist(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(|error| cannot_open(path, &error))?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    let found = schema_of(path, &conn)?;
    if found < migrations::latest(SQLITE) {
        return Err(behind(path, found));
    }
    conn.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA cache_size = -8192;")?;
    keep_plans(&conn)?;
    Ok(conn)
}

/// Each statement is compiled once. Left to itself, SQLite compiles some anew for every value they are given, in search of
/// a better plan: that costs more than running them, and ours have one plan whatever the values are.
pub(super) fn keep_plans(conn: &Connection) -> Result<()> {
    conn.set_prepared_statement_cache_capacity(64);
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(())
}

fn must_exist(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "there is no database at {}; check the path, or run `milepost migrate` to make one",
        path.display()
    )))
}

fn behind(path: &Path, found: u32) -> StoreError {
    StoreError::Unusable(format!(
        "{} has schema {found}, this milepost needs {}; run `milepost migrate`",
        path.display(),
        migrations::latest(SQLITE)
    ))
}

fn cannot_open(path: &Path, error: &rusqlite::Error) -> StoreError {
    let place = path.display();
    if error.sqlite_error().is_some_and(needs_room) {
        return StoreError::DiskFull(format!("{place}: {error}"));
    }
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => StoreError::Unusable(format!(
            "{place} is not an SQLite database; choose another path, or move that file away"
        )),
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Corrupt(format!(
            "{place}: {error}; restore it from a backup or run `.recover` of the sqlite3 tool"
        )),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            StoreError::Unavailable(format!("{place}: {error}"))
        }
        _ => StoreError::Unusable(format!(
            "{place} cannot be opened: {error}; check that it is a file and that you may read and write it and its folder"
        )),
    }
}

/// The number of the schema found, 0 for an empty file. Fails for what is not ours or is newer than us.
fn schema_of(path: &Path, conn: &Connection) -> Result<u32> {
    let read =
        |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(|error| cannot_open(path, &error));
    // In this order: whoever makes the tables sets the id in the same transaction, so tables without it are not ours.
    let is_empty = read("SELECT count(*) FROM sqlite_master")? == 0;
    if read("PRAGMA application_id")? != i64::from(APPLICATION_ID) {
        if is_empty {
            return Ok(0);
        }
        return Err(StoreError::Unusable(format!(
            "{} is an SQLite database of another program; choose another path",
            path.display()
        )));
    }
    let found = read("SELECT coalesce(max(version), 0) FROM schema_migrations")?;
    let known = migrations::latest(SQLITE);
    match u32::try_from(found) {
        Ok(found) if found <= known => Ok(found),
        _ => Err(StoreError::Unusable(format!(
            "{} was written by a newer milepost (schema {found}, this one knows {known}); upgrade milepost",
            path.display()
        ))),
    }
}

/// Write-ahead logging is a property of the file, so this is a change only once.
fn write_ahead(path: &Path, conn: &Connection) -> Result<()> {
    let give_up = Instant::now() + BUSY_TIMEOUT;
    let mode: String = loop {
        match conn.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)) {
            Ok(mode) => break mode,
            // SQLite does not wait here by itself when another process makes the same file.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) && Instant::now() < give_up => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(cannot_open(path, &error)),
        }
    };
    if mode.eq_ignore_ascii_case("wal") {
        return Ok(());
    }
    Err(StoreError::Unusable(format!(
        "{} cannot use write-ahead logging (its mode stays `{mode}`); put the database on a local disk",
        path.display()
    )))
}

/// Each step in its own transaction. The version is read inside it: another process may migrate at the same time.
fn apply_migrations(path: &Path, conn: &mut Connection) -> Result<()> {
    loop {
        let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let found = schema_of(path, &tx)?;
        let Some(next) = SQLITE.iter().find(|migration| migration.version > found) else {
            return Ok(());
        };
        if found == 0 {
            tx.execute_batch(
                "CREATE TABLE schema_migrations (
                     version    INTEGER PRIMARY KEY,
                     name       TEXT NOT NULL,
                     applied_at INTEGER NOT NULL
                 ) STRICT",
            )?;
            tx.pragma_update(None, "application_id", APPLICATION_ID)?;
        }
        tx.execute_batch(next.sql)?;
        tx.execute(
            "INSERT INTO schema_migrations (version, name, applied_at) VALUES (?, ?, ?)",
            (next.version, next.name, now_us()),
        )?;
        tx.commit()?;
    }
}

pub(super) fn schema_version(conn: &Connection) -> Result<u32> {
    Ok(conn.query_row("SELECT coalesce(max(version), 0) FROM schema_migrations", [], |row| row.get(0))?)
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
