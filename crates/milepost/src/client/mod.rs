//! A server, asked over HTTP: the SDK's client, and what the verbs read of its answers.

mod artifacts;
mod cache;
mod definitions;
mod error;
mod logs;
mod outbox;
mod queues;
mod runs;
mod secrets;
mod start;
mod stream;
mod workflows;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::backend::caller_trace;
use crate::person;
use crate::target::Server;
pub(crate) use error::refusal;

#[derive(Clone, Debug)]
pub(crate) struct Client {
    sdk: milepost_sdk::Client,
    server: Server,
}

type Query<'a> = [(&'a str, String)];

impl Client {
    pub(crate) fn new(server: Server) -> anyhow::Result<Client> {
        let mut sdk = milepost_sdk::Client::new(&server.url).map_err(|error| refusal(&server, error))?;
        if let Some(token) = &server.token {
            sdk = sdk.with_token(token);
        }
        if let Some(actor) = person::said() {
            sdk = sdk.with_actor(actor);
        }
        if let Some(trace) = caller_trace() {
            sdk = sdk.with_traceparent(trace.to_string());
        }
        Ok(Client { sdk, server })
    }

    pub(crate) fn server(&self) -> &Server {
        &self.server
    }

    async fn get<T: DeserializeOwned>(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<T> {
        self.sdk.get(path, query).await.map_err(|error| refusal(&self.server, error))
    }

    /// Answers the status as well.
    async fn post<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<(u16, T)> {
        self.sdk.post(path, body).await.map_err(|error| refusal(&self.server, error))
    }

    async fn put<T: DeserializeOwned>(&self, path: &[&str], body: &impl Serialize) -> anyhow::Result<T> {
        self.sdk.put(path, body).await.map_err(|error| refusal(&self.server, error))
    }

    async fn delete_for<T: DeserializeOwned>(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<T> {
        self.sdk.delete_for(path, query).await.map_err(|error| refusal(&self.server, error))
    }

    async fn delete(&self, path: &[&str], query: &Query<'_>) -> anyhow::Result<()> {
        self.sdk.delete(path, query).await.map_err(|error| refusal(&self.server, error))
    }
}
