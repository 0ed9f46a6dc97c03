//! The wire form of traces: OTLP 1.x as JSON, as much of it as is sent.
//!
//! <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>: ids are hexadecimal, 64-bit numbers are texts, and
//! names are in camelCase.

use milepost_core::id::NodeId;
use milepost_core::time::Timestamp;
use milepost_core::trace::{SpanId, TraceId};
use serde::{Deserialize, Serialize, Serializer};

const SCOPE: &str = "milepost";
/// Nobody outside waits for what a run or a step does.
const INTERNAL: u8 = 1;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Debug, Serialize)]
struct Resource {
    attributes: Vec<Attribute>,
}

#[derive(Debug, Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: &'a [Span],
}

#[derive(Debug, Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Span {
    #[serde(serialize_with = "text")]
    pub(super) trace_id: TraceId,
    #[serde(serialize_with = "text")]
    pub(super) span_id: SpanId,
    #[serde(serialize_with = "maybe_text", skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<SpanId>,
    pub(super) name: String,
    kind: u8,
    #[serde(rename = "startTimeUnixNano", serialize_with = "nanoseconds")]
    pub(super) start: Timestamp,
    #[serde(rename = "endTimeUnixNano", serialize_with = "nanoseconds")]
    pub(super) end: Timestamp,
    pub(super) attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) events: Vec<SpanEvent>,
    pub(super) status: Status,
}

impl Span {
    pub(super) fn new(trace_id: TraceId, span_id: SpanId, name: String, start: Timestamp, end: Timestamp) -> Span {
        Span {
            trace_id,
            span_id,
            parent_span_id: None,
            name,
            kind: INTERNAL,
            start,
            // A clock that was set back must not make a span that ends before it began.
            end: end.max(start),
            attributes: Vec::new(),
            events: Vec::new(),
            status: Status::default(),
        }
    }
}

/// Something that happened while a span lasted.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SpanEvent {
    #[serde(rename = "timeUnixNano", serialize_with = "nanoseconds")]
    pub(super) at: Timestamp,
    pub(super) name: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) attributes: Vec<Attribute>,
}

/// 0 unset, 1 ok, 2 error.
#[derive(Debug, Default, Serialize)]
pub(super) struct Status {
    code: u8,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

impl Status {
    pub(super) fn ok() -> Status {
        Status { code: 1, message: String::new() }
    }

    pub(super) fn error(message: String) -> Status {
        Status { code: 2, message }
    }

    pub(super) fn is_error(&self) -> bool {
        self.code == 2
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    StringValue(String),
    #[serde(serialize_with = "text")]
    IntValue(u64),
}

impl Attribute {
    pub(super) fn text(key: &'static str, value: impl Into<String>) -> Attribute {
        Attribute { key, value: Value::StringValue(value.into()) }
    }

    pub(super) fn number(key: &'static str, value: impl Into<u64>) -> Attribute {
        Attribute { key, value: Value::IntValue(value.into()) }
    }
}

impl<'a> Request<'a> {
    pub(super) fn new(service_name: &str, node: NodeId, spans: &'a [Span]) -> Request<'a> {
        let version = env!("CARGO_PKG_VERSION");
        let attributes = vec![
            Attribute::text("service.name", service_name),
            Attribute::text("service.version", version),
            Attribute::text("service.instance.id", node.to_string()),
        ];
        let scope = Scope { name: SCOPE, version };
        let of_resource =
            ResourceSpans { resource: Resource { attributes }, scope_spans: [ScopeSpans { scope, spans }] };
        Request { resource_spans: [of_resource] }
    }
}

/// What a collector answers.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Response {
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PartialSuccess {
    /// A text or a number, depending on who writes it.
    pub(super) rejected_spans: serde_json::Value,
    pub(super) error_message: String,
}

impl PartialSuccess {
    pub(super) fn rejected(&self) -> u64 {
        let text = self.rejected_spans.as_str().and_then(|text| text.parse().ok());
        self.rejected_spans.as_u64().or(text).unwrap_or(0)
    }
}

fn text<S: Serializer>(value: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.to_string())
}

#[expect(clippy::ref_option, reason = "serde passes a reference")]
fn maybe_text<S: Serializer>(value: &Option<SpanId>, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => text(value, serializer),
        None => serializer.serialize_none(),
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn nanoseconds<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    text(&(i128::from(at.0.max(0)) * 1000), serializer)
}
