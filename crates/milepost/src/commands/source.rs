//! What a verb is given to run: a file of documents, or the name of something that was deployed.

use std::path::Path;

use milepost_core::document;
use milepost_core::limits::Limits;

use super::{read_text, shown_name};
use crate::backend::{Documents, Subject};
use crate::output::error::Refusal;
use crate::output::problems::BadDocument;

/// Whether this names a file: there is one, or it looks like one.
pub(super) fn is_file(text: &str) -> bool {
    let looks_like_one =
        ["yaml", "yml", "json"].iter().any(|end| Path::new(text).extension().is_some_and(|e| e == *end));
    text == "-" || looks_like_one || Path::new(text).is_file()
}

/// What is run: the documents of a file, or what a reference means.
pub(super) fn subject(text: &str, limits: &Limits) -> anyhow::Result<Subject> {
    match is_file(text) {
        true => Ok(Subject::Documents(Box::new(documents(text, limits)?))),
        false => Ok(Subject::Workflow(text.to_owned())),
    }
}

/// The documents of a file, checked; all problems are told at once.
pub(super) fn documents(path: &str, limits: &Limits) -> anyhow::Result<Documents> {
    let source = read_text(path)?;
    let name = shown_name(path);
    let loaded = document::load_all(&source, limits).map_err(|problems| BadDocument::new(name, &source, problems))?;
    let mut loaded = loaded.into_iter();
    let first = loaded.next().ok_or_else(|| Refusal::new("empty_document", format!("{name} holds no document")))?;
    Ok(Documents { first, others: loaded.collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_file_is_one() {
        for text in ["-", "flow.yaml", "a/b.yml", "doc.json", "Cargo.toml"] {
            assert!(is_file(text), "{text}");
        }
        for text in ["campaign.build", "order", "sha256:00ff", "order~2", "order@2026-01-31T10:00:00Z", "src"] {
            assert!(!is_file(text), "{text}");
        }
    }
}
