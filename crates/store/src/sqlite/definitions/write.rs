//! Writing definitions: one transaction, all of it or nothing.
//!
//! There is one writer, so what is looked at first is still true when the rest is written.

use milepost_core::hash::Digest;
use milepost_core::id::{OrgId, RunId};
use milepost_core::time::Timestamp;
use rusqlite::{Connection, params};
use uuid::Uuid;

use super::super::columns::{id, one};
use super::opt_id;
use crate::Result;
use crate::rows::{
    BlobRow, ChainRow, DefinitionWrite, MoveRow, RequestRow, RevisionKind, RevisionRow, TagRow, TagWrite,
};

/// The format of a blob's row.
const BLOB_FORMAT: i16 = 1;

pub(super) fn all(tx: &Connection, org: OrgId, write: &DefinitionWrite) -> Result<bool> {
    if let Some(tag) = &write.tag
        && version(tx, org, &tag.tag.tag)? != tag.expected_version
    {
        return Ok(false);
    }
    for revision in &write.revisions {
        if is_there(tx, org, revision)? {
            return Ok(false);
        }
    }
    if let Some(request) = &write.request
        && super::read::request(tx, org, &request.key)?.is_some()
    {
        return Ok(false);
    }
    write.blobs.iter().try_for_each(|row| blob(tx, org, row))?;
    write.revisions.iter().try_for_each(|row| revision(tx, org, row))?;
    write.chain.iter().try_for_each(|row| chain(tx, org, row))?;
    if let Some(TagWrite { tag: row, moved, .. }) = &write.tag {
        tag(tx, org, row)?;
        tag_move(tx, org, &row.tag, moved)?;
    }
    write.request.iter().try_for_each(|row| request(tx, org, row))?;
    Ok(true)
}

fn version(tx: &Connection, org: OrgId, tag: &str) -> Result<u64> {
    let sql = "SELECT version FROM tags WHERE org_id = ? AND tag = ?";
    Ok(one(tx, sql, params![org.0, tag], |row| row.get::<_, i64>(0))?.map_or(0, i64::cast_unsigned))
}

fn is_there(tx: &Connection, org: OrgId, revision: &RevisionRow) -> Result<bool> {
    let sql = match revision.kind {
        RevisionKind::DagVersion => {
            "SELECT 1 FROM revisions WHERE org_id = ? AND version_hash = ? AND kind = 'dag_version'"
        }
        RevisionKind::RunSnapshot => {
            "SELECT 1 FROM revisions WHERE org_id = ? AND plan_hash = ? AND kind = 'run_snapshot'"
        }
        RevisionKind::PatchSet => return Ok(false),
    };
    Ok(one(tx, sql, params![org.0, revision.version_hash.0.as_slice()], |_| Ok(()))?.is_some())
}

fn blob(tx: &Connection, org: OrgId, row: &BlobRow) -> Result<()> {
    let written = tx
        .prepare_cached(
            "INSERT INTO cas_blobs (org_id, hash, media_type, format, size, content, blob, created_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            org.0,
            row.hash.0.as_slice(),
            row.media_type,
            BLOB_FORMAT,
            row.size.cast_signed(),
            row.content,
            row.blob,
            row.created_at.0
        ])?;
    if let Some(key) = row.blob.as_ref().filter(|_| written == 1) {
        tx.prepare_cached("DELETE FROM cas_notes WHERE blob = ?")?.execute(params![key])?;
    }
    Ok(())
}

fn revision(tx: &Connection, org: OrgId, row: &RevisionRow) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO revisions (org_id, revision_id, kind, cas_hash, version_hash, plan_hash, base_version, parent_id,
                                merge_parent_id, depth, message, created_by, created_at, name, meta)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        org.0,
        row.revision_id.as_bytes(),
        row.kind.as_str(),
        row.cas_hash.0.as_slice(),
        row.version_hash.0.as_slice(),
        row.plan_hash.as_ref().map(|hash| hash.0.as_slice()),
        opt_id(row.base_version.as_ref()),
        opt_id(row.parent_id.as_ref()),
        opt_id(row.merge_parent_id.as_ref()),
        row.depth,
        row.message,
        row.created_by,
        row.created_at.0,
        row.name,
        row.meta
    ])?;
    Ok(())
}

fn chain(tx: &Connection, org: OrgId, row: &ChainRow) -> Result<()> {
    tx.prepare_cached("INSERT INTO patch_chain_members (org_id, head_id, seq, member_id) VALUES (?, ?, ?, ?)")?
        .execute(params![org.0, row.head_id.as_bytes(), row.seq, row.member_id.as_bytes()])?;
    Ok(())
}

pub(super) fn rebuild_chain(tx: &Connection, org: OrgId, head_id: Uuid, members: &[Uuid]) -> Result<()> {
    tx.prepare_cached("DELETE FROM patch_chain_members WHERE org_id = ? AND head_id = ?")?
        .execute(params![org.0, head_id.as_bytes()])?;
    let mut rows = (1..).zip(members).map(|(seq, member_id)| ChainRow { head_id, seq, member_id: *member_id });
    rows.try_for_each(|row| chain(tx, org, &row))
}

/// Its protection stays as it is.
fn tag(tx: &Connection, org: OrgId, row: &TagRow) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO tags (org_id, tag, target_kind, target_id, target_hash, version, at_move, redo_move, moved_by,
                           moved_at, message)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
         ON CONFLICT (org_id, tag) DO UPDATE SET target_kind = ?3, target_id = ?4, target_hash = ?5, version = ?6,
             at_move = ?7, redo_move = ?8, moved_by = ?9, moved_at = ?10, message = ?11",
    )?
    .execute(params![
        org.0,
        row.tag,
        row.kind.as_str(),
        row.revision_id.as_bytes(),
        row.version_hash.0.as_slice(),
        row.version.cast_signed(),
        row.at_move.cast_signed(),
        row.redo_move.map(u64::cast_signed),
        row.moved_by,
        row.moved_at.0,
        row.message
    ])?;
    Ok(())
}

fn tag_move(tx: &Connection, org: OrgId, tag: &str, row: &MoveRow) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO tag_moves (org_id, tag, move_id, kind, from_revision_id, to_kind, to_revision_id,
                                to_version_hash, restores_move_id, before_move, undone_move, below_move, merged_revision_id, moved_by,
                                moved_at, message, from_kind, expected_hash)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )?
    .execute(params![
        org.0,
        tag,
        row.move_id.cast_signed(),
        row.kind.as_str(),
        opt_id(row.from_revision_id.as_ref()),
        row.to_kind.as_str(),
        row.to_revision_id.as_bytes(),
        row.to_version_hash.0.as_slice(),
        row.restores_move_id.map(u64::cast_signed),
        row.before_move.map(u64::cast_signed),
        row.undone_move.map(u64::cast_signed),
        row.below_move.map(u64::cast_signed),
        opt_id(row.merged_revision_id.as_ref()),
        row.moved_by,
        row.moved_at.0,
        row.message,
        row.from_kind.map(RevisionKind::as_str),
        row.expected_hash.as_ref().map(|hash| hash.0.as_slice())
    ])?;
    Ok(())
}

fn request(tx: &Connection, org: OrgId, row: &RequestRow) -> Result<()> {
    tx.prepare_cached(
        "INSERT INTO definition_requests (org_id, request_key, fingerprint, answer, created_at) VALUES (?, ?, ?, ?, ?)",
    )?
    .execute(params![org.0, row.key, row.fingerprint.0.as_slice(), row.answer, row.created_at.0])?;
    Ok(())
}

pub(super) fn protect(tx: &Connection, org: OrgId, tag: &str, protection: Option<&str>) -> Result<bool> {
    let written = tx
        .prepare_cached("UPDATE tags SET protection = ? WHERE org_id = ? AND tag = ?")?
        .execute(params![protection, org.0, tag])?;
    Ok(written == 1)
}

pub(super) fn use_plan(tx: &Connection, org: OrgId, plan: Digest, now: Timestamp) -> Result<bool> {
    let written = tx
        .prepare_cached(
            "INSERT INTO plan_uses (org_id, revision_id, used_at)
             SELECT ?1, revision_id, ?3 FROM revisions WHERE org_id = ?1 AND plan_hash = ?2 AND kind = 'run_snapshot'
             ON CONFLICT (org_id, revision_id) DO UPDATE SET used_at = max(used_at, ?3)",
        )?
        .execute(params![org.0, plan.0.as_slice(), now.0])?;
    Ok(written == 1)
}

pub(super) fn keep_plans(tx: &Connection, org: OrgId, run: RunId, plans: &[Digest]) -> Result<()> {
    let sql = "INSERT INTO run_plans (org_id, run_id, plan_hash) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
    for plan in plans {
        tx.prepare_cached(sql)?.execute(params![org.0, id(&run), plan.0.as_slice()])?;
    }
    Ok(())
}
