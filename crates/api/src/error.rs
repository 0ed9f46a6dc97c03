//! The one place that turns what went wrong into an HTTP answer: RFC 9457 problem details with a stable `code` and a
//! sentence that says what to do.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use milepost_core::document::{self, Conflicts};
use milepost_core::run::{Rejection, RejectionKind};
use milepost_engine::definitions::{DefinitionError, DefinitionErrorKind};
use milepost_engine::{EngineError, NOT_KEPT, WorkError};
use milepost_store::StoreError;
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

/// What went wrong, and what to do.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "type": "about:blank", "title": "Not Found", "status": 404, "code": "unknown_run",
    "detail": "there is no run 01a1defb-20b0-76b2-bcac-6128b7360903; GET /api/v1/runs lists those there are"
}))]
pub struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    /// What the status means.
    title: &'static str,
    status: u16,
    /// A stable word for programs.
    code: String,
    /// What is wrong, and what to do about it.
    detail: String,
    /// All that is wrong with a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    problems: Option<Box<[DocumentProblem]>>,
    /// All that keeps two documents from being merged.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<crate::wire::Any>>)]
    conflicts: Option<Box<[document::Conflict]>>,
    /// The list of conflicts is cut short: there are more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    truncated: bool,
}

/// One thing that is wrong with a document.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DocumentProblem {
    code: String,
    message: String,
    /// A JSON pointer with steps by their id.
    path: String,
    line: Option<u32>,
    column: Option<u32>,
    suggestion: Option<String>,
}

impl From<document::Problem> for DocumentProblem {
    fn from(problem: document::Problem) -> DocumentProblem {
        let document::Problem { code, message, path, line, column, suggestion } = problem;
        DocumentProblem { code: code.to_owned(), message, path, line, column, suggestion }
    }
}

pub(crate) type Result<T, E = Problem> = std::result::Result<T, E>;

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &str, detail: impl Into<String>) -> Problem {
        Problem {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            code: code.to_owned(),
            detail: shortened(detail.into()),
            problems: None,
            conflicts: None,
            truncated: false,
        }
    }

    pub(crate) fn bad_request(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, code, detail)
    }

    pub(crate) fn unprocessable(code: &str, detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, code, detail)
    }

    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// A document, with all that is wrong with it.
    pub(crate) fn invalid_document(problems: Vec<document::Problem>) -> Problem {
        let count = problems.len();
        let first = problems.first().map(ToString::to_string).unwrap_or_default();
        let detail = match count {
            1 => format!("the document has a problem: {first}"),
            _ => format!("the document has {count} problems, the first: {first}"),
        };
        let problems = Some(problems.into_iter().map(DocumentProblem::from).collect());
        Problem { problems, ..Problem::unprocessable("invalid_document", detail) }
    }
}

/// Sentences quote what was sent. Of a long one the beginning and the end are told: what was wanted comes last.
fn shortened(detail: String) -> String {
    const START: usize = 1500;
    const END: usize = 500;
    if detail.len() <= START + END {
        return detail;
    }
    let (start, end) = (detail.floor_char_boundary(START), detail.ceil_char_boundary(detail.len() - END));
    format!("{} … {}", &detail[..start], &detail[end..])
}

impl From<EngineError> for Problem {
    fn from(error: EngineError) -> Problem {
        let (code, detail) = (error.code(), error.to_string());
        let status = match error {
            EngineError::Invalid(problems) => return Problem::invalid_document(problems),
            // What stands in a query is answered as any query that cannot be read.
            EngineError::Rejected(Rejection { code: "bad_cursor", .. }) => StatusCode::BAD_REQUEST,
            EngineError::Rejected(Rejection { kind, .. }) => status_of(kind),
            EngineError::NoSuchRun(_) => {
                let detail = format!("{detail}; GET /api/v1/runs lists those there are");
                return Problem::new(StatusCode::NOT_FOUND, code, detail);
            }
            EngineError::NoSuchTask(_)
            | EngineError::NoSuchDelivery(_)
            | EngineError::NoSuchWorkflow(_)
            | EngineError::NoSuchEvent { .. } => StatusCode::NOT_FOUND,
            EngineError::Moved { .. } => StatusCode::PRECONDITION_FAILED,
            EngineError::AfterLastEvent { .. } | EngineError::LogGap { .. } | EngineError::Stuck { .. } => {
                StatusCode::CONFLICT
            }
            EngineError::UnknownSkills(_) | EngineError::Work(WorkError::TooLong(_)) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            EngineError::Work(WorkError::Busy) | EngineError::Full(_) => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::Work(WorkError::Panicked) => StatusCode::INTERNAL_SERVER_ERROR,
            EngineError::Definition(DefinitionError::MergeConflict(conflicts)) => {
                let problem = Problem::new(StatusCode::CONFLICT, code, detail);
                let Conflicts { list, truncated, .. } = conflicts;
                return Problem { conflicts: Some(list.into()), truncated, ..problem };
            }
            EngineError::Definition(error) => match error.kind() {
                DefinitionErrorKind::NotFound => StatusCode::NOT_FOUND,
                DefinitionErrorKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
                DefinitionErrorKind::Conflict => StatusCode::CONFLICT,
                DefinitionErrorKind::Precondition => StatusCode::PRECONDITION_FAILED,
                DefinitionErrorKind::Forbidden => StatusCode::FORBIDDEN,
                DefinitionErrorKind::Busy => StatusCode::SERVICE_UNAVAILABLE,
            },
            EngineError::Store(error) => return error.into(),
            EngineError::Blobs(_) => StatusCode::SERVICE_UNAVAILABLE,
            EngineError::Corrupt { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            EngineError::ShuttingDown => StatusCode::SERVICE_UNAVAILABLE,
        };
        Problem::new(status, code, detail)
    }
}

fn status_of(kind: RejectionKind) -> StatusCode {
    match kind {
        RejectionKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
        RejectionKind::NotFound => StatusCode::NOT_FOUND,
        RejectionKind::Conflict | RejectionKind::Stale => StatusCode::CONFLICT,
        RejectionKind::Limited => StatusCode::TOO_MANY_REQUESTS,
        RejectionKind::Bug => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Problem {
        let mut detail = error.to_string();
        let (status, code) = match error {
            StoreError::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
            StoreError::DiskFull(_) => (StatusCode::INSUFFICIENT_STORAGE, "disk_full"),
            StoreError::Refused(reason) => {
                // The database's own words are for those who keep it.
                tracing::warn!(reason, "the database refused what a request says");
                detail = NOT_KEPT.to_owned();
                (StatusCode::UNPROCESSABLE_ENTITY, "store_refused")
            }
            StoreError::Corrupt(_) => (StatusCode::INTERNAL_SERVER_ERROR, "corrupt"),
            StoreError::Unusable(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unusable"),
        };
        Problem::new(status, code, detail)
    }
}

/// What an answer refuses its caller for, at hand for the security log.
#[derive(Clone, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            tracing::warn!(status = self.status, code = self.code, detail = self.detail, "a request failed");
        }
        let body = serde_json::to_vec(&self).unwrap_or_else(|_| json!({ "status": self.status }).to_string().into());
        let mut response = (status, body).into_response();
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            response.extensions_mut().insert(Refusal { code: self.code, detail: self.detail });
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        match status {
            StatusCode::TOO_MANY_REQUESTS => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("5"))),
            StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"))),
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}
