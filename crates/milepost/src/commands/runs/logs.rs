//! `milepost runs logs`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use milepost_core::id::RunId;

use super::{resolve, signal};
use crate::backend::Backend;
use crate::backend::logs::{Heard, PAGE, Pace};
use crate::context::Context;
use crate::output::plain::plain;
use crate::output::{one_line, time};
use crate::wire::{LogLine, Said};

/// How often it is seen whether there is more.
const LOOK: Duration = Duration::from_millis(500);

/// Print what a run's steps said.
///
/// With `-o json` one object on each line: step_id, logical_attempt, engine_attempt, line, at, stream, text.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs logs last
  milepost runs logs last --step cut
  milepost runs logs last -f
  milepost runs logs last -o json")]
pub(super) struct ShowLogs {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// Only this step, or this item of one, such as `shots[3]`
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// Go on with what comes, up to the run's end
    #[arg(short, long)]
    follow: bool,
}

impl ShowLogs {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        // Which step is meant is the engine's to know.
        let backend = signal::open(&context).await?;
        let printed = self.print(&backend, &context).await;
        backend.close().await;
        printed.map(|()| ExitCode::SUCCESS)
    }

    async fn print(&self, backend: &Backend, context: &Context) -> anyhow::Result<()> {
        let run = resolve(backend, &self.run).await?;
        let (mut heard, mut pace) = (Heard::default(), Pace::default());
        loop {
            // First whether it has ended, then the lines: those said in between are not missed.
            let ended = !self.follow || has_ended(backend, run).await?;
            if ended || pace.is_due() {
                let begun = Instant::now();
                self.print_new(backend, run, &mut heard, context).await?;
                pace.took(begun.elapsed());
            }
            if ended {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn print_new(
        &self,
        backend: &Backend,
        run: RunId,
        heard: &mut Heard,
        context: &Context,
    ) -> anyhow::Result<()> {
        let mut cursor = None;
        loop {
            let page = backend.log_page(run, self.step.as_deref(), cursor.as_deref(), PAGE).await?;
            for line in page.items.iter().filter(|line| heard.is_new(&line.value)) {
                match context.is_json() {
                    true => crate::print_json(&one_line(line)?),
                    false => crate::print_line(&self.in_words(line)),
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(());
            }
        }
    }

    /// `12:00:01.123 brief | writing`; of one step without its name.
    fn in_words(&self, line: &Said<LogLine>) -> String {
        let line = &line.value;
        let at = line.at.map(|at| format!("{} ", time::clock_time(at))).unwrap_or_default();
        let text = plain(&line.text);
        let attempt = if line.logical_attempt > 1 { format!("#{}", line.logical_attempt) } else { String::new() };
        match (&self.step, attempt.is_empty()) {
            (Some(_), true) => format!("{at}{text}"),
            (Some(_), false) => format!("{at}{attempt} | {text}"),
            (None, _) => format!("{at}{}{attempt} | {text}", line.step_id),
        }
    }
}

async fn has_ended(backend: &Backend, run: RunId) -> anyhow::Result<bool> {
    Ok(backend.show(run).await?.value.summary.status.is_terminal())
}
