//! How a browser comes by the token of a server that is for one person: by an address that works once.
//!
//! The address is shown to that person, in a terminal. Who opens it gets the token as a cookie, and the address that is
//! shown next is another one. So what lists of processes and histories of browsers keep of it opens nothing.

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::watch;
use uuid::Uuid;

use crate::error::Problem;
use crate::routes::not_found;
use crate::state::AppState;
use crate::token::TokenHash;

/// Where the address leads.
pub(crate) const PATH: &str = "/enter";

#[derive(Debug)]
pub struct Doorway {
    token: String,
    key: watch::Sender<String>,
}

impl Doorway {
    /// For a server that wants this token.
    #[must_use]
    pub fn new(token: String) -> Doorway {
        Doorway { token, key: watch::Sender::new(new_key()) }
    }

    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The key that opens next, whenever it is another one.
    #[must_use]
    pub fn keys(&self) -> watch::Receiver<String> {
        self.key.subscribe()
    }

    /// Where a key is shown.
    #[must_use]
    pub fn path(key: &str) -> String {
        format!("{PATH}?key={key}")
    }

    fn open(&self, key: &str) -> bool {
        self.key.send_if_modified(|current| {
            // Digests are compared, so how long it takes tells nothing about the key.
            let fits = TokenHash::of(key).is_same(&TokenHash::of(current));
            if fits {
                *current = new_key();
            }
            fits
        })
    }

    /// The token that a browser sends. Cookies go to every port of a host, so each server has a name of its own for it.
    pub(crate) fn cookie<'h>(&self, headers: &'h HeaderMap) -> Option<&'h str> {
        let name = self.cookie_name();
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = cookies.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.find_map(|(known, value)| (known == name).then_some(value))
    }

    fn cookie_name(&self) -> String {
        let hash = TokenHash::of(&self.token).to_string();
        format!("milepost-{}", hash.trim_start_matches("sha256:").get(..12).unwrap_or_default())
    }
}

fn new_key() -> String {
    [Uuid::new_v4(), Uuid::new_v4()].map(|random| random.simple().to_string()).concat()
}

#[derive(Debug, Deserialize)]
pub(crate) struct Asked {
    #[serde(default)]
    key: String,
}

/// Not part of the API's description: an address for a person.
pub(crate) async fn enter(State(state): State<AppState>, Query(asked): Query<Asked>) -> Response {
    let Some(doorway) = &state.settings.doorway else {
        return not_found().into_response();
    };
    if !doorway.open(&asked.key) {
        let detail = "this address has been used; the terminal of `milepost dev` shows the next one";
        return Problem::new(StatusCode::UNAUTHORIZED, "used_address", detail).into_response();
    }
    let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", doorway.cookie_name(), doorway.token);
    let Ok(cookie) = HeaderValue::from_str(&cookie) else { return StatusCode::INTERNAL_SERVER_ERROR.into_response() };
    let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, HeaderValue::from_static("/"))];
    (StatusCode::SEE_OTHER, headers).into_response()
}
