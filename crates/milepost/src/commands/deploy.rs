//! `milepost deploy`: stores documents, so that they can be run by name.

use std::process::ExitCode;

use clap::Args;

use super::mover::MoverFlags;
use super::source;
use crate::backend::{Access, Backend};
use crate::context::{Context, LimitFlags};
use crate::output::error::Refusal;
use crate::output::one_line;
use crate::target::Otherwise;
use crate::wire::{Deployed, Said};

/// Store a document and point a name at it, so that it can be run by that name.
///
/// The name is the document's own unless `--tag` gives another. The same content again changes nothing. With `-o json`
/// one object for each document of the file: revision_id, version_hash, tag, tag_version.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost deploy flow.yaml
  milepost deploy flow.yaml --tag campaign.next -m \"longer videos\"
  milepost deploy flow.yaml --expect 4
  milepost deploy flow.yaml --server http://127.0.0.1:7400 -o json")]
pub(crate) struct Deploy {
    /// A YAML or JSON document, or several YAML documents separated by `---`; `-` is standard input
    file: String,
    /// The name, where it is not the document's own
    #[arg(long, value_name = "NAME")]
    tag: Option<String>,
    #[command(flatten)]
    mover: MoverFlags,
    #[command(flatten)]
    limits: LimitFlags,
}

impl Deploy {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let limits = context.limits(&self.limits)?;
        let documents = source::documents(&self.file, &limits)?;
        let mover = self.mover.read()?;
        let of_one = [("--tag", self.tag.is_some()), ("--expect", mover.expect.is_some())];
        if let Some((flag, _)) = of_one.iter().find(|(_, given)| *given && !documents.others.is_empty()) {
            let count = documents.others.len() + 1;
            let message =
                format!("{flag} is about one document, and {} holds {count}; deploy them one by one", self.file);
            return Err(Refusal::new("several_documents", message).into());
        }
        let backend = Backend::open(context.target(Otherwise::Server).await?, Access::Make(limits)).await?;
        let deployed = backend.deploy(documents, self.tag.as_deref(), &mover).await;
        backend.close().await;
        for deployed in &deployed? {
            match context.is_json() {
                true => crate::print_json(&one_line(deployed)?),
                false => crate::print_line(&in_words(deployed)),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) fn in_words(deployed: &Said<Deployed>) -> String {
    let Deployed { version_hash, tag, tag_version } = &deployed.value;
    let version = tag_version.map(|version| format!(" (version {version} of the name)")).unwrap_or_default();
    format!("{tag} is {version_hash}{version}")
}
