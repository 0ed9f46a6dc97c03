//! `milepost cache show`.

use std::process::ExitCode;

use clap::Args;

use super::{bytes, resolve};
use crate::backend::Backend;
use crate::context::Context;
use crate::output::{print_json, table, time};
use crate::wire::CacheKey;

/// Show a key: what it is made of, and what is kept under it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost cache show 9f86d081884c
  milepost cache show 9f86d081884c -o json | jq .made_of.input")]
pub(super) struct Show {
    /// The key, or the beginning of it, as `milepost cache list` has it
    key: String,
}

impl Show {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let key = backend.cache_key(resolve(backend, &self.key).await?).await?;
        match context.is_json() {
            true => print_json(&key)?,
            false => print(&key.value)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn print(key: &CacheKey) -> anyhow::Result<()> {
    crate::print_line(&format!("key {}", key.key));
    if key.items.is_empty() {
        crate::print_line("nothing is kept under it");
    }
    let now = time::now();
    for item in &key.items {
        let result = &item.result;
        let whom = result.run_id.map_or("all runs".to_owned(), |run| format!("run {run}"));
        let taken = match result.last_hit_at {
            Some(at) if result.hits == 1 => format!("taken once, {}", time::age(at, now)),
            Some(at) => format!("taken {} times, last {}", result.hits, time::age(at, now)),
            None => "never taken".to_owned(),
        };
        crate::print_line(&format!(
            "{} of {}, for {whom} ({})\n  made {} in {} by run {}; {taken}",
            result.step_id,
            result.workflow,
            result.trust,
            time::age(result.created_at, now),
            time::span(result.duration_ms),
            result.producer_run_id,
        ));
        let more = if item.output_is_cut { " …" } else { "" };
        crate::print_line(&format!("  output ({}): {}{more}", bytes(result.bytes), item.output_preview));
    }
    if let Some(made_of) = &key.made_of {
        table::heading("made of");
        crate::print_json(&serde_json::to_string_pretty(&made_of.to_value())?);
    }
    Ok(())
}
