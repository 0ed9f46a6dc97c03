//! Who moves a tag and why, and what it must still be: the flags of every verb that moves one.

use clap::Args;

use crate::backend::{Backend, Mover};
use crate::output::error::{Refusal, code};
use crate::person;

#[derive(Debug, Args)]
pub(super) struct ActorFlag {
    /// Who you are, in the history of names [env: MILEPOST_ACTOR] [default: the user of this machine]
    #[arg(long = "as", value_name = "NAME")]
    actor: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct MoverFlags {
    /// Why, for those who look later
    #[arg(short = 'm', long, value_name = "TEXT")]
    message: Option<String>,
    /// Only if the name still has this version; `milepost tags show` tells it
    #[arg(long, value_name = "VERSION")]
    expect: Option<u64>,
    #[command(flatten)]
    actor: ActorFlag,
}

impl ActorFlag {
    pub(super) fn read(&self) -> anyhow::Result<Mover> {
        let actor = Some(self.actor.as_ref().map_or_else(person::name, |name| name.trim().to_owned()));
        if actor.as_ref().is_some_and(|name| name.is_empty() || name.contains(char::is_control)) {
            let message = "your name is empty or has control characters in it; say --as NAME";
            return Err(Refusal::new("bad_actor", message).into());
        }
        Ok(Mover { actor, ..Mover::default() })
    }
}

impl MoverFlags {
    pub(super) fn read(&self) -> anyhow::Result<Mover> {
        Ok(Mover { message: self.message.clone(), expect: self.expect, ..self.actor.read()? })
    }
}

/// The flags of an undo and a redo, which do not silently go over what somebody else did.
#[derive(Debug, Args)]
pub(super) struct ForcedFlags {
    #[command(flatten)]
    mover: MoverFlags,
    /// Do it although the newest move is somebody else's
    #[arg(long, conflicts_with = "expect")]
    force: bool,
}

impl ForcedFlags {
    /// With `--force` it means the tag as it is now, whoever moved it there.
    pub(super) async fn read(&self, backend: &Backend, tag: &str) -> anyhow::Result<Mover> {
        let mover = self.mover.read()?;
        match self.force {
            true => Ok(Mover { expect: Some(backend.tag(tag).await?.value.tag_version), ..mover }),
            false => Ok(mover),
        }
    }
}

/// Says in the words of the command line how to go over somebody else's move.
pub(super) fn explained(error: anyhow::Error, tag: &str) -> anyhow::Error {
    if code(&error) != "moved_by_another" {
        return error;
    }
    let message = error.to_string();
    let wrong = message.split_once("; ").map_or(message.as_str(), |(wrong, _)| wrong);
    let help = format!("look at `milepost tags log {tag}`, then say --expect VERSION, or --force");
    Refusal::new("moved_by_another", format!("{wrong}; {help}")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_would_go_over_another_is_told_how() {
        let told = explained(Refusal::new("moved_by_another", "bob moved it; send If-Match").into(), "main");
        assert_eq!(
            told.to_string(),
            "bob moved it; look at `milepost tags log main`, then say --expect VERSION, or --force"
        );
        let other = explained(Refusal::new("tag_moved", "it moved; look again").into(), "main");
        assert_eq!(other.to_string(), "it moved; look again");
    }

    #[test]
    fn names_go_into_a_header() {
        let flag = |name: &str| ActorFlag { actor: Some(name.to_owned()) }.read().map(|mover| mover.actor);
        assert_eq!(flag(" Zoé ").unwrap().as_deref(), Some("Zoé"));
        assert!(flag("").is_err() && flag("a\nb").is_err());
    }
}
