//! `milepost tags protect`.

use std::process::ExitCode;

use clap::Args;

use crate::backend::Backend;
use crate::commands::mover::ActorFlag;
use crate::context::Context;
use crate::output::{print_json, tag};

/// Say who may move a name, or that anyone may.
///
/// Results of runs elsewhere do not serve runs of a protected name.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost tags protect campaign.build
  milepost tags protect campaign.build --mover alice --mover ci
  milepost tags protect campaign.build --off")]
pub(super) struct Protect {
    /// The name
    tag: String,
    /// Who may move it; may be repeated, anyone where none is named
    #[arg(long = "mover", value_name = "NAME")]
    movers: Vec<String>,
    /// It is not protected any more
    #[arg(long, conflicts_with = "movers")]
    off: bool,
    #[command(flatten)]
    actor: ActorFlag,
}

impl Protect {
    pub(super) async fn run(self, backend: &Backend, context: &Context) -> anyhow::Result<ExitCode> {
        let mover = self.actor.read()?;
        match self.off {
            true => backend.unprotect(&self.tag, &mover).await?,
            false => {
                let movers = Some(&self.movers[..]).filter(|movers| !movers.is_empty());
                backend.protect(&self.tag, movers, &mover).await?;
            }
        }
        let now = backend.tag(&self.tag).await?;
        if context.is_json() {
            print_json(&now)?;
            return Ok(ExitCode::SUCCESS);
        }
        let how = match now.value.protected.as_ref().and_then(tag::protection) {
            Some(who) if who == "yes" => "is protected".to_owned(),
            Some(who) => format!("is protected: {who}"),
            None => "is not protected".to_owned(),
        };
        crate::print_line(&format!("{} {how}", self.tag));
        Ok(ExitCode::SUCCESS)
    }
}
