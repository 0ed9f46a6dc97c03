//! Who may come in: the token, and only requests that cannot come from another site's page.
//!
//! A server on the loopback address without tokens is open to every program of this machine, a browser among them. A page
//! of another site must not reach it: a browser says by `Sec-Fetch-Site` or `Origin` where a request comes from, and one
//! that came through a name that was made to point here (DNS rebinding) is known by its `Host`.
//!
//! **Invariant:** a header that decides is there once at most, and one that cannot be read refuses the request.

use axum::body::HttpBody as _;
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::doorway;
use crate::error::{Problem, Result};
use crate::extract::Actor;
use crate::headers;
use crate::security::Asked;
use crate::state::AppState;
use crate::token::{KnownToken, TokenHash};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Lets a request through, with its whole body, or answers it.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let asked = Asked::of(request.method(), request.extensions());
    let mut response = match admitted(&state, request).await {
        Ok((request, _room)) => next.run(request).await,
        Err(problem) => problem.into_response(),
    };
    state.security.note(&asked, &response);
    headers::complete(&mut response);
    response
}

async fn admitted(state: &AppState, mut request: Request) -> Result<(Request, milepost_engine::room::Place)> {
    check_origin(state, &request)?;
    let is_open = is_open(request.uri().path());
    let token = if is_open { None } else { check_token(state, request.headers())? };
    if let Some(name) = token.and_then(|token| token.name.clone()) {
        request.extensions_mut().insert(Actor(Some(name)));
    }
    if is_open && !request.body().is_end_stream() {
        // The server does not read it, and a slow sender would hold a connection that callers with a token need.
        let detail = "this address takes no body; send the request without one";
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_not_taken", detail));
    }
    state.bodies.gather(request).await
}

/// Those who restart a server, or send it requests, have no token.
pub(crate) fn is_question_of_health(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

/// What says nothing of this installation.
fn is_open(path: &str) -> bool {
    is_question_of_health(path) || matches!(path, "/docs" | doorway::PATH)
}

/// Whether a request may be told what only those may know who come in.
pub(crate) fn is_let_in(state: &AppState, headers: &HeaderMap) -> bool {
    check_token(state, headers).is_ok()
}

/// The token that a request came with, where the server wants one.
pub(crate) fn check_token<'s>(state: &'s AppState, headers: &HeaderMap) -> Result<Option<&'s KnownToken>> {
    let tokens = &state.settings.tokens;
    if tokens.is_empty() {
        return Ok(None);
    }
    let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    let doorway = state.settings.doorway.as_ref();
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let token = match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok().map(bearer),
        (None, _) => doorway.and_then(|doorway| doorway.cookie(headers)),
        (Some(_), Some(_)) => None,
    };
    let Some(token) = token else {
        let detail = match doorway {
            None => "this server wants a token; send it once, as `Authorization: Bearer …` (CLI: --token)",
            Some(_) => {
                "this server is one person's and wants a token; its `server.json` has it: send it once, as \
                 `Authorization: Bearer …`. A browser gets it by the address that the terminal of `milepost dev` shows"
            }
        };
        return Err(unauthorized(detail));
    };
    let hash = TokenHash::of(token);
    let known = tokens.iter().find(|known| known.hash.is_same(&hash));
    known.map(Some).ok_or_else(|| unauthorized("the token is not known here; ask who runs this server for one"))
}

/// The token in such a header; nothing where it is of another kind.
fn bearer(value: &str) -> &str {
    let (scheme, token) = value.trim().split_once(' ').unwrap_or_default();
    if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
}

fn check_origin(state: &AppState, request: &Request) -> Result<()> {
    let foreign = |code: &str, detail: String| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
    let host = host(request)?;
    if state.settings.loopback_only && !host.as_ref().is_some_and(is_loopback) {
        let called = host.as_ref().map_or("", Authority::as_str);
        let detail =
            format!("this server answers to localhost only, and was called `{called}`; use http://127.0.0.1:PORT");
        return foreign("foreign_host", detail);
    }
    let headers = request.headers();
    if let Some(origin) = single(headers, &header::ORIGIN, "foreign_origin")? {
        let from = origin.to_str().ok().and_then(|origin| origin.split_once("://")).map(|(_, from)| from);
        let own = host.as_ref().map(Authority::as_str);
        if from.is_none() || !own.zip(from).is_some_and(|(own, from)| own.eq_ignore_ascii_case(from)) {
            let origin = String::from_utf8_lossy(origin.as_bytes());
            let origin: String = origin.chars().take(100).collect();
            let detail = format!("a page of `{origin}` may not call this server; call it from your own");
            return foreign("foreign_origin", detail);
        }
    }
    match single(headers, &FETCH_SITE, "foreign_site")?.map(HeaderValue::as_bytes) {
        None | Some(b"none" | b"same-origin") => Ok(()),
        Some(_) if is_link_to_page(request) => Ok(()),
        Some(_) => foreign(
            "foreign_site",
            "a page of another site may not call this server; call it from its own pages, or from a program".to_owned(),
        ),
    }
}

/// Somebody follows a link to a page that is there to be read. No other page sees what it shows.
fn is_link_to_page(request: &Request) -> bool {
    let is =
        |name: HeaderName, value: &[u8]| request.headers().get(name).is_some_and(|given| given.as_bytes() == value);
    request.method() == Method::GET
        && matches!(request.uri().path(), "/" | "/docs")
        && is(FETCH_MODE, b"navigate")
        && is(FETCH_DEST, b"document")
}

/// Whom the request calls. Programs that speak HTTP/1.0, as some that look after servers do, may leave it out.
fn host(request: &Request) -> Result<Option<Authority>> {
    let bad = |detail: &str| Problem::bad_request("bad_host", detail);
    let host = match single(request.headers(), &header::HOST, "bad_host")? {
        Some(host) => Some(authority(host).ok_or_else(|| bad("`Host` is not a host and a port; send HOST:PORT"))?),
        None if request.version() <= Version::HTTP_10 => None,
        None => return Err(bad("there is no `Host`; HTTP/1.1 wants one")),
    };
    // A target that names a server names this one.
    match (request.uri().authority(), &host) {
        (Some(target), Some(host)) if target.as_str().eq_ignore_ascii_case(host.as_str()) => {}
        (Some(_), _) => return Err(bad("the request names another server than its `Host`; send it to one")),
        (None, _) => {}
    }
    Ok(host)
}

fn authority(host: &HeaderValue) -> Option<Authority> {
    let text = host.to_str().ok()?;
    let authority: Authority = text.parse().ok()?;
    // Nobody logs in by a name before an `@`.
    let port = text.strip_prefix(authority.host())?;
    let is_port = port.is_empty() || authority.port_u16().is_some();
    (is_port && !text.contains('@')).then_some(authority)
}

/// A header that may be there once.
fn single<'h>(headers: &'h HeaderMap, name: &HeaderName, code: &str) -> Result<Option<&'h HeaderValue>> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (value, None) => Ok(value),
        _ => Err(Problem::bad_request(code, format!("`{name}` is there more than once; send it once"))),
    }
}

fn is_loopback(host: &Authority) -> bool {
    let name = host.host();
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost")
        || address.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(host: &str) -> Option<Authority> {
        authority(&HeaderValue::from_bytes(host.as_bytes()).unwrap())
    }

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "LOCALHOST:7400", "127.0.0.1:7400", "127.8.0.1", "[::1]:7400", "[::ffff:127.0.0.1]:1"]
        {
            assert!(is_loopback(&read(host).unwrap()), "{host}");
        }
        for host in ["example.com", "localhost.example.com:7400", "10.0.0.1", "[::2]", "127.0.0.1.nip.io"] {
            assert!(!is_loopback(&read(host).unwrap()), "{host}");
        }
    }

    #[test]
    fn a_host_is_a_name_and_a_port() {
        for host in
            ["", "127.0.0.1:7713@evil", "a@127.0.0.1", "127.0.0.1:x", "127.0.0.1:99999", "127.0.0.1/x", "ä", "[::1"]
        {
            assert_eq!(read(host), None, "{host}");
        }
    }
}
