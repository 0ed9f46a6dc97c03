//! A tag in words: what it points at, since when, and who may move it.

use std::fmt::Write as _;

use crate::wire::{Protection, Tag};

/// All that is known of it, a line each.
pub(crate) fn shown(tag: &Tag) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{:<12}{value}", format!("{name}:"));
    };
    line("tag", &tag.tag);
    line("version", &tag.tag_version.to_string());
    line("document", &tag.version_hash);
    line("revision", &format!("{} ({})", tag.revision_id, kind(&tag.kind)));
    if let Some(at) = tag.moved_at {
        line("moved", &at.to_string());
    }
    if let Some(by) = &tag.moved_by {
        line("by", by);
    }
    if let Some(message) = &tag.message {
        line("message", message);
    }
    if let Some(who) = tag.protected.as_ref().and_then(protection) {
        line("protected", &who);
    }
    text
}

/// What a revision is, as people say it.
pub(crate) fn kind(kind: &str) -> &str {
    match kind {
        "dag_version" => "document",
        "patch_set" => "patch",
        other => other,
    }
}

/// Who may move a tag; nothing if it is not protected.
pub(crate) fn protection(protection: &Protection) -> Option<String> {
    match protection {
        Protection::Flag(false) => None,
        Protection::Rules { movers: Some(movers), .. } if !movers.is_empty() => {
            Some(format!("moved only by {}", movers.join(", ")))
        }
        Protection::Flag(true) | Protection::Rules { .. } => Some("yes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tag_says_what_it_knows() {
        let tag: Tag = serde_json::from_value(json!({
            "tag": "main", "revision_id": "01a1defb-2230-7772-a9d6-506d39a96b23", "kind": "patch_set",
            "version_hash": "sha256:0d83", "tag_version": 4, "moved_by": "alice", "moved_at": "2026-11-15T11:12:25Z",
            "message": "longer videos", "protected": {"movers": ["alice", "ci"], "trust": "protected"},
        }))
        .unwrap();
        assert_eq!(
            shown(&tag),
            "tag:        main\nversion:    4\ndocument:   sha256:0d83\n\
             revision:   01a1defb-2230-7772-a9d6-506d39a96b23 (patch)\nmoved:      2026-11-15T11:12:25.000000Z\n\
             by:         alice\nmessage:    longer videos\nprotected:  moved only by alice, ci\n"
        );
    }

    #[test]
    fn protection_may_be_a_word_or_rules() {
        let read = |value: serde_json::Value| protection(&serde_json::from_value(value).unwrap());
        assert_eq!(read(json!(false)), None);
        assert_eq!(read(json!(true)).as_deref(), Some("yes"));
        assert_eq!(read(json!({"trust": "protected"})).as_deref(), Some("yes"));
        assert_eq!(read(json!({"movers": [], "trust": "protected"})).as_deref(), Some("yes"));
    }
}
