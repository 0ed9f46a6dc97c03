//! What keys of steps are made of, and results for those who only look.

use std::collections::BTreeMap;

use deadpool_postgres::Object;
use milepost_core::cache::Cached;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::cache::served;
use super::columns::{col, digest, seq};
use super::runs::query;
use crate::Result;
use crate::rows::{CacheWrite, FoundResult, PreimageRow, PreimageWrite, ResultKey, RunWrite};

const WRITE: &str = "INSERT INTO cache_preimages (org_id, key, workflow, step_id, run_id, created_at, preimage)
    SELECT * FROM unnest($1::int4[], $2::bytea[], $3::text[], $4::text[], $5::uuid[], $6::int8[], $7::text[])
    ON CONFLICT DO NOTHING";

/// In the order of their keys, each once.
pub(super) async fn write(connection: &Object, changes: &[(&RunWrite, &CacheWrite)]) -> Result<()> {
    let mut rows: BTreeMap<(i32, Digest), (Uuid, i64, &PreimageWrite)> = BTreeMap::new();
    for (write, cache) in changes {
        for began in &cache.preimages {
            rows.entry((write.org.0, began.key)).or_insert((write.run.0, cache.at.0, began));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let (orgs, keys): (Vec<i32>, Vec<&[u8]>) = rows.keys().map(|(org, key)| (*org, key.0.as_slice())).unzip();
    let workflows: Vec<&str> = rows.values().map(|(_, _, began)| &*began.workflow).collect();
    let steps: Vec<&str> = rows.values().map(|(_, _, began)| &*began.step_id).collect();
    let (runs, times): (Vec<Uuid>, Vec<i64>) = rows.values().map(|(run, at, _)| (*run, *at)).unzip();
    let texts: Vec<&str> = rows.values().map(|(_, _, began)| began.preimage.as_str()).collect();
    query(connection, WRITE, &[&orgs, &keys, &workflows, &steps, &runs, &times, &texts]).await?;
    Ok(())
}

const OF_STEP: &str = "SELECT key, run_id, created_at, preimage FROM cache_preimages
    WHERE org_id = $1 AND workflow = $2 AND step_id = $3 ORDER BY created_at DESC LIMIT $4";

pub(super) async fn of_step(
    connection: &Object,
    org: OrgId,
    workflow: &str,
    step: &str,
    limit: u32,
) -> Result<Vec<PreimageRow>> {
    let rows = query(connection, OF_STEP, &[&org.0, &workflow, &step, &i64::from(limit)]).await?;
    let row = |row: &Row| {
        Ok(PreimageRow {
            key: digest(col(row, 0)?)?,
            run: RunId(col(row, 1)?),
            created_at: Timestamp(col(row, 2)?),
            preimage: Json::trusted(col::<&str>(row, 3)?),
        })
    };
    rows.iter().map(row).collect()
}

const FOUND: &str = "SELECT q.n, c.output, c.producer_run, c.producer_seq, c.duration_ms
    FROM unnest($1::bytea[], $2::uuid[]) WITH ORDINALITY AS q (key, run_id, n)
    JOIN step_cache AS c ON c.org_id = $3 AND c.key = q.key AND c.run_id = q.run_id";

/// Of each list of keys the first that has a result, all by one statement.
pub(super) async fn first_of_each(
    connection: &Object,
    org: OrgId,
    asked: &[Vec<ResultKey>],
) -> Result<Vec<Option<FoundResult>>> {
    let keys: Vec<(usize, &ResultKey)> =
        asked.iter().enumerate().flat_map(|(place, keys)| keys.iter().map(move |key| (place, key))).collect();
    let digests: Vec<&[u8]> = keys.iter().map(|(_, key)| key.key.0.as_slice()).collect();
    let runs: Vec<Uuid> = keys.iter().map(|(_, key)| served(key)).collect();
    let mut found: Vec<Option<(usize, FoundResult)>> = vec![None; asked.len()];
    for row in query(connection, FOUND, &[&digests, &runs, &org.0]).await? {
        let at = usize::try_from(col::<i64>(&row, 0)? - 1).unwrap_or(usize::MAX);
        let Some((place, key)) = keys.get(at) else { continue };
        let (output, run) = (Json::trusted(col::<&str>(&row, 1)?), RunId(col(&row, 2)?));
        let cached = Cached { key: key.key, output, run, seq: seq(col(&row, 3)?)? };
        let earlier = found[*place].as_ref().is_some_and(|(before, _)| *before < at);
        if !earlier {
            found[*place] = Some((at, FoundResult { cached, duration_ms: seq(col(&row, 4)?)? }));
        }
    }
    Ok(found.into_iter().map(|found| found.map(|(_, found)| found)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Plan, client};
    use super::*;

    #[tokio::test]
    async fn what_a_step_began_with_is_a_range_of_an_index() {
        let client = client().await;
        let many = "INSERT INTO cache_preimages (org_id, key, run_id, created_at, workflow, step_id, preimage)
            SELECT 1, sha256(n::text::bytea), gen_random_uuid(), n, 'w', 's' || n % 4, '1'
            FROM generate_series(1, 40000) AS n; ANALYZE cache_preimages";
        client.batch_execute(many).await.unwrap();
        let values = ["1", "'w'", "'s2'", "20"].map(str::to_owned);
        let plan = Plan::of(&client, OF_STEP, &values).await;
        assert!(plan.text.contains("by_step") && plan.buffers < 60, "{}", plan.text);
    }
}
