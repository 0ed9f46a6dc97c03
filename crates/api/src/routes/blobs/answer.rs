//! Content goes out, whole or in part.
//!
//! **Invariant:** a browser never runs what somebody uploaded as if it were a page of this server: it is downloaded, never
//! guessed at, and in a sandbox if it is shown after all.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use milepost_engine::artifacts::Found;

use super::range::{Asked, parse};
use crate::error::{Problem, Result};
use crate::state::AppState;

/// An answer that is not compressed.
#[derive(Clone, Copy, Debug)]
pub(in crate::routes) struct AsItIs;

/// What is said of content.
#[derive(Clone, Debug, Default)]
pub(in crate::routes) struct Described {
    pub(in crate::routes) media_type: Option<String>,
    pub(in crate::routes) filename: Option<String>,
}

/// Answers a request for content. What it is never changes, so nobody needs to ask twice.
pub(in crate::routes) async fn content(
    state: &AppState,
    method: &Method,
    asked: &HeaderMap,
    found: &Found,
    described: Described,
) -> Result<Response> {
    let etag = format!("\"sha256:{}\"", found.sha256);
    let headers = headers(&etag, found, &described);
    let text = |name: header::HeaderName| asked.get(name).and_then(|value| value.to_str().ok());
    let same = |tags: &str| tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == etag || tag.trim() == "*");
    if text(header::IF_NONE_MATCH).is_some_and(same) {
        return Ok((StatusCode::NOT_MODIFIED, headers).into_response());
    }
    // A range of something else is no use.
    let range = text(header::RANGE).filter(|_| text(header::IF_RANGE).is_none_or(|tag| tag == etag));
    let (status, range) = match parse(range, found.size_bytes) {
        Asked::Whole => (StatusCode::OK, 0..found.size_bytes),
        Asked::Part(range) => (StatusCode::PARTIAL_CONTENT, range),
        Asked::Unsatisfiable => return Ok(unsatisfiable(found.size_bytes)),
    };
    let length = range.end - range.start;
    let body = match *method == Method::HEAD {
        true => Body::empty(),
        false => Body::from_stream(state.engine.files().download(found, Some(range.clone())).await?.pieces),
    };
    let mut response = (status, headers, body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, length.into());
    if status == StatusCode::PARTIAL_CONTENT {
        let told = format!("bytes {}-{}/{}", range.start, range.end - 1, found.size_bytes);
        headers.insert(header::CONTENT_RANGE, told.parse().expect("numbers are no strange characters"));
    }
    response.extensions_mut().insert(AsItIs);
    Ok(response)
}

fn headers(etag: &str, found: &Found, described: &Described) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let known = described.media_type.as_deref().and_then(|media| HeaderValue::from_str(media).ok());
    let plain = HeaderValue::from_static("application/octet-stream");
    headers.insert(header::CONTENT_TYPE, known.unwrap_or(plain));
    headers.insert(header::ETAG, etag.parse().expect("a hash has no strange characters"));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox; default-src 'none'"));
    let name = described.filename.clone().unwrap_or_else(|| found.sha256.to_string());
    if let Ok(value) = disposition(&name).parse() {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    headers
}

/// RFC 6266: the name in ASCII for those who read nothing else, and as it is.
fn disposition(name: &str) -> String {
    // What a browser would take for folders is none of its business.
    let name = name.rsplit(['/', '\\']).next().unwrap_or(name);
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '"' || c == ' ' { c } else { '_' }).collect();
    if plain == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    let encoded: String = name
        .bytes()
        .map(|byte| if is_plain(&byte) { (byte as char).to_string() } else { format!("%{byte:02X}") })
        .collect();
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

fn unsatisfiable(size: u64) -> Response {
    let detail = format!("it has {size} bytes, and those that you asked for are not among them; ask for others");
    let mut response = Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, "bad_range", detail).into_response();
    let told = format!("bytes */{size}").parse().expect("numbers are no strange characters");
    response.headers_mut().insert(header::CONTENT_RANGE, told);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_told_to_all_who_can_read_it() {
        assert_eq!(disposition("model v2.bin"), "attachment; filename=\"model v2.bin\"");
        assert_eq!(disposition("../../etc/passwd"), "attachment; filename=\"passwd\"");
        let told = disposition("Grüße \"x\".txt");
        assert_eq!(told, "attachment; filename=\"Gr__e _x_.txt\"; filename*=UTF-8''Gr%C3%BC%C3%9Fe%20%22x%22.txt");
    }
}
