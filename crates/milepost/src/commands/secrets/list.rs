//! `milepost secrets list`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::Backend;
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::wire::{Page, Said, Secret};

/// So many at a time are asked for.
const PAGE: u32 = 200;

/// List the secrets in the database, without their values.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets list
  milepost secrets list -o json")]
pub(super) struct List {}

impl List {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let page = collect(backend).await?;
        if context.is_json() {
            print_json(&page)?;
            return Ok(ExitCode::SUCCESS);
        }
        if page.items.is_empty() {
            crate::print_line("no secrets");
            crate::say("`milepost secrets set NAME` keeps one");
            return Ok(ExitCode::SUCCESS);
        }
        let now = time::now();
        let mut rows = table::new(&["NAME", "VERSION", "QUEUES", "WORKFLOWS", "SET"]);
        for secret in page.items.iter().map(|secret| &secret.value) {
            rows.add_row([
                secret.name.clone(),
                secret.version.to_string(),
                names(&secret.queues),
                names(&secret.workflows),
                secret.created_at.map(|at| time::age(at, now)).unwrap_or_default(),
            ]);
        }
        table::print(&rows);
        Ok(ExitCode::SUCCESS)
    }
}

fn names(names: &[String]) -> String {
    if names.is_empty() { "any".to_owned() } else { names.join(", ") }
}

/// All of them, over as many pages as it takes.
async fn collect(backend: &Backend) -> anyhow::Result<Page<Said<Secret>>> {
    let mut all: Page<Said<Secret>> = Page { items: Vec::new(), next_cursor: None };
    loop {
        let page = backend.secrets(all.next_cursor.as_deref(), PAGE).await?;
        all.items.extend(page.items);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
