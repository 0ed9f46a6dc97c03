//! A line for each run that begins or ends, for a person who watches `milepost dev`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use console::style;
use milepost_core::id::RunId;
use milepost_core::status::RunStatus;
use milepost_engine::view::RunSummary;
use milepost_engine::{Engine, EngineError, list_runs};
use milepost_store::rows::RunFilter;

use crate::output::plain::plain;
use crate::output::{table, time};

/// How often the newest runs are looked at, and how many of them: more than that nobody can read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const NEWEST: u32 = 30;

#[derive(Debug)]
pub(crate) struct Reporter {
    engine: Arc<Engine>,
    /// The newest runs, as they were last time.
    seen: BTreeMap<RunId, RunStatus>,
}

impl Reporter {
    /// Starts from now: what is there already is not told.
    pub(crate) async fn new(engine: Arc<Engine>) -> Result<Reporter, EngineError> {
        let mut reporter = Reporter { engine, seen: BTreeMap::new() };
        reporter.look().await?;
        Ok(reporter)
    }

    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            match self.look().await {
                Ok(lines) => lines.iter().for_each(|line| crate::say(line)),
                Err(error) => tracing::debug!(%error, "the newest runs cannot be read"),
            }
        }
    }

    /// What happened since the last look, oldest first.
    async fn look(&mut self) -> Result<Vec<String>, EngineError> {
        let filter = RunFilter { limit: NEWEST, ..RunFilter::default() };
        let runs = list_runs(self.engine.store(), self.engine.org(), &filter).await?;
        let lines = runs.iter().rev().filter_map(|run| self.line(run)).collect();
        self.seen = runs.iter().map(|run| (run.run_id, run.status)).collect();
        Ok(lines)
    }

    fn line(&self, run: &RunSummary) -> Option<String> {
        match self.seen.get(&run.run_id) {
            Some(status) if *status == run.status => None,
            // Whether it was waiting for its turn is of interest to nobody who did not ask.
            Some(status) if !status.is_terminal() && is_going(*status) && is_going(run.status) => None,
            _ => Some(told(run)),
        }
    }
}

fn is_going(status: RunStatus) -> bool {
    matches!(status, RunStatus::Queued | RunStatus::Running)
}

fn told(run: &RunSummary) -> String {
    let status = table::run_status(run.status).for_stderr();
    let took = run.started_at.zip(run.completed_at).map(|(from, to)| format!(" in {}", time::span(to.ms_since(from))));
    let error = run.error.as_ref().map(|error| format!(": {}", plain(&error.message)));
    let (id, workflow) = (style(run.run_id).dim().for_stderr(), plain(&run.workflow));
    format!("run {id} {workflow} {status}{}{}", took.unwrap_or_default(), error.unwrap_or_default())
}
