//! `--rebuild`: steps that run whatever is kept.

use clap::Args;
use milepost_core::change::RebuildRequest;

#[derive(Debug, Args)]
pub(super) struct RebuildFlag {
    /// Run all steps whatever is kept of earlier runs, or (`--rebuild=cut,mix`) these
    #[arg(long, value_name = "STEP,…", num_args = 0..=1, require_equals = true, value_delimiter = ',')]
    rebuild: Option<Vec<String>>,
}

impl RebuildFlag {
    pub(super) fn read(&self) -> Option<RebuildRequest> {
        self.rebuild.as_ref().map(|steps| match steps.is_empty() {
            true => RebuildRequest::All,
            false => RebuildRequest::Steps(steps.clone()),
        })
    }
}
