//! `milepost runs artifacts`.

use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use futures::StreamExt as _;
use milepost_core::hash::Hashing;
use milepost_core::id::RunId;
use serde::Serialize;

use super::{resolve, signal};
use crate::backend::Backend;
use crate::backend::artifacts::{Pieces, Which};
use crate::context::Context;
use crate::output::error::Refusal;
use crate::output::{print_json, table, time};
use crate::wire::{Artifact, Page, Said};

/// List the files that a run left, or get one of them.
///
/// A file that is got is compared with its hash, and has its name only when it is whole.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  milepost runs artifacts last
  milepost runs artifacts last --kind checkpoint -o json
  milepost runs artifacts last --get model.bin
  milepost runs artifacts last --get 0198c0de --to /tmp/model.bin
  milepost runs artifacts last --get report.html --to - | less")]
pub(super) struct ShowArtifacts {
    /// The run: its id, the beginning of it, or `last`
    run: String,
    /// Only of this step, or of this item of one, such as `shots[3]`
    #[arg(long, value_name = "ID")]
    step: Option<String>,
    /// Only of this kind
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// Get the one with this id (or the beginning of it), or with this file name
    #[arg(long, value_name = "ID|FILENAME")]
    get: Option<String>,
    /// Where to; `-` is standard output [default: its file name, in this folder]
    #[arg(long, value_name = "PATH", requires = "get")]
    to: Option<PathBuf>,
}

/// A file that was got.
#[derive(Debug, Serialize)]
struct Got {
    artifact_id: String,
    path: String,
    size_bytes: u64,
}

impl ShowArtifacts {
    pub(super) async fn run(self, context: Context) -> anyhow::Result<ExitCode> {
        // Which step is meant is the engine's to know.
        let backend = signal::open(&context).await?;
        let done = self.show_or_get(&backend, &context).await;
        backend.close().await;
        done.map(|()| ExitCode::SUCCESS)
    }

    async fn show_or_get(&self, backend: &Backend, context: &Context) -> anyhow::Result<()> {
        let run = resolve(backend, &self.run).await?;
        let page = self.collect(backend, run).await?;
        match &self.get {
            Some(name) => self.get(backend, &page.items, name, context).await,
            None if context.is_json() => print_json(&page),
            None => {
                print(&page);
                Ok(())
            }
        }
    }

    /// All of them, over as many pages as it takes.
    async fn collect(&self, backend: &Backend, run: RunId) -> anyhow::Result<Page<Said<Artifact>>> {
        let which = Which { step: self.step.clone(), kind: self.kind.clone() };
        let mut all: Page<Said<Artifact>> = Page { items: Vec::new(), next_cursor: None };
        loop {
            let page = backend.artifacts(run, &which, all.next_cursor.as_deref()).await?;
            all.items.extend(page.items);
            all.next_cursor = page.next_cursor;
            if all.next_cursor.is_none() {
                return Ok(all);
            }
        }
    }

    async fn get(
        &self,
        backend: &Backend,
        artifacts: &[Said<Artifact>],
        name: &str,
        context: &Context,
    ) -> anyhow::Result<()> {
        let artifact = find(artifacts, name)?;
        let to = match &self.to {
            Some(to) => to.clone(),
            None => default_name(&artifact.value)?,
        };
        let pieces = backend.content(artifact).await?;
        let sha256 = artifact.value.sha256.as_deref();
        if to.as_os_str() == "-" {
            pour(pieces, sha256, &mut std::io::stdout().lock()).await?;
            return Ok(());
        }
        let size_bytes = save(pieces, sha256, &to).await?;
        let got = Got { artifact_id: artifact.value.artifact_id.clone(), path: to.display().to_string(), size_bytes };
        match context.is_json() {
            true => print_json(&got),
            false => {
                crate::print_line(&format!("{} ({})", got.path, bytes(size_bytes)));
                Ok(())
            }
        }
    }
}

/// The one that is meant: by its id, the beginning of it, or its file name.
fn find<'a>(artifacts: &'a [Said<Artifact>], name: &str) -> anyhow::Result<&'a Said<Artifact>> {
    let exact = artifacts.iter().find(|artifact| artifact.value.artifact_id == name);
    let named = |artifact: &&Said<Artifact>| {
        artifact.value.filename.as_deref() == Some(name)
            || (name.len() >= 4 && artifact.value.artifact_id.starts_with(name))
    };
    let mut found = artifacts.iter().filter(named);
    match (exact, found.next(), found.next()) {
        (Some(artifact), ..) | (None, Some(artifact), None) => Ok(artifact),
        (None, Some(_), Some(_)) => {
            let message = format!("several artifacts are called `{name}`; give the id of one, or --step and --kind");
            Err(Refusal::new("ambiguous_artifact", message).into())
        }
        (None, None, _) => {
            let message = format!("the run has no artifact `{name}`; `milepost runs artifacts RUN` lists them");
            Err(Refusal::new("unknown_artifact", message).into())
        }
    }
}

/// Its own name in this folder, unless there is something of that name.
fn default_name(artifact: &Artifact) -> anyhow::Result<PathBuf> {
    let name = artifact.filename.as_deref().unwrap_or(&artifact.artifact_id);
    let name = Path::new(name).file_name().map_or_else(|| artifact.artifact_id.clone().into(), PathBuf::from);
    if name.exists() {
        let message = format!("{} is there already; name another place with --to", name.display());
        return Err(Refusal::new("file_exists", message).into());
    }
    Ok(name)
}

async fn save(pieces: Pieces, sha256: Option<&str>, to: &Path) -> anyhow::Result<u64> {
    let unwritable = || format!("{} cannot be written", to.display());
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let readable = std::fs::Permissions::from_mode(0o666);
    let mut part = tempfile::Builder::new().permissions(readable).tempfile_in(folder).with_context(unwritable)?;
    let size = pour(pieces, sha256, part.as_file_mut()).await?;
    part.as_file().sync_all().with_context(unwritable)?;
    part.persist(to).with_context(unwritable)?;
    Ok(size)
}

async fn pour(mut pieces: Pieces, sha256: Option<&str>, to: &mut impl Write) -> anyhow::Result<u64> {
    let (mut hashing, mut size) = (Hashing::default(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        size += piece.len() as u64;
        hashing.update(&piece);
        to.write_all(&piece)?;
    }
    to.flush()?;
    let found = hashing.finish().to_string();
    if sha256.is_some_and(|expected| expected != found) {
        let message = format!("what came has the hash {found}, which is not the artifact's; try again");
        return Err(Refusal::new("hash_mismatch", message).into());
    }
    Ok(size)
}

fn print(page: &Page<Said<Artifact>>) {
    if page.items.is_empty() {
        return crate::print_line("no artifacts");
    }
    let now = time::now();
    let mut rows = table::new(&["ID", "STEP", "KIND", "AT", "NAME", "SIZE", "AGE", "EXPIRES"]);
    for artifact in page.items.iter().map(|artifact| &artifact.value) {
        let own = artifact.uri.starts_with(milepost_core::artifact::BLOB_URI);
        rows.add_row([
            artifact.artifact_id.clone(),
            artifact.step_id.clone().unwrap_or_default(),
            artifact.kind.clone(),
            artifact.training_step.map(|step| step.to_string()).unwrap_or_default(),
            artifact.filename.clone().unwrap_or_else(|| if own { String::new() } else { artifact.uri.clone() }),
            artifact.size_bytes.map(bytes).unwrap_or_default(),
            time::age(artifact.created_at, now),
            artifact.expires_at.map(|at| at.to_string()[..10].to_owned()).unwrap_or_default(),
        ]);
    }
    table::print(&rows);
}

/// `1.5 MiB`.
fn bytes(size: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = UNITS.iter().find(|(_, shift)| size >= 1 << shift);
    unit.map_or_else(
        || format!("{size} B"),
        |(name, shift)| format!("{:.1} {name}", size as f64 / (1_u64 << shift) as f64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, filename: Option<&str>) -> Said<Artifact> {
        let json = serde_json::json!({"artifact_id": id, "run_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "kind": "custom",
            "uri": "s3://b/x", "filename": filename, "created_at": "2026-01-01T00:00:00Z"});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_file_is_meant_by_its_id_or_its_name() {
        let all =
            [artifact("0198aa", Some("a.txt")), artifact("0198ab", Some("b.txt")), artifact("0199", Some("b.txt"))];
        let found = |name| find(&all, name).map(|found| found.value.artifact_id.clone()).map_err(|e| e.to_string());
        assert_eq!(found("0198aa"), Ok("0198aa".to_owned()));
        assert_eq!(found("a.txt"), Ok("0198aa".to_owned()));
        assert_eq!(found("0199"), Ok("0199".to_owned()));
        assert!(found("b.txt").unwrap_err().contains("several"));
        assert!(found("0198").unwrap_err().contains("several"));
        assert!(found("c.txt").unwrap_err().contains("no artifact"));
    }

    #[test]
    fn sizes_are_told_as_people_say_them() {
        assert_eq!([0, 1023, 1024, 1_572_864, 5 << 30].map(bytes), ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "5.0 GiB"]);
    }
}
