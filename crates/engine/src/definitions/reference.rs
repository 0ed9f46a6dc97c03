//! What a reference means: a tag, `tag@time`, `tag~n`, the id of a revision, `sha256:…` or the first digits of one.

use std::collections::BTreeMap;

use milepost_core::hash::Digest;
use milepost_core::id::OrgId;
use milepost_core::json::Json;
use milepost_core::text::name_fault;
use milepost_core::time::Timestamp;
use milepost_store::rows::{MoveRow, RevisionKind, RevisionRow, TagRow};
use uuid::Uuid;

use super::{DefinitionError, Definitions};
use crate::error::EngineError;

/// So many digits of a digest may stand for all of them.
const LEAST_DIGITS: usize = 6;

/// What a reference means at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub kind: RevisionKind,
    pub revision_id: Uuid,
    pub version_hash: Digest,
    /// The tag it was found through, and the tag's version that says so.
    pub tag: Option<(String, u64)>,
}

impl Target {
    fn of(revision: &RevisionRow) -> Target {
        let RevisionRow { kind, revision_id, version_hash, .. } = *revision;
        Target { kind, revision_id, version_hash, tag: None }
    }

    fn of_move(tag: &str, moved: &MoveRow) -> Target {
        Target {
            kind: moved.to_kind,
            revision_id: moved.to_revision_id,
            version_hash: moved.to_version_hash,
            tag: Some((tag.to_owned(), moved.move_id)),
        }
    }
}

impl From<TagRow> for Target {
    fn from(row: TagRow) -> Target {
        Target {
            kind: row.kind,
            revision_id: row.revision_id,
            version_hash: row.version_hash,
            tag: Some((row.tag, row.version)),
        }
    }
}

/// Where tags were when a run began: the one that it was started by, and those of the workflows that it may run as children.
pub(crate) type TagsSnapshot = BTreeMap<String, (Uuid, u64)>;

/// What is kept with a run of where its plan came from: what was asked for, what that meant, and where the tags were.
pub(crate) fn definition_of(
    reference: &str,
    target: &Target,
    tags: &TagsSnapshot,
    patch: Option<&serde_json::Value>,
) -> Json {
    let mut definition = serde_json::json!({
        "ref": reference,
        "revision_id": target.revision_id,
        "version_hash": format!("sha256:{}", target.version_hash),
    });
    if !tags.is_empty() {
        let place = |(tag, (revision, version)): (&String, &(Uuid, u64))| {
            (tag.clone(), serde_json::json!({ "revision_id": revision, "tag_version": version }))
        };
        definition["tags_snapshot"] = tags.iter().map(place).collect::<serde_json::Map<_, _>>().into();
    }
    if let Some(patch) = patch {
        definition["patch"] = patch.clone();
    }
    Json::trusted(definition.to_string())
}

/// Whether a reference always means the same document, and not one that moves with a tag.
pub(crate) fn is_pinned(reference: &str) -> bool {
    reference.starts_with("sha256:") || reference.parse::<Uuid>().is_ok() || reference.contains('@')
}

/// The tag that a reference begins with.
pub(crate) fn tag_of(reference: &str) -> &str {
    reference.split(['@', '~']).next().unwrap_or(reference)
}

/// Whether a name can be told from every other kind of reference.
pub(super) fn is_tag(name: &str, most_chars: usize) -> bool {
    name_fault(name, most_chars).is_none()
        && !name.contains(['@', '~'])
        && !name.starts_with("sha256:")
        && name.parse::<Uuid>().is_err()
}

impl Definitions {
    /// What a reference means.
    ///
    /// # Errors
    /// Nothing, or more than one thing.
    pub async fn resolve(&self, org: OrgId, reference: &str) -> Result<Target, EngineError> {
        if let Some(digits) = reference.strip_prefix("sha256:") {
            return self.by_digits(org, reference, digits).await;
        }
        if let Ok(id) = reference.parse::<Uuid>() {
            let revision = self.store.definitions().revision(org, id).await?;
            return Ok(Target::of(&revision.ok_or_else(|| unknown(reference, "there is no such revision"))?));
        }
        if let Some((tag, moment)) = reference.rsplit_once('@') {
            return self.at_time(org, reference, tag, moment).await;
        }
        if let Some((tag, steps)) = reference.rsplit_once('~') {
            return self.steps_back(org, reference, tag, steps).await;
        }
        Ok(self.tag(org, reference).await?.into())
    }

    /// A tag, as it is now.
    ///
    /// # Errors
    /// There is no such tag.
    pub async fn tag(&self, org: OrgId, tag: &str) -> Result<TagRow, EngineError> {
        let row = match self.can_be_tag(tag) {
            true => self.store.definitions().tag(org, tag).await?,
            false => None,
        };
        row.ok_or_else(|| EngineError::NoSuchWorkflow(tag.to_owned()))
    }

    async fn by_digits(&self, org: OrgId, reference: &str, digits: &str) -> Result<Target, EngineError> {
        let (from, to) = range(digits).ok_or_else(|| {
            let reason = format!("a digest is 64 hexadecimal digits, or {LEAST_DIGITS} or more of its first ones");
            unknown(reference, &reason)
        })?;
        let rows = self.store.definitions().revisions_in(org, from, to, 64).await?;
        // Any of those with the same digest will do; a version of a document is what people know.
        let best = rows.iter().find(|row| row.kind == RevisionKind::DagVersion).or(rows.first());
        let best = best.ok_or_else(|| unknown(reference, "no document has that digest"))?;
        let mut digests: Vec<String> = rows.iter().map(|row| format!("sha256:{}", row.version_hash)).collect();
        digests.dedup();
        match digests.len() {
            1 => Ok(Target::of(best)),
            _ => {
                let reference = reference.to_owned();
                Err(DefinitionError::AmbiguousRef { reference, candidates: digests }.into())
            }
        }
    }

    async fn at_time(&self, org: OrgId, reference: &str, tag: &str, moment: &str) -> Result<Target, EngineError> {
        let at: Timestamp = moment
            .parse()
            .map_err(|_| unknown(reference, &format!("`{moment}` is no moment; write it like 2026-01-31T10:00:00Z")))?;
        let moved = match self.can_be_tag(tag) {
            true => self.store.definitions().move_at(org, tag, at).await?,
            false => None,
        };
        if let Some(moved) = moved {
            return Ok(Target::of_move(tag, &moved));
        }
        self.tag(org, tag).await?;
        Err(unknown(reference, "the tag did not exist then"))
    }

    async fn steps_back(&self, org: OrgId, reference: &str, tag: &str, steps: &str) -> Result<Target, EngineError> {
        let steps: u32 = match steps {
            "" => 1,
            steps => steps
                .parse()
                .map_err(|_| unknown(reference, &format!("`~{steps}` is no number of moves; write it like ~2")))?,
        };
        let row = self.tag(org, tag).await?;
        let moved = self.store.definitions().move_back(org, tag, row.at_move, steps).await?;
        let moved = moved.ok_or_else(|| unknown(reference, "the tag has not made so many moves"))?;
        Ok(Target::of_move(tag, &moved))
    }
}

fn unknown(reference: &str, reason: &str) -> EngineError {
    let (reference, reason) = (reference.to_owned(), reason.to_owned());
    DefinitionError::UnknownRef { reference, reason }.into()
}

/// The digests that begin with these digits.
fn range(digits: &str) -> Option<(Digest, Digest)> {
    let usable = (LEAST_DIGITS..=64).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let filled = |with: char| {
        let mut all = digits.to_ascii_lowercase();
        all.extend(std::iter::repeat_n(with, 64 - digits.len()));
        all.parse().ok()
    };
    usable.then(|| Some((filled('0')?, filled('f')?))).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_other_references() {
        for good in ["main", "team/video", "release-1.2", "é", "sha256", "a b"] {
            assert!(is_tag(good, 255), "{good}");
        }
        for bad in ["", "a@b", "a~1", "sha256:00", "a\nb", "0190a000-0000-7000-8000-000000000000"] {
            assert!(!is_tag(bad, 255), "{bad}");
        }
        assert!(!is_tag("abc", 2));
    }

    #[test]
    fn what_moves_with_a_tag_is_not_pinned() {
        for pinned in ["sha256:00aabb", "main@2026-01-31T10:00:00Z", "0190a000-0000-7000-8000-000000000000"] {
            assert!(is_pinned(pinned), "{pinned}");
        }
        for moving in ["main", "main~2", "team/video"] {
            assert!(!is_pinned(moving), "{moving}");
        }
    }

    #[test]
    fn first_digits_stand_for_a_range() {
        let (from, to) = range("00ffAB").unwrap();
        assert!(from.to_string().starts_with("00ffab00") && to.to_string().starts_with("00ffabff"));
        let whole = Digest::of(b"x").to_string();
        assert_eq!(range(&whole), Some((Digest::of(b"x"), Digest::of(b"x"))));
        for bad in ["", "00ffa", "00ffag", &format!("{whole}0"), "ééé"] {
            assert_eq!(range(bad), None, "{bad}");
        }
    }
}
