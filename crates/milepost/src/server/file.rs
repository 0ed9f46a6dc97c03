//! `server.json`, in the data folder: how other commands in the same folder find the server that has it open.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const NAME: &str = "server.json";

/// What the file says.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Content {
    url: String,
    pid: u32,
}

/// The file, as long as the server answers. A later server of the same folder may write its own over it.
#[derive(Debug)]
pub(crate) struct ServerFile {
    path: PathBuf,
    content: Content,
}

impl ServerFile {
    /// Writes it in one go: who reads it sees all of it or nothing.
    pub(crate) fn write(folder: &Path, url: &str) -> io::Result<ServerFile> {
        std::fs::create_dir_all(folder)?;
        let content = Content { url: url.to_owned(), pid: std::process::id() };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_there_as_long_as_its_server() {
        let folder = tempfile::tempdir().unwrap();
        let file = ServerFile::write(&folder.path().join("new"), "http://127.0.0.1:7400").unwrap();
        let path = folder.path().join("new").join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{{\"url\":\"http://127.0.0.1:7400\",\"pid\":{}}}", std::process::id()));
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn that_of_another_server_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let first = ServerFile::write(folder.path(), "http://127.0.0.1:1").unwrap();
        let second = ServerFile::write(folder.path(), "http://127.0.0.1:2").unwrap();
        drop(first);
        assert!(second.path.exists());
    }
}
