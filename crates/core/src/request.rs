//! Requests that may come twice: what a start asks for under a request id.
//!
//! A request id is unique within its org, project, environment and workflow. The same request again is answered with the
//! run that is there; another request under the same id is refused, with the parts that differ.

use crate::canonical;
use crate::change::{ChangeRequest, RebuildRequest};
use crate::hash::Digest;
use crate::id::{OrgId, RunId};
use crate::json::Json;
use crate::run::{Rejection, RejectionKind};
use crate::time::Timestamp;

/// Bytes of each part's digest: enough to tell apart what one caller sends.
const PART: usize = 8;

/// The parts of a request, in the order in which their digests are stored.
const PARTS: [&str; 8] =
    ["workflow", "base run", "payload", "list of changes", "patch", "rebuild", "priority", "start_at"];

/// The digest of a part that a request does not have.
const NOTHING: [u8; PART] = [0; PART];

/// All that a caller asks for with a start, apart from the definition.
#[derive(Debug)]
pub struct AskedParts<'a> {
    /// The tag that was named. A document that was named by its version is compared as that.
    pub tag: Option<&'a str>,
    /// Of an update run.
    pub base: Option<(RunId, &'a [ChangeRequest])>,
    /// An update run has its base's payload.
    pub payload: &'a Json,
    pub patch: Option<&'a serde_json::Value>,
    pub rebuild: Option<&'a RebuildRequest>,
    pub priority: i32,
    pub start_at: Option<Timestamp>,
}

/// The digests of a request's parts, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestDigest([u8; PART * PARTS.len()]);

impl RequestDigest {
    /// JSON counts by what it means: the order of keys and the spelling of numbers make no difference.
    #[must_use]
    pub fn of(parts: &AskedParts<'_>, json_depth: usize) -> RequestDigest {
        let json = |json: &Json| match canonical::parse_strict(json.as_str(), json_depth) {
            Ok(value) => canonical_text(&value),
            Err(_) => json.as_str().to_owned(),
        };
        let changes = |changes: &[ChangeRequest]| {
            let texts: Vec<String> = changes.iter().map(|change| json(&change.payload)).collect();
            let parts = changes.iter().zip(&texts).flat_map(|(change, text)| [change.kind.as_bytes(), text.as_bytes()]);
            Digest::of_parts(parts)
        };
        let rebuild = |rebuild: &RebuildRequest| match rebuild {
            RebuildRequest::All => Digest::of(b"all"),
            RebuildRequest::Steps(steps) => Digest::of_parts(steps.iter().map(String::as_bytes)),
        };
        let digests: [Option<Digest>; PARTS.len()] = [
            parts.tag.map(|tag| Digest::of(tag.as_bytes())),
            parts.base.map(|(run, _)| Digest::of(run.0.as_bytes())),
            parts.base.is_none().then(|| Digest::of(json(parts.payload).as_bytes())),
            parts.base.map(|(_, list)| changes(list)),
            parts.patch.map(|ops| Digest::of(canonical_text(ops).as_bytes())),
            parts.rebuild.map(rebuild),
            Some(Digest::of(&parts.priority.to_be_bytes())),
            parts.start_at.map(|at| Digest::of(&at.0.to_be_bytes())),
        ];
        let mut bytes = [0; PART * PARTS.len()];
        for (place, digest) in bytes.chunks_exact_mut(PART).zip(digests) {
            if let Some(digest) = digest {
                place.copy_from_slice(&digest.0[..PART]);
            }
        }
        RequestDigest(bytes)
    }

    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// What a database has kept; nothing if another release wrote it in another form.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<RequestDigest> {
        bytes.try_into().ok().map(RequestDigest)
    }

    fn differing(&self, other: &RequestDigest) -> impl Iterator<Item = &'static str> {
        let pairs = self.0.chunks_exact(PART).zip(other.0.chunks_exact(PART));
        let same_document_may_be_named_otherwise = !self.is_update() || !other.is_update();
        let differ = move |(name, (one, other)): &(&&str, (&[u8], &[u8]))| {
            let unnamed = **name == PARTS[0] && (*one == NOTHING || *other == NOTHING);
            one != other && !(unnamed && same_document_may_be_named_otherwise)
        };
        PARTS.iter().zip(pairs).filter(differ).map(|(name, _)| *name)
    }

    /// Without a workflow of its own, an update runs what its base ran.
    fn is_update(&self) -> bool {
        self.0[PART..2 * PART] != NOTHING
    }
}

/// No value that came in as JSON is without a canonical form, but for numbers that parsing refuses.
fn canonical_text(value: &serde_json::Value) -> String {
    canonical::to_string(value).unwrap_or_else(|_| value.to_string())
}

/// What was asked for under a request id. Kept beside it, and no part of what makes it unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The document that the request meant, before a patch of its own.
    pub version_hash: Digest,
    pub digest: RequestDigest,
}

/// A request id with what is asked under it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunRequest {
    pub id: String,
    pub asked: Asked,
    /// The caller named this very document, and not a tag that may have moved since.
    pub pinned: bool,
}

impl RunRequest {
    /// The code of a request under an id that was used for another.
    pub const REUSED: &'static str = "request_id_reused";

    /// Whether this is the request that started `run`. Runs of older releases have nothing to compare with.
    ///
    /// # Errors
    /// It is another one; the message says what differs.
    pub fn check_same(&self, run: RunId, known: Option<&Asked>) -> Result<(), Rejection> {
        let Some(known) = known else { return Ok(()) };
        let other_version = self.pinned && self.asked.version_hash != known.version_hash;
        let parts = other_version.then_some("version").into_iter();
        let parts: Vec<&str> = parts.chain(self.asked.digest.differing(&known.digest)).collect();
        if parts.is_empty() {
            return Ok(());
        }
        let message = format!(
            "the request id `{}` started run {run} of this workflow with another {}; send the same request again, or use \
             a new id for a new request",
            self.id,
            parts.join(", another "),
        );
        Err(Rejection::new(RejectionKind::Invalid, RunRequest::REUSED, message))
    }
}

/// SHA-256 over length-prefixed parts: org, project, environment, workflow, version, request id.
#[must_use]
pub fn idempotency_key(org: OrgId, workflow: &str, version: &str, request_id: &str) -> Digest {
    // Projects and environments have the number 1 until there are more of them.
    let (org, only) = (org.0.to_string(), "1");
    Digest::of_parts([&org, only, only, workflow, version, request_id].map(str::as_bytes))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PAYLOAD: &str = r#"{"b": 1.0, "a": "x"}"#;

    fn parts(payload: &Json) -> AskedParts<'_> {
        AskedParts { tag: None, base: None, payload, patch: None, rebuild: None, priority: 0, start_at: None }
    }

    fn digest(parts: &AskedParts<'_>) -> RequestDigest {
        RequestDigest::of(parts, 64)
    }

    fn plain() -> RequestDigest {
        digest(&parts(&Json::trusted(PAYLOAD)))
    }

    fn request(digest: RequestDigest, version: &[u8], pinned: bool) -> RunRequest {
        RunRequest { id: "r".to_owned(), asked: Asked { version_hash: Digest::of(version), digest }, pinned }
    }

    #[test]
    fn the_same_json_written_otherwise_is_the_same_request() {
        assert_eq!(digest(&parts(&Json::trusted(r#"{"a":"x","b":1}"#))), plain());
    }

    #[test]
    fn every_part_is_compared_and_named() {
        let run = RunId(uuid::Uuid::nil());
        let first = request(plain(), b"v1", false);
        let refused = |first: &RunRequest, other: &AskedParts<'_>| {
            let refused = request(digest(other), b"v1", false).check_same(run, Some(&first.asked)).unwrap_err();
            assert_eq!(refused.code, RunRequest::REUSED);
            refused.message
        };
        let (payload, other, patch) = (Json::trusted(PAYLOAD), Json::trusted("{}"), json!([]));
        let (all, steps) = (RebuildRequest::All, RebuildRequest::Steps(vec!["a".to_owned()]));
        for (asked, differs) in [
            (parts(&other), "another payload;"),
            (AskedParts { patch: Some(&patch), ..parts(&payload) }, "another patch;"),
            (AskedParts { rebuild: Some(&steps), ..parts(&payload) }, "another rebuild;"),
            (AskedParts { start_at: Some(Timestamp(7)), ..parts(&payload) }, "another start_at;"),
            (AskedParts { priority: 1, ..parts(&other) }, "another payload, another priority;"),
        ] {
            let message = refused(&first, &asked);
            assert!(message.contains(differs), "{message}");
        }
        let of_all = request(digest(&AskedParts { rebuild: Some(&all), ..parts(&payload) }), b"v1", false);
        let of_one = AskedParts { rebuild: Some(&steps), ..parts(&payload) };
        assert!(refused(&of_all, &of_one).contains("another rebuild;"));
        let change = |text: &str| vec![ChangeRequest { kind: "x".to_owned(), payload: Json::trusted(text) }];
        let (one, two) = (change("1"), change("2"));
        let update = request(digest(&AskedParts { base: Some((run, &one)), ..parts(&payload) }), b"v1", false);
        let changed = AskedParts { base: Some((run, &two)), ..parts(&payload) };
        assert!(refused(&update, &changed).contains("another list of changes;"));
        let tagged = |tag: &'static str| AskedParts { tag: Some(tag), ..parts(&payload) };
        let by_tag = request(digest(&tagged("main")), b"v1", false);
        assert!(refused(&by_tag, &tagged("staging")).contains("another workflow;"));
        assert!(by_tag.check_same(run, Some(&first.asked)).is_ok(), "the first named the same document by its version");
        let named = AskedParts { tag: Some("main"), base: Some((run, &one)), ..parts(&payload) };
        assert!(refused(&update, &named).contains("another workflow;"));
    }

    #[test]
    fn a_version_counts_if_it_is_named() {
        let run = RunId(uuid::Uuid::nil());
        let first = request(plain(), b"v1", false);
        let again = |version: &[u8], pinned| request(plain(), version, pinned).check_same(run, Some(&first.asked));
        assert!(again(b"v1", true).is_ok());
        assert!(again(b"v2", false).is_ok(), "the tag moved between the two");
        assert!(again(b"v2", true).unwrap_err().message.contains("another version;"));
        let payload = Json::trusted("{}");
        let other = request(digest(&parts(&payload)), b"v2", true);
        assert!(other.check_same(run, None).is_ok(), "a run of an older release");
    }

    #[test]
    fn a_digest_is_read_as_it_was_written() {
        let written = plain();
        assert_eq!(RequestDigest::read(written.as_bytes()), Some(written));
        assert_eq!(RequestDigest::read(b"other"), None);
    }

    #[test]
    fn parts_of_a_key_never_run_together() {
        let key = |workflow, version| idempotency_key(OrgId(1), workflow, version, "r");
        assert_ne!(key("a|b", "c"), key("a", "b|c"));
        assert_eq!(
            key("order", "1.0.0").to_string(),
            "6d903f7580287ffb439fd918a1c6eef3d69e08dd07f0c5e9ef54e4813f6c3489"
        );
    }
}
