//! `milepost workflows`: what was deployed.

mod patch;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::{hash, print_json, table, time};
use crate::target::Otherwise;
use crate::wire::{Page, Said, Workflow};

/// So many at a time are asked for.
const PAGE: u32 = 200;

/// List what was deployed, show a document, or patch one.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost workflows
  milepost workflows show campaign.build
  milepost workflows patch campaign.build --ops @ops.json
  milepost workflows list -o json")]
pub(crate) struct Workflows {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List names and what they point at
    #[command(after_help = "Examples:\n  milepost workflows list\n  milepost workflows list -o json")]
    List,
    /// Print the document that a name points at, as JSON
    #[command(
        after_help = "Examples:\n  milepost workflows show campaign.build\n  milepost workflows show sha256:0d838e3d…"
    )]
    Show {
        /// A name, a revision, sha256:…, NAME~2 or NAME@TIME
        #[arg(value_name = "REF")]
        reference: String,
    },
    Patch(patch::Patch),
}

impl Workflows {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let verb = self.verb.unwrap_or(Verb::List);
        let access = match &verb {
            Verb::Patch(_) => Access::Write(context.default_limits().clone()),
            _ => Access::Read,
        };
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let done = match verb {
            Verb::List => list(&backend, &context).await,
            Verb::Show { reference } => show(&backend, &reference).await,
            Verb::Patch(patch) => patch.run(&backend, &context).await,
        };
        backend.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }
}

async fn show(backend: &Backend, reference: &str) -> anyhow::Result<()> {
    print_json(&backend.workflow(reference).await?)
}

async fn list(backend: &Backend, context: &Context) -> anyhow::Result<()> {
    let page = collect(backend).await?;
    if context.is_json() {
        return print_json(&page);
    }
    if page.items.is_empty() {
        crate::print_line("no workflows");
        crate::say("`milepost deploy FILE` makes one");
        return Ok(());
    }
    let now = time::now();
    let mut rows = table::new(&["NAME", "VERSION", "DOCUMENT", "DEPLOYED"]);
    for workflow in page.items.iter().map(|workflow| &workflow.value) {
        rows.add_row([
            workflow.tag.clone(),
            workflow.tag_version.map(|version| version.to_string()).unwrap_or_default(),
            hash(&workflow.version_hash),
            workflow.moved_at.map(|at| time::age(at, now)).unwrap_or_default(),
        ]);
    }
    table::print(&rows);
    Ok(())
}

/// All of them, over as many pages as it takes.
async fn collect(backend: &Backend) -> anyhow::Result<Page<Said<Workflow>>> {
    let mut all: Page<Said<Workflow>> = Page { items: Vec::new(), next_cursor: None };
    loop {
        let page = backend.workflows(all.next_cursor.as_deref(), PAGE).await?;
        all.items.extend(page.items);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
