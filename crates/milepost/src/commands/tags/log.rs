//! `milepost tags log`.

use std::process::ExitCode;

use clap::Args;

use super::PAGE;
use crate::backend::Backend;
use crate::context::Context;
use crate::output::{moves, print_json, time};
use crate::wire::{Move, Page, Said};

/// Show where a name has been, the newest move first.
///
/// `@` is where it is, `●` what led there, `○` what was undone and a redo brings back, `×` what was undone and given up, and
/// `↶` and `↷` are the undos and redos themselves.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags log campaign.build
  milepost tags log campaign.build --all
  milepost tags log campaign.build -n 5 -o json")]
pub(super) struct Log {
    /// The name
    tag: String,
    /// At most so many moves
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,
    /// All of them
    #[arg(long, conflicts_with = "count")]
    all: bool,
}

impl Log {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let page = self.collect(backend).await?;
        match context.is_json() {
            true => print_json(&page)?,
            false => self.print(&page),
        }
        Ok(ExitCode::SUCCESS)
    }

    fn print(&self, page: &Page<Said<Move>>) {
        let all: Vec<Move> = page.items.iter().map(|one| one.value.clone()).collect();
        let text = moves::shown(&self.tag, &all, time::now(), console::colors_enabled());
        crate::print_line(text.trim_end());
        if let Some(hint) = moves::hint(&self.tag, &all) {
            crate::say(&hint);
        }
        if page.next_cursor.is_some() {
            crate::say(&format!("there are older moves; `milepost tags log {} --all` has them", self.tag));
        }
    }

    async fn collect(&self, backend: &Backend) -> anyhow::Result<Page<Said<Move>>> {
        let wanted = if self.all { usize::MAX } else { self.count as usize };
        let mut found: Page<Said<Move>> = Page { items: Vec::new(), next_cursor: None };
        loop {
            let left = u32::try_from(wanted - found.items.len()).unwrap_or(PAGE).min(PAGE);
            let page = backend.moves(&self.tag, found.next_cursor.as_deref(), left).await?;
            found.items.extend(page.items);
            found.next_cursor = page.next_cursor;
            if found.next_cursor.is_none() || found.items.len() >= wanted {
                return Ok(found);
            }
        }
    }
}
