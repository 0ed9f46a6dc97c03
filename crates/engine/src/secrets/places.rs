//! Secrets that somebody else keeps: files of a folder, such as `/run/secrets`, and variables of this process.

use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::io::AsyncReadExt as _;
use zeroize::Zeroizing;

/// Bytes of a fingerprint that are shown.
const SHOWN: usize = 16;

/// What was found, and where it cannot be had: a text that says what to do.
pub(super) type Found = Result<Option<Zeroizing<String>>, String>;

/// A file of the folder, by the name of the secret; one line break at its end is cut. Nothing outside of the folder is read,
/// whatever a link points at.
pub(super) async fn in_folder(folder: &Path, name: &str, max_bytes: usize) -> Found {
    let Some(path) = inside(folder, name).await? else { return Ok(None) };
    let shown = path.display();
    let cannot = |error: std::io::Error| format!("the file {shown} cannot be read: {error}; check who may read it");
    let is_file = tokio::fs::metadata(&path).await.map_err(cannot)?.is_file();
    if !is_file {
        return Ok(None);
    }
    let mut bytes = Zeroizing::new(Vec::new());
    let file = tokio::fs::File::open(&path).await.map_err(cannot)?;
    file.take(max_bytes as u64 + 2).read_to_end(&mut bytes).await.map_err(cannot)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| format!("the file {shown} is not UTF-8; encode it, say in base64"))?;
    let text = cut_line_break(text);
    if text.len() > max_bytes {
        return Err(format!("the file {shown} has more than {max_bytes} bytes (secret_bytes)"));
    }
    Ok(Some(Zeroizing::new(text.to_owned())).filter(|text| !text.is_empty()))
}

/// Where a name leads to, all links followed; nothing if there is nothing.
async fn inside(folder: &Path, name: &str) -> Result<Option<PathBuf>, String> {
    let cannot = |path: &Path, error: std::io::Error| format!("{} cannot be read: {error}; check it", path.display());
    let folder = match tokio::fs::canonicalize(folder).await {
        Ok(folder) => folder,
        Err(error) => return Err(cannot(folder, error)),
    };
    // A name has no parts that lead upwards; links may.
    let path = folder.join(name);
    match tokio::fs::canonicalize(&path).await {
        Ok(real) if real.starts_with(&folder) => Ok(Some(real)),
        Ok(_) => {
            Err(format!("{} leads out of {}; put a file there instead of a link", path.display(), folder.display()))
        }
        Err(error) if matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(cannot(&path, error)),
    }
}

/// Without the line break that editors and `echo` leave.
#[must_use]
pub fn cut_line_break(text: &str) -> &str {
    text.strip_suffix("\r\n").or_else(|| text.strip_suffix('\n')).unwrap_or(text)
}

/// The variable `PREFIXAUDIO_API_KEY` for `audio/api-key`.
pub(super) fn variable(prefix: &str, name: &str) -> String {
    let char = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    prefix.chars().chain(name.chars().map(char)).collect()
}

pub(super) fn in_environment(prefix: &str, name: &str) -> Found {
    let variable = variable(prefix, name);
    match std::env::var(&variable) {
        Ok(value) => Ok(Some(Zeroizing::new(value)).filter(|value| !value.is_empty())),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(format!("the variable {variable} is not UTF-8; encode it")),
    }
}

/// Tells two values apart without telling either.
pub(super) fn fingerprint(key: &[u8], name: &str, value: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(&(name.len() as u64).to_be_bytes());
    mac.update(name.as_bytes());
    mac.update(value.as_bytes());
    mac.finalize().into_bytes()[..SHOWN].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(folder: &Path, name: &str) -> Result<Option<String>, String> {
        in_folder(folder, name, 100).await.map(|found| found.map(|text| text.to_string()))
    }

    #[tokio::test]
    async fn a_file_is_a_secret_without_its_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("audio")).unwrap();
        std::fs::write(folder.path().join("audio/api-key"), "hunter2\n\n").unwrap();
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        std::fs::write(folder.path().join("large"), "x".repeat(101)).unwrap();
        std::fs::write(folder.path().join("just"), "x".repeat(100) + "\r\n").unwrap();
        std::fs::write(folder.path().join("binary"), [255]).unwrap();
        let folder = folder.path();
        assert_eq!(read(folder, "audio/api-key").await, Ok(Some("hunter2\n".to_owned())));
        assert_eq!(read(folder, "just").await, Ok(Some("x".repeat(100))));
        for none in ["audio", "audio/other", "empty", "empty/more", "nothing"] {
            assert_eq!(read(folder, none).await, Ok(None), "{none}");
        }
        assert!(read(folder, "large").await.unwrap_err().contains("more than 100 bytes"));
        assert!(read(folder, "binary").await.unwrap_err().contains("not UTF-8"));
        assert!(read(&folder.join("gone"), "a").await.unwrap_err().contains("cannot be read"));
    }

    #[tokio::test]
    async fn links_lead_nowhere_but_within_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("secrets");
        std::fs::create_dir_all(folder.join("..data")).unwrap();
        std::fs::write(home.path().join("outside"), "hunter2").unwrap();
        std::fs::write(folder.join("..data/inside"), "fine").unwrap();
        let link = |to: &Path, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
        link(Path::new("../outside"), "up");
        link(&home.path().join("outside"), "away");
        link(home.path(), "all");
        link(Path::new("..data/inside"), "inside");
        assert_eq!(read(&folder, "inside").await, Ok(Some("fine".to_owned())));
        for name in ["up", "away", "all/outside"] {
            let refused = read(&folder, name).await.unwrap_err();
            assert!(refused.contains("leads out of"), "{name}: {refused}");
        }
    }

    #[test]
    fn a_variable_is_named_after_the_secret() {
        assert_eq!(variable("MILEPOST_SECRET_", "audio/api-key.v2"), "MILEPOST_SECRET_AUDIO_API_KEY_V2");
    }

    #[test]
    fn a_fingerprint_changes_with_the_value_and_the_key() {
        let one = fingerprint(b"key", "a", "hunter2");
        assert_eq!(one, fingerprint(b"key", "a", "hunter2"));
        let others = [
            fingerprint(b"key", "a", "hunter3"),
            fingerprint(b"yek", "a", "hunter2"),
            fingerprint(b"key", "ah", "unter2"),
        ];
        assert!(others.iter().all(|other| *other != one));
        assert_eq!(one.len(), 2 * SHOWN);
    }
}
