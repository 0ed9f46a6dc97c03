//! `milepost tags list`.

use std::process::ExitCode;

use clap::Args;

use super::PAGE;
use crate::backend::Backend;
use crate::context::Context;
use crate::output::{hash, print_json, table, tag, time};
use crate::wire::{Page, Said, Tag};

/// List names and what they point at.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags list
  milepost tags list -o json")]
pub(super) struct List {}

impl List {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let page = collect(backend).await?;
        match context.is_json() {
            true => print_json(&page)?,
            false => print(&page),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(page: &Page<Said<Tag>>) {
    if page.items.is_empty() {
        crate::print_line("no tags");
        crate::say("`milepost deploy FILE` makes one");
        return;
    }
    let now = time::now();
    let mut rows = table::new(&["TAG", "VERSION", "DOCUMENT", "KIND", "MOVED", "BY", "PROTECTED"]);
    for one in page.items.iter().map(|one| &one.value) {
        rows.add_row([
            one.tag.clone(),
            one.tag_version.to_string(),
            hash(&one.version_hash),
            tag::kind(&one.kind).to_owned(),
            one.moved_at.map(|at| time::age(at, now)).unwrap_or_default(),
            one.moved_by.clone().unwrap_or_default(),
            one.protected.as_ref().and_then(tag::protection).unwrap_or_default(),
        ]);
    }
    table::print(&rows);
}

/// All of them, over as many pages as it takes.
async fn collect(backend: &Backend) -> anyhow::Result<Page<Said<Tag>>> {
    let mut all: Page<Said<Tag>> = Page { items: Vec::new(), next_cursor: None };
    loop {
        let page = backend.tags(all.next_cursor.as_deref(), PAGE).await?;
        all.items.extend(page.items);
        all.next_cursor = page.next_cursor;
        if all.next_cursor.is_none() {
            return Ok(all);
        }
    }
}
