//! What a server has of files that runs left.

use futures::{StreamExt as _, TryStreamExt as _};
use milepost_core::id::RunId;

use super::{Client, refusal};
use crate::backend::artifacts::{Artifacts, PAGE, Pieces, Which};
use crate::wire::{Artifact, Said};

impl Client {
    pub(crate) async fn artifacts(&self, run: RunId, which: &Which, cursor: Option<&str>) -> anyhow::Result<Artifacts> {
        let mut query = vec![("limit", PAGE.to_string())];
        query.extend(which.step.clone().map(|step| ("step", step)));
        query.extend(which.kind.clone().map(|kind| ("kind", kind)));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["runs", &run.to_string(), "artifacts"], &query).await
    }

    pub(crate) async fn content(&self, artifact: &Said<Artifact>) -> anyhow::Result<Pieces> {
        let (run, id) = (artifact.value.run_id.to_string(), &artifact.value.artifact_id);
        let pieces = self.sdk.download_pieces(&["runs", &run, "artifacts", id, "content"]).await;
        let pieces = pieces.map_err(|error| refusal(&self.server, error))?;
        let server = self.server.clone();
        Ok(pieces.map_err(move |error| refusal(&server, error)).boxed())
    }
}
