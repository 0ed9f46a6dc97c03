//! What a database, and the blob store beside it, have of files that runs left.

use anyhow::Context as _;
use futures::{StreamExt as _, TryStreamExt as _};
use milepost_core::id::RunId;
use milepost_store::rows::ArtifactFilter;

use super::Local;
use crate::backend::artifacts::{Artifacts, PAGE, Pieces, Which};
use crate::wire::{Artifact, Page, Said};

impl Local {
    pub(in crate::backend) async fn artifacts(
        &self,
        run: RunId,
        which: &Which,
        cursor: Option<&str>,
    ) -> anyhow::Result<Artifacts> {
        let filter = ArtifactFilter { step_id: which.step.clone(), kind: which.kind.clone() };
        let page = self.engine().await?.artifacts(run, &filter, cursor, PAGE).await?;
        let items = page.items.iter().map(Said::of).collect::<anyhow::Result<_>>()?;
        Ok(Page { items, next_cursor: page.next_cursor })
    }

    pub(in crate::backend) async fn content(&self, artifact: &Said<Artifact>) -> anyhow::Result<Pieces> {
        let engine = self.engine().await?;
        let id = artifact.value.artifact_id.parse().context("an artifact's id is a UUID")?;
        let artifact = engine.artifact(artifact.value.run_id, id).await?;
        let found = engine.content_of(&artifact).await?;
        let download = engine.files().download(&found, None).await?;
        Ok(download.pieces.map_err(anyhow::Error::from).boxed())
    }
}
