//! A server, asked over HTTP: requests, answers, and what it means when there is none.

mod artifacts;
mod logs;
mod runs;
mod signals;
mod sse;
mod stream;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

pub use artifacts::ArtifactFilter;
pub use runs::{NewRun, RunFilter};
pub use signals::Signal;
pub use stream::{EventStream, Seen};

/// Where `milepost dev` listens unless it is told otherwise.
pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:7400";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const ACTOR: &str = "milepost-actor";
/// For everything but streams.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server. Cheap to clone; clones share connections.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Clone, Debug)]
struct Inner {
    http: reqwest::Client,
    base: Url,
    /// As it was given, for people.
    url: String,
    token: Option<String>,
    traceparent: Option<String>,
    actor: Option<String>,
}

impl Client {
    /// A client of the server at this address. Nothing is sent yet.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(url: &str) -> Result<Client, Error> {
        let base = base(url)?;
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
        // A proxy in the environment is for the world outside, not for this machine.
        if base.host_str().is_some_and(|host| host == "localhost" || host == "[::1]" || host.starts_with("127.")) {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| Error::Setup(error.to_string()))?;
        let inner = Inner { http, base, url: url.to_owned(), token: None, traceparent: None, actor: None };
        Ok(Client { inner: Arc::new(inner) })
    }

    /// A client of the server that `MILEPOST_URL` names, or of the one that `milepost dev` starts; with `MILEPOST_TOKEN`, if it
    /// is set.
    ///
    /// # Errors
    /// The address is none.
    pub fn from_env() -> Result<Client, Error> {
        let client = Client::new(&variable("MILEPOST_URL").unwrap_or_else(|| DEFAULT_SERVER.to_owned()))?;
        Ok(match variable("MILEPOST_TOKEN") {
            Some(token) => client.with_token(token),
            None => client,
        })
    }

    /// What the server knows you by.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Client {
        Arc::make_mut(&mut self.inner).token = Some(token.into());
        self
    }

    /// Makes runs that are started part of a trace: the value of the W3C header `traceparent`.
    #[must_use]
    pub fn with_traceparent(mut self, traceparent: impl Into<String>) -> Client {
        Arc::make_mut(&mut self.inner).traceparent = Some(traceparent.into());
        self
    }

    /// Who does what is asked for, to a server that asks for no token (`milepost dev`); others go by the name of the token.
    #[must_use]
    pub fn with_actor(mut self, name: impl Into<String>) -> Client {
        Arc::make_mut(&mut self.inner).actor = Some(name.into());
        self
    }

    /// The address, as it was given.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.inner.url
    }

    /// Any `GET` under `/api/v1`, by the segments of its path.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T, Error> {
        let answer = self.send(self.request(Method::GET, path, query)).await?;
        self.read(&answer.1)
    }

    /// Any `POST` under `/api/v1`; answers the status as well.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<(u16, T), Error> {
        self.post_with(path, body, &[]).await
    }

    /// The same with headers of your own, such as `If-Match`.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn post_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: &[(&str, String)],
    ) -> Result<(u16, T), Error> {
        let request = with_headers(self.request(Method::POST, path, &[]), headers);
        let (status, answer) = self.send(json(request, serde_json::to_vec(body)?)).await?;
        Ok((status, self.read(&answer)?))
    }

    /// Any `PUT` under `/api/v1`.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn put<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> Result<T, Error> {
        self.put_with(path, body, &[]).await
    }

    /// The same with headers of your own, such as `If-Match`.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn put_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &impl Serialize,
        headers: &[(&str, String)],
    ) -> Result<T, Error> {
        let request = with_headers(self.request(Method::PUT, path, &[]), headers);
        let answer = self.send(json(request, serde_json::to_vec(body)?)).await?;
        self.read(&answer.1)
    }

    /// Any `DELETE` under `/api/v1`.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn delete(&self, path: &[&str], query: &[(&str, String)]) -> Result<(), Error> {
        self.delete_with(path, query, &[]).await
    }

    /// The same with headers of your own, such as `If-Match`.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn delete_with(
        &self,
        path: &[&str],
        query: &[(&str, String)],
        headers: &[(&str, String)],
    ) -> Result<(), Error> {
        self.send(with_headers(self.request(Method::DELETE, path, query), headers)).await.map(drop)
    }

    /// The same where the answer says something.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn delete_for<T: DeserializeOwned>(&self, path: &[&str], query: &[(&str, String)]) -> Result<T, Error> {
        let (_, body) = self.send(self.request(Method::DELETE, path, query)).await?;
        self.read(&body)
    }

    /// A `POST` whose body is ready, and which may take its time.
    pub(crate) async fn post_bytes(&self, path: &[&str], body: Vec<u8>, within: Duration) -> Result<Bytes, Error> {
        let request = json(self.request(Method::POST, path, &[]), body);
        Ok(self.send_within(request, within).await?.1)
    }

    fn request(&self, method: Method, path: &[&str], query: &[(&str, String)]) -> RequestBuilder {
        let mut url = self.inner.base.clone();
        url.path_segments_mut().expect("an http address has a path").extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let mut request = self.inner.http.request(method, url);
        if let Some(trace) = &self.inner.traceparent {
            request = request.header("traceparent", trace);
        }
        if let Some(actor) = &self.inner.actor {
            request = request.header(ACTOR, actor);
        }
        match &self.inner.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> Result<(u16, Bytes), Error> {
        self.send_within(request, TIMEOUT).await
    }

    async fn send_within(&self, request: RequestBuilder, within: Duration) -> Result<(u16, Bytes), Error> {
        let lost = |error: reqwest::Error| Error::unreachable(&self.inner.url, &error);
        let answer = request.timeout(within).send().await.map_err(lost)?;
        if !answer.status().is_success() {
            return Err(self.refused(answer).await);
        }
        Ok((answer.status().as_u16(), answer.bytes().await.map_err(lost)?))
    }

    async fn refused(&self, answer: Response) -> Error {
        let (status, retry_after) = (answer.status(), retry_after(&answer));
        match answer.bytes().await {
            Ok(body) => Error::refused(&self.inner.url, status, retry_after, &body),
            Err(error) => Error::unreachable(&self.inner.url, &error),
        }
    }

    fn read<T: DeserializeOwned>(&self, body: &[u8]) -> Result<T, Error> {
        serde_json::from_slice(body).map_err(|error| Error::unreadable(&self.inner.url, &error))
    }
}

/// A variable of the environment; an empty one says nothing.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// They take the place of those that every request has. One that cannot be a header fails the request when it is sent.
fn with_headers(request: RequestBuilder, headers: &[(&str, String)]) -> RequestBuilder {
    headers.iter().fold(request, |request, (name, value)| {
        let header = HeaderName::try_from(*name).ok().zip(HeaderValue::try_from(value).ok());
        match header {
            Some(header) => request.headers(HeaderMap::from_iter([header])),
            None => request.header(*name, value),
        }
    })
}

fn json(request: RequestBuilder, body: Vec<u8>) -> RequestBuilder {
    request.header(CONTENT_TYPE, HeaderValue::from_static("application/json")).body(body)
}

fn retry_after(answer: &Response) -> Option<Duration> {
    answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

/// The address under which the API is: of the server, or with the API's own path already.
fn base(text: &str) -> Result<Url, Error> {
    let wrong = || Error::BadAddress(text.to_owned());
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let full = full.trim_end_matches('/').trim_end_matches("/api/v1");
    let mut url: Url = full.parse().map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong());
    }
    url.path_segments_mut().expect("an http address has a path").pop_if_empty().extend(["api", "v1"]);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for text in ["http://a:7400", "http://a:7400/", "a:7400", "http://a:7400/api/v1", "http://a:7400/api/v1/"] {
            assert_eq!(base(text).unwrap().as_str(), "http://a:7400/api/v1", "{text}");
        }
        assert_eq!(base("https://a/milepost").unwrap().as_str(), "https://a/milepost/api/v1");
        for text in ["", "ftp://a", "http://", "postgres://a/b", "a b"] {
            let error = base(text).expect_err(text).to_string();
            assert!(error.contains("is no address of a server; "), "{error}");
        }
    }
}
