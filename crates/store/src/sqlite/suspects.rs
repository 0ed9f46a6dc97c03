//! Runs that may bring a process down.

use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::{Connection, Row, params};

use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;

use super::columns::{Columns, all, id, one};
use super::nodes::NodeLocks;
use super::{SqliteStore, is_dead, read, write};
use crate::rows::{Note, SuspectRow, SuspectState, Watched};
use crate::{Result, SuspectStore};

#[async_trait]
impl SuspectStore for SqliteStore {
    async fn note(&self, node: NodeId, notes: &[Note]) -> Result<()> {
        let text = Note::write_all(notes);
        self.writer()?.run(move |conn| write::unsynced(conn, |tx| note(tx, node, text.as_deref()))).await
    }

    async fn charge(&self, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>> {
        self.write(move |tx| charge(tx, dead, now)).await
    }

    async fn watch(&self, node: NodeId, now: Timestamp) -> Result<Watched> {
        let locks = Arc::clone(&self.locks);
        self.read(move |conn| watch(conn, &locks, node, now)).await
    }

    async fn suspects(&self) -> Result<Vec<SuspectRow>> {
        self.read(suspects).await
    }

    async fn acquit(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let runs = runs.to_vec();
        self.write(move |tx| acquit(tx, &runs)).await
    }

    async fn release(&self, org: OrgId, run: RunId) -> Result<bool> {
        self.write(move |tx| release(tx, org, run)).await
    }

    async fn close(&self, org: OrgId, run: RunId) -> Result<bool> {
        self.write(move |tx| {
            let sql = "UPDATE run_suspects SET state = 'ended' WHERE org_id = ? AND run_id = ? AND state = 'stuck'";
            Ok(tx.prepare_cached(sql)?.execute(params![org.0, id(&run)])? == 1)
        })
        .await
    }
}

fn note(tx: &Connection, node: NodeId, text: Option<&str>) -> Result<()> {
    tx.prepare_cached("UPDATE nodes SET deciding = ? WHERE node_id = ?")?.execute(params![text, node.0])?;
    Ok(())
}

const SUSPECT: &str = "SELECT org_id, run_id, state, crashes, deed, changed_at, owner FROM run_suspects";

fn suspect_row(row: &Row) -> rusqlite::Result<SuspectRow> {
    let mut columns = Columns::of(row);
    Ok(SuspectRow {
        org: columns.org()?,
        run: columns.run()?,
        state: columns.word()?,
        crashes: columns.get()?,
        deed: columns.get()?,
        changed_at: columns.time()?,
        owner: columns.get::<Option<i64>>()?.map(NodeId),
    })
}

fn suspects(conn: &Connection) -> Result<Vec<SuspectRow>> {
    all(conn, &format!("{SUSPECT} ORDER BY org_id, run_id"), [], suspect_row)
}

fn charge(tx: &Connection, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>> {
    let noted = "SELECT deciding FROM nodes WHERE node_id = ? AND left = 0";
    let Some(text) = one(tx, noted, [dead.0], |row| row.get::<_, Option<String>>(0))? else { return Ok(Vec::new()) };
    tx.prepare_cached("UPDATE nodes SET deciding = NULL, crashed_at = coalesce(crashed_at, ?2) WHERE node_id = ?1")?
        .execute(params![dead.0, now.0])?;
    let (notes, _) = Note::read_all(text.as_deref())?;
    let alone = notes.len() == 1;
    notes.into_iter().map(|note| charge_run(tx, note, alone, now)).collect()
}

fn charge_run(tx: &Connection, note: Note, alone: bool, now: Timestamp) -> Result<SuspectRow> {
    let sql = format!("{SUSPECT} WHERE org_id = ? AND run_id = ?");
    let before = one(tx, &sql, params![note.org.0, id(&note.run)], suspect_row)?;
    let was_stuck = before.as_ref().is_some_and(|row| row.state != SuspectState::Suspected);
    let mut row = SuspectRow::charged(note, alone, before, now);
    let (org, run) = (row.org.0, row.run);
    if row.state == SuspectState::Stuck && !was_stuck {
        let owner = "SELECT owner FROM runs WHERE org_id = ? AND run_id = ?";
        row.owner = one(tx, owner, params![org, id(&run)], |row| row.get::<_, Option<i64>>(0))?.flatten().map(NodeId);
        tx.prepare_cached("UPDATE runs SET owner = NULL WHERE org_id = ? AND run_id = ?")?
            .execute(params![org, id(&run)])?;
        tx.prepare_cached("DELETE FROM cache_flights WHERE org_id = ? AND leader_run = ?")?
            .execute(params![org, id(&run)])?;
    }
    tx.prepare_cached(
        "INSERT OR REPLACE INTO run_suspects (org_id, run_id, state, crashes, deed, changed_at, owner)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        org,
        id(&run),
        row.state.as_str(),
        row.crashes,
        row.deed,
        row.changed_at.0,
        row.owner.map(|owner| owner.0)
    ])?;
    Ok(row)
}

fn watch(conn: &Connection, locks: &NodeLocks, node: NodeId, now: Timestamp) -> Result<Watched> {
    let mut watched = Watched { suspects: suspects(conn)?, ..Watched::default() };
    let rows = read::nodes(conn)?;
    for row in rows.iter().filter(|row| row.node != node && !row.left) {
        watched.last_crash = watched.last_crash.max(row.crashed_at);
        let (noted, follows) = Note::read_all(row.deciding.as_deref())?;
        if !is_dead(&rows, locks, row.node, now)? {
            watched.noted.extend(noted);
        } else if row.crashed_at.is_none() || row.deciding.is_some() {
            watched.died.push(row.node);
            watched.again |= follows;
        }
    }
    Ok(watched)
}

fn acquit(tx: &Connection, runs: &[(OrgId, RunId)]) -> Result<()> {
    let sql = "DELETE FROM run_suspects WHERE org_id = ? AND run_id = ? AND state = 'suspected'";
    let mut statement = tx.prepare_cached(sql)?;
    for (org, run) in runs {
        statement.execute(params![org.0, id(run)])?;
    }
    Ok(())
}

fn release(tx: &Connection, org: OrgId, run: RunId) -> Result<bool> {
    let sql = "UPDATE run_suspects SET state = 'suspected', crashes = 0
               WHERE org_id = ? AND run_id = ? AND state = 'stuck' RETURNING owner";
    let Some(owner) = one(tx, sql, params![org.0, id(&run)], |row| row.get::<_, Option<i64>>(0))? else {
        return Ok(false);
    };
    tx.prepare_cached("UPDATE runs SET owner = coalesce(?3, 0) WHERE org_id = ?1 AND run_id = ?2 AND owner IS NULL")?
        .execute(params![org.0, id(&run), owner])?;
    Ok(true)
}
