//! A server from its first moment to its last.
//!
//! ```text
//!   listen ─► open the store and the engine ─► answer, server.json, announce ─► … ─► signal
//!                                                                                      │
//!   exit ◄── engine shut down ◄── requests under way end ◄── not ready, refuse new ◄───┘
//! ```
//!
//! **Invariant:** nothing is announced before it is so: when `server.json` is there, requests are answered.

mod access;
pub(crate) mod file;
pub(crate) mod listen;
mod reporter;
mod room;
mod signals;
pub(crate) mod watch;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use milepost_api::{AppState, Settings};
use milepost_engine::artifacts::ArtifactsConfig;
use milepost_engine::cache::CacheConfig;
use milepost_engine::definitions::DefinitionsConfig;
use milepost_engine::skills::{BuiltInOptions, Skills};
use milepost_engine::{Config, Engine, Failure, OutboxConfig, PushConfig, SupervisionConfig};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::config::ServerConfig;
use crate::database::Database;
use crate::files;
use crate::output::error::Refusal;
pub(crate) use access::Access;
use file::ServerFile;
pub(crate) use reporter::Reporter;
pub(crate) use signals::Signals;

/// A server that ended before it was done.
const LEFT: u8 = 1;
/// A server whose engine has failed: `EX_SOFTWARE`.
const FAILED: u8 = 70;
/// How long the engine may take to write what it has. A database that is away must not keep the process.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// A server that answers.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) engine: Arc<Engine>,
    pub(crate) url: String,
    state: AppState,
    answering: JoinHandle<()>,
    /// Removed when the server has gone.
    _file: Option<ServerFile>,
}

/// What ended a server.
enum End {
    Asked,
    /// It no longer listens, by itself.
    Lost(std::io::Error),
    /// The engine cannot go on.
    Failed,
}

impl Server {
    /// Opens the engine and answers requests.
    pub(crate) async fn open(config: &ServerConfig, listener: TcpListener, access: &Access) -> anyhow::Result<Server> {
        let address = listener.local_addr().context("the address cannot be read")?;
        let tls = config.tls()?;
        let url = listen::url(address, tls.is_some());
        // Before store and engine, which count with what is installed when they open.
        milepost_api::metrics::install();
        let store = config.db.value.open().await?;
        let engine = Arc::new(Engine::open_with(store, engine_config(config)?).await?);
        let state = AppState::new(engine.clone(), Settings { tls, ..access.settings(config) });
        let answering = tokio::spawn(milepost_api::serve(listener, state.clone()));
        let file = ServerFile::write(&config.data.value, &url, access.token());
        if let Err(error) = &file {
            let data = config.data.value.display();
            anyhow::ensure!(
                access.token().is_none(),
                "server.json cannot be written to {data}: {error}; without it nobody gets the server's token"
            );
            tracing::warn!(%error, %data, "server.json cannot be written; other commands need --server to find this one");
        }
        // What could be closed has been closed by those who opened it.
        config.open_to_all().iter().for_each(|path| tracing::warn!("{}", files::close_it(path)));
        Ok(Server { engine, url, state, answering, _file: file.ok() })
    }

    /// For programs that wait until the server is ready.
    pub(crate) fn ready(&self, config: &ServerConfig) -> serde_json::Value {
        json!({
            "url": self.url,
            "data": config.data.value,
            "pid": std::process::id(),
            "node": self.engine.node().to_string(),
        })
    }

    /// Answers until somebody asks it to end, then ends in good order; asked again, at once.
    pub(crate) async fn run(mut self, signals: &mut Signals, on_drain: impl FnOnce()) -> anyhow::Result<ExitCode> {
        let end = tokio::select! {
            () = signals.next() => End::Asked,
            ended = &mut self.answering => End::Lost(lost(ended)),
            _ = self.engine.failed() => End::Failed,
        };
        if let End::Failed = end {
            // Nothing of the engine can be relied on, so nothing is ended in good order: `on_failure` has said why.
            signals::end_soon(FAILED);
            return Ok(ExitCode::from(FAILED));
        }
        if let End::Asked = end {
            on_drain();
        }
        tokio::select! {
            in_order = self.drain() => match (end, in_order) {
                (End::Lost(error), _) => Err(error).context("the server no longer listens"),
                (End::Asked | End::Failed, true) => Ok(ExitCode::SUCCESS),
                (End::Asked | End::Failed, false) => {
                    signals::end_soon(LEFT);
                    Ok(ExitCode::from(LEFT))
                }
            },
            () = signals.next() => {
                tracing::warn!("left at once; what was under way goes on when a server has this database again");
                signals::end_soon(LEFT);
                Ok(ExitCode::from(LEFT))
            }
        }
    }

    /// Lets requests end and has the engine write what it has. Says whether that was done.
    async fn drain(&mut self) -> bool {
        self.state.drain();
        if !self.answering.is_finished() {
            // How long this takes is bounded by the server's own settings.
            let _ = (&mut self.answering).await;
        }
        let done = tokio::time::timeout(SHUTDOWN, self.engine.shutdown()).await.is_ok();
        if !done {
            tracing::warn!("the database does not answer; what was acknowledged is on disk, the rest is left");
        }
        done
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.answering.abort();
    }
}

/// Called when the engine has failed, perhaps while the runtime stands still: whatever else happens, the process ends.
pub(crate) fn end_after_failure(failure: &Failure) {
    crate::say(&format!(
        "milepost ends: {failure}; what was acknowledged is on disk, and the next start goes on from there"
    ));
    signals::end_soon(FAILED);
}

fn lost(ended: Result<(), tokio::task::JoinError>) -> std::io::Error {
    match ended {
        Ok(()) => std::io::Error::other("it stopped by itself"),
        Err(error) => std::io::Error::other(error),
    }
}

fn engine_config(config: &ServerConfig) -> Result<Config, Refusal> {
    let skills = Skills::built_in(&BuiltInOptions { shell: config.allow_shell.value, egress: config.egress() });
    Ok(Config {
        workers: true,
        limits: config.limits.clone(),
        inline_concurrency: config.inline_concurrency.value,
        node_lease_ms: node_lease_ms(&config.db.value),
        skills,
        traces: config.traces.clone(),
        secrets: config.secrets()?,
        blobs: config.blobs()?,
        push: PushConfig {
            signing_secrets: config.push_secrets.value.0.clone(),
            egress: config.egress(),
            per_host: config.push_per_host.value,
        },
        supervision: SupervisionConfig {
            unready_after: Duration::from_secs(config.unready_after.value.0),
            end_after: config.end_after.value.0.map(Duration::from_secs),
            on_failure: Some(Arc::new(end_after_failure)),
        },
        outbox: OutboxConfig { max_tries: config.outbox_max_tries.value },
        artifacts: ArtifactsConfig {
            retention: config.artifact_retention.value.spans(),
            grace: Duration::from_secs(config.blob_grace.value.0),
        },
        retention: config.retention.value.0.map(std::time::Duration::from_secs),
        cache: CacheConfig {
            ttl: config.cache_ttl.value.0.map(Duration::from_secs),
            bytes: config.cache_bytes.value.0,
            redis: config.redis()?,
        },
        definitions: DefinitionsConfig {
            chain_depth: config.chain_depth.value.0,
            grace: config.gc_grace.value.0.map(std::time::Duration::from_secs),
        },
        ..Config::default()
    })
}

/// On one machine a dead process is known by its lock, so looking often costs nothing, and what another process leaves (a
/// signal that was sent) is seen within a second.
pub(crate) fn node_lease_ms(database: &Database) -> u64 {
    match database {
        Database::Sqlite(_) => 3_000,
        Database::Postgres(_) => 10_000,
    }
}
