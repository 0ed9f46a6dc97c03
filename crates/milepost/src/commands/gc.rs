//! `milepost gc`: removes what nothing refers to.

use std::process::ExitCode;

use clap::Args;

use crate::backend::{Access, Backend};
use crate::context::Context;
use crate::output::print_json;
use crate::target::Otherwise;
use crate::wire::Collected;

/// Remove revisions and documents that nothing refers to.
///
/// What a tag points at or has pointed at stays, as does what a run was made of, and what is too young: somebody may be about
/// to refer to it.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost gc --dry-run
  milepost gc -o json")]
pub(crate) struct Gc {
    /// Only count them
    #[arg(long)]
    dry_run: bool,
}

impl Gc {
    pub(crate) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        let access = Access::Write(context.default_limits().clone());
        let backend = Backend::open(context.target(Otherwise::Server).await?, access).await?;
        let collected = backend.collect_garbage(self.dry_run).await;
        backend.close().await;
        let collected = collected?;
        match context.is_json() {
            true => print_json(&collected)?,
            false => crate::print_line(&in_words(&collected.value)),
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn in_words(collected: &Collected) -> String {
    let Collected { dry_run, revisions, blobs, bytes, compacted } = *collected;
    let verb = if dry_run { "would remove" } else { "removed" };
    let short = match compacted {
        0 => String::new(),
        count if dry_run => format!("; would make {} of patches short", counted(count, "chain")),
        count => format!("; made {} of patches short", counted(count, "chain")),
    };
    format!("{verb} {} and {} ({}){short}", counted(revisions, "revision"), counted(blobs, "blob"), size(bytes))
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

fn size(bytes: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", bytes / unit, bytes % unit * 10 / unit);
    match bytes {
        0..1024 => format!("{bytes} bytes"),
        1024..1_048_576 => format!("{} KiB", tenths(1024)),
        _ => format!("{} MiB", tenths(1_048_576)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_what_went_and_what_was_made_short() {
        let all = Collected { dry_run: false, revisions: 1, blobs: 3, bytes: 1_600_000, compacted: 2 };
        assert_eq!(in_words(&all), "removed 1 revision and 3 blobs (1.5 MiB); made 2 chains of patches short");
        let some = Collected { dry_run: true, revisions: 0, blobs: 1, bytes: 10, compacted: 0 };
        assert_eq!(in_words(&some), "would remove 0 revisions and 1 blob (10 bytes)");
    }
}
