//! `milepost queues`: what waits for workers, and what queues may do at most.

mod clear;
mod list;
mod rate;
mod set;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::target::Otherwise;
use crate::wire::{Limited, Rate, Said};

/// List queues with what waits in them, and limit what they may do.
///
/// Steps whose skills are not built in wait in queues for workers. A limit holds for all servers together; others than the
/// one that is told know it within seconds. What is under way goes on.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost queues list
  milepost queues set audio --concurrency 4 --rate 100/1m
  milepost queues clear audio")]
pub(crate) struct Queues {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    List(list::List),
    Set(set::Set),
    Clear(clear::Clear),
}

impl Queues {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        match self.verb {
            Verb::List(list) => list.run(context).await,
            Verb::Set(set) => set.run(context).await,
            Verb::Clear(clear) => clear.run(context).await,
        }
    }
}

/// What a queue may do at most.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewLimits {
    pub(crate) queue: String,
    pub(crate) concurrency: Option<u32>,
    pub(crate) rate: Option<Rate>,
}

/// Queues have names as steps do.
const MAX_NAME: usize = 255;

fn queue_name(text: &str) -> Result<String, String> {
    match text.chars().count() {
        1..=MAX_NAME if !text.contains('\0') => Ok(text.to_owned()),
        _ => Err(format!("a queue has a name of 1 to {MAX_NAME} characters")),
    }
}

/// Sets them and tells what holds from now on.
async fn limit(context: &Context, new: &NewLimits) -> anyhow::Result<Said<Limited>> {
    let target = context.target(Otherwise::Server).await?;
    let backend = Backend::open(target, Access::Write(context.default_limits().clone())).await?;
    let done = backend.limit_queue(new).await;
    backend.close().await;
    done
}
