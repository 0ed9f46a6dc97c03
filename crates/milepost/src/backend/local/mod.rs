//! A database that this process opens itself, with an engine on it where something is written.

mod artifacts;
mod bulk;
mod cache;
mod definitions;
mod outbox;
mod patch;
mod queues;
mod read;
mod secrets;
mod start;
mod steps;
mod workflows;

use std::sync::{Arc, Mutex};

use milepost_core::limits::Limits;
use milepost_engine::cache::CacheConfig;
use milepost_engine::definitions::Definitions;
use milepost_engine::skills::{BuiltInOptions, LogLine, LogSink, Skills};
use milepost_engine::telemetry::OtlpConfig;
use milepost_engine::{Config, Engine, SupervisionConfig};
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::memory::MemoryStore;
use tokio::sync::OnceCell;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use super::Access;
use super::logs::Logs;
use crate::config::places;
use crate::database::Database;
use crate::output::error::Refusal;

#[derive(Debug)]
pub(crate) struct Local {
    database: Database,
    store: Arc<dyn Store>,
    /// Opened when it is needed: what only reads writes nothing.
    engine: OnceCell<Engine>,
    limits: Limits,
    logs: Mutex<Option<UnboundedReceiver<LogLine>>>,
}

/// How steps are carried out.
#[derive(Debug)]
pub(crate) struct RunSettings {
    pub(crate) limits: Limits,
    pub(crate) concurrency: usize,
    pub(crate) private_addresses: bool,
    /// Whether somebody listens to what steps say.
    pub(crate) logs: bool,
}

/// The settings of an engine that lives for one command.
pub(crate) fn config(
    database: &Database,
    limits: Limits,
    private_addresses: bool,
    log: Option<LogSink>,
) -> Result<Config, Refusal> {
    // On one machine a dead process is known by its lock, so looking often costs nothing, and what another process
    // leaves (a signal that was sent) is seen within a second.
    let node_lease_ms = match database {
        Database::Sqlite(_) => 3_000,
        Database::Postgres(_) => 10_000,
    };
    let egress = places::egress_of_command(database, private_addresses)?;
    let skills = Skills::built_in(&BuiltInOptions { shell: true, egress });
    let (secrets, blobs) = places::of_command(database)?;
    let supervision = SupervisionConfig {
        on_failure: Some(Arc::new(crate::server::end_after_failure)),
        ..SupervisionConfig::default()
    };
    Ok(Config { limits, node_lease_ms, skills, log, secrets, blobs, supervision, ..Config::default() })
}

/// Where traces go, as the variables of OpenTelemetry say it to every program.
pub(crate) fn traces() -> Result<Option<OtlpConfig>, Refusal> {
    OtlpConfig::from_env().map_err(|error| Refusal::new("bad_config", error.to_string()))
}

impl Local {
    /// Where large things of this database are.
    fn blobs(&self) -> Result<Option<Blobs>, Refusal> {
        Ok(places::of_command(&self.database)?.1)
    }

    /// Documents in versions need no engine.
    fn definitions(&self) -> Result<Definitions, Refusal> {
        Ok(Definitions::open(self.store.clone(), self.blobs()?, self.limits.clone()))
    }

    pub(super) async fn open(database: Database, access: Access) -> anyhow::Result<Local> {
        let store = match &access {
            Access::Nothing(_) => Arc::new(MemoryStore::new()),
            Access::Read => database.open_to_read().await?,
            Access::Write(_) => database.open_existing().await?,
            Access::Make(_) | Access::Run(_) => database.open().await?,
        };
        let local = |limits| Local { database, store, engine: OnceCell::new(), limits, logs: Mutex::default() };
        match access {
            Access::Read => Ok(local(Limits::default())),
            Access::Nothing(limits) | Access::Write(limits) | Access::Make(limits) => Ok(local(limits)),
            Access::Run(settings) => {
                let local = local(settings.limits.clone());
                local.begin(settings).await?;
                Ok(local)
            }
        }
    }

    /// Opens an engine that carries steps out.
    async fn begin(&self, settings: RunSettings) -> anyhow::Result<()> {
        let (log, logs) = settings.logs.then(log_channel).unzip();
        let config = config(&self.database, settings.limits, settings.private_addresses, log)?;
        let cache = CacheConfig { redis: places::redis_of_command(&self.database)?, ..CacheConfig::default() };
        let config = Config { inline_concurrency: settings.concurrency, traces: traces()?, cache, ..config };
        let engine = Engine::open_with(self.store.clone(), config).await?;
        self.engine.set(engine)?;
        *self.logs.lock().expect("no holder of this lock panics") = logs;
        Ok(())
    }

    /// The engine, be it only one that writes.
    async fn engine(&self) -> anyhow::Result<&Engine> {
        let open = || async {
            let config = config(&self.database, self.limits.clone(), false, None)?;
            let config = Config { takes_steps: false, ..config };
            anyhow::Ok(Engine::open_with(self.store.clone(), config).await?)
        };
        self.engine.get_or_try_init(open).await
    }

    pub(super) async fn close(self) {
        if let Some(engine) = self.engine.into_inner() {
            engine.shutdown().await;
        }
    }

    pub(super) fn database(&self) -> &Database {
        &self.database
    }

    /// What steps say in this process; once.
    pub(super) fn logs(&self) -> Logs {
        let logs = self.logs.lock().expect("no holder of this lock panics").take();
        logs.map_or(Logs::Nowhere, Logs::Engine)
    }
}

/// What steps say comes out at the other end.
fn log_channel() -> (LogSink, UnboundedReceiver<LogLine>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    // After the run has ended nobody listens.
    let sink: LogSink = Arc::new(move |line| drop(sender.send(line)));
    (sink, receiver)
}
