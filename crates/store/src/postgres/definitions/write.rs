//! Writing definitions: one transaction, all of it or nothing, in two round trips: what is written, and `COMMIT`.

use deadpool_postgres::{Object, Pool};
use futures::future::join_all;
use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::super::columns::{int4, int8};
use super::super::runs::query;
use super::super::transaction::Open;
use crate::rows::{BlobRow, ChainRow, DefinitionWrite, RequestRow, RevisionKind, RevisionRow, TagWrite};
use crate::{Result, StoreError};

type Parameters = Vec<Box<dyn ToSql + Sync + Send>>;

/// A statement, what it is given, and how many rows it must write.
struct Step {
    sql: &'static str,
    parameters: Parameters,
    rows: Option<u64>,
}

/// False if something that it builds upon has changed.
pub(super) async fn all(pool: &Pool, org: OrgId, write: &DefinitionWrite) -> Result<bool> {
    let open = Open::on(pool).await?;
    let connection = open.connection()?;
    let steps = steps(org, write);
    // All are known before the first one is sent, so that they are sent in their order, without a wait in between.
    let mut statements = Vec::with_capacity(steps.len());
    for step in &steps {
        statements.push(connection.prepare_cached(step.sql).await?);
    }
    let send = |index: usize| {
        let (statement, parameters) = (&statements[index], &steps[index].parameters);
        let parameters: Vec<&(dyn ToSql + Sync)> = parameters.iter().map(|value| &**value as _).collect();
        async move { connection.execute(statement, &parameters).await }
    };
    let begin = async { connection.batch_execute("BEGIN").await };
    let (begun, written) = futures::join!(begin, join_all((0..steps.len()).map(send)));
    begun?;
    for (step, written) in steps.iter().zip(written) {
        match written {
            Ok(rows) if step.rows.is_none_or(|wanted| wanted == rows) => {}
            Ok(_) => return Ok(false),
            Err(error) if is_stale(&error) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
    }
    open.commit().await?;
    Ok(true)
}

/// Another one was written meanwhile, or what this one builds upon is gone.
fn is_stale(error: &Error) -> bool {
    matches!(error.code(), Some(&SqlState::UNIQUE_VIOLATION | &SqlState::FOREIGN_KEY_VIOLATION))
}

fn steps(org: OrgId, write: &DefinitionWrite) -> Vec<Step> {
    let mut steps = Vec::with_capacity(6);
    if !write.blobs.is_empty() {
        steps.push(blobs(org, &write.blobs));
    }
    if !write.revisions.is_empty() {
        steps.push(revisions(org, &write.revisions));
    }
    if !write.chain.is_empty() {
        steps.push(chain(org, &write.chain));
    }
    if let Some(tag) = &write.tag {
        steps.push(tag_row(org, tag));
        steps.push(tag_move(org, tag));
    }
    steps.extend(write.request.iter().map(|row| request(org, row)));
    steps
}

/// The format of what `cas_blobs` holds.
const BLOB_FORMAT: i16 = 1;

fn bytes(digest: &Digest) -> Vec<u8> {
    digest.0.to_vec()
}

fn blobs(org: OrgId, rows: &[BlobRow]) -> Step {
    let sql = "WITH written AS (
            INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content, blob, created_at)
            SELECT $1, b.hash, b.media_type, $2, b.size, b.content, b.blob, b.created_at
            FROM unnest($3::bytea[], $4::text[], $5::int8[], $6::bytea[], $7::text[], $8::int8[])
                AS b (hash, media_type, size, content, blob, created_at)
            ORDER BY b.hash ON CONFLICT DO NOTHING RETURNING blob
        )
        DELETE FROM cas_notes AS n USING written AS w WHERE n.blob = w.blob";
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(BLOB_FORMAT),
        Box::new(rows.iter().map(|row| bytes(&row.hash)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.media_type.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| int8(row.size)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.content.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.blob.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.created_at.0).collect::<Vec<_>>()),
    ];
    Step { sql, parameters, rows: None }
}

fn revisions(org: OrgId, rows: &[RevisionRow]) -> Step {
    let sql = "INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, plan_hash, base_version,
                                      parent_id, merge_parent_id, depth, message, created_by, created_at, name, meta)
        SELECT $1, r.* FROM unnest($2::uuid[], $3::text[], $4::bytea[], $5::bytea[], $6::bytea[], $7::uuid[], $8::uuid[],
                                   $9::uuid[], $10::int4[], $11::text[], $12::text[], $13::int8[], $14::text[], $15::text[]) AS r";
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(rows.iter().map(|row| row.revision_id).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.kind.as_str()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| bytes(&row.cas_hash)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| bytes(&row.version_hash)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.plan_hash.as_ref().map(bytes)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.base_version).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.parent_id).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.merge_parent_id).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| int4(row.depth)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.message.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.created_by.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.created_at.0).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.meta.clone()).collect::<Vec<_>>()),
    ];
    Step { sql, parameters, rows: None }
}

fn chain(org: OrgId, rows: &[ChainRow]) -> Step {
    let sql = "INSERT INTO patch_chain_members (org_id, head_id, seq, member_id)
        SELECT $1, c.* FROM unnest($2::uuid[], $3::int4[], $4::uuid[]) AS c";
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(rows.iter().map(|row| row.head_id).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| int4(row.seq)).collect::<Vec<_>>()),
        Box::new(rows.iter().map(|row| row.member_id).collect::<Vec<_>>()),
    ];
    Step { sql, parameters, rows: None }
}

/// In a transaction of its own: one statement could not put rows where it takes rows away.
pub(super) async fn rebuild_chain(pool: &Pool, org: OrgId, head: Uuid, members: &[Uuid]) -> Result<()> {
    let open = Open::on(pool).await?;
    let connection = open.connection()?;
    connection.batch_execute("BEGIN").await?;
    query(connection, "DELETE FROM patch_chain_members WHERE org_id = $1 AND head_id = $2", &[&org.0, &head]).await?;
    let insert = "INSERT INTO patch_chain_members (org_id, head_id, seq, member_id)
        SELECT $1, $2, m.seq, m.id FROM unnest($3::uuid[]) WITH ORDINALITY AS m (id, seq)";
    query(connection, insert, &[&org.0, &head, &members]).await?;
    open.commit().await
}

/// Its protection stays as it is. A tag that is new must be new when it is written.
fn tag_row(org: OrgId, TagWrite { expected_version, tag, .. }: &TagWrite) -> Step {
    let sql = match expected_version {
        0 => {
            "INSERT INTO tags (org_id, tag, target_kind, target_id, target_hash, version, at_move, redo_move, moved_by,
                               moved_at, message)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11 WHERE $12::int8 = 0 ON CONFLICT DO NOTHING"
        }
        _ => {
            "UPDATE tags SET target_kind = $3, target_id = $4, target_hash = $5, version = $6, at_move = $7,
                    redo_move = $8, moved_by = $9, moved_at = $10, message = $11
             WHERE org_id = $1 AND tag = $2 AND version = $12"
        }
    };
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(tag.tag.clone()),
        Box::new(tag.kind.as_str()),
        Box::new(tag.revision_id),
        Box::new(bytes(&tag.version_hash)),
        Box::new(int8(tag.version)),
        Box::new(int8(tag.at_move)),
        Box::new(tag.redo_move.map(int8)),
        Box::new(tag.moved_by.clone()),
        Box::new(tag.moved_at.0),
        Box::new(tag.message.clone()),
        Box::new(int8(*expected_version)),
    ];
    Step { sql, parameters, rows: Some(1) }
}

fn tag_move(org: OrgId, TagWrite { tag, moved, .. }: &TagWrite) -> Step {
    let sql = "INSERT INTO tag_moves (org_id, tag, move_id, kind, from_revision_id, to_kind, to_revision_id,
                                      to_version_hash, restores_move_id, before_move, undone_move, below_move, merged_revision_id,
                                      moved_by, moved_at, message, from_kind, expected_hash)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18)";
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(tag.tag.clone()),
        Box::new(int8(moved.move_id)),
        Box::new(moved.kind.as_str()),
        Box::new(moved.from_revision_id),
        Box::new(moved.to_kind.as_str()),
        Box::new(moved.to_revision_id),
        Box::new(bytes(&moved.to_version_hash)),
        Box::new(moved.restores_move_id.map(int8)),
        Box::new(moved.before_move.map(int8)),
        Box::new(moved.undone_move.map(int8)),
        Box::new(moved.below_move.map(int8)),
        Box::new(moved.merged_revision_id),
        Box::new(moved.moved_by.clone()),
        Box::new(moved.moved_at.0),
        Box::new(moved.message.clone()),
        Box::new(moved.from_kind.map(RevisionKind::as_str)),
        Box::new(moved.expected_hash.as_ref().map(bytes)),
    ];
    Step { sql, parameters, rows: Some(1) }
}

fn request(org: OrgId, row: &RequestRow) -> Step {
    let sql = "INSERT INTO definition_requests (org_id, request_key, fingerprint, answer, created_at)
        VALUES ($1, $2, $3, $4, $5)";
    let parameters: Parameters = vec![
        Box::new(org.0),
        Box::new(row.key.clone()),
        Box::new(bytes(&row.fingerprint)),
        Box::new(row.answer.clone()),
        Box::new(row.created_at.0),
    ];
    Step { sql, parameters, rows: Some(1) }
}

pub(super) async fn protect(connection: &Object, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool> {
    let sql = "UPDATE tags SET protection = $3 WHERE org_id = $1 AND tag = $2 RETURNING tag";
    Ok(!query(connection, sql, &[&org.0, &tag, &protection]).await?.is_empty())
}

pub(super) async fn use_plan(connection: &Object, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool> {
    let sql = "INSERT INTO plan_uses AS u (org_id, revision_id, used_at)
        SELECT $1, revision_id, $3 FROM revisions WHERE org_id = $1 AND plan_hash = $2 AND kind = 'run_snapshot'
        ON CONFLICT (org_id, revision_id) DO UPDATE SET used_at = greatest(u.used_at, excluded.used_at)
        RETURNING u.used_at";
    match query(connection, sql, &[&org.0, &plan.0.as_slice(), &now.0]).await {
        // It is being removed at this moment.
        Err(StoreError::Refused(_)) => Ok(false),
        rows => Ok(!rows?.is_empty()),
    }
}

pub(super) async fn keep_plans(connection: &Object, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()> {
    let sql = "INSERT INTO run_plans (org_id, run_id, plan_hash)
        SELECT $1, $2, hash FROM unnest($3::bytea[]) AS hash ON CONFLICT DO NOTHING";
    let hashes: Vec<&[u8]> = plans.iter().map(|plan| plan.0.as_slice()).collect();
    let run: Uuid = run.0;
    query(connection, sql, &[&org.0, &run, &hashes]).await?;
    Ok(())
}
