//! `milepost secrets`: what steps must know and nobody else.

mod keygen;
mod list;
mod remove;
mod rotate;
mod set;

use std::path::Path;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::target::{Otherwise, Target};
use crate::{database, keyfile};

/// Keep secrets for steps, list them, remove them, change the key they are sealed with.
///
/// A document refers to a secret by `secret://NAME`. Values are sealed in the database and never shown again.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost secrets set audio/api-key < key.txt
  milepost secrets list
  milepost secrets remove audio/api-key")]
pub(crate) struct Secrets {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Set(set::Set),
    List(list::List),
    Remove(remove::Remove),
    Rotate(rotate::Rotate),
    Keygen(keygen::Keygen),
}

impl Secrets {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let backend = match &self.verb {
            Verb::Keygen(keygen) => return keygen.run(&context),
            Verb::List(_) => open(&context, Access::Read).await?,
            Verb::Set(_) => open(&context, Access::Make(context.default_limits().clone())).await?,
            _ => open(&context, Access::Write(context.default_limits().clone())).await?,
        };
        let done = match self.verb {
            Verb::Set(set) => set.run(&backend, &context).await,
            Verb::List(list) => list.run(&backend, &context).await,
            Verb::Remove(remove) => remove.run(&backend, &context).await,
            Verb::Rotate(rotate) => rotate.run(&backend, &context).await,
            Verb::Keygen(_) => Ok(ExitCode::SUCCESS),
        };
        backend.close().await;
        done
    }
}

async fn open(context: &Context, access: Access) -> anyhow::Result<Backend> {
    let target = context.target(Otherwise::Server).await?;
    // The database of this folder needs nothing to be set up, here as with `milepost dev`.
    if matches!((&target, &access), (Target::Database(database), Access::Make(_)) if database.as_flag().is_empty()) {
        keyfile::read_or_make(&Path::new(database::DEFAULT).with_file_name(keyfile::NAME))?;
    }
    Backend::open(target, access).await
}
