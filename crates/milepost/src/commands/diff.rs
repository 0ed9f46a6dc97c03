//! `milepost diff`: what is different between two documents.

use std::process::ExitCode;

use clap::Args;
use milepost_core::document;
use serde_json::{Value, json};

use super::source;
use crate::backend::{Access, Backend};
use crate::context::{Context, LimitFlags};
use crate::output::error::Refusal;
use crate::output::{diff, print_json};
use crate::target::Otherwise;
use crate::wire::{Difference, Said};

/// Exit status with `--exit-code` where they differ.
const DIFFERENT: u8 = 1;

/// Show what is different between two documents, step by step.
///
/// Each is a name, a revision, sha256:…, NAME~2, NAME@TIME, or a file. With `-o json` the operations of RFC 6902 that make
/// the second one of the first, and the changes of each step.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost diff campaign.build~1 campaign.build
  milepost diff campaign.build flow.yaml
  milepost diff campaign.build@2026-01-31T10:00:00Z campaign.build -o json")]
pub(crate) struct Diff {
    #[arg(value_name = "A")]
    from: String,
    #[arg(value_name = "B")]
    to: String,
    /// Exit with status 1 if they differ
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    limits: LimitFlags,
}

impl Diff {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let found = self.find(&context).await?;
        match context.is_json() {
            true => print_json(&found)?,
            false => crate::print_line(diff::titled(&found.value, console::colors_enabled()).trim_end()),
        }
        let is_empty = found.value.diff.steps.is_empty() && found.value.diff.settings.is_empty();
        Ok(if self.exit_code && !is_empty { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
    }

    async fn find(&self, context: &Context) -> anyhow::Result<Said<Difference>> {
        let (from_file, to_file) = (source::is_file(&self.from), source::is_file(&self.to));
        if from_file && to_file {
            return compared(&self.file(&self.from, context)?, &self.file(&self.to, context)?);
        }
        // A file that is none is told before anybody is asked.
        let file = match (from_file, to_file) {
            (true, _) => Some(self.file(&self.from, context)?),
            (_, true) => Some(self.file(&self.to, context)?),
            _ => None,
        };
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Read).await?;
        match file {
            None => backend.diff(&self.from, &self.to).await,
            Some(file) if from_file => compared(&file, &stored(&backend, &self.to).await?),
            Some(file) => compared(&stored(&backend, &self.from).await?, &file),
        }
    }

    fn file(&self, path: &str, context: &Context) -> anyhow::Result<End> {
        let documents = source::documents(path, &context.limits(&self.limits)?)?;
        if !documents.others.is_empty() {
            let message = format!("{path} holds {} documents; compare one at a time", documents.others.len() + 1);
            return Err(Refusal::new("several_documents", message).into());
        }
        let version_hash = format!("sha256:{}", documents.first.hash);
        let document = serde_json::from_str(&documents.first.canonical)?;
        Ok(End { reference: path.to_owned(), version_hash, document })
    }
}

/// A document that is compared here.
struct End {
    reference: String,
    version_hash: String,
    document: Value,
}

async fn stored(backend: &Backend, reference: &str) -> anyhow::Result<End> {
    let definition = backend.workflow(reference).await?.value;
    let (version_hash, document) = (definition.version_hash, definition.document.to_value());
    Ok(End { reference: reference.to_owned(), version_hash, document })
}

/// What a server would say of them.
fn compared(from: &End, to: &End) -> anyhow::Result<Said<Difference>> {
    let document::Diff { ops, steps, settings, truncated } = document::diff(&from.document, &to.document);
    let end = |end: &End| json!({ "ref": end.reference, "version_hash": end.version_hash });
    let mut said = json!({ "from": end(from), "to": end(to), "ops": ops, "steps": steps, "settings": settings });
    if truncated {
        said["truncated"] = json!(true);
    }
    Said::of(&said)
}
