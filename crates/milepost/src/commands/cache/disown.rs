//! `milepost cache disown`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::print_json;

/// Have nobody take the results of a workflow, or of one of its steps, from now on.
///
/// For results that turned out to be wrong: also what steps under way are making now is not taken. What is kept stays in
/// lists until it goes by its age; `milepost cache evict` removes it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache disown --workflow campaign.build
  milepost cache disown --workflow campaign.build --step render")]
pub(super) struct Disown {
    /// The workflow
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    workflow: String,
    /// Only this step of it
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    step: Option<String>,
}

impl Disown {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let disowned = backend.disown(&self.workflow, self.step.as_deref()).await?;
        if context.is_json() {
            print_json(&disowned)?;
            return Ok(ExitCode::SUCCESS);
        }
        let what = match &self.step {
            Some(step) => format!("{step} of {}", self.workflow),
            None => self.workflow.clone(),
        };
        let (epoch, results) = (disowned.value.epoch, disowned.value.results);
        crate::print_line(&format!("results of {what} are not taken any more (epoch {epoch}; {results} are kept)"));
        Ok(ExitCode::SUCCESS)
    }
}
