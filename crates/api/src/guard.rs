//! Who may come in: the token, and, where there is none, requests that cannot come from another site's page.
//!
//! A server on the loopback address without tokens is open to every program of this machine, a browser among them. A page
//! of another site must not reach it: by its own `Origin` such a request is known, and one that came through a name that
//! was made to point here (DNS rebinding) is known by its `Host`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest as _, Sha256};

use crate::error::Problem;
use crate::state::AppState;

/// The SHA-256 of an API token: the token itself is nowhere kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    #[must_use]
    pub fn of(token: &str) -> TokenHash {
        TokenHash(Sha256::digest(token.as_bytes()).into())
    }
}

impl std::fmt::Display for TokenHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("sha256:")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::str::FromStr for TokenHash {
    type Err = String;

    fn from_str(text: &str) -> Result<TokenHash, String> {
        let hex = text.strip_prefix("sha256:").unwrap_or(text);
        let digest: milepost_core::hash::Digest = hex
            .parse()
            .map_err(|_| "a token hash is `sha256:` and 64 hexadecimal digits; `milepost token` makes one")?;
        Ok(TokenHash(digest.0))
    }
}

/// Lets a request through, or answers it.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let open = matches!(path, "/healthz" | "/readyz" | "/docs");
    let checked = check_origin(&state, request.headers())
        .and_then(|()| if open { Ok(()) } else { check_token(&state, request.headers()) });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn check_token(state: &AppState, headers: &HeaderMap) -> Result<(), Problem> {
    let tokens = &state.settings.tokens;
    if tokens.is_empty() {
        return Ok(());
    }
    let unauthorized = |detail: &str| Err(Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail));
    let Some(value) = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()) else {
        return unauthorized("this server wants a token; send it as `Authorization: Bearer …` (CLI: --token)");
    };
    let token = value.strip_prefix("Bearer ").or_else(|| value.strip_prefix("bearer ")).unwrap_or_default();
    // Digests are compared, not tokens, so how long it takes tells nothing about a token.
    match tokens.contains(&TokenHash::of(token.trim())) {
        true => Ok(()),
        false => unauthorized("the token is not known here; ask who runs this server for one"),
    }
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

    #[test]
    fn a_token_is_known_by_its_hash() {
        let hash = TokenHash::of("secret");
        assert_eq!(hash.to_string().parse::<TokenHash>().unwrap(), hash);
        assert!("sha256:zz".parse::<TokenHash>().is_err());
    }
}
