//! `milepost validate`: everything that is wrong with a document, at once.

use std::process::ExitCode;

use clap::Args;
use milepost_core::document;

use super::{read_text, shown_name};
use crate::context::{Context, LimitFlags};
use crate::output::error::WRONG_USE;
use crate::output::print_json;
use crate::output::problems::BadDocument;

/// Check a document and tell all its problems, with line, column and what was probably meant.
///
/// Nothing is stored. Exit status 0 when the document is in order, 2 when it has problems. With `-o json`, a list of
/// problems, empty when there are none.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost validate flow.yaml
  milepost validate flow.yaml -o json
  generate-flow | milepost validate -")]
pub(crate) struct Validate {
    /// A YAML or JSON document, or several YAML documents separated by `---`; `-` is standard input
    file: String,
    #[command(flatten)]
    limits: LimitFlags,
}

impl Validate {
    pub(crate) fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let source = read_text(&self.file)?;
        let name = shown_name(&self.file);
        match document::load_all(&source, &context.limits(&self.limits)?) {
            Ok(_) if context.is_json() => print_json(&[(); 0])?,
            Ok(documents) => {
                for document in &documents {
                    let plan = &document.plan;
                    crate::print_line(&format!(
                        "{name}: {} {} is in order, {} steps",
                        plan.name,
                        plan.version,
                        plan.steps.len()
                    ));
                }
            }
            Err(problems) => {
                match context.is_json() {
                    true => print_json(&problems)?,
                    false => crate::print_line(BadDocument::new(name, &source, problems).shown_on_stdout().trim_end()),
                }
                return Ok(ExitCode::from(WRONG_USE));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
