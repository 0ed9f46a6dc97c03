//! Which documents lie in the folders that are watched, and when each was changed.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// A folder with more documents than this is not one of documents; looking at all of it twice a second would be a load.
const MOST: usize = 2_000;
/// Deeper than this lies nothing that somebody wrote by hand.
const DEEPEST: usize = 32;
/// Who writes a file may be about to write more of it.
const SETTLES_AFTER: Duration = Duration::from_millis(100);

/// What tells one state of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    modified: SystemTime,
    size: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Stamp {
        Stamp { modified: metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), size: metadata.len() }
    }

    /// Whether it was changed a moment ago. A moment in the future is a wrong clock, and no reason to wait for it.
    pub(super) fn is_fresh(&self, now: SystemTime) -> bool {
        now.duration_since(self.modified).is_ok_and(|age| age < SETTLES_AFTER)
    }
}

/// What is there now.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: BTreeMap<PathBuf, Stamp>,
    /// There are more than are looked at.
    pub(super) too_many: bool,
}

/// Whether a folder or file can be watched at all.
pub(super) fn check(root: &Path) -> io::Result<()> {
    match fs::metadata(root)?.is_dir() {
        true => fs::read_dir(root).map(drop),
        false => fs::File::open(root).map(drop),
    }
}

/// The documents in these folders, and the files that are named themselves, whatever they are called.
pub(super) fn find(roots: &[PathBuf]) -> Found {
    let mut found = Found::default();
    for root in roots {
        match fs::metadata(root) {
            Ok(metadata) if metadata.is_dir() => walk(root, 0, &mut found),
            Ok(metadata) => drop(found.files.insert(root.clone(), Stamp::of(&metadata))),
            // It has gone, or is being replaced.
            Err(_) => {}
        }
    }
    found
}

fn walk(folder: &Path, depth: usize, found: &mut Found) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| !is_hidden(&entry.file_name())) {
        if found.files.len() >= MOST {
            found.too_many = true;
            return;
        }
        let path = entry.path();
        // A link to a folder is not followed: it may lead back here.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if depth < DEEPEST {
                walk(&path, depth + 1, found);
            }
        } else if is_document(&path)
            && let Ok(metadata) = fs::metadata(&path)
            && metadata.is_file()
        {
            found.files.insert(path, Stamp::of(&metadata));
        }
    }
}

fn is_hidden(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn is_document(path: &Path) -> bool {
    path.extension().and_then(OsStr::to_str).is_some_and(|extension| matches!(extension, "yaml" | "yml" | "json"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_found_in_folders_but_not_in_hidden_ones() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a.yaml", "b.yml", "deep/er/c.json", ".git/d.yaml", ".e.yaml", "f.txt", "named"] {
            fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
            fs::write(root.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink(root, root.join("deep/loop")).unwrap();
        let found = find(&[root.to_owned(), root.join("named"), root.join("gone")]);
        let names: Vec<_> = found.files.keys().map(|path| path.strip_prefix(root).unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["a.yaml", "b.yml", "deep/er/c.json", "named"]);
        assert!(!found.too_many);
        assert!(check(root).is_ok() && check(&root.join("named")).is_ok() && check(&root.join("gone")).is_err());
    }

    #[test]
    fn a_file_that_was_written_a_moment_ago_is_fresh() {
        let stamp = Stamp { modified: SystemTime::UNIX_EPOCH + Duration::from_secs(10), size: 1 };
        assert!(stamp.is_fresh(stamp.modified + Duration::from_millis(99)));
        assert!(!stamp.is_fresh(stamp.modified + Duration::from_millis(100)));
        assert!(!stamp.is_fresh(stamp.modified - Duration::from_secs(1)));
    }
}
