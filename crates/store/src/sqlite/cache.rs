//! Results of steps.

use async_trait::async_trait;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params};
use uuid::Uuid;

use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;

use super::SqliteStore;
use super::cache_counts::{Counts, stats};
use super::columns::{Columns, all, id, one};
use super::{flights, preimages};
use crate::rows::{
    CacheWrite, EpochRow, FoundResult, KeptWrite, PreimageRow, ResultAge, ResultFilter, ResultKey, ResultPosition,
    ResultRow, ResultStats, RunWrite, read_beyond,
};
use crate::{Asker, CacheStore, Result};

/// In the place of the run of a result that serves all.
const NO_RUN: RunId = RunId(Uuid::nil());

fn served(key: &ResultKey) -> RunId {
    key.run.unwrap_or(NO_RUN)
}

/// What writes that stand do to results, kind by kind.
pub(super) fn write(tx: &Connection, writes: &[&RunWrite]) -> Result<()> {
    let changes: Vec<(&RunWrite, &CacheWrite)> =
        writes.iter().filter_map(|write| Some((*write, write.cache.as_deref()?))).collect();
    for (write, _) in &changes {
        flights::land(tx, write)?;
    }
    for (write, cache) in &changes {
        for began in &cache.preimages {
            preimages::write(tx, write, began, cache.at)?;
        }
    }
    for (write, cache) in &changes {
        for kept in &cache.kept {
            keep(tx, write, kept, cache.at)?;
        }
    }
    for (write, cache) in &changes {
        for used in &cache.used {
            tx.prepare_cached(
                "UPDATE step_cache SET hits = hits + 1, last_hit_at = ? WHERE org_id = ? AND key = ? AND run_id = ?",
            )?
            .execute(params![cache.at.0, write.org.0, used.key.0, id(&served(used))])?;
        }
    }
    let mut counts = Counts::default();
    for (write, _) in changes.iter().filter(|(_, cache)| cache.run_ended) {
        all(tx, OF_RUN, params![write.org.0, id(&write.run)], |row| counts.add_gone(row))?;
    }
    counts.add_missed(&changes);
    counts.write(tx)
}

fn keep(tx: &Connection, write: &RunWrite, kept: &KeptWrite, at: Timestamp) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO step_cache (org_id, key, run_id, workflow, step_id, trust, producer_run, producer_seq, created_at,
             hits, duration_ms, bytes, output, output_hash, artifacts)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 0, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (org_id, key, run_id) DO UPDATE
         SET producer_run = ?7, producer_seq = ?8, created_at = ?9, duration_ms = ?10, bytes = ?11, output = ?12,
             output_hash = ?13, artifacts = ?14",
    )?
    .execute(params![
        write.org.0,
        kept.key.key.0,
        id(&served(&kept.key)),
        kept.workflow.as_ref(),
        kept.step_id.as_ref(),
        kept.trust.as_str(),
        id(&write.run),
        kept.seq.cast_signed(),
        at.0,
        kept.duration_ms.cast_signed(),
        (kept.output.len() as u64).cast_signed(),
        kept.output.as_str(),
        kept.output_hash.0,
        kept.artifacts(),
    ])?;
    super::artifacts::keep(tx, write.org, &served(&kept.key), kept)
}

/// What serves only this run goes.
pub(super) fn forget_run(tx: &Connection, org: OrgId, run: RunId) -> Result<()> {
    all(tx, OF_RUN, params![org.0, id(&run)], |_| Ok(()))?;
    Ok(())
}

// The index has only those that serve one run, so the statement has to say that this is one.
const OF_RUN: &str = "DELETE FROM step_cache INDEXED BY step_cache_by_run
     WHERE org_id = ? AND run_id = ? AND run_id <> x'00000000000000000000000000000000'
     RETURNING org_id, workflow, step_id, hits, duration_ms";

const FOUND: &str =
    "SELECT CASE WHEN output_hash = ?4 THEN NULL ELSE output END, output_hash, producer_run, producer_seq, duration_ms,
            artifacts
    FROM step_cache WHERE org_id = ?1 AND key = ?2 AND run_id = ?3";

pub(super) fn find(
    conn: &Connection,
    org: OrgId,
    keys: &[ResultKey],
    held: &[Option<Digest>],
) -> Result<Vec<Option<FoundResult>>> {
    let held = held.iter().copied().chain(std::iter::repeat(None));
    let found = |(key, held): (&ResultKey, Option<Digest>)| {
        let held = held.map(|hash| hash.0);
        one(conn, FOUND, params![org.0, key.key.0, id(&served(key)), held], |row| found_row(key, row))
    };
    keys.iter().zip(held).map(found).collect()
}

/// All of it on one connection, in one read transaction: what is asked next waits for no other thread.
fn converse(conn: &Connection, org: OrgId, asker: &mut Asker) -> Result<()> {
    let mut statement = conn.prepare_cached(FOUND)?;
    let mut found = Vec::new();
    loop {
        let asked = asker(found);
        if asked.is_empty() {
            return Ok(());
        }
        found = Vec::with_capacity(asked.len());
        for keys in &asked {
            let mut first = None;
            for key in keys {
                first = statement
                    .query_row(params![org.0, key.key.0, id(&served(key)), None::<[u8; 32]>], |row| found_row(key, row))
                    .optional()?;
                if first.is_some() {
                    break;
                }
            }
            found.push(first);
        }
    }
}

fn found_row(key: &ResultKey, row: &Row) -> rusqlite::Result<FoundResult> {
    let mut columns = Columns::of(row);
    let output: Option<std::sync::Arc<str>> = columns.get()?;
    let (output, output_hash) = (output.map(Json::trusted), columns.digest()?);
    let producer = (columns.run()?, columns.seq()?);
    let duration_ms = columns.seq()?;
    let files: Option<String> = columns.get()?;
    let unread = |error| rusqlite::Error::FromSqlConversionFailure(5, Type::Text, Box::new(error));
    let beyond = read_beyond(files.as_deref()).map_err(unread)?;
    Ok(FoundResult { key: *key, producer, output_hash, output, beyond, duration_ms })
}

pub(super) fn epochs(conn: &Connection, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>> {
    let sql = "SELECT step_id, epoch FROM cache_epochs WHERE org_id = ? AND workflow = ? ORDER BY step_id";
    all(conn, sql, params![org.0, workflow], |row| {
        let mut columns = Columns::of(row);
        let step: String = columns.get()?;
        Ok(EpochRow { step_id: (!step.is_empty()).then_some(step), epoch: columns.seq()? })
    })
}

/// What a filter asks for, with parameters from the second on.
pub(super) fn condition(filter: &ResultFilter) -> (&'static str, Vec<&dyn ToSql>) {
    match filter {
        ResultFilter::All => ("true", Vec::new()),
        ResultFilter::Workflow(workflow) => ("workflow = ?", vec![workflow]),
        ResultFilter::Step { workflow, step_id } => ("workflow = ? AND step_id = ?", vec![workflow, step_id]),
        ResultFilter::Key(key) => ("key = ?", vec![&key.0]),
        ResultFilter::Keys { first, last } => ("key BETWEEN ? AND ?", vec![&first.0, &last.0]),
    }
}

fn results(
    conn: &Connection,
    org: OrgId,
    filter: &ResultFilter,
    after: Option<&ResultPosition>,
    limit: u32,
) -> Result<Vec<ResultRow>> {
    let (wanted, mut of_filter) = condition(filter);
    let mut sql = format!(
        "SELECT key, run_id, workflow, step_id, trust, producer_run, producer_seq, created_at, last_hit_at, hits,
                duration_ms, bytes
         FROM step_cache WHERE org_id = ? AND {wanted}"
    );
    let mut parameters: Vec<&dyn ToSql> = vec![&org.0];
    parameters.append(&mut of_filter);
    let run = after.map(|after| served(&after.key));
    let run = run.as_ref().map(id);
    if let Some(after) = after {
        // What the filter leaves open: with more, the index would be walked from where the filter begins.
        match filter {
            ResultFilter::All | ResultFilter::Key(_) | ResultFilter::Keys { .. } => {
                sql += " AND (workflow, step_id, key, run_id) > (?, ?, ?, ?)";
                parameters.extend([&after.workflow as &dyn ToSql, &after.step_id]);
            }
            ResultFilter::Workflow(_) => {
                sql += " AND (step_id, key, run_id) > (?, ?, ?)";
                parameters.push(&after.step_id);
            }
            ResultFilter::Step { .. } => sql += " AND (key, run_id) > (?, ?)",
        }
        parameters.extend([&after.key.key.0 as &dyn ToSql, &run]);
    }
    sql += " ORDER BY workflow, step_id, key, run_id LIMIT ?";
    parameters.push(&limit);
    all(conn, &sql, &parameters[..], result_row)
}

fn result_row(row: &Row) -> rusqlite::Result<ResultRow> {
    let mut columns = Columns::of(row);
    let (key, run) = (columns.digest()?, columns.run()?);
    Ok(ResultRow {
        key: ResultKey { key, run: (run != NO_RUN).then_some(run) },
        workflow: columns.get()?,
        step_id: columns.get()?,
        trust: columns.word()?,
        producer: (columns.run()?, columns.seq()?),
        created_at: columns.time()?,
        last_hit_at: columns.opt_time()?,
        hits: columns.seq()?,
        duration_ms: columns.seq()?,
        bytes: columns.seq()?,
    })
}

fn evict(tx: &Connection, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64> {
    let (wanted, mut of_filter) = condition(filter);
    let sql = format!(
        "DELETE FROM step_cache WHERE rowid IN (SELECT rowid FROM step_cache WHERE org_id = ? AND {wanted}
             ORDER BY workflow, step_id, key, run_id LIMIT ?)
         RETURNING org_id, workflow, step_id, hits, duration_ms"
    );
    let mut parameters: Vec<&dyn ToSql> = vec![&org.0];
    parameters.append(&mut of_filter);
    parameters.push(&limit);
    let mut counts = Counts::default();
    let gone = all(tx, &sql, &parameters[..], |row| counts.add_gone(row))?;
    counts.write(tx)?;
    Ok(gone.len() as u64)
}

// Walks along the primary key and reads nothing of outputs, which are at the end of their rows.
const AGES: &str = "SELECT org_id, key, run_id, max(created_at, ifnull(last_hit_at, created_at)), bytes FROM step_cache
    WHERE (org_id, key, run_id) > (?, ?, ?) ORDER BY org_id, key, run_id LIMIT ?";

fn ages(conn: &Connection, after: Option<(OrgId, ResultKey)>, limit: u32) -> Result<Vec<ResultAge>> {
    let (org, key, run) = match &after {
        Some((org, key)) => (org.0, key.key.0, served(key)),
        None => (i32::MIN, [0; 32], NO_RUN),
    };
    all(conn, AGES, params![org, key, id(&run), limit], |row| {
        let mut columns = Columns::of(row);
        let (org, key, run) = (columns.org()?, columns.digest()?, columns.run()?);
        let key = ResultKey { key, run: (run != NO_RUN).then_some(run) };
        Ok(ResultAge { org, key, used_at: columns.time()?, bytes: columns.seq()? })
    })
}

const EVICT_UNUSED: &str = "DELETE FROM step_cache
    WHERE org_id = ? AND key = ? AND run_id = ? AND max(created_at, ifnull(last_hit_at, created_at)) <= ?
    RETURNING org_id, workflow, step_id, hits, duration_ms";

fn evict_unused(tx: &Connection, unused: &[ResultAge]) -> Result<u64> {
    let (mut counts, mut gone) = (Counts::default(), 0);
    for ResultAge { org, key, used_at, .. } in unused {
        let run = served(key);
        let place = params![org.0, key.key.0, id(&run), used_at.0];
        gone += all(tx, EVICT_UNUSED, place, |row| counts.add_gone(row))?.len();
    }
    counts.write(tx)?;
    Ok(gone as u64)
}

// Looks past all that are needed, so it is for a reader: no commit waits for it.
const OLD_PREIMAGES: &str = "SELECT org_id, key FROM cache_preimages AS p WHERE created_at < ?
    AND NOT EXISTS (SELECT 1 FROM step_cache AS c WHERE c.org_id = p.org_id AND c.key = p.key) LIMIT ?";

const FORGET_PREIMAGE: &str = "DELETE FROM cache_preimages WHERE org_id = ?1 AND key = ?2
    AND NOT EXISTS (SELECT 1 FROM step_cache WHERE org_id = ?1 AND key = ?2)";

/// Removes those of them that still no result has.
fn forget_preimages(tx: &Connection, old: &[(OrgId, Digest)]) -> Result<u64> {
    let mut statement = tx.prepare_cached(FORGET_PREIMAGE)?;
    let mut gone = 0;
    for (org, key) in old {
        gone += statement.execute(params![org.0, key.0])? as u64;
    }
    Ok(gone)
}

fn disown(tx: &Connection, org: OrgId, workflow: &str, step: &str) -> Result<u64> {
    let sql = "INSERT INTO cache_epochs (org_id, workflow, step_id, epoch) VALUES (?, ?, ?, 1)
               ON CONFLICT (org_id, workflow, step_id) DO UPDATE SET epoch = epoch + 1 RETURNING epoch";
    let epoch = one(tx, sql, params![org.0, workflow, step], |row| Columns::of(row).seq())?;
    Ok(epoch.unwrap_or_default())
}

#[async_trait]
impl CacheStore for SqliteStore {
    async fn results(
        &self,
        org: OrgId,
        filter: &ResultFilter,
        after: Option<&ResultPosition>,
        limit: u32,
    ) -> Result<Vec<ResultRow>> {
        let (filter, after) = (filter.clone(), after.cloned());
        self.read(move |conn| results(conn, org, &filter, after.as_ref(), limit)).await
    }

    async fn result_stats(&self, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>> {
        let filter = filter.clone();
        self.read(move |conn| stats(conn, org, &filter)).await
    }

    async fn evict(&self, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64> {
        let filter = filter.clone();
        self.write(move |tx| evict(tx, org, &filter, limit)).await
    }

    async fn output(&self, org: OrgId, key: &ResultKey, chars: u32) -> Result<Option<String>> {
        let key = *key;
        let sql = "SELECT substr(output, 1, ?) FROM step_cache WHERE org_id = ? AND key = ? AND run_id = ?";
        self.read(move |conn| one(conn, sql, params![chars, org.0, key.key.0, id(&served(&key))], |row| row.get(0)))
            .await
    }

    async fn ages(&self, after: Option<(OrgId, ResultKey)>, limit: u32) -> Result<Vec<ResultAge>> {
        self.read(move |conn| ages(conn, after, limit)).await
    }

    async fn evict_unused(&self, unused: &[ResultAge]) -> Result<u64> {
        let unused = unused.to_vec();
        self.write(move |tx| evict_unused(tx, &unused)).await
    }

    async fn preimage(&self, org: OrgId, key: Digest) -> Result<Option<Json>> {
        let sql = "SELECT preimage FROM cache_preimages WHERE org_id = ? AND key = ?";
        let found = self.read(move |conn| one(conn, sql, params![org.0, key.0], |row| Columns::of(row).opt_json()));
        Ok(found.await?.flatten())
    }

    async fn preimages(&self, org: OrgId, workflow: &str, step: &str, limit: u32) -> Result<Vec<PreimageRow>> {
        let (workflow, step) = (workflow.to_owned(), step.to_owned());
        self.read(move |conn| preimages::of_step(conn, org, &workflow, &step, limit)).await
    }

    async fn converse(&self, org: OrgId, mut asker: Asker) -> Result<()> {
        self.read(move |conn| converse(conn, org, &mut asker)).await
    }

    async fn forget_preimages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let old = move |conn: &Connection| {
            all(conn, OLD_PREIMAGES, params![before.0, limit], |row| {
                let mut columns = Columns::of(row);
                Ok((columns.org()?, columns.digest()?))
            })
        };
        let old = self.read(old).await?;
        self.write(move |tx| forget_preimages(tx, &old)).await
    }

    async fn disown(&self, org: OrgId, workflow: &str, step: Option<&str>) -> Result<u64> {
        let (workflow, step) = (workflow.to_owned(), step.unwrap_or_default().to_owned());
        self.write(move |tx| disown(tx, org, &workflow, &step)).await
    }

    async fn epochs(&self, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>> {
        let workflow = workflow.to_owned();
        self.read(move |conn| epochs(conn, org, &workflow)).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::read::tests::{plan, schema};
    use super::*;

    #[test]
    fn nothing_about_results_scans_them() {
        let schema = schema();
        for sql in [OF_RUN, FOUND, AGES, EVICT_UNUSED, preimages::OF_STEP, OLD_PREIMAGES, FORGET_PREIMAGE] {
            let plan = plan(&schema, sql);
            assert!(!plan.contains("SCAN"), "{plan}");
        }
    }
}
