//! What a database says of single steps.

use milepost_core::id::RunId;

use super::Local;
use crate::output::error::Refusal;
use crate::wire::{LogLine, Page, Said, StepDetail};

impl Local {
    pub(in crate::backend) async fn step(&self, run: RunId, step: &str) -> anyhow::Result<Said<StepDetail>> {
        Said::of(&self.engine().await?.step(run, step).await?)
    }

    pub(in crate::backend) async fn log_page(
        &self,
        _run: RunId,
        _step: Option<&str>,
        _cursor: Option<&str>,
        _limit: u32,
    ) -> anyhow::Result<Page<Said<LogLine>>> {
        Err(needs_server())
    }
}

fn needs_server() -> anyhow::Error {
    Refusal::new("needs_server", "this is asked of a server; start one with `milepost dev`").into()
}
