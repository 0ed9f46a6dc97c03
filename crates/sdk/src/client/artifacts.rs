//! Files that runs leave: listed, recorded, uploaded and downloaded.
//!
//! **Invariant:** what is uploaded is compared with its hash by the server, what is downloaded by this side; a file that is
//! downloaded has its name only when it is whole.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{StreamExt as _, TryStreamExt as _};
use reqwest::{Body, Method, StatusCode};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use uuid::Uuid;

use super::Client;
use crate::error::Error;
use crate::wire::{Artifact, Blob, NewArtifact, Page, RunId};

/// Read at once.
const PIECE: usize = 256 * 1024;
/// A file of the largest size over a slow line.
const TRANSFER: Duration = Duration::from_secs(24 * 3600);

/// Which artifacts of a run.
#[derive(Clone, Debug, Default)]
pub struct ArtifactFilter {
    pub step_id: Option<String>,
    pub kind: Option<String>,
    /// The `next_cursor` of the page before.
    pub cursor: Option<String>,
    pub limit: Option<u32>,
}

#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<&'a str>,
    #[serde(flatten)]
    artifact: &'a NewArtifact,
}

impl Client {
    /// A page of the files that a run left.
    ///
    /// # Errors
    /// There is no such run or step, or the server does not answer.
    pub async fn artifacts(&self, run: RunId, filter: &ArtifactFilter) -> Result<Page<Artifact>, Error> {
        let ArtifactFilter { step_id, kind, cursor, limit } = filter.clone();
        let limit = limit.map(|limit| limit.to_string());
        let given = [("step", step_id), ("kind", kind), ("cursor", cursor), ("limit", limit)];
        let query: Vec<(&str, String)> = given.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        self.get(&["runs", &run.to_string(), "artifacts"], &query).await
    }

    /// Records a file of a run, or of one of its steps. The same content of the same kind and `training_step` is recorded once.
    ///
    /// # Errors
    /// There is no such run or step, its content is not there, or the server does not answer.
    pub async fn record_artifact(
        &self,
        run: RunId,
        step_id: Option<&str>,
        artifact: &NewArtifact,
    ) -> Result<Artifact, Error> {
        let record = Record { step_id, artifact };
        Ok(self.post(&["runs", &run.to_string(), "artifacts"], &record).await?.1)
    }

    /// How many bytes some content has that the server has; `None` if it has none with that hash.
    ///
    /// # Errors
    /// The server does not answer.
    pub async fn blob_size(&self, sha256: &str) -> Result<Option<u64>, Error> {
        let request = self.request(Method::HEAD, &["blobs", &format!("sha256:{sha256}")], &[]);
        let lost = |error: reqwest::Error| Error::unreachable(&self.inner.url, &error);
        let answer = request.timeout(super::TIMEOUT).send().await.map_err(lost)?;
        match answer.status() {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                let length = answer.headers().get(reqwest::header::CONTENT_LENGTH);
                Ok(length.and_then(|length| length.to_str().ok()?.parse().ok()))
            }
            _ => Err(self.refused(answer).await),
        }
    }

    /// Uploads bytes; what the server has already is not sent.
    ///
    /// # Errors
    /// They are too many, or the server does not answer.
    pub async fn upload_bytes(&self, content: impl Into<Bytes>) -> Result<Blob, Error> {
        let content: Bytes = content.into();
        let sha256 = hex(&Sha256::digest(&content));
        let size = content.len() as u64;
        if let Some(there) = self.there(&sha256, size).await? {
            return Ok(there);
        }
        self.put_blob(&sha256, size, content.into()).await
    }

    /// Uploads a file piece by piece. It is read twice: once for its hash, as what the server has already is not sent.
    ///
    /// # Errors
    /// It cannot be read, changed meanwhile, or the server does not answer.
    pub async fn upload_file(&self, path: impl AsRef<Path>) -> Result<Blob, Error> {
        let path = path.as_ref();
        let unreadable = |error: std::io::Error| Error::file(path, &error);
        let (sha256, size) = hash_of(path).await.map_err(unreadable)?;
        if let Some(there) = self.there(&sha256, size).await? {
            return Ok(there);
        }
        let pieces = pieces_of(File::open(path).await.map_err(unreadable)?);
        self.put_blob(&sha256, size, Body::wrap_stream(pieces)).await
    }

    async fn there(&self, sha256: &str, size: u64) -> Result<Option<Blob>, Error> {
        let found = self.blob_size(sha256).await?.filter(|found| *found == size);
        Ok(found.map(|size_bytes| Blob { sha256: sha256.to_owned(), size_bytes, uri: uri_of(sha256) }))
    }

    async fn put_blob(&self, sha256: &str, size: u64, body: Body) -> Result<Blob, Error> {
        let request = self.request(Method::PUT, &["blobs", &format!("sha256:{sha256}")], &[]);
        let request = request.header(reqwest::header::CONTENT_LENGTH, size).body(body);
        let answer = self.send_within(request, TRANSFER).await?;
        self.read(&answer.1)
    }

    /// The pieces of some content, or of anything that the server answers with. What comes is not compared with anything.
    ///
    /// # Errors
    /// There is none, or the server does not answer.
    pub async fn download_pieces(&self, path: &[&str]) -> Result<BoxStream<'static, Result<Bytes, Error>>, Error> {
        let url = self.inner.url.clone();
        let request = self.request(Method::GET, path, &[]).timeout(TRANSFER);
        let answer = request.send().await.map_err(|error| Error::unreachable(&url, &error))?;
        if !answer.status().is_success() {
            return Err(self.refused(answer).await);
        }
        Ok(answer.bytes_stream().map_err(move |error| Error::unreachable(&url, &error)).boxed())
    }

    /// Downloads content by its hash into a file, and compares. Answers how many bytes it has.
    ///
    /// # Errors
    /// There is none, what comes has another hash, or the file cannot be written.
    pub async fn download_blob(&self, sha256: &str, to: impl AsRef<Path>) -> Result<u64, Error> {
        let pieces = self.download_pieces(&["blobs", &format!("sha256:{sha256}")]).await?;
        save(pieces, Some(sha256), to.as_ref()).await
    }

    /// Downloads a file of a run, and compares it with its hash. Answers how many bytes it has.
    ///
    /// # Errors
    /// It is not there, or somewhere else, or the file cannot be written.
    pub async fn download_artifact(&self, artifact: &Artifact, to: impl AsRef<Path>) -> Result<u64, Error> {
        let (run, id): (String, Uuid) = (artifact.run_id.to_string(), artifact.artifact_id);
        let pieces = self.download_pieces(&["runs", &run, "artifacts", &id.to_string(), "content"]).await?;
        save(pieces, artifact.sha256.as_deref(), to.as_ref()).await
    }
}

fn uri_of(sha256: &str) -> String {
    format!("milepost://blobs/sha256/{sha256}")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

async fn hash_of(path: &Path) -> std::io::Result<(String, u64)> {
    let (mut hasher, mut size) = (Sha256::new(), 0);
    let mut pieces = pieces_of(File::open(path).await?);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        size += piece.len() as u64;
        hasher.update(&piece);
    }
    Ok((hex(&hasher.finalize()), size))
}

fn pieces_of(file: File) -> BoxStream<'static, std::io::Result<Bytes>> {
    let read = |mut file: File| async move {
        let mut piece = Vec::with_capacity(PIECE);
        let read = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await?;
        std::io::Result::Ok((read > 0).then(|| (Bytes::from(piece), file)))
    };
    futures::stream::try_unfold(file, read).boxed()
}

/// Writes pieces to a file beside, which gets its name when it is whole.
pub(crate) async fn save(
    mut pieces: BoxStream<'static, Result<Bytes, Error>>,
    sha256: Option<&str>,
    to: &Path,
) -> Result<u64, Error> {
    let failed = |error: std::io::Error| Error::file(to, &error);
    let mut name = to.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", Uuid::now_v7().simple()));
    let part = Removed(to.with_file_name(name));
    let mut file = File::create(&part.0).await.map_err(failed)?;
    let (mut hasher, mut size) = (Sha256::new(), 0);
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        size += piece.len() as u64;
        hasher.update(&piece);
        file.write_all(&piece).await.map_err(failed)?;
    }
    file.sync_all().await.map_err(failed)?;
    let found = hex(&hasher.finalize());
    if let Some(expected) = sha256.filter(|expected| **expected != found) {
        return Err(Error::Damaged { expected: expected.to_owned(), found });
    }
    tokio::fs::rename(&part.0, to).await.map_err(failed)?;
    Ok(size)
}

/// A file that goes unless it has got its name.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
