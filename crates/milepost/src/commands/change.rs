//! `--change`: what is different in an update run.

use std::str::FromStr;

use clap::Args;

use super::read_json;
use crate::backend::{Backend, Change, Update};

#[derive(Debug, Args)]
pub(super) struct ChangeFlags {
    /// What is different, as the document declares it under `changes`: JSON, or @FILE; may be repeated
    #[arg(long = "change", value_name = "TYPE[=JSON|=@FILE]")]
    changes: Vec<ChangeFlag>,
    /// Run this definition, where it is not the base run's own: a name, or sha256:…
    #[arg(long, value_name = "REF")]
    workflow: Option<String>,
}

#[derive(Clone, Debug)]
struct ChangeFlag {
    kind: String,
    payload: String,
}

impl FromStr for ChangeFlag {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<ChangeFlag, Self::Err> {
        let (kind, payload) = text.split_once('=').unwrap_or((text, "{}"));
        Ok(ChangeFlag { kind: kind.to_owned(), payload: payload.to_owned() })
    }
}

impl ChangeFlags {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.workflow.is_none()
    }

    pub(super) fn read(&self) -> anyhow::Result<Vec<Change>> {
        let read = |flag: &ChangeFlag| {
            let payload = read_json(&format!("the change {}", flag.kind), &flag.payload)?;
            Ok(Change { kind: flag.kind.clone(), payload })
        };
        self.changes.iter().map(read).collect()
    }

    /// The changes to the run that is meant.
    pub(super) async fn of_run(&self, backend: &Backend, run: &str, changes: Vec<Change>) -> anyhow::Result<Update> {
        let base = super::runs::resolve(backend, run).await?;
        Ok(Update { base, changes, workflow: self.workflow.clone() })
    }
}
