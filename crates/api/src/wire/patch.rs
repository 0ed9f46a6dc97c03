//! What a patch means for a run.

use milepost_engine::{PatchPreview, PatchedRun, StepLists};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A patch that is in force.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "run_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "patch_id": "01a1defb-3c07-7d11-a6ff-0a30c3a5f6e2",
    "status": "running", "existing": false, "kept": ["brief", "cut"], "new": ["subtitles"], "changed": ["publish"],
    "removed": [], "orphaned": [], "rerun": [], "last_event_seq": 12
}))]
pub(crate) struct Patched {
    run_id: Uuid,
    /// The same id again is the same patch; it is also what undoes it by name.
    patch_id: Uuid,
    /// Where the run stands now.
    status: String,
    /// The patch had been taken before; nothing was written now.
    existing: bool,
    #[serde(flatten)]
    steps: StepsOfPatch,
    /// The run's last event when the patch was written.
    last_event_seq: u64,
}

/// What a patch would do; nothing is stored.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "run_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "fits": false,
    "refusal": {"code": "step_started", "message": "steps that have begun are not changed: `brief`; say `rerun` to have them run again"},
    "kept": ["cut", "publish"], "new": [], "changed": ["brief"], "removed": [], "orphaned": [], "rerun": [],
    "last_event_seq": 11
}))]
pub(crate) struct PatchOutlook {
    run_id: Uuid,
    /// Whether the run would take it as it stands.
    fits: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<Refusal>,
    #[serde(flatten)]
    steps: StepsOfPatch,
    /// The run's last event when it was looked at.
    last_event_seq: u64,
}

/// Why a run does not take a patch.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct Refusal {
    /// `step_started` or `run_ended`.
    code: String,
    message: String,
}

/// The steps of a run, by what a patch means for them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct StepsOfPatch {
    /// Stay as they are.
    kept: Vec<String>,
    new: Vec<String>,
    changed: Vec<String>,
    /// Go before they had ended.
    removed: Vec<String>,
    /// Go after they had: their events stay, nobody sees their output any more.
    orphaned: Vec<String>,
    /// Had ended, and run again.
    rerun: Vec<String>,
}

impl From<StepLists> for StepsOfPatch {
    fn from(lists: StepLists) -> StepsOfPatch {
        let StepLists { kept, new, changed, removed, orphaned, rerun } = lists;
        StepsOfPatch { kept, new, changed, removed, orphaned, rerun }
    }
}

impl From<PatchedRun> for Patched {
    fn from(patched: PatchedRun) -> Patched {
        Patched {
            run_id: patched.run_id.0,
            patch_id: patched.patch_id.0,
            status: patched.status.to_string(),
            existing: patched.existing,
            steps: patched.steps.into(),
            last_event_seq: patched.last_event_seq,
        }
    }
}

impl From<PatchPreview> for PatchOutlook {
    fn from(preview: PatchPreview) -> PatchOutlook {
        let refusal = |refusal: milepost_engine::PatchRefusal| Refusal {
            code: refusal.code.to_owned(),
            message: refusal.message,
        };
        PatchOutlook {
            run_id: preview.run_id.0,
            fits: preview.fits,
            refusal: preview.refusal.map(refusal),
            steps: preview.steps.into(),
            last_event_seq: preview.last_event_seq,
        }
    }
}
