//! `server.json`, in the data folder: how other commands in the same folder find the server that has it open.
//!
//! A folder may come from anybody: out of a repository, or from another user of this machine. So whoever reads the file
//! believes it only where the reader's own user wrote it, and only if it names a server of that user on this machine.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use milepost_api::sockets;
use reqwest::Url;
use serde::{Deserialize, Serialize};

use crate::files;

pub(crate) const NAME: &str = "server.json";
/// One that is larger is no such file.
const BYTES: u64 = 64 * 1024;
const ROOT: u32 = 0;
/// Bits of a mode: who else may write.
const OTHERS_WRITE: u32 = 0o022;

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Content {
    pub(crate) url: String,
    #[serde(default)]
    pid: u32,
    /// What the server knows its own user by, where nothing else tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
}

/// The file, as long as the server answers. A later server of the same folder may write its own over it.
#[derive(Debug)]
pub(crate) struct ServerFile {
    path: PathBuf,
    content: Content,
}

impl ServerFile {
    /// Writes it in one go: who reads it sees all of it or nothing. Nobody else may read it.
    pub(crate) fn write(folder: &Path, url: &str, token: Option<&str>) -> io::Result<ServerFile> {
        files::make_folder(folder)?;
        let content = Content { url: url.to_owned(), pid: std::process::id(), token: token.map(ToOwned::to_owned) };
        let path = folder.join(NAME);
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        new.write_all(serde_json::to_string(&content)?.as_bytes())?;
        new.persist(&path)?;
        Ok(ServerFile { path, content })
    }
}

impl Drop for ServerFile {
    fn drop(&mut self) {
        let read = std::fs::read_to_string(&self.path).ok();
        let found: Option<Content> = read.and_then(|text| serde_json::from_str(&text).ok());
        if found.as_ref() == Some(&self.content) {
            // If it stays, whoever reads it finds that nobody answers there.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// What the file in a folder says, if it is there.
///
/// # Errors
/// Why it is not believed.
pub(crate) fn read(folder: &Path) -> Result<Option<Content>, String> {
    let path = folder.join(NAME);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("it cannot be read ({error})")),
    };
    let me = rustix::process::geteuid().as_raw();
    let looked_at = |entry: io::Result<Metadata>, what: &str| match entry {
        Ok(entry) => check_owner(what, &entry, me),
        Err(error) => Err(format!("{what} cannot be looked at ({error})")),
    };
    looked_at(file.metadata(), "it")?;
    looked_at(std::fs::metadata(folder), "its folder")?;
    let mut text = String::new();
    file.take(BYTES).read_to_string(&mut text).map_err(|error| format!("it cannot be read ({error})"))?;
    let content: Content = serde_json::from_str(&text).map_err(|_| "it is no note of a server".to_owned())?;
    let address = loopback(&content.url)
        .ok_or_else(|| format!("it names {}, which is no loopback address of this machine", content.url))?;
    check_listener(address)?;
    Ok(Some(content))
}

/// Whether the reader's own user, or root, is known to listen there.
///
/// # Errors
/// Another user of this machine listens there.
pub(crate) fn check_listener(address: SocketAddr) -> Result<bool, String> {
    let me = rustix::process::geteuid().as_raw();
    match sockets::listener_owner(address) {
        Some(owner) if owner != me && owner != ROOT => {
            Err(format!("user {owner} of this machine listens at {address} and not you, user {me}"))
        }
        owner => Ok(owner.is_some()),
    }
}

fn check_owner(what: &str, entry: &Metadata, me: u32) -> Result<(), String> {
    match entry {
        entry if entry.uid() != me => Err(format!("{what} belongs to user {} and not to you, user {me}", entry.uid())),
        entry if entry.mode() & OTHERS_WRITE != 0 => Err(format!("others may write to {what} (chmod go-w)")),
        _ => Ok(()),
    }
}

/// Where such a URL leads, if that is this machine.
fn loopback(url: &str) -> Option<SocketAddr> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"))?;
    // IPv6 addresses stand in brackets.
    let ip: IpAddr = url.host_str()?.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let is_plain = url.username().is_empty() && url.password().is_none();
    (is_plain && ip.to_canonical().is_loopback()).then_some(SocketAddr::new(ip, url.port_or_known_default()?))
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_there_as_long_as_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::write(&folder.path().join("new"), "http://127.0.0.1:7400", None).unwrap();
        let path = folder.path().join("new").join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{{\"url\":\"http://127.0.0.1:7400\",\"pid\":{}}}", std::process::id()));
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn that_of_another_server_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = ServerFile::write(folder.path(), "http://127.0.0.1:1", None).unwrap();
        let second = ServerFile::write(folder.path(), "http://127.0.0.1:2", None).unwrap();
        drop(first);
        assert!(second.path.exists());
    }

    #[test]
    fn it_is_believed_if_nobody_else_can_have_written_it() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), Ok(None));
        let file = ServerFile::write(folder.path(), "http://127.0.0.1:1", Some("mp_1")).unwrap();
        assert_eq!(read(folder.path()), Ok(Some(file.content.clone())));
        let path = folder.path().join(NAME);
        for (entry, narrow, wide, what) in
            [(&path, 0o600, 0o620, "others may write to it"), (&path, 0o600, 0o602, "others may write to it")]
                .into_iter()
                .chain([(&folder.path().to_owned(), 0o700, 0o777, "others may write to its folder")])
        {
            std::fs::set_permissions(entry, Permissions::from_mode(wide)).unwrap();
            let why = read(folder.path()).unwrap_err();
            assert!(why.starts_with(what), "{why}");
            std::fs::set_permissions(entry, Permissions::from_mode(narrow)).unwrap();
            assert!(read(folder.path()).is_ok());
        }
        let other = check_owner("it", &std::fs::metadata(&path).unwrap(), rustix::process::geteuid().as_raw() + 1);
        assert!(other.unwrap_err().starts_with("it belongs to user "));
    }

    #[test]
    fn it_names_a_server_of_this_machine_or_none() {
        for url in ["http://127.0.0.1:7400", "http://127.8.0.1:1/", "https://[::1]:7400", "http://[::ffff:127.0.0.1]:1"]
        {
            assert!(loopback(url).is_some(), "{url}");
        }
        for url in [
            "http://10.0.0.1:7400",
            "http://evil.example:7400",
            "http://127.0.0.1.evil.example:7400",
            "http://user@127.0.0.1:7400",
            "http://127.0.0.1@evil.example",
            "http://localhost:7400",
            "ftp://127.0.0.1",
            "127.0.0.1:7400",
            "",
        ] {
            assert_eq!(loopback(url), None, "{url}");
        }
        let folder = tempfile::tempdir().unwrap();
        let _file = ServerFile::write(folder.path(), "http://evil.example:7400", None).unwrap();
        assert!(
            read(folder.path()).unwrap_err().starts_with("it names http://evil.example:7400, which is no loopback")
        );
    }
}
