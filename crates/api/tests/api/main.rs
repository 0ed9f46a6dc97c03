//! The routes, over a real engine on SQLite, without a socket in between.

#![expect(clippy::unwrap_used, reason = "a test says what went wrong by where it stops")]

mod artifacts;
mod bulk;
mod cache;
mod definitions;
mod fuzz;
mod guard;
mod hostile;
mod openapi;
mod outbox;
mod patches;
mod reading;
mod secrets;
mod signals;
mod starting;
mod updates;
mod who;
mod workers;
mod workflows;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use milepost_api::{Actors, AppState, Settings, router};
use milepost_engine::secrets::SecretsConfig;
use milepost_engine::{Config, Engine};
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt as _;

/// A server without a socket.
struct Api {
    router: Router,
    engine: Arc<Engine>,
    folder: TempDir,
}

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Value,
}

impl Api {
    async fn new() -> Api {
        Api::with(one_persons()).await
    }

    async fn with(settings: Settings) -> Api {
        Api::open(settings, Config::default()).await
    }

    /// One that can keep secrets.
    async fn with_key() -> Api {
        let keys = "0a".repeat(32).parse().unwrap();
        let secrets = SecretsConfig { keys, ..SecretsConfig::default() };
        Api::open(one_persons(), Config { secrets, ..Config::default() }).await
    }

    async fn open(settings: Settings, config: Config) -> Api {
        Api::at(tempfile::tempdir().unwrap(), settings, config).await
    }

    async fn at(folder: TempDir, settings: Settings, config: Config) -> Api {
        let store = Arc::new(SqliteStore::open(&folder.path().join("api.db")).unwrap());
        let config = Config { workers: true, ..config };
        let engine = Arc::new(Engine::open_with(store, config).await.unwrap());
        let router = router(AppState::new(engine.clone(), settings));
        Api { router, engine, folder }
    }

    /// Ended, and started again on the same database.
    async fn again(self) -> Api {
        let Api { router, engine, folder } = self;
        engine.shutdown().await;
        drop((router, engine));
        Api::at(folder, one_persons(), Config::default()).await
    }

    /// The database behind its back.
    fn sql(&self) -> rusqlite::Connection {
        rusqlite::Connection::open(self.folder.path().join("api.db")).unwrap()
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| Value::String(String::from_utf8_lossy(&bytes).into_owned()));
        Answer { status, headers, body }
    }

    async fn get(&self, path: &str) -> Answer {
        self.send(request("GET", path, &[], "")).await
    }

    async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_with(path, &[], body).await
    }

    async fn put(&self, path: &str, body: &Value) -> Answer {
        self.send(request("PUT", path, &[("content-type", "application/json")], &body.to_string())).await
    }

    async fn delete(&self, path: &str) -> Answer {
        self.send(request("DELETE", path, &[], "")).await
    }

    async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        let headers = [&[("content-type", "application/json")], headers].concat();
        self.send(request("POST", path, &headers, &body.to_string())).await
    }

    /// Starts a run of a document; answers its id.
    async fn start(&self, document: &Value) -> String {
        let answer = self.post("/api/v1/runs", &json!({ "document": document })).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.body);
        answer.body["run_id"].as_str().unwrap().to_owned()
    }

    /// Waits until a run has ended, and until lists know of it.
    async fn ended(&self, run: &str) {
        let ended = self.engine.wait(run.parse().unwrap());
        tokio::time::timeout(Duration::from_secs(30), ended).await.expect("the run ends").unwrap();
        // The end may be seen in the database before the projector is told of it.
        while !self.engine.store().unprojected(1).await.unwrap().is_empty() {
            self.engine.flush_projections().await;
        }
    }

    async fn ended_run(&self, document: &Value) -> String {
        let run = self.start(document).await;
        self.ended(&run).await;
        run
    }
}

impl Answer {
    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    /// Checks that this is a problem with a status and a code.
    #[track_caller]
    fn is_problem(&self, status: u16, code: &str) {
        assert_eq!((self.status.as_u16(), self.code()), (status, code), "{}", self.body);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.body["status"], status);
        assert!(self.body["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{}", self.body);
    }
}

fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Request<Body> {
    let mut request = Request::builder().method(method).uri(path);
    if !headers.iter().any(|(name, _)| *name == "host") {
        request = request.header("host", "localhost:7400");
    }
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Body::from(body.to_owned())).unwrap()
}

/// A server without tokens that believes what its one caller says.
fn one_persons() -> Settings {
    Settings { actors: Actors::Said { otherwise: None }, ..Settings::default() }
}

/// One step that answers with what it is given.
fn echo() -> Value {
    json!({ "name": "echo", "steps": {"only": {"skill": "echo", "input": {"n": "${{ payload.n | default(7) }}"}}} })
}

/// Waits for the signal `go`.
fn waiting() -> Value {
    json!({ "name": "waiting", "steps": {"gate": {"skill": "wait", "input": {"signal": "go"}}} })
}

fn failing() -> Value {
    json!({ "name": "failing", "steps": {"bad": {"skill": "fail", "input": {"times": 1, "code": "broken", "retryable": false}}} })
}
