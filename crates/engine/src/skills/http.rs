//! `http`: one request. Addresses of the own machine and of private networks are refused unless they are allowed.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use milepost_core::json::Json;
use milepost_core::secret::push_segment;
use serde::{Deserialize, Serialize};

use super::placeholder::Filling;
use super::{SkillError, Skills};
use crate::egress::{Egress, explain, names_private_address};
use crate::room::{Place, Room};

/// More than this of an answer is not read.
const BODY_BYTES: usize = 1024 * 1024;
/// What answers that are being read may take together.
const ROOM_BYTES: usize = 64 * BODY_BYTES;
/// Larger headers of an answer are refused.
const HEADER_BYTES: usize = 64 * 1024;
/// How long a request may take, if the step does not say how long it may.
const PATIENCE: Duration = Duration::from_secs(60);
const TRACEPARENT: &str = "traceparent";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    body: Option<Json>,
}

/// What the server answered.
#[derive(Serialize)]
struct Output {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Body,
}

/// JSON is passed on as it came: read into values it would take many times as much.
#[derive(Serialize)]
#[serde(untagged)]
enum Body {
    Json(Json),
    Text(String),
}

impl Input {
    /// The step's own header goes first, however it is spelled.
    fn pass_on(&mut self, traceparent: String) {
        if !self.headers.keys().any(|name| name.eq_ignore_ascii_case(TRACEPARENT)) {
            self.headers.insert(TRACEPARENT.to_owned(), traceparent);
        }
    }

    /// With the secrets that the document puts into it.
    fn filled(self, filling: Filling<'_>) -> Result<Input, SkillError> {
        let header = |(name, value): (String, String)| {
            let mut pointer = "/headers".to_owned();
            push_segment(&mut pointer, &name);
            let value = filling.text(&value, &pointer)?;
            Ok((name, value))
        };
        Ok(Input {
            url: filling.url(&self.url, "/url")?,
            headers: self.headers.into_iter().map(header).collect::<Result<_, SkillError>>()?,
            body: self.body.map(|body| filling.json(body, "/body")).transpose()?,
            method: self.method,
        })
    }
}

fn get() -> String {
    "GET".to_owned()
}

pub(super) fn register(skills: &mut Skills, egress: &Egress) {
    // Built once, at the first call: most programs never make one.
    let client = Arc::new(OnceLock::new());
    let egress = Arc::new(egress.clone());
    let room = Room::new(ROOM_BYTES);
    skills.add("http", move |context, mut input: Input| {
        let (client, egress, room) = (client.clone(), egress.clone(), room.clone());
        async move {
            let client: &Result<reqwest::Client, String> = client.get_or_init(|| egress.client());
            let client = client.as_ref().map_err(|message| SkillError::new("http_failed", message))?;
            let filling = Filling { secrets: &context.secrets, placeholders: &context.placeholders };
            input = input.filled(filling)?;
            input.pass_on(context.traceparent());
            // A step that says how long it may take is ended when that is over, whatever it does.
            let limit = context.timeout_ms.is_none().then_some(PATIENCE);
            call(client, &egress, &room, input, limit).await
        }
    });
}

async fn call(
    client: &reqwest::Client,
    egress: &Egress,
    room: &Room,
    input: Input,
    limit: Option<Duration>,
) -> Result<Output, SkillError> {
    let url = reqwest::Url::parse(&input.url)
        .map_err(|error| SkillError::fatal("bad_input", format!("`{}` is no URL: {error}", input.url)))?;
    let host = url.host_str().ok_or_else(|| SkillError::fatal("bad_input", "the URL has no host"))?;
    if let Some(message) = egress.private_literal(host) {
        return Err(SkillError::fatal("private_address", message));
    }
    let method = reqwest::Method::from_bytes(input.method.to_uppercase().as_bytes())
        .map_err(|_| SkillError::fatal("bad_input", format!("`{}` is no HTTP method", input.method)))?;
    let mut request = client.request(method, url);
    if let Some(limit) = limit {
        request = request.timeout(limit);
    }
    for (name, value) in &input.headers {
        request = request.header(name, value);
    }
    request = match input.body {
        None => request,
        Some(json) => match serde_json::from_str::<String>(json.as_str()) {
            Ok(text) => request.body(text),
            Err(_) => request.header("content-type", "application/json").body(json.as_str().to_owned()),
        },
    };
    let response = request.send().await.map_err(failed)?;
    let status = response.status();
    let header_bytes: usize = response.headers().iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    if header_bytes > HEADER_BYTES {
        let message = format!("the headers of the answer have more than {HEADER_BYTES} bytes");
        return Err(SkillError::fatal("http_headers_too_large", message));
    }
    let headers: BTreeMap<String, String> = response
        .headers()
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let body = read_body(response, room).await?;
    if status.is_success() || status.is_redirection() {
        return Ok(Output { status: status.as_u16(), headers, body });
    }
    let message = format!("the server answered {status}");
    // The caller's fault stays the caller's fault, except where it was told to come again.
    let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    Err(SkillError { code: format!("http_{}", status.as_u16()), message, retryable: again })
}

async fn read_body(mut response: reqwest::Response, room: &Room) -> Result<Body, SkillError> {
    let (mut bytes, mut place) = (Vec::new(), Place::default());
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if bytes.len() + chunk.len() > BODY_BYTES {
            return Err(SkillError::fatal(
                "http_body_too_large",
                format!("the answer has more than {BODY_BYTES} bytes"),
            ));
        }
        let needed = bytes.len() + chunk.len();
        room.grow(&mut place, needed).await.map_err(|full| SkillError::new("http_failed", full.to_string()))?;
        bytes.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Ok(Json::readable(&text).map_or_else(|| Body::Text(text), Body::Json))
}

fn failed(error: reqwest::Error) -> SkillError {
    if error.is_timeout() && !error.is_connect() {
        let message = format!(
            "there was no whole answer within {} seconds; a step that may take longer says so by `timeout_ms`",
            PATIENCE.as_secs()
        );
        return SkillError::new("timeout", message);
    }
    match explain(error) {
        message if names_private_address(&message) => SkillError::fatal("private_address", message),
        message => SkillError::new("http_failed", message),
    }
}
