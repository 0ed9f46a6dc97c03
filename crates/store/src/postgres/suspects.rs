//! Runs that may bring a process down.

use async_trait::async_trait;
use deadpool_postgres::Object;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresStore;
use super::columns::{self, col, int4};
use super::runs::query;
use super::transaction::Open;
use crate::rows::{Note, SuspectRow, SuspectState, Watched};
use crate::{Result, SuspectStore};

/// Nobody waits for the disk: the note is there when the process dies, and only the database's own end may take it.
const NOTE: &str = "UPDATE nodes AS n SET deciding = $2
    FROM (SELECT set_config('synchronous_commit', 'off', true) AS set) AS s
    WHERE n.node_id = $1 AND s.set IS NOT NULL";

const SUSPECT: &str = "SELECT org_id, run_id, state, crashes, deed, changed_at, owner FROM run_suspects";

#[async_trait]
impl SuspectStore for PostgresStore {
    async fn note(&self, node: NodeId, notes: &[Note]) -> Result<()> {
        query(&self.writing().await?, NOTE, &[&node.0, &Note::write_all(notes)]).await?;
        Ok(())
    }

    async fn charge(&self, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>> {
        let open = Open::on(self.written()).await?;
        open.connection()?.batch_execute("BEGIN").await?;
        let charged = charge(open.connection()?, dead, now).await?;
        open.commit().await?;
        Ok(charged)
    }

    async fn watch(&self, node: NodeId, now: Timestamp) -> Result<Watched> {
        let connection = self.reading().await?;
        let sql = "SELECT node_id, lease_expires_at <= $2, deciding, crashed_at FROM nodes
                   WHERE node_id <> $1 AND NOT \"left\" AND (crashed_at IS NULL OR crashed_at > $3 OR deciding IS NOT NULL)
                   ORDER BY node_id";
        let since = now.0.saturating_sub(Timestamp(0).plus_ms(crate::suspects::CRASH_MEMORY_MS).0);
        let mut watched = Watched::default();
        for row in query(&connection, sql, &[&node.0, &now.0, &since]).await? {
            let (dead, deciding) = (col::<bool>(&row, 1)?, col::<Option<&str>>(&row, 2)?);
            let crashed_at = columns::moment(&row, 3)?;
            watched.last_crash = watched.last_crash.max(crashed_at);
            let (noted, follows) = Note::read_all(deciding)?;
            if !dead {
                watched.uncertain = true;
                watched.noted.extend(noted);
            } else if crashed_at.is_none() || deciding.is_some() {
                watched.died.push(NodeId(col(&row, 0)?));
                watched.again |= follows;
            }
        }
        watched.suspects = suspects(&connection).await?;
        Ok(watched)
    }

    async fn suspects(&self) -> Result<Vec<SuspectRow>> {
        suspects(&self.reading().await?).await
    }

    async fn acquit(&self, runs: &[(OrgId, RunId)]) -> Result<()> {
        let (orgs, ids): (Vec<i32>, Vec<Uuid>) = runs.iter().map(|(org, run)| (org.0, run.0)).unzip();
        let sql = "DELETE FROM run_suspects AS s USING unnest($1::int4[], $2::uuid[]) AS c (org_id, run_id)
                   WHERE s.run_id = c.run_id AND s.org_id = c.org_id AND s.state = 'suspected'";
        query(&self.writing().await?, sql, &[&orgs, &ids]).await?;
        Ok(())
    }

    async fn release(&self, org: OrgId, run: RunId) -> Result<bool> {
        let sql = "WITH released AS (
                       UPDATE run_suspects SET state = 'suspected', crashes = 0
                       WHERE run_id = $1 AND org_id = $2 AND state = 'stuck' RETURNING org_id, run_id, owner
                   ), owned AS (
                       UPDATE runs AS r SET owner = coalesce(d.owner, 0) FROM released AS d
                       WHERE r.run_id = d.run_id AND r.org_id = d.org_id AND r.owner IS NULL
                   )
                   SELECT count(*) FROM released";
        let rows = query(&self.writing().await?, sql, &[&run.0, &org.0]).await?;
        rows.first().map_or(Ok(false), |row| Ok(col::<i64>(row, 0)? == 1))
    }

    async fn close(&self, org: OrgId, run: RunId) -> Result<bool> {
        let sql = "UPDATE run_suspects SET state = 'ended' WHERE run_id = $1 AND org_id = $2 AND state = 'stuck'
                   RETURNING run_id";
        Ok(!query(&self.writing().await?, sql, &[&run.0, &org.0]).await?.is_empty())
    }
}

async fn suspects(connection: &Object) -> Result<Vec<SuspectRow>> {
    let rows = query(connection, &format!("{SUSPECT} ORDER BY org_id, run_id"), &[]).await?;
    rows.iter().map(suspect).collect()
}

fn suspect(row: &Row) -> Result<SuspectRow> {
    let (org, run) = columns::org_run(row, 0)?;
    Ok(SuspectRow {
        org,
        run,
        state: columns::word(col(row, 2)?)?,
        crashes: columns::count(col(row, 3)?)?,
        deed: col(row, 4)?,
        changed_at: Timestamp(col(row, 5)?),
        owner: col::<Option<i64>>(row, 6)?.map(NodeId),
    })
}

/// The row of the node is locked: of several that find it dead, one holds its note against the runs.
async fn charge(connection: &Object, dead: NodeId, now: Timestamp) -> Result<Vec<SuspectRow>> {
    let sql = "UPDATE nodes AS n SET deciding = NULL, crashed_at = coalesce(n.crashed_at, $2)
               FROM (SELECT node_id, deciding FROM nodes WHERE node_id = $1 AND NOT \"left\" FOR UPDATE) AS b
               WHERE n.node_id = b.node_id RETURNING b.deciding";
    let found = query(connection, sql, &[&dead.0, &now.0]).await?;
    let Some(row) = found.first() else { return Ok(Vec::new()) };
    let (notes, _) = Note::read_all(col(row, 0)?)?;
    let alone = notes.len() == 1;
    let mut charged = Vec::with_capacity(notes.len());
    for note in notes {
        charged.push(charge_run(connection, note, alone, now).await?);
    }
    Ok(charged)
}

async fn charge_run(connection: &Object, note: Note, alone: bool, now: Timestamp) -> Result<SuspectRow> {
    let sql = format!("{SUSPECT} WHERE run_id = $1 AND org_id = $2 FOR UPDATE");
    let (org, run) = (note.org.0, note.run.0);
    let before = query(connection, &sql, &[&run, &org]).await?.first().map(suspect).transpose()?;
    let was_stuck = before.as_ref().is_some_and(|row| row.state != SuspectState::Suspected);
    let mut row = SuspectRow::charged(note, alone, before, now);
    if row.state == SuspectState::Stuck && !was_stuck {
        let sql = "WITH flown AS (DELETE FROM cache_flights WHERE leader_run = $1 AND org_id = $2),
                   head AS (SELECT org_id, run_id, owner FROM runs WHERE run_id = $1 AND org_id = $2 FOR UPDATE)
                   UPDATE runs AS r SET owner = NULL FROM head AS h
                   WHERE r.run_id = h.run_id AND r.org_id = h.org_id RETURNING h.owner";
        let owner = query(connection, sql, &[&run, &org]).await?;
        row.owner = owner.first().map(|row| col::<Option<i64>>(row, 0)).transpose()?.flatten().map(NodeId);
    }
    let sql = "INSERT INTO run_suspects (org_id, run_id, state, crashes, deed, changed_at, owner)
               VALUES ($1, $2, $3, $4, $5, $6, $7)
               ON CONFLICT (run_id, org_id) DO UPDATE SET state = excluded.state, crashes = excluded.crashes,
                   deed = excluded.deed, changed_at = excluded.changed_at, owner = excluded.owner";
    let (state, owner) = (row.state.as_str(), row.owner.map(|owner| owner.0));
    query(connection, sql, &[&org, &run, &state, &int4(row.crashes), &row.deed, &row.changed_at.0, &owner]).await?;
    Ok(row)
}
