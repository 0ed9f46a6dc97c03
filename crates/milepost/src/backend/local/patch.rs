//! Patching runs, through an engine in this process.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_engine::PatchOptions;

use super::Local;
use crate::backend::{NewPatch, UndoPatch};
use crate::person;
use crate::wire::{PatchOutlook, Patched, Said};

impl Local {
    pub(in crate::backend) async fn patch_run(&self, run: RunId, patch: &NewPatch) -> anyhow::Result<Said<Patched>> {
        let NewPatch { ops, rerun, message, patch_id } = patch;
        let (message, patch_id) = (message.clone(), Some(*patch_id));
        let by = Some(person::name());
        let options = PatchOptions { rerun: *rerun, message, by, patch_id, ..PatchOptions::default() };
        Said::of(&self.engine().await?.patch_run(run, &ops.to_value(), options).await?)
    }

    pub(in crate::backend) async fn preview_patch(
        &self,
        run: RunId,
        ops: &Json,
        rerun: bool,
    ) -> anyhow::Result<Said<PatchOutlook>> {
        Said::of(&self.engine().await?.preview_patch(run, &ops.to_value(), rerun).await?)
    }

    pub(in crate::backend) async fn undo_patch(&self, run: RunId, undo: &UndoPatch) -> anyhow::Result<Said<Patched>> {
        let (message, patch_id) = (undo.message.clone(), Some(undo.patch_id));
        let options = PatchOptions { message, by: Some(person::name()), patch_id, ..PatchOptions::default() };
        Said::of(&self.engine().await?.undo_patch(run, None, options).await?)
    }
}
