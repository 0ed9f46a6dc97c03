//! Files and folders that are one user's: nobody else may read or write what Milepost keeps.
//!
//! | made | mode |
//! |---|---|
//! | a folder | 0700 |
//! | a file | 0600 |
//! | what lies beside a database | the mode of the database, and its owner where root makes it, as SQLite does it with its own |
//!
//! What was made with the wider modes of another time is narrowed when it is opened, if everybody on the machine may do
//! something with it. A file that is open to its group alone was opened by somebody on purpose, and stays so.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// Bits of a mode.
const OWNER: u32 = 0o700;
const OTHERS: u32 = 0o007;

/// Makes a folder with all that is missing above it.
///
/// # Errors
/// It cannot be made.
pub fn make_folder(path: &Path) -> io::Result<()> {
    match path.as_os_str().is_empty() {
        true => Ok(()),
        false => DirBuilder::new().recursive(true).mode(OWNER).create(path),
    }
}

/// Makes an empty file where there is none.
///
/// # Errors
/// It cannot be made.
pub(crate) fn make_file(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takes from others what they may do with a file or folder, where that is ours to say. What is not there needs nothing.
pub fn narrow(path: &Path) {
    let Ok(found) = fs::metadata(path) else { return };
    if found.mode() & OTHERS != 0
        && let Err(error) = fs::set_permissions(path, Permissions::from_mode(found.mode() & OWNER))
    {
        tracing::debug!(path = %path.display(), %error, "others may use this, and that cannot be changed from here");
    }
}

/// Gives a file or a folder the mode and owner of a file that it lies beside.
pub(crate) fn liken(path: &Path, to: &Metadata) -> io::Result<()> {
    let found = fs::metadata(path)?;
    let mode = to.mode() & 0o666;
    // Whoever may read a folder may go into it.
    let mode = if found.is_dir() { mode | ((mode & 0o444) >> 2) } else { mode };
    if found.mode() & 0o777 != mode {
        fs::set_permissions(path, Permissions::from_mode(mode))?;
    }
    if (found.uid(), found.gid()) != (to.uid(), to.gid()) {
        // Only root can, and only what root makes is of use to nobody else.
        let _ = chown(path, Some(to.uid()), Some(to.gid()));
    }
    Ok(())
}

/// A new file for writing, with the mode and owner of a file that it lies beside. One that is there is emptied.
pub(crate) fn create_like(path: &Path, to: &Metadata) -> io::Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    liken(path, to)?;
    Ok(file)
}

/// Whether everybody on this machine may do something with a file or folder: not where they cannot come near it.
#[must_use]
pub fn open_to_all(path: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map_or(0, |found| found.mode());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    mode(path) & OTHERS != 0 && mode(folder) & 0o001 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("it is there").mode() & 0o777
    }

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    }

    #[test]
    fn what_is_made_is_the_users_own() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("a/b");
        make_folder(&folder).expect("made");
        make_folder(&folder).expect("there");
        make_folder(Path::new("")).expect("there");
        assert_eq!((mode(&folder), mode(&root.path().join("a"))), (0o700, 0o700));
        let file = folder.join("file");
        make_file(&file).expect("made");
        fs::write(&file, "kept").expect("written");
        make_file(&file).expect("there");
        assert_eq!((mode(&file), fs::read_to_string(&file).expect("read").as_str()), (0o600, "kept"));
    }

    #[test]
    fn what_is_open_to_all_is_narrowed_and_what_a_group_has_stays() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("file");
        fs::write(&file, "").expect("written");
        for (before, after) in [(0o644, 0o600), (0o666, 0o600), (0o755, 0o700), (0o660, 0o660), (0o400, 0o400)] {
            set(&file, before);
            narrow(&file);
            assert_eq!(mode(&file), after, "{before:o}");
        }
        narrow(&root.path().join("gone"));
    }

    #[test]
    fn what_lies_beside_a_database_is_as_open_as_it() {
        let root = tempfile::tempdir().expect("a folder");
        let (database, folder) = (root.path().join("db"), root.path().join("db.nodes"));
        fs::write(&database, "").expect("written");
        make_folder(&folder).expect("made");
        for (of_database, of_folder) in [(0o600, 0o700), (0o660, 0o770), (0o640, 0o750)] {
            set(&database, of_database);
            let like = fs::metadata(&database).expect("there");
            liken(&folder, &like).expect("ours");
            create_like(&folder.join("lock"), &like).expect("made");
            assert_eq!((mode(&folder), mode(&folder.join("lock"))), (of_folder, of_database));
        }
    }

    #[test]
    fn nobody_comes_near_what_is_in_a_closed_folder() {
        let root = tempfile::tempdir().expect("a folder");
        let file = root.path().join("file");
        fs::write(&file, "").expect("written");
        for (of_folder, of_file, open) in
            [(0o700, 0o644, false), (0o755, 0o644, true), (0o755, 0o600, false), (0o755, 0o660, false)]
        {
            set(root.path(), of_folder);
            set(&file, of_file);
            assert_eq!(open_to_all(&file), open, "{of_folder:o} {of_file:o}");
        }
    }
}
