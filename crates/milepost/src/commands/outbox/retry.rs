//! `milepost outbox retry`.

use std::process::ExitCode;

use clap::Args;
use milepost_core::id::OutboxId;
use serde_json::json;

use super::collect;
use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::print_json;
use crate::target::Otherwise;
use crate::wire::{Retried, Said};

/// Have a delivery tried now, or all that were given up.
///
/// A step that could not be pushed has failed by the time its delivery is a dead letter; it is tried again, as by `milepost
/// runs retry`. A letter that nobody wants any more is dropped.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost outbox retry 01a1defb-2230-7772-a9d6-506d39a96b23
  milepost outbox retry --all")]
pub(super) struct Retry {
    /// The delivery, as `milepost outbox list` has it
    #[arg(value_name = "DELIVERY", required_unless_present = "all")]
    id: Option<OutboxId>,
    /// All dead letters
    #[arg(long, conflicts_with = "id")]
    all: bool,
}

impl Retry {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let target = context.target(Otherwise::Server).await?;
        let backend = Backend::open(target, Access::Write(context.default_limits().clone())).await?;
        let done = self.retry(&backend, &context).await;
        backend.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn retry(&self, backend: &Backend, context: &Context) -> anyhow::Result<()> {
        if let Some(id) = self.id {
            let retried = backend.retry_delivery(id).await?;
            if context.is_json() {
                return print_json(&retried);
            }
            say(&retried);
            return Ok(());
        }
        let dead = collect(backend, true).await?;
        let mut retried = Vec::with_capacity(dead.items.len());
        for letter in &dead.items {
            retried.push(backend.retry_delivery(letter.value.id).await?);
        }
        if context.is_json() {
            return print_json(&json!({ "items": retried }));
        }
        retried.iter().for_each(say);
        if retried.is_empty() {
            crate::print_line("no dead letters");
        }
        Ok(())
    }
}

fn say(retried: &Said<Retried>) {
    let Retried { id, status, reason } = &retried.value;
    let what = match (status.as_str(), reason) {
        ("pending", _) => "is tried now".to_owned(),
        ("step_retried", _) => "had failed its step, which is tried again".to_owned(),
        ("dropped", Some(reason)) => format!("is wanted by nobody any more: {reason}"),
        (other, _) => other.to_owned(),
    };
    crate::print_line(&format!("{id} {what}"));
}
