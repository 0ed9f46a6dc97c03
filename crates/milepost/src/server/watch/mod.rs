//! `dev --watch`: documents in folders are deployed when they change, and what is wrong with them is told.
//!
//! Files are looked at twice a second by their time and size. One that was changed a moment ago waits for the next look, so
//! that half a file is not taken for all of it; one that is gone is believed to be gone at the second look, because editors
//! replace files.

mod files;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use milepost_core::document::{self, Loaded};
use milepost_engine::{Engine, EngineError};

use crate::output::error::Refusal;
use crate::output::problems::BadDocument;
use files::Stamp;

const LOOK_EVERY: Duration = Duration::from_millis(500);
/// At the start nobody waits longer than this for files that are being written.
const FIRST_LOOKS: u32 = 5;

/// Deploys the documents of some folders.
#[derive(Debug)]
pub(crate) struct Deployer {
    engine: Arc<Engine>,
    roots: Vec<PathBuf>,
    known: BTreeMap<PathBuf, Known>,
    told_too_many: bool,
}

/// A file as it was when it was last read.
#[derive(Debug)]
struct Known {
    stamp: Stamp,
    held: Held,
    /// It was not there at the last look.
    missing: bool,
}

#[derive(Debug)]
enum Held {
    /// Names and hashes of its documents, which are deployed.
    Deployed(Vec<(String, String)>),
    /// Something that was told.
    Wrong,
    /// In order, but the database did not take it, for this reason. It is tried again.
    Refused(String),
}

/// What one look had to say.
#[derive(Debug, Default)]
struct Look {
    lines: Vec<String>,
    /// Some files wait for the next look.
    unsettled: bool,
}

/// # Errors
/// There is nothing to watch under one of the names.
pub(crate) fn check(roots: &[PathBuf]) -> Result<(), Refusal> {
    for root in roots {
        files::check(root).map_err(|error| {
            let message = format!("{} cannot be watched: {error}; check its path", root.display());
            Refusal::new("unreadable_file", message)
        })?;
    }
    Ok(())
}

impl Deployer {
    pub(crate) fn new(engine: Arc<Engine>, roots: Vec<PathBuf>) -> Deployer {
        Deployer { engine, roots, known: BTreeMap::new(), told_too_many: false }
    }

    /// Deploys what is there.
    pub(crate) async fn start(&mut self) {
        for _ in 0..FIRST_LOOKS {
            if !self.look_and_tell().await {
                return;
            }
            tokio::time::sleep(LOOK_EVERY / FIRST_LOOKS).await;
        }
    }

    pub(crate) async fn run(mut self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            self.look_and_tell().await;
        }
    }

    async fn look_and_tell(&mut self) -> bool {
        let look = self.run_once(SystemTime::now()).await;
        look.lines.iter().for_each(|line| crate::say(line));
        look.unsettled
    }

    async fn run_once(&mut self, now: SystemTime) -> Look {
        let roots = self.roots.clone();
        let Ok(found) = tokio::task::spawn_blocking(move || files::find(&roots)).await else { return Look::default() };
        let mut look = Look::default();
        if found.too_many && !std::mem::replace(&mut self.told_too_many, true) {
            look.lines
                .push("there are too many documents to watch them all; name folders that hold only yours".to_owned());
        }
        for (path, stamp) in &found.files {
            self.look_at(path, *stamp, now, &mut look).await;
        }
        self.known.retain(|path, known| found.files.contains_key(path) || known.is_still_believed(path, &mut look));
        look
    }

    async fn look_at(&mut self, path: &Path, stamp: Stamp, now: SystemTime, look: &mut Look) {
        let before = self.known.get_mut(path);
        let is_new = match before {
            Some(known) => {
                known.missing = false;
                known.stamp != stamp || matches!(known.held, Held::Refused(_))
            }
            None => true,
        };
        if !is_new {
            return;
        }
        if stamp.is_fresh(now) {
            look.unsettled = true;
            return;
        }
        let held = self.take(path, look).await;
        self.known.insert(path.to_owned(), Known { stamp, held, missing: false });
    }

    /// Reads a file and deploys what is in it.
    async fn take(&self, path: &Path, look: &mut Look) -> Held {
        let before = self.known.get(path).map(|known| &known.held);
        let shown = path.display().to_string();
        let loaded = match self.load(path, &shown).await {
            Ok(loaded) => loaded,
            Err(wrong) => {
                look.lines.push(wrong);
                return Held::Wrong;
            }
        };
        if matches!(before, Some(Held::Wrong)) {
            look.lines.push(format!("{shown} is in order again"));
        }
        let mut deployed = Vec::new();
        for document in loaded {
            let (name, hash) = (document.plan.name.to_string(), document.hash.to_string());
            let same = matches!(before, Some(Held::Deployed(held)) if held.contains(&(name.clone(), hash.clone())));
            if !same && let Err(error) = self.deploy(document, path, look).await {
                return self.refused(before, &shown, &error, look);
            }
            deployed.push((name, hash));
        }
        Held::Deployed(deployed)
    }

    async fn load(&self, path: &Path, shown: &str) -> Result<Vec<Loaded>, String> {
        let bytes = tokio::fs::read(path).await.map_err(|error| format!("{shown} cannot be read: {error}"))?;
        let source = String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8 text; save it as UTF-8"))?;
        document::load_all(&source, self.engine.limits())
            .map_err(|problems| BadDocument::new(shown, &source, problems).shown_on_stderr().trim_end().to_owned())
    }

    async fn deploy(&self, document: Loaded, path: &Path, look: &mut Look) -> Result<(), EngineError> {
        let plan = self.engine.deploy_loaded(document).await?;
        look.lines.push(format!("deployed {} (sha256:{})", plan.name, plan.hash));
        if let Some(other) = self.other_file(path, &plan.name) {
            look.lines.push(format!("{} is in {}, too; the one that changes last counts", plan.name, other.display()));
        }
        Ok(())
    }

    /// Another file that has a document of this name.
    fn other_file(&self, path: &Path, name: &str) -> Option<&Path> {
        let has =
            |known: &Known| matches!(&known.held, Held::Deployed(held) if held.iter().any(|(held, _)| held == name));
        self.known.iter().find(|(other, known)| *other != path && has(known)).map(|(other, _)| other.as_path())
    }

    /// What is tried again and again is told once.
    fn refused(&self, before: Option<&Held>, shown: &str, error: &EngineError, look: &mut Look) -> Held {
        let reason = error.to_string();
        if !matches!(before, Some(Held::Refused(told)) if *told == reason) {
            look.lines.push(format!("{shown} is not deployed: {reason}"));
        }
        Held::Refused(reason)
    }
}

impl Known {
    /// A file that is not there; at the second look it is gone.
    fn is_still_believed(&mut self, path: &Path, look: &mut Look) -> bool {
        let gone = std::mem::replace(&mut self.missing, true);
        if gone {
            look.lines.push(format!("{} was removed; {}", path.display(), self.what_stays()));
        }
        !gone
    }

    fn what_stays(&self) -> String {
        match &self.held {
            Held::Deployed(held) => {
                let names: Vec<&str> = held.iter().map(|(name, _)| name.as_str()).collect();
                format!("{} stays deployed", names.join(", "))
            }
            Held::Wrong | Held::Refused(_) => "what was deployed from it before stays deployed".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
