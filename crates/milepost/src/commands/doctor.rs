//! `milepost doctor`: is anything in the database not as it should be?

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use console::style;
use milepost_engine::{Finding, diagnose, repair};

use super::mover::ActorFlag;
use crate::config::places;
use crate::context::Context;
use crate::files;
use crate::output::{print_json, time};

/// Look over the whole database: runs that nothing will wake, gaps in logs, lagging projections, definitions that are not whole.
///
/// Reads only, and everything. Exit status 0 when nothing was found, 1 otherwise. What only makes things slower, such as a
/// Redis (MILEPOST_REDIS) that does not answer, is a warning, and so are files that everybody on this machine may read.
///
/// With --repair it first makes chains of patches again from the parents of revisions, and moves tags that point at what is
/// damaged or gone to where they last stood on something whole: by a move that is in their history like any other.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost doctor
  milepost doctor -o json
  milepost doctor --repair
  milepost doctor --db /var/lib/milepost/milepost.db")]
pub(crate) struct Doctor {
    /// Put right what can be, then look
    #[arg(long)]
    repair: bool,
    #[command(flatten)]
    actor: ActorFlag,
}

impl Doctor {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        context.refuse_server("doctor")?;
        let (_, blobs) = places::of_command(&context.database)?;
        let mut repaired = Vec::new();
        if self.repair {
            let (store, actor) = (context.database.open_existing().await?, self.actor.read()?.actor);
            repaired = repair(&store, blobs.clone(), actor.as_deref()).await?;
        }
        let store = context.database.open_to_read().await?;
        let mut diagnosis = diagnose(&store, blobs, time::now()).await?;
        diagnosis.repaired = repaired;
        diagnosis.warnings.extend(look_at_redis(&context).await?);
        diagnosis.warnings.extend(look_at_files(&context)?);
        let healthy = diagnosis.findings.is_empty();
        if context.is_json() {
            print_json(&diagnosis)?;
        } else {
            for repaired in &diagnosis.repaired {
                crate::print_line(&format!("{} {repaired}", style("repaired:").green()));
            }
            for finding in &diagnosis.findings {
                let run = finding.run_id.map(|run| format!(" run {run}:")).unwrap_or_default();
                crate::print_line(&format!("{}{run} {}", style(format!("{}:", finding.code)).red(), finding.message));
            }
            for warning in &diagnosis.warnings {
                let code = style(format!("warning: {}:", warning.code)).yellow();
                crate::print_line(&format!("{code} {}", warning.message));
            }
            let found =
                if healthy { "nothing is wrong".to_owned() } else { format!("{} findings", diagnosis.findings.len()) };
            crate::print_line(&format!("{} runs, {} open; {found}", diagnosis.runs, diagnosis.open_runs));
        }
        Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn look_at_files(context: &Context) -> anyhow::Result<Vec<Finding>> {
    let found = |path: &PathBuf| Finding { code: "open_to_all", run_id: None, message: files::close_it(path) };
    Ok(places::open_to_all(&context.database)?.iter().map(found).collect())
}

async fn look_at_redis(context: &Context) -> anyhow::Result<Option<Finding>> {
    let Some(redis) = places::redis_of_command(&context.database)? else { return Ok(None) };
    let away = redis.check().await.err();
    Ok(away.map(|reason| Finding {
        code: "redis_unreachable",
        run_id: None,
        message: format!("Redis does not answer; results of steps are read from the database alone ({reason})"),
    }))
}
