//! Artifacts: files that steps leave, as references. Their content is elsewhere, in our own blob store or in somebody
//! else's.
//!
//! **Invariant:** a reference to our own content is by its hash: the same address is the same bytes for ever.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::hash::Digest;
use crate::id::{ArtifactId, RunId};
use crate::json::Json;
use crate::limits::Limits;
use crate::run::{Rejection, RejectionKind};
use crate::text::check_name;
use crate::time::Timestamp;

/// What addresses of our own content begin with; the hash follows.
pub const BLOB_URI: &str = "milepost://blobs/sha256/";
/// The kind of an artifact that says none.
pub const CUSTOM: &str = "custom";
/// The kind of an output that is too large for the log.
pub const OUTPUT: &str = "output";

/// Characters of an address.
const URI_CHARS: usize = 2048;
/// Integers beyond it do not mean the same everywhere.
const MAX_STEP: u64 = crate::canonical::MAX_SAFE_INTEGER;

/// A file that a run left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    #[serde(rename = "artifact_id")]
    pub id: ArtifactId,
    /// `checkpoint`, `policy`, `replay`, `evaluation`, `log_bundle`, `custom`, `output`, or a name of the user's own.
    pub kind: String,
    pub uri: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    /// At which step of a training it was made: a run has one artifact of a kind for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_step: Option<i64>,
    /// An object.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub metadata: Json,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

#[must_use]
pub fn nothing() -> Json {
    Json::trusted("{}")
}

fn is_nothing(metadata: &Json) -> bool {
    metadata.as_str() == "{}"
}

/// Content in our own blob store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    pub sha256: Digest,
    pub size_bytes: u64,
}

/// What a result has beyond an output in the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beyond {
    /// Where the output is, if it is too large for the log; one of the artifacts is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_blob: Option<BlobRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Those of the result that the run has recorded before, by other events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recorded: Vec<Artifact>,
}

impl Beyond {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.output_blob.is_none() && self.artifacts.is_empty() && self.recorded.is_empty()
    }

    /// The artifacts of the result, in the order in which they were reported. The output is not one of them, wherever it is.
    pub fn result(&self) -> impl Iterator<Item = &Artifact> {
        let output = self.output_blob.map(|blob| blob.sha256);
        let is_output =
            move |artifact: &&Artifact| output.is_some() && artifact.kind == OUTPUT && artifact.sha256 == output;
        self.recorded.iter().chain(&self.artifacts).filter(move |artifact| !is_output(artifact))
    }

    /// What tells the artifacts of this result from those of another: their kinds, names and contents. What is known by its
    /// address alone is told by that. `None`: it has none.
    #[must_use]
    pub fn artifacts_digest(&self) -> Option<Digest> {
        let told = |artifact: &Artifact| {
            let content = artifact.sha256.map_or_else(|| artifact.uri.clone(), |hash| hash.to_string());
            let step = artifact.training_step.map(|step| step.to_string()).unwrap_or_default();
            [artifact.kind.clone(), artifact.name(), step, content]
        };
        let told: BTreeSet<[String; 4]> = self.result().map(told).collect();
        (!told.is_empty()).then(|| Digest::of_parts(told.iter().flatten().map(String::as_bytes)))
    }

    /// The same for another run, which has recorded nothing of it.
    #[must_use]
    pub fn for_others(mut self) -> Beyond {
        self.recorded.append(&mut self.artifacts);
        Beyond { output_blob: self.output_blob, artifacts: self.recorded, recorded: Vec::new() }
    }

    /// The content in our own blob store that it needs, each once.
    #[must_use]
    pub fn blobs(&self) -> BTreeSet<Digest> {
        let output = self.output_blob.map(|blob| blob.sha256);
        self.artifacts.iter().filter_map(Artifact::blob).chain(output).collect()
    }

    /// Roughly how many bytes it takes in the log.
    #[must_use]
    pub fn size(&self) -> usize {
        self.artifacts.iter().chain(&self.recorded).map(Artifact::weight).sum()
    }
}

impl Artifact {
    /// The content in our own blob store that it stands for.
    #[must_use]
    pub fn blob(&self) -> Option<Digest> {
        blob_of(&self.uri)
    }

    /// Roughly how many bytes it takes.
    #[must_use]
    pub fn weight(&self) -> usize {
        200 + self.uri.len() + self.metadata.len()
    }

    /// What expressions call it among those of its kind: by its file's name, else by its step of a training, else by its kind.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.filename, self.training_step) {
            (Some(name), _) => name.clone(),
            (None, Some(step)) => step.to_string(),
            (None, None) => self.kind.clone(),
        }
    }

    /// Whether both are one file under one name.
    #[must_use]
    pub fn is_the_same(&self, other: &Artifact) -> bool {
        let told = |artifact: &Artifact| (artifact.training_step, artifact.sha256);
        told(self) == told(other)
            && (&self.kind, &self.filename, &self.uri) == (&other.kind, &other.filename, &other.uri)
    }

    /// What it is, told from other artifacts of the same kind and step: the same is recorded once.
    #[must_use]
    pub fn identity(&self) -> [u8; 16] {
        let content = self.sha256.map(|hash| hash.to_string()).unwrap_or_default();
        let parts = [self.uri.as_bytes(), content.as_bytes()];
        let mut identity = [0; 16];
        identity.copy_from_slice(&Digest::of_parts(parts).0[..16]);
        identity
    }
}

/// The address of our own content.
#[must_use]
pub fn uri_of(sha256: Digest) -> String {
    format!("{BLOB_URI}{sha256}")
}

fn blob_of(uri: &str) -> Option<Digest> {
    uri.strip_prefix(BLOB_URI)?.parse().ok()
}

/// An artifact as somebody reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewArtifact {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Where the content is. May be left out for content in our blob store, which `sha256` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filename: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub training_step: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl NewArtifact {
    /// What is recorded of it. Whether our blob store has the content is for the caller to find out.
    ///
    /// # Errors
    /// It does not fit; the message says what to correct.
    pub fn check(self, id: ArtifactId, limits: &Limits) -> Result<Artifact, Rejection> {
        let kind = self.kind.unwrap_or_else(|| CUSTOM.to_owned());
        named("kind", Some(&kind), limits.name_chars)?;
        named("media_type", self.media_type.as_deref(), limits.name_chars)?;
        named("filename", self.filename.as_deref(), limits.name_chars)?;
        let (uri, sha256) = addressed(self.uri, self.sha256)?;
        if self.training_step.is_some_and(|step| step.unsigned_abs() > MAX_STEP) {
            return Err(bad(format!("`training_step` is beyond {MAX_STEP}; count in larger steps")));
        }
        let metadata = self.metadata.unwrap_or_else(nothing);
        if metadata.len() > limits.artifact_metadata_bytes {
            let (bytes, limit) = (metadata.len(), limits.artifact_metadata_bytes);
            return Err(bad(format!("`metadata` has {bytes} bytes, the limit is {limit}; put the rest into a file")));
        }
        if !metadata.as_str().trim_start().starts_with('{') {
            return Err(bad("`metadata` is an object; give its values names"));
        }
        crate::canonical::parse_within(metadata.as_str(), limits)
            .map_err(|error| bad(format!("`metadata`: {error}")))?;
        Ok(Artifact {
            id,
            kind,
            uri,
            sha256,
            size_bytes: self.size_bytes,
            media_type: self.media_type,
            filename: self.filename,
            training_step: self.training_step,
            metadata,
            expires_at: self.expires_at,
        })
    }
}

/// An address and a hash that agree.
fn addressed(uri: Option<String>, sha256: Option<Digest>) -> Result<(String, Option<Digest>), Rejection> {
    let Some(uri) = uri else {
        let sha256 = sha256.ok_or_else(|| bad("an artifact has a `sha256` that was uploaded, or a `uri`; give one"))?;
        return Ok((uri_of(sha256), Some(sha256)));
    };
    check_name("`uri`", &uri, URI_CHARS, "bad_artifact")?;
    if uri.starts_with("milepost:") {
        let own = blob_of(&uri).ok_or_else(|| bad(format!("addresses of our own are {BLOB_URI} and a hash")))?;
        return match sha256.is_none_or(|given| given == own) {
            true => Ok((uri_of(own), Some(own))),
            false => Err(bad("`uri` and `sha256` name different content; leave one of them out")),
        };
    }
    let scheme = uri.split_once("://").map(|(scheme, _)| scheme).unwrap_or_default();
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    match is_scheme {
        true => Ok((uri, sha256)),
        false => Err(bad("`uri` is a whole address, as in s3://bucket/file or https://host/file")),
    }
}

fn named(field: &str, text: Option<&str>, most: usize) -> Result<(), Rejection> {
    let Some(text) = text else { return Ok(()) };
    check_name(&format!("`{field}`"), text, most, "bad_artifact")
}

fn bad(message: impl Into<String>) -> Rejection {
    Rejection::new(RejectionKind::Invalid, "bad_artifact", message)
}

impl ArtifactId {
    /// Of an artifact that a request with an idempotency key records: the same key is the same artifact. Looks like a UUIDv7
    /// of the moment its run was made.
    #[must_use]
    pub fn of_request(run: RunId, key: &str) -> ArtifactId {
        let digest = Digest::of_parts([b"milepost.artifact".as_slice(), run.0.as_bytes(), key.as_bytes()]);
        let mut bytes = *run.0.as_bytes();
        bytes[8..].copy_from_slice(&digest.0[..8]);
        ArtifactId(uuid::Builder::from_bytes(bytes).with_variant(uuid::Variant::RFC4122).into_uuid())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: ArtifactId = ArtifactId(uuid::Uuid::nil());

    fn checked(new: NewArtifact) -> Result<Artifact, String> {
        new.check(ID, &Limits::default()).map_err(|rejection| {
            assert_eq!(rejection.code, "bad_artifact");
            rejection.message
        })
    }

    #[test]
    fn content_of_our_own_is_named_by_its_hash() {
        let hash = Digest::of(b"x");
        let artifact = checked(NewArtifact { sha256: Some(hash), ..NewArtifact::default() }).unwrap();
        assert_eq!(
            (artifact.kind.as_str(), artifact.uri.clone()),
            ("custom", format!("milepost://blobs/sha256/{hash}"))
        );
        assert_eq!((artifact.blob(), artifact.sha256), (Some(hash), Some(hash)));
        let by_uri = NewArtifact { uri: Some(artifact.uri.clone()), ..NewArtifact::default() };
        assert_eq!(checked(by_uri.clone()).unwrap(), artifact);
        let other = NewArtifact { sha256: Some(Digest::of(b"y")), ..by_uri };
        assert!(checked(other).unwrap_err().contains("different content"));
    }

    #[test]
    fn content_of_others_is_named_by_its_address() {
        let new = NewArtifact { uri: Some("s3://bucket/a b".to_owned()), ..NewArtifact::default() };
        let artifact = checked(new).unwrap();
        assert_eq!((artifact.blob(), artifact.sha256, artifact.uri.as_str()), (None, None, "s3://bucket/a b"));
    }

    #[test]
    fn what_does_not_fit_is_told() {
        let of = |uri: &str| NewArtifact { uri: Some(uri.to_owned()), ..NewArtifact::default() };
        for uri in ["", "a/b", "javascript:alert(1)", "milepost://blobs/sha256/ab", "1x://y", "s3://a\n"] {
            assert!(checked(of(uri)).is_err(), "{uri}");
        }
        assert!(checked(NewArtifact::default()).unwrap_err().contains("sha256"));
        let fine = || of("s3://b/x");
        assert!(checked(NewArtifact { kind: Some(String::new()), ..fine() }).is_err());
        assert!(checked(NewArtifact { filename: Some("a\nb".to_owned()), ..fine() }).is_err());
        assert!(checked(NewArtifact { training_step: Some(i64::MAX), ..fine() }).is_err());
        assert!(checked(NewArtifact { metadata: Some(Json::trusted("[]")), ..fine() }).is_err());
        let long = Json::trusted(format!("{{\"a\":\"{}\"}}", "x".repeat(20_000)));
        assert!(checked(NewArtifact { metadata: Some(long), ..fine() }).unwrap_err().contains("the limit is"));
    }

    #[test]
    fn an_artifact_is_written_with_what_it_has() {
        let artifact = checked(NewArtifact { uri: Some("s3://b/x".to_owned()), ..NewArtifact::default() }).unwrap();
        let text = serde_json::to_string(&artifact).unwrap();
        assert_eq!(text, format!(r#"{{"artifact_id":"{ID}","kind":"custom","uri":"s3://b/x"}}"#));
        assert_eq!(serde_json::from_str::<Artifact>(&text).unwrap(), artifact);
    }
}
