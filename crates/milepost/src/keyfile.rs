//! Files with keys for secrets: read, and made where there is none.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use milepost_engine::secrets::Keyring;

use crate::files;
use crate::output::error::Refusal;

/// The name of such a file in a folder with a database.
pub(crate) const NAME: &str = "secrets.key";
/// Whoever else can read it can read all secrets.
const OWNER_ONLY: u32 = 0o600;

/// The keys in a file, the first of which seals.
pub(crate) fn read(path: &Path) -> Result<Keyring, Refusal> {
    let shown = path.display();
    let bad = |why: String| Refusal::new("bad_config", format!("the key file {shown} {why}"));
    let text = std::fs::read_to_string(path).map_err(|error| {
        bad(format!(
            "cannot be read: {error}; check its path, or make one with `milepost secrets keygen --out {shown}`"
        ))
    })?;
    let keys: Keyring = text.parse().map_err(|error| bad(format!("is none: {error}")))?;
    if keys.is_empty() {
        return Err(bad("is empty; `milepost secrets keygen` makes a key".to_owned()));
    }
    check_who_may_use(path).map_err(bad)?;
    Ok(keys)
}

/// A file with secrets is refused where everybody on this machine may use it. What its group may read is somebody's choice:
/// so a container's runtime hands secrets over. It is told where it can be changed from here.
///
/// # Errors
/// What is wrong with it, and what to do.
pub(crate) fn check_who_may_use(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let file = std::fs::metadata(path).map_err(|error| format!("cannot be looked at: {error}; check its path"))?;
    if file.mode() & 0o007 != 0 {
        return Err(format!(
            "has secrets in it, and every user of this machine may use it; chmod 600 {shown} (mounted: with mode 0400 or 0440)"
        ));
    }
    if file.mode() & 0o070 != 0 && file.uid() == rustix::process::geteuid().as_raw() {
        tracing::warn!(file = %shown, "the group of this file may read secrets in it; use chmod 600");
    }
    Ok(())
}

/// The same, where there need be none.
pub(crate) fn read_if_there(path: &Path) -> Result<Keyring, Refusal> {
    if path.exists() { read(path) } else { Ok(Keyring::default()) }
}

/// Writes a new key to a file that is not there yet.
pub(crate) fn make(path: &Path) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(OWNER_ONLY).open(path)?;
    file.write_all(format!("{}\n", *Keyring::generate()).as_bytes())?;
    file.sync_all()
}

/// The keys in a file, which is made where there is none.
pub(crate) fn read_or_make(path: &Path) -> Result<Keyring, Refusal> {
    let cannot = |error: std::io::Error| {
        let shown = path.display();
        Refusal::new("bad_config", format!("the key file {shown} cannot be made: {error}; check who may write there"))
    };
    if let Some(folder) = path.parent() {
        files::make_folder(folder).map_err(cannot)?;
    }
    match make(path) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(cannot(error)),
        _ => read(path),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new").join(NAME);
        assert!(read_if_there(&path).unwrap().is_empty());
        let keys = read_or_make(&path).unwrap();
        assert_eq!(read_or_make(&path).unwrap().first_id(), keys.first_id());
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY);
        assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(make(&path).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    }

    #[test]
    fn a_key_that_everybody_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        make(&path).unwrap();
        for (mode, is_refused) in [(0o600, false), (0o440, false), (0o644, true), (0o602, true), (0o444, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = read(&path).err().map(|refusal| refusal.to_string());
            assert_eq!(refused.is_some(), is_refused, "{mode:o}");
            assert!(refused.is_none_or(|text| text.contains(&format!("; chmod 600 {}", path.display()))), "{mode:o}");
        }
    }

    #[test]
    fn what_is_no_key_is_told_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(NAME);
        for text in ["hunter2", "", "# nothing\n"] {
            std::fs::write(&path, text).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains("secrets keygen") && !refused.contains("hunter2"), "{refused}");
        }
        assert!(read(&folder.path().join("gone")).unwrap_err().to_string().contains("cannot be read"));
    }
}
