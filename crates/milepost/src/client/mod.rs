//! A server, asked over HTTP: requests, answers, and what it means when there is none.

mod error;
mod logs;
mod runs;
mod sse;
mod start;
mod stream;
mod workflows;

use std::time::Duration;

use anyhow::Context as _;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::caller_trace;
use crate::output::error::Refusal;
use crate::target::Server;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// For everything but streams.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Clone, Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: Url,
    server: Server,
}

type Query<'a> = [(&'a str, String)];

impl Client {
    pub(crate) fn new(server: Server) -> anyhow::Result<Client> {
        let base = base(&server.url)?;
        let mut builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT);
        // A proxy in the environment is for the world outside, not for this machine.
        if base.host_str().is_some_and(|host| host == "localhost" || host == "[::1]" || host.starts_with("127.")) {
            builder = builder.no_proxy();
        }
        Ok(Client { http: builder.build().context("HTTP cannot be set up here")?, base, server })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<T> {
        let request = self.request(Method::GET, path, query);
        Ok(self.read(self.send(request).await?).await?.1)
    }

    async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<(StatusCode, T)> {
        let request = self.request(Method::POST, path, &[]).json(body);
        self.read(self.send(request).await?).await
    }

    fn request(&self, method: Method, path: &[&str], query: &Query<'_>) -> RequestBuilder {
        let mut url = self.base.clone();
        url.path_segments_mut().expect("an http address has a path").extend(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        let request =
            caller_trace().iter().fold(request, |request, trace| request.header("traceparent", trace.to_string()));
        match &self.server.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        request.timeout(TIMEOUT).send().await.map_err(|error| error::unreachable(&self.server, &error))
    }

    async fn read<T: DeserializeOwned>(&self, answer: Response) -> anyhow::Result<(StatusCode, T)> {
        let status = answer.status();
        let body = answer.bytes().await.map_err(|error| error::unreachable(&self.server, &error))?;
        if !status.is_success() {
            return Err(error::refused(&self.server, status, &body));
        }
        let value = serde_json::from_slice(&body).map_err(|error| error::unreadable(&self.server, &error))?;
        Ok((status, value))
    }
}

/// The address under which the API is: of the server, or with the API's own path already.
fn base(text: &str) -> anyhow::Result<Url> {
    let wrong = || {
        let message = format!("`{text}` is no address of a server; write it as in http://127.0.0.1:7400");
        Refusal::new("bad_server", message)
    };
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let full = full.trim_end_matches('/').trim_end_matches("/api/v1");
    let mut url: Url = full.parse().map_err(|_| wrong())?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong().into());
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
