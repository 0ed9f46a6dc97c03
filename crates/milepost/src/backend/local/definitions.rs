//! Tags, diffs and merges of a database, in the words of a server.

use milepost_api::{Problem, answers};
use milepost_core::id::OrgId;
use milepost_engine::EngineError;
use milepost_engine::definitions::{Moving, Protection, Restore, Trust};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Local;
use crate::backend::{Mover, Past};
use crate::output::error::Refusal;
use crate::wire::{Collected, Deployed, Difference, Merged, Move, Moved, Page, Said, Tag};

pub(super) const ORG: OrgId = OrgId::DEFAULT;

impl Local {
    pub(in crate::backend) async fn tags(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Tag>>> {
        let rows = self.definitions()?.tags(ORG, cursor, limit.saturating_add(1)).await.map_err(refused)?;
        cut(rows, limit, |row| row.tag.clone(), |row| Ok(answers::Tag::try_from(row)?))
    }

    pub(in crate::backend) async fn tag(&self, tag: &str) -> anyhow::Result<Said<Tag>> {
        let row = self.definitions()?.tag(ORG, tag).await.map_err(refused)?;
        Said::of(&answers::Tag::try_from(row)?)
    }

    pub(in crate::backend) async fn moves(
        &self,
        tag: &str,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Move>>> {
        let before = cursor.map(str::parse).transpose()?;
        let rows = self.definitions()?.history(ORG, tag, before, limit.saturating_add(1)).await.map_err(refused)?;
        cut(rows, limit, |row| row.move_id.to_string(), |row| Ok(answers::Move::from(row)))
    }

    pub(in crate::backend) async fn set_tag(
        &self,
        tag: &str,
        target: &str,
        mover: &Mover,
    ) -> anyhow::Result<Said<Tag>> {
        let moved = self.definitions()?.set(ORG, tag, target, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::MovedTag::try_from(moved)?)
    }

    pub(in crate::backend) async fn undo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        let moved = self.definitions()?.undo(ORG, tag, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::MovedTag::try_from(moved)?)
    }

    pub(in crate::backend) async fn redo(&self, tag: &str, mover: &Mover) -> anyhow::Result<Said<Moved>> {
        let moved = self.definitions()?.redo(ORG, tag, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::MovedTag::try_from(moved)?)
    }

    pub(in crate::backend) async fn restore(
        &self,
        tag: &str,
        past: &Past,
        mover: &Mover,
    ) -> anyhow::Result<Said<Moved>> {
        let to = match past {
            Past::Target(target) => Restore::Target(target.clone()),
            Past::At(at) => Restore::At(*at),
        };
        let moved = self.definitions()?.restore(ORG, tag, &to, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::MovedTag::try_from(moved)?)
    }

    pub(in crate::backend) async fn merge(
        &self,
        tag: &str,
        from: &str,
        dry_run: bool,
        mover: &Mover,
    ) -> anyhow::Result<Said<Merged>> {
        let (definitions, moving) = (self.definitions()?, moving(mover));
        let merging = match dry_run {
            true => definitions.try_merge(ORG, tag, from, &moving).await,
            false => definitions.merge(ORG, tag, from, &moving).await,
        };
        Said::of(&answers::Merged::try_from(merging.map_err(refused)?)?)
    }

    pub(in crate::backend) async fn protect(
        &self,
        tag: &str,
        movers: Option<&[String]>,
        mover: &Mover,
    ) -> anyhow::Result<()> {
        let protection = Protection { movers: movers.unwrap_or_default().to_vec(), trust: Trust::Protected };
        self.change_protection(tag, Some(&protection), mover).await
    }

    pub(in crate::backend) async fn unprotect(&self, tag: &str, mover: &Mover) -> anyhow::Result<()> {
        self.change_protection(tag, None, mover).await
    }

    async fn change_protection(&self, tag: &str, protection: Option<&Protection>, mover: &Mover) -> anyhow::Result<()> {
        let done = self.definitions()?.protect(ORG, tag, protection, mover.actor.as_deref()).await;
        done.map(drop).map_err(refused)
    }

    pub(in crate::backend) async fn diff(&self, from: &str, to: &str) -> anyhow::Result<Said<Difference>> {
        let (a, b, diff) = self.definitions()?.diff(ORG, from, to).await.map_err(refused)?;
        Said::of(&answers::Difference::of((from.to_owned(), &a), (to.to_owned(), &b), diff))
    }

    pub(in crate::backend) async fn patch(
        &self,
        tag: &str,
        ops: &Value,
        mover: &Mover,
    ) -> anyhow::Result<Said<Deployed>> {
        let moved = self.definitions()?.patch(ORG, tag, ops, &moving(mover)).await.map_err(refused)?;
        Said::of(&answers::Deployed::from(moved.tag))
    }

    pub(in crate::backend) async fn collect_garbage(&self, dry_run: bool) -> anyhow::Result<Said<Collected>> {
        let collected = self.definitions()?.collect(ORG, None, dry_run).await.map_err(refused)?;
        Said::of(&answers::Collected::of(collected, dry_run))
    }
}

pub(super) fn moving(mover: &Mover) -> Moving {
    Moving { by: mover.actor.clone(), message: mover.message.clone(), expected: mover.expect, ..Moving::default() }
}

/// A page of one more than was asked for: the one too many says that there is another page.
pub(super) fn cut<R, A: Serialize, T: serde::de::DeserializeOwned>(
    mut rows: Vec<R>,
    limit: u32,
    cursor: impl Fn(&R) -> String,
    answer: impl Fn(R) -> anyhow::Result<A>,
) -> anyhow::Result<Page<Said<T>>> {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| more).map(cursor);
    let items = rows.into_iter().map(|row| Said::of(&answer(row)?)).collect::<anyhow::Result<_>>()?;
    Ok(Page { items, next_cursor })
}

/// As a server refuses it: the same code, the same words, and all problems and conflicts.
pub(super) fn refused(error: EngineError) -> anyhow::Error {
    #[derive(Deserialize)]
    struct Said {
        code: String,
        detail: String,
        #[serde(default)]
        problems: Vec<Value>,
        #[serde(default)]
        conflicts: Vec<Value>,
    }
    match serde_json::to_value(Problem::from(error)).and_then(serde_json::from_value) {
        Ok(Said { code, detail, problems, conflicts }) => {
            Refusal::new(code, detail).with_problems(problems).with_conflicts(conflicts).into()
        }
        Err(error) => error.into(),
    }
}
