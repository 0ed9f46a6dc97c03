//! Results of steps.
//!
//! They are written after the runs they belong to, in the same transaction: pre-images, then results, then hits, each in the
//! order of their keys. So two batches cannot wait for each other, and hits wait for nobody: one that somebody else is just
//! counting is not counted.

use std::collections::BTreeMap;

use async_trait::async_trait;
use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::PostgresStore;
use super::cache_counts::{self, Counts};
use super::columns::{col, digest, int4, int8, moment, seq, word};
use super::runs::query;
use super::{flights, preimages};
use crate::rows::{
    CacheWrite, EpochRow, FoundResult, KeptWrite, PreimageRow, ResultAge, ResultFilter, ResultKey, ResultPosition,
    ResultRow, ResultStats, RunWrite, WriteResult, read_beyond,
};
use crate::{Asker, CacheStore, Result};

/// In the place of the run of a result that serves all.
const NO_RUN: Uuid = Uuid::nil();

pub(super) fn served(key: &ResultKey) -> Uuid {
    key.run.map_or(NO_RUN, |run| run.0)
}

pub(super) fn is_changed_by(writes: &[RunWrite]) -> bool {
    writes.iter().any(|write| write.cache.is_some())
}

/// What writes do to results, as far as they were written.
pub(super) async fn write(connection: &Object, writes: &[RunWrite], results: &[WriteResult]) -> Result<()> {
    if !is_changed_by(writes) {
        return Ok(());
    }
    let written = writes.iter().zip(results).filter(|(_, result)| **result == WriteResult::Written);
    let changes: Vec<(&RunWrite, &CacheWrite)> =
        written.filter_map(|(write, _)| Some((write, write.cache.as_deref()?))).collect();
    flights::land(connection, &changes).await?;
    preimages::write(connection, &changes).await?;
    write_kept(connection, &changes).await?;
    write_used(connection, &changes).await?;
    let mut counts = Counts::default();
    let ended: Vec<Uuid> = changes.iter().filter(|(_, cache)| cache.run_ended).map(|(write, _)| write.run.0).collect();
    if !ended.is_empty() {
        counts.add_gone(&query(connection, OF_RUNS, &[&ended]).await?)?;
    }
    counts.add_missed(&changes);
    // Last, and all at once: who counts holds no lock that it then waits behind.
    counts.write(connection).await
}

type Place = (i32, Digest, Uuid);

const KEPT: &str = "INSERT INTO step_cache (org_id, key, run_id, workflow, step_id, trust, producer_run, producer_seq,
                            created_at, duration_ms, bytes, output, output_hash, artifacts, hits)
    SELECT k.*, 0 FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::uuid[],
                              $8::int8[], $9::int8[], $10::int8[], $11::int8[], $12::text[], $13::bytea[],
                              $14::text[]) AS k
    ON CONFLICT (org_id, key, run_id) DO UPDATE
    SET producer_run = excluded.producer_run, producer_seq = excluded.producer_seq, created_at = excluded.created_at,
        duration_ms = excluded.duration_ms, bytes = excluded.bytes, output = excluded.output,
        output_hash = excluded.output_hash, artifacts = excluded.artifacts";

#[derive(Default)]
struct Kept<'a> {
    org: Vec<i32>,
    key: Vec<&'a [u8]>,
    run: Vec<Uuid>,
    workflow: Vec<&'a str>,
    step_id: Vec<&'a str>,
    trust: Vec<&'a str>,
    producer_run: Vec<Uuid>,
    producer_seq: Vec<i64>,
    created_at: Vec<i64>,
    duration_ms: Vec<i64>,
    bytes: Vec<i64>,
    output: Vec<&'a str>,
    output_hash: Vec<&'a [u8]>,
    artifacts: Vec<Option<String>>,
}

async fn write_kept(connection: &Object, changes: &[(&RunWrite, &CacheWrite)]) -> Result<()> {
    // One statement touches a row once: of several with one key the last counts.
    let mut rows: BTreeMap<Place, (&RunWrite, &KeptWrite, Timestamp)> = BTreeMap::new();
    for (write, cache) in changes {
        for kept in &cache.kept {
            rows.insert((write.org.0, kept.key.key, served(&kept.key)), (write, kept, cache.at));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let (mut columns, mut named) = (Kept::default(), Vec::new());
    for ((org, _, run), (write, kept, at)) in &rows {
        columns.org.push(*org);
        columns.key.push(&kept.key.key.0);
        columns.run.push(*run);
        columns.workflow.push(&kept.workflow);
        columns.step_id.push(&kept.step_id);
        columns.trust.push(kept.trust.as_str());
        columns.producer_run.push(write.run.0);
        columns.producer_seq.push(int8(kept.seq));
        columns.created_at.push(at.0);
        columns.duration_ms.push(int8(kept.duration_ms));
        columns.bytes.push(int8(kept.output.len() as u64));
        columns.output.push(kept.output.as_str());
        columns.output_hash.push(&kept.output_hash.0);
        columns.artifacts.push(kept.artifacts());
        let blobs = kept.beyond.iter().flat_map(|beyond| beyond.blobs());
        named.extend(blobs.map(|hash| (*org, hash, kept.key.key, *run)));
    }
    let Kept { org, key, run, workflow, step_id, trust, .. } = &columns;
    let Kept { producer_run, producer_seq, created_at, duration_ms, bytes, output, output_hash, artifacts, .. } =
        &columns;
    let parameters: [&(dyn ToSql + Sync); 14] = [
        org,
        key,
        run,
        workflow,
        step_id,
        trust,
        producer_run,
        producer_seq,
        created_at,
        duration_ms,
        bytes,
        output,
        output_hash,
        artifacts,
    ];
    query(connection, KEPT, &parameters).await?;
    super::artifacts::keep(connection, &named).await
}

const USED: &str = "WITH free AS (
        SELECT c.org_id, c.key, c.run_id, u.at, u.times
        FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::int8[], $5::int8[]) AS u (org_id, key, run_id, at, times)
        JOIN step_cache AS c ON c.org_id = u.org_id AND c.key = u.key AND c.run_id = u.run_id
        FOR NO KEY UPDATE OF c SKIP LOCKED
    )
    UPDATE step_cache AS c SET hits = c.hits + free.times, last_hit_at = free.at
    FROM free WHERE c.org_id = free.org_id AND c.key = free.key AND c.run_id = free.run_id";

async fn write_used(connection: &Object, changes: &[(&RunWrite, &CacheWrite)]) -> Result<()> {
    let mut rows: BTreeMap<Place, (i64, i64)> = BTreeMap::new();
    for (write, cache) in changes {
        for used in &cache.used {
            let (at, times) = rows.entry((write.org.0, used.key, served(used))).or_default();
            (*at, *times) = (cache.at.0, *times + 1);
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let orgs: Vec<i32> = rows.keys().map(|(org, _, _)| *org).collect();
    let keys: Vec<&[u8]> = rows.keys().map(|(_, key, _)| key.0.as_slice()).collect();
    let runs: Vec<Uuid> = rows.keys().map(|(_, _, run)| *run).collect();
    let (at, times): (Vec<i64>, Vec<i64>) = rows.values().copied().unzip();
    query(connection, USED, &[&orgs, &keys, &runs, &at, &times]).await?;
    Ok(())
}

// The index has only those that serve one run, so the statement has to say that these are such.
const OF_RUNS: &str = "DELETE FROM step_cache
    WHERE run_id = ANY ($1::uuid[]) AND run_id <> '00000000-0000-0000-0000-000000000000'
    RETURNING org_id, workflow, step_id, hits, duration_ms";

const FOUND: &str = "SELECT q.n, CASE WHEN c.output_hash = q.held THEN NULL ELSE c.output END, c.output_hash,
        c.producer_run, c.producer_seq, c.duration_ms, c.artifacts
    FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::bytea[]) WITH ORDINALITY AS q (org_id, key, run_id, held, n)
    JOIN step_cache AS c ON c.org_id = q.org_id AND c.key = q.key AND c.run_id = q.run_id";

/// A result that is asked for, and the hash of the output that the asker has.
pub(super) struct Wanted {
    pub(super) org: OrgId,
    pub(super) key: ResultKey,
    pub(super) held: Option<Digest>,
}

/// One statement, however many keys there are. Answers are in the order of the keys.
pub(super) async fn find(connection: &Object, wanted: &[Wanted]) -> Result<Vec<Option<FoundResult>>> {
    let orgs: Vec<i32> = wanted.iter().map(|wanted| wanted.org.0).collect();
    let digests: Vec<&[u8]> = wanted.iter().map(|wanted| wanted.key.key.0.as_slice()).collect();
    let runs: Vec<Uuid> = wanted.iter().map(|wanted| served(&wanted.key)).collect();
    let held: Vec<Option<&[u8]>> = wanted.iter().map(|wanted| wanted.held.as_ref().map(|h| h.0.as_slice())).collect();
    let mut found = vec![None; wanted.len()];
    for row in query(connection, FOUND, &[&orgs, &digests, &runs, &held]).await? {
        let place = usize::try_from(col::<i64>(&row, 0)? - 1).unwrap_or(usize::MAX);
        if let Some((answer, wanted)) = found.get_mut(place).zip(wanted.get(place)) {
            *answer = Some(FoundResult {
                key: wanted.key,
                producer: (RunId(col(&row, 3)?), seq(col(&row, 4)?)?),
                output_hash: digest(col(&row, 2)?)?,
                output: col::<Option<&str>>(&row, 1)?.map(Json::trusted),
                beyond: read_beyond(col(&row, 6)?)?,
                duration_ms: seq(col(&row, 5)?)?,
            });
        }
    }
    Ok(found)
}

pub(super) async fn epochs(connection: &Object, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>> {
    let sql = "SELECT step_id, epoch FROM cache_epochs WHERE org_id = $1 AND workflow = $2 ORDER BY step_id";
    let rows = query(connection, sql, &[&org.0, &workflow]).await?;
    let epoch = |row: &Row| {
        let step: String = col(row, 0)?;
        Ok(EpochRow { step_id: (!step.is_empty()).then_some(step), epoch: seq(col(row, 1)?)? })
    };
    rows.iter().map(epoch).collect()
}

/// A statement about the results that a filter asks for: each filter has its own, and its own range of an index.
pub(super) struct Asking {
    sql: String,
    parameters: Vec<Box<dyn ToSql + Sync + Send>>,
}

impl Asking {
    pub(super) fn of(select: &str, org: OrgId, filter: &ResultFilter) -> Asking {
        let mut asking = Asking { sql: String::new(), parameters: Vec::new() };
        asking.that(select, org, filter);
        asking
    }

    /// Goes on with what is meant by a filter in another table.
    pub(super) fn that(&mut self, select: &str, org: OrgId, filter: &ResultFilter) {
        let asking = self;
        asking.say(select).say(" WHERE org_id = ").give(org.0);
        match filter {
            ResultFilter::All => {}
            ResultFilter::Workflow(workflow) => asking.say(" AND workflow = ").give(workflow.clone()),
            ResultFilter::Step { workflow, step_id } => {
                asking.say(" AND workflow = ").give(workflow.clone());
                asking.say(" AND step_id = ").give(step_id.clone());
            }
            ResultFilter::Key(key) => asking.say(" AND key = ").give(key.0.to_vec()),
            ResultFilter::Keys { first, last } => {
                asking.say(" AND key BETWEEN ").give(first.0.to_vec());
                asking.say(" AND ").give(last.0.to_vec());
            }
        }
    }

    /// Compares what the filter leaves open: with more, the index would be walked from where the filter begins.
    fn after(&mut self, filter: &ResultFilter, position: &ResultPosition) {
        match filter {
            ResultFilter::All | ResultFilter::Key(_) | ResultFilter::Keys { .. } => {
                self.say(" AND (workflow, step_id, key, run_id) > (").give(position.workflow.clone());
                self.say(", ").give(position.step_id.clone());
                self.say(", ");
            }
            ResultFilter::Workflow(_) => {
                self.say(" AND (step_id, key, run_id) > (").give(position.step_id.clone());
                self.say(", ");
            }
            ResultFilter::Step { .. } => drop(self.say(" AND (key, run_id) > (")),
        }
        self.give(position.key.key.0.to_vec());
        self.say(", ").give(served(&position.key));
        self.say(")");
    }

    pub(super) fn say(&mut self, sql: &str) -> &mut Asking {
        self.sql.push_str(sql);
        self
    }

    fn give(&mut self, parameter: impl ToSql + Sync + Send + 'static) {
        self.parameters.push(Box::new(parameter));
        self.sql.push_str(&format!("${}", self.parameters.len()));
    }

    /// Removes what was asked for, and keeps its hits.
    fn remove(&mut self) {
        self.sql = cache_counts::removing(&self.sql, self.parameters.len() + 1);
        self.parameters.push(Box::new(cache_counts::lane()));
    }

    pub(super) async fn rows(&self, connection: &Object) -> Result<Vec<Row>> {
        let parameters: Vec<&(dyn ToSql + Sync)> = self.parameters.iter().map(|given| &**given as _).collect();
        query(connection, &self.sql, &parameters).await
    }
}

fn result_row(row: &Row) -> Result<ResultRow> {
    let run: Uuid = col(row, 1)?;
    let key = ResultKey { key: digest(col(row, 0)?)?, run: (run != NO_RUN).then_some(RunId(run)) };
    Ok(ResultRow {
        key,
        workflow: col(row, 2)?,
        step_id: col(row, 3)?,
        trust: word(col(row, 4)?)?,
        producer: (RunId(col(row, 5)?), seq(col(row, 6)?)?),
        created_at: Timestamp(col(row, 7)?),
        last_hit_at: moment(row, 8)?,
        hits: seq(col(row, 9)?)?,
        duration_ms: seq(col(row, 10)?)?,
        bytes: seq(col(row, 11)?)?,
    })
}

// Walks along the primary key.
const AGES: &str = "SELECT org_id, key, run_id, greatest(created_at, last_hit_at), bytes FROM step_cache
    WHERE (org_id, key, run_id) > ($1, $2, $3) ORDER BY org_id, key, run_id LIMIT $4";

fn result_age(row: &Row) -> Result<ResultAge> {
    let run: Uuid = col(row, 2)?;
    let key = ResultKey { key: digest(col(row, 1)?)?, run: (run != NO_RUN).then_some(RunId(run)) };
    Ok(ResultAge { org: OrgId(col(row, 0)?), key, used_at: Timestamp(col(row, 3)?), bytes: seq(col(row, 4)?)? })
}

#[async_trait]
impl CacheStore for PostgresStore {
    async fn results(
        &self,
        org: OrgId,
        filter: &ResultFilter,
        after: Option<&ResultPosition>,
        limit: u32,
    ) -> Result<Vec<ResultRow>> {
        let mut asking = Asking::of(
            "SELECT key, run_id, workflow, step_id, trust, producer_run, producer_seq, created_at, last_hit_at, hits,
                    duration_ms, bytes
             FROM step_cache",
            org,
            filter,
        );
        if let Some(position) = after {
            asking.after(filter, position);
        }
        asking.say(" ORDER BY workflow, step_id, key, run_id LIMIT ").give(i64::from(limit));
        asking.rows(&self.reading().await?).await?.iter().map(result_row).collect()
    }

    async fn result_stats(&self, org: OrgId, filter: &ResultFilter) -> Result<Vec<ResultStats>> {
        cache_counts::stats(&self.reading().await?, org, filter).await
    }

    async fn output(&self, org: OrgId, key: &ResultKey, chars: u32) -> Result<Option<String>> {
        let sql = "SELECT left(output, $1) FROM step_cache WHERE org_id = $2 AND key = $3 AND run_id = $4";
        let (chars, run) = (int4(chars), served(key));
        let rows = query(&self.reading().await?, sql, &[&chars, &org.0, &key.key.0.as_slice(), &run]).await?;
        rows.first().map(|row| col(row, 0)).transpose()
    }

    async fn ages(&self, after: Option<(OrgId, ResultKey)>, limit: u32) -> Result<Vec<ResultAge>> {
        let (org, key, run) = match &after {
            Some((org, key)) => (org.0, key.key.0.to_vec(), served(key)),
            None => (i32::MIN, Vec::new(), NO_RUN),
        };
        let rows = query(&self.reading().await?, AGES, &[&org, &key, &run, &i64::from(limit)]).await?;
        rows.iter().map(result_age).collect()
    }

    async fn evict_unused(&self, unused: &[ResultAge]) -> Result<u64> {
        let orgs: Vec<i32> = unused.iter().map(|age| age.org.0).collect();
        let keys: Vec<&[u8]> = unused.iter().map(|age| age.key.key.0.as_slice()).collect();
        let runs: Vec<Uuid> = unused.iter().map(|age| served(&age.key)).collect();
        let times: Vec<i64> = unused.iter().map(|age| age.used_at.0).collect();
        let sql = cache_counts::removing(
            "SELECT c.org_id, c.key, c.run_id
             FROM unnest($1::int4[], $2::bytea[], $3::uuid[], $4::int8[]) AS u (org_id, key, run_id, used_at)
             JOIN step_cache AS c ON c.org_id = u.org_id AND c.key = u.key AND c.run_id = u.run_id
             WHERE greatest(c.created_at, c.last_hit_at) <= u.used_at FOR UPDATE OF c SKIP LOCKED",
            5,
        );
        let lane = cache_counts::lane();
        let rows = query(&self.writing().await?, &sql, &[&orgs, &keys, &runs, &times, &lane]).await?;
        rows.first().map_or(Ok(0), |row| seq(col(row, 0)?))
    }

    async fn evict(&self, org: OrgId, filter: &ResultFilter, limit: u32) -> Result<u64> {
        let mut asking = Asking::of("SELECT org_id, key, run_id FROM step_cache", org, filter);
        asking.say(" ORDER BY workflow, step_id, key, run_id LIMIT ").give(i64::from(limit));
        asking.say(" FOR UPDATE SKIP LOCKED");
        asking.remove();
        let rows = asking.rows(&self.writing().await?).await?;
        rows.first().map_or(Ok(0), |row| seq(col(row, 0)?))
    }

    async fn preimage(&self, org: OrgId, key: Digest) -> Result<Option<Json>> {
        let sql = "SELECT preimage FROM cache_preimages WHERE org_id = $1 AND key = $2";
        let rows = query(&self.reading().await?, sql, &[&org.0, &key.0.as_slice()]).await?;
        rows.first().map(|row| Ok(Json::trusted(col::<&str>(row, 0)?))).transpose()
    }

    async fn preimages(&self, org: OrgId, workflow: &str, step: &str, limit: u32) -> Result<Vec<PreimageRow>> {
        preimages::of_step(&self.reading().await?, org, workflow, step, limit).await
    }

    async fn converse(&self, org: OrgId, mut asker: Asker) -> Result<()> {
        let connection = self.reading().await?;
        let mut asked = asker(Vec::new());
        while !asked.is_empty() {
            let found = preimages::first_of_each(&connection, org, &asked).await?;
            asked = asker(found);
        }
        Ok(())
    }

    async fn forget_preimages(&self, before: Timestamp, limit: u32) -> Result<u64> {
        let sql = "WITH old AS (
                SELECT org_id, key FROM cache_preimages AS p WHERE created_at < $1
                    AND NOT EXISTS (SELECT FROM step_cache AS c WHERE c.org_id = p.org_id AND c.key = p.key)
                LIMIT $2 FOR UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM cache_preimages AS p USING old WHERE p.org_id = old.org_id AND p.key = old.key RETURNING 1
            )
            SELECT count(*) FROM gone";
        let rows = query(&self.writing().await?, sql, &[&before.0, &i64::from(limit)]).await?;
        rows.first().map_or(Ok(0), |row| seq(col(row, 0)?))
    }

    async fn disown(&self, org: OrgId, workflow: &str, step: Option<&str>) -> Result<u64> {
        let sql = "INSERT INTO cache_epochs AS e (org_id, workflow, step_id, epoch) VALUES ($1, $2, $3, 1)
                   ON CONFLICT (org_id, workflow, step_id) DO UPDATE SET epoch = e.epoch + 1 RETURNING epoch";
        let step = step.unwrap_or_default();
        let rows = query(&self.writing().await?, sql, &[&org.0, &workflow, &step]).await?;
        rows.first().map_or(Ok(0), |row| seq(col(row, 0)?))
    }

    async fn epochs(&self, org: OrgId, workflow: &str) -> Result<Vec<EpochRow>> {
        epochs(&self.reading().await?, org, workflow).await
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Plan, client};
    use super::*;

    const MANY: &str = "
        INSERT INTO step_cache (org_id, key, run_id, producer_run, producer_seq, created_at, hits, duration_ms, bytes,
            output_hash, workflow, step_id, trust, output)
        SELECT 1, sha256(n::text::bytea), '00000000-0000-0000-0000-000000000000', gen_random_uuid(), 1, 1, 0, 1, 1, sha256('1'), 'w',
            's', 'open', '1'
        FROM generate_series(1, 40000) AS n;
        ANALYZE step_cache";

    #[tokio::test]
    async fn results_are_found_by_their_keys_however_many_there_are() {
        let client = client().await;
        let key = ["'{1}'", "ARRAY[sha256('7')]", "ARRAY['00000000-0000-0000-0000-000000000000']::uuid[]"];
        let found = key.map(str::to_owned).to_vec();
        let wanted = found.iter().cloned().chain(["ARRAY[sha256('1')]".to_owned()]).collect();
        let used = found.iter().cloned().chain(["'{1}'".to_owned(), "'{1}'".to_owned()]).collect();
        let runs = vec!["ARRAY[gen_random_uuid()]".to_owned()];
        let ages = ["1", "sha256('7')", "gen_random_uuid()", "5"].map(str::to_owned).to_vec();
        for fill in ["SELECT", MANY] {
            client.batch_execute(fill).await.unwrap();
            let statements = [
                (FOUND, &wanted, "step_cache_pkey"),
                (USED, &used, "step_cache_pkey"),
                (OF_RUNS, &runs, "by_run"),
                (AGES, &ages, "step_cache_pkey"),
            ];
            for (sql, values, index) in statements {
                let plan = Plan::of(&client, sql, values).await;
                assert!(plan.text.contains(index) && plan.buffers < 40, "{}", plan.text);
            }
        }
    }

    #[tokio::test]
    async fn every_list_of_results_is_a_range_of_an_index() {
        let client = client().await;
        client.batch_execute(MANY).await.unwrap();
        let (workflow, step_id) = ("w".to_owned(), "s".to_owned());
        let step = ResultFilter::Step { workflow: workflow.clone(), step_id: step_id.clone() };
        let key = ResultKey { key: Digest([128; 32]), run: None };
        for filter in [ResultFilter::All, ResultFilter::Workflow(workflow.clone()), step, ResultFilter::Key(key.key)] {
            let mut asking = Asking::of("SELECT key FROM step_cache", OrgId(1), &filter);
            asking.after(&filter, &ResultPosition { workflow: workflow.clone(), step_id: step_id.clone(), key });
            asking.say(" ORDER BY workflow, step_id, key, run_id LIMIT ").give(5_i64);
            let half = "decode(repeat('80', 32), 'hex')";
            let given: &[&str] = match filter {
                ResultFilter::Key(_) => &[half, "'w'", "'s'"],
                _ => &["'w'", "'s'"],
            };
            let last = [half, "'00000000-0000-0000-0000-000000000000'", "5"];
            let values: Vec<String> = ["1"].iter().chain(given).chain(&last).map(|value| (*value).to_owned()).collect();
            let plan = Plan::of(&client, &asking.sql, &values).await;
            assert!(plan.buffers < 40, "{filter:?}: {}", plan.text);
        }
    }
}
