//! Who may come in: the token, and, where there is none, requests that cannot come from another site's page.
//!
//! A server on the loopback address without tokens is open to every program of this machine, a browser among them. A page
//! of another site must not reach it: by its own `Origin` such a request is known, and one that came through a name that
//! was made to point here (DNS rebinding) is known by its `Host`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::error::Problem;
use crate::extract::Actor;
use crate::state::AppState;
use crate::token::{KnownToken, TokenHash};

/// Lets a request through, or answers it.
pub(crate) async fn guard(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = matches!(path, "/healthz" | "/readyz" | "/docs");
    let checked = check_origin(&state, request.headers())
        .and_then(|()| if open { Ok(None) } else { check_token(&state, request.headers()) });
    match checked {
        Ok(token) => {
            if let Some(name) = token.and_then(|token| token.name.clone()) {
                request.extensions_mut().insert(Actor(Some(name)));
            }
            next.run(request).await
        }
        Err(problem) => problem.into_response(),
    }
}

/// Whether a request may be told what only those may know who come in.
pub(crate) fn is_let_in(state: &AppState, headers: &HeaderMap) -> bool {
    check_token(state, headers).is_ok()
}

/// The token that a request came with, where the server wants one.
fn check_token<'s>(state: &'s AppState, headers: &HeaderMap) -> Result<Option<&'s KnownToken>, Problem> {
    let tokens = &state.settings.tokens;
    if tokens.is_empty() {
        return Ok(None);
    }
    let unauthorized = |detail: &str| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        let detail = "this server wants a token; send it as `Authorization: Bearer …` (CLI: --token)";
        return Err(unauthorized(detail));
    };
    let token = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")).unwrap_or_default();
    // Digests are compared, not tokens, so how long it takes tells nothing about a token.
    let hash = TokenHash::of(token.trim());
    let known = tokens.iter().find(|known| known.hash == hash);
    known.map(Some).ok_or_else(|| unauthorized("the token is not known here; ask who runs this server for one"))
}

fn check_origin(state: &AppState, headers: &HeaderMap) -> Result<(), Problem> {
    let forbidden = |code: &str, detail: String| Err(Problem::new(StatusCode::FORBIDDEN, code, detail));
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(header::HOST).unwrap_or_default();
    if state.settings.loopback_only && !is_loopback(host) {
        let detail =
            format!("this server answers to localhost only, and was called `{host}`; use http://127.0.0.1:PORT");
        return forbidden("foreign_host", detail);
    }
    match text(header::ORIGIN) {
        Some(origin) if origin.split_once("://").is_none_or(|(_, from)| from != host) => {
            forbidden("foreign_origin", format!("a page of `{origin}` may not call this server; call it from your own"))
        }
        _ => Ok(()),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for host in ["localhost", "LOCALHOST:7400", "127.0.0.1:7400", "127.8.0.1", "[::1]:7400"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "example.com", "localhost.example.com:7400", "10.0.0.1", "[::2]", "127.0.0.1.nip.io"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
