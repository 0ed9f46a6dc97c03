//! Artifacts of a run: pages of them, one of them, its content.

use milepost_core::artifact::uri_of;
use milepost_core::event::StepRef;
use milepost_core::id::{ArtifactId, OrgId, RunId};
use milepost_core::run::{RejectionKind, unknown_step};
use milepost_store::Store;
use milepost_store::rows::{ArtifactFilter, ArtifactPosition, ArtifactRow};
use serde::Serialize;

use super::view::ArtifactView;
use super::{Found, rejected};
use crate::engine::Engine;
use crate::error::EngineError;

/// Rows that are read at once.
const ROWS: u32 = 1000;

#[derive(Clone, Debug, Serialize)]
pub struct ArtifactPage {
    pub items: Vec<ArtifactView>,
    /// Where the next page begins; none at the end of what there is now.
    pub next_cursor: Option<String>,
}

impl Engine {
    /// Artifacts of a run, in the order in which they were recorded.
    ///
    /// # Errors
    /// There is no such run or step, or the cursor is none of ours.
    pub async fn artifacts(
        &self,
        run: RunId,
        filter: &ArtifactFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<ArtifactPage, EngineError> {
        let head = self.head(run).await?;
        if let Some(name) = &filter.step_id {
            let plan = self.plans.by_hash(self.org, head.plan_hash).await?;
            if StepRef::parse(name, &plan).is_none() {
                return Err(unknown_step(name, &plan).into());
            }
        }
        page(&*self.store, self.org, run, filter, cursor, limit).await
    }

    /// One artifact of a run.
    ///
    /// # Errors
    /// There is no such run, or it has no such artifact (any more).
    pub async fn artifact(&self, run: RunId, id: ArtifactId) -> Result<ArtifactView, EngineError> {
        let row = self.store.artifacts().artifact(self.org, run, id).await?;
        match row {
            Some(row) => Ok(ArtifactView::from(&row)),
            None => {
                self.head(run).await?;
                let message = format!("run {run} has no artifact {id}; it may have expired");
                Err(rejected(RejectionKind::NotFound, "unknown_artifact", message))
            }
        }
    }

    /// Where the content of an artifact is.
    ///
    /// # Errors
    /// It is somewhere else, or gone.
    pub async fn content_of(&self, artifact: &ArtifactView) -> Result<Found, EngineError> {
        let own = artifact.sha256.filter(|hash| artifact.uri == uri_of(*hash));
        match own {
            Some(hash) => self.artifacts.find(self.org, hash).await,
            None => {
                let message = format!("the content of this artifact is not here but at {}; get it there", artifact.uri);
                Err(rejected(RejectionKind::Conflict, "content_elsewhere", message))
            }
        }
    }
}

/// All artifacts of a run, or of one of its steps, up to an event.
pub(crate) async fn all(
    store: &dyn Store,
    org: OrgId,
    run: RunId,
    step_id: Option<String>,
    until: u64,
) -> Result<Vec<ArtifactRow>, EngineError> {
    let filter = ArtifactFilter { step_id, kind: None };
    let mut rows: Vec<ArtifactRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.position);
        let more = store.artifacts().artifacts(org, run, &filter, after, ROWS).await?;
        let is_last = more.len() < ROWS as usize || more.last().is_none_or(|row| row.position.seq > until);
        rows.extend(more.into_iter().filter(|row| row.position.seq <= until));
        if is_last {
            return Ok(rows);
        }
    }
}

async fn page(
    store: &dyn Store,
    org: OrgId,
    run: RunId,
    filter: &ArtifactFilter,
    cursor: Option<&str>,
    limit: u32,
) -> Result<ArtifactPage, EngineError> {
    let after = cursor.map(parse_cursor).transpose()?;
    let mut rows = store.artifacts().artifacts(org, run, filter, after, limit.saturating_add(1)).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| more).map(|row| format!("{}.{}", row.position.seq, row.position.place));
    Ok(ArtifactPage { items: rows.iter().map(ArtifactView::from).collect(), next_cursor })
}

fn parse_cursor(text: &str) -> Result<ArtifactPosition, EngineError> {
    let parsed = text.split_once('.').and_then(|(seq, place)| {
        let seq: u64 = seq.parse().ok().filter(|seq| *seq <= i64::MAX.cast_unsigned())?;
        Some(ArtifactPosition { seq, place: place.parse().ok().filter(|place| *place <= i32::MAX.cast_unsigned())? })
    });
    parsed.ok_or_else(|| {
        let message = "that is no cursor of this list; pass `next_cursor` of the page before as it is";
        rejected(RejectionKind::Invalid, "bad_cursor", message)
    })
}
