//! `GET /runs/{run_id}`.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_engine::room::Held;
use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

use crate::error::Result;
use crate::extract::{Query, RunPath};
use crate::fields::Mask;
use crate::openapi::{NotFound, Problems};
use crate::state::AppState;
use crate::wire::{MaskedRun, Run, RunSummary};

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ShowQuery {
    /// Only these fields, separated by commas; `steps.status` is a field of each step.
    #[param(example = "status,steps.step_id,steps.status")]
    fields: Option<String>,
}

/// Read a run
///
/// The run as it is now, with its steps. The ETag is its `last_event_seq`; with `If-None-Match` the answer is 304 as long as
/// nothing happened. A run whose log has a gap is shown as it was before that, with `stale`.
#[utoipa::path(get, path = "/runs/{run_id}", tag = "runs",
    params(("run_id" = Uuid, Path, description = "the run"), ShowQuery,
        ("If-None-Match" = Option<String>, Header, description = "the ETag that was seen last")),
    responses(
        (status = 200, description = "the run", body = MaskedRun, headers(("ETag" = String, description = "its last event"))),
        (status = 304, description = "nothing happened since"),
        NotFound, Problems,
    )
)]
pub(super) async fn show(
    State(state): State<AppState>,
    RunPath(run): RunPath,
    Query(query): Query<ShowQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let known = [RunSummary::FIELDS, Run::BODY_FIELDS].concat();
    let mask = query.fields.as_deref().map(|fields| Mask::parse(fields, &known)).transpose()?;
    // Steps, payload and outputs cost a few more reads: only for those who want them.
    let short = mask.as_ref().is_some_and(|mask| !Run::BODY_FIELDS.iter().any(|field| mask.wants(field)));
    if short {
        let summary = RunSummary::from(state.engine.summary(run).await?);
        return Ok(unless_seen(&headers, &summary, &summary.version(), mask.as_ref()));
    }
    let Held { it, place: _place } = state.engine.run_held(run).await?;
    let run = Run::from(it);
    Ok(unless_seen(&headers, &run, &run.summary.version(), mask.as_ref()))
}

fn unless_seen<T: Serialize>(headers: &HeaderMap, value: &T, version: &str, mask: Option<&Mask>) -> Response {
    match seen(headers, version) {
        true => (StatusCode::NOT_MODIFIED, [(header::ETAG, etag(version))]).into_response(),
        false => answer(value, version, mask),
    }
}

/// A value with the ETag of its run, cut down to what was asked for.
pub(super) fn answer<T: Serialize>(value: &T, version: &str, mask: Option<&Mask>) -> Response {
    let body = match mask {
        None => serde_json::to_vec(value).expect("what is read from the log is JSON"),
        Some(mask) => mask.cut(value).into_bytes(),
    };
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json), (header::ETAG, etag(version))], body).into_response()
}

fn etag(version: &str) -> HeaderValue {
    HeaderValue::from_str(&format!("\"{version}\"")).expect("digits in quotes are a header value")
}

fn seen(headers: &HeaderMap, wanted: &str) -> bool {
    let tags = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or_default();
    tags.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"')).any(|tag| tag == wanted)
}
