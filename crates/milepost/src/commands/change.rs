//! `--change`: what is different in an update run.

use std::str::FromStr;

use clap::Args;

use milepost_core::limits::Limits;

use super::{read_json, source};
use crate::backend::{Change, Newer};

#[derive(Debug, Args)]
pub(super) struct ChangeFlags {
    /// What is different, as the document declares it under `changes`: JSON, or @FILE; may be repeated
    #[arg(long = "change", value_name = "TYPE[=JSON|=@FILE]")]
    changes: Vec<ChangeFlag>,
    /// Run this definition, where it is not the base run's own: a file, a name, or sha256:…
    #[arg(long, value_name = "FILE|REF")]
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

    /// The definition that is named, read before anybody is asked.
    pub(super) fn newer(&self, limits: &Limits) -> anyhow::Result<Option<Newer>> {
        match &self.workflow {
            None => Ok(None),
            Some(text) if source::is_file(text) => {
                Ok(Some(Newer::Documents(Box::new(source::documents(text, limits)?))))
            }
            Some(reference) => Ok(Some(Newer::Workflow(reference.clone()))),
        }
    }
}
