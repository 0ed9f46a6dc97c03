//! Between columns and the values of [`crate::rows`].

use std::str::FromStr;
use std::sync::Arc;

use rusqlite::types::{FromSql, Type};
use rusqlite::{Connection, OptionalExtension, Params, Row};
use uuid::Uuid;

use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use crate::Result;

pub(super) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnMut(&Row) -> rusqlite::Result<T>,
) -> Result<Vec<T>> {
    let mut statement = conn.prepare_cached(sql)?;
    let rows = statement.query_map(params, map)?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    map: impl FnOnce(&Row) -> rusqlite::Result<T>,
) -> Result<Option<T>> {
    Ok(conn.prepare_cached(sql)?.query_row(params, map).optional()?)
}

/// Reads a row column after column.
pub(super) struct Columns<'r, 's> {
    row: &'r Row<'s>,
    next: usize,
}

impl<'r, 's> Columns<'r, 's> {
    pub(super) fn of(row: &'r Row<'s>) -> Columns<'r, 's> {
        Columns { row, next: 0 }
    }

    pub(super) fn get<T: FromSql>(&mut self) -> rusqlite::Result<T> {
        let index = self.next;
        self.next += 1;
        self.row.get(index)
    }

    pub(super) fn seq(&mut self) -> rusqlite::Result<u64> {
        Ok(self.get::<i64>()?.cast_unsigned())
    }

    pub(super) fn opt_seq(&mut self) -> rusqlite::Result<Option<u64>> {
        Ok(self.get::<Option<i64>>()?.map(i64::cast_unsigned))
    }

    pub(super) fn org(&mut self) -> rusqlite::Result<OrgId> {
        self.get().map(OrgId)
    }

    pub(super) fn run(&mut self) -> rusqlite::Result<RunId> {
        self.get::<[u8; 16]>().map(|bytes| RunId(Uuid::from_bytes(bytes)))
    }

    pub(super) fn opt_run(&mut self) -> rusqlite::Result<Option<RunId>> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(|bytes| RunId(Uuid::from_bytes(bytes))))
    }

    pub(super) fn opt_signal(&mut self) -> rusqlite::Result<Option<SignalId>> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(|bytes| SignalId(Uuid::from_bytes(bytes))))
    }

    pub(super) fn digest(&mut self) -> rusqlite::Result<Digest> {
        self.get().map(Digest)
    }

    pub(super) fn opt_digest(&mut self) -> rusqlite::Result<Option<Digest>> {
        Ok(self.get::<Option<[u8; 32]>>()?.map(Digest))
    }

    pub(super) fn time(&mut self) -> rusqlite::Result<Timestamp> {
        self.get().map(Timestamp)
    }

    pub(super) fn opt_time(&mut self) -> rusqlite::Result<Option<Timestamp>> {
        Ok(self.get::<Option<i64>>()?.map(Timestamp))
    }

    pub(super) fn opt_json(&mut self) -> rusqlite::Result<Option<Json>> {
        Ok(self.get::<Option<Arc<str>>>()?.map(Json::trusted))
    }

    pub(super) fn word<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(&mut self) -> rusqlite::Result<T> {
        let word: String = self.get()?;
        word.parse().map_err(|error| conversion(self.next - 1, error))
    }

    pub(super) fn opt_word<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        &mut self,
    ) -> rusqlite::Result<Option<T>> {
        let word: Option<String> = self.get()?;
        word.map(|word| word.parse().map_err(|error| conversion(self.next - 1, error))).transpose()
    }
}

fn conversion(index: usize, error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(index, Type::Text, Box::new(error))
}

pub(super) fn id(run: &RunId) -> &[u8] {
    run.0.as_bytes()
}
