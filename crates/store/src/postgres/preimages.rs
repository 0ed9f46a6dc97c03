//! What keys of steps are made of, and results for those who only look.

use std::collections::BTreeMap;

use deadpool_postgres::Object;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use tokio_postgres::Row;
use uuid::Uuid;

use super::cache::{Wanted, find};
use super::columns::{col, digest};
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

/// Of each list of keys the first that has a result, all by one statement.
pub(super) async fn first_of_each(
    connection: &Object,
    org: OrgId,
    asked: &[Vec<ResultKey>],
) -> Result<Vec<Option<FoundResult>>> {
    let wanted: Vec<Wanted> = asked.iter().flatten().map(|key| Wanted { org, key: *key, held: None }).collect();
    let mut found = find(connection, &wanted).await?.into_iter();
    let first = |keys: &Vec<ResultKey>| found.by_ref().take(keys.len()).fold(None, Option::or);
    Ok(asked.iter().map(first).collect())
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
