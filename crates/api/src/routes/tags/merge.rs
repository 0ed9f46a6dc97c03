//! `POST /tags/{tag}/merge`.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use milepost_engine::definitions::{MergeOutcome, Merging, Moving};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{TagMoved, tagged};
use crate::error::Result;
use crate::extract::{Actor, Body, IdempotencyKey, IfMatch, Name};
use crate::openapi::{NotFound, Problems, WriteProblems};
use crate::state::AppState;
use crate::wire::{Diff, Tag};

/// What to merge into the tag.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"from": "hello/experiment", "dry_run": true}))]
pub(super) struct MergeBody {
    /// Any reference.
    from: String,
    /// Why; kept in the tag's history.
    message: Option<String>,
    /// Only say what would become of it.
    #[serde(default)]
    dry_run: bool,
}

/// What became of a merge.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct MergeAnswer {
    outcome: Outcome,
    /// Where the two parted.
    #[serde(skip_serializing_if = "Option::is_none")]
    base_revision_id: Option<Uuid>,
    /// As it is now; after a dry run, as it would be.
    tag: Tag,
    /// What it changes in the tag's document.
    diff: Diff,
}

#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// There is nothing in it that the tag does not have.
    UpToDate,
    /// The tag had done nothing since: it went there.
    FastForward,
    Merged,
}

/// Merge into a tag
///
/// Three-way, by step id: what either side did since they parted. What does not fit together is answered as
/// `merge_conflict`, with all `conflicts`, and nothing is changed.
#[utoipa::path(post, path = "/tags/{tag}/merge", tag = "tags", request_body = MergeBody,
    params(("tag" = String, Path, description = "its name; percent-encode a `/` in it"),
        ("If-Match" = Option<String>, Header, description = "only if the tag still has this ETag"),
        ("Idempotency-Key" = Option<String>, Header, description = "the same key again is the same request"),
        ("Milepost-Actor" = Option<String>, Header, description = "who does it")),
    responses((status = 200, description = "what became of it", body = MergeAnswer), TagMoved, NotFound, WriteProblems, Problems))]
pub(super) async fn merge(
    State(state): State<AppState>,
    Name(tag): Name,
    IfMatch(expected): IfMatch,
    IdempotencyKey(key): IdempotencyKey,
    Actor(by): Actor,
    Body(body): Body<MergeBody>,
) -> Result<Response> {
    let moving = Moving { by, message: body.message, expected, key };
    let (definitions, org) = (state.engine.definitions(), state.engine.org());
    let Merging { outcome, base, tag, diff } = match body.dry_run {
        true => definitions.try_merge(org, &tag, &body.from, &moving).await?,
        false => definitions.merge(org, &tag, &body.from, &moving).await?,
    };
    let outcome = match outcome {
        MergeOutcome::UpToDate => Outcome::UpToDate,
        MergeOutcome::FastForward => Outcome::FastForward,
        MergeOutcome::Merged => Outcome::Merged,
    };
    let version = tag.version;
    let answer = MergeAnswer { outcome, base_revision_id: base, tag: tag.try_into()?, diff: diff.into() };
    Ok(tagged(StatusCode::OK, version, answer))
}
