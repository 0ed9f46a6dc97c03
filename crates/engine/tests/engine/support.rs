//! Stores to run on, skills that tests hold the strings of, and what must be true of every run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::record::EventRow;
use milepost_core::run::Signal;
use milepost_core::status::RunStatus;
use milepost_engine::skills::{BuiltInOptions, SkillError, Skills};
use milepost_engine::view::RunView;
use milepost_engine::{Clock as _, Config, Egress, Engine, NewRun, SystemClock, diagnose};
use milepost_store::Store;
use milepost_store::memory::MemoryStore;
use milepost_store::postgres::PostgresStore;
use milepost_store::sqlite::SqliteStore;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{Semaphore, mpsc};

pub(crate) const ORG: OrgId = OrgId::DEFAULT;

/// Where the runs of one test are kept. Can be opened again and again, also twice at once.
pub(crate) enum Home {
    Memory(Arc<dyn Store>),
    Sqlite(TempDir),
    Postgres(String),
}

impl Home {
    pub(crate) fn memory() -> Home {
        Home::Memory(Arc::new(MemoryStore::new()))
    }

    pub(crate) fn sqlite() -> Home {
        Home::Sqlite(tempfile::tempdir().unwrap())
    }

    /// A schema of its own.
    pub(crate) async fn postgres() -> Home {
        let server = std::env::var("MILEPOST_TEST_POSTGRES").expect(
            "MILEPOST_TEST_POSTGRES is not set; these tests need a Postgres server: run them with \
             `scripts/with-postgres cargo test -p milepost-engine`",
        );
        let schema = format!("t_{}", uuid::Uuid::now_v7().simple());
        let (client, connection) = tokio_postgres::connect(&server, tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute(&format!("CREATE SCHEMA {schema}")).await.unwrap();
        Home::Postgres(format!("{server}?options=-c%20search_path%3D{schema}&application_name={schema}"))
    }

    pub(crate) async fn store(&self) -> Arc<dyn Store> {
        match self {
            Home::Memory(store) => store.clone(),
            Home::Sqlite(folder) => Arc::new(SqliteStore::open(&folder.path().join("runs.db")).unwrap()),
            Home::Postgres(url) => Arc::new(PostgresStore::connect(url).await.unwrap()),
        }
    }

    pub(crate) async fn open(&self, config: Config) -> Engine {
        Engine::open_with(self.store().await, config).await.unwrap()
    }
}

/// Makes a test of each function for the stores that need no server, and of some for Postgres, too.
macro_rules! on {
    (embedded: [$($embedded:ident),+ $(,)?], postgres: [$($postgres:ident),* $(,)?]) => {
        mod memory { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $embedded() { super::$embedded($crate::support::Home::memory()).await; }
        )+ }
        mod sqlite { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $embedded() { super::$embedded($crate::support::Home::sqlite()).await; }
        )+ }
        mod postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $postgres() { super::$postgres($crate::support::Home::postgres().await).await; }
        )* }
    };
}
pub(crate) use on;

/// A skill that waits to be let through.
#[derive(Clone)]
pub(crate) struct Gate {
    arrived: Arc<Semaphore>,
    open: Arc<Semaphore>,
    inside: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

/// Whoever is dropped on the way has left, too.
struct Inside(Arc<AtomicUsize>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Gate {
    pub(crate) fn new() -> Gate {
        Gate {
            arrived: Arc::new(Semaphore::new(0)),
            open: Arc::new(Semaphore::new(0)),
            inside: Arc::default(),
            most: Arc::default(),
        }
    }

    pub(crate) async fn pass(self) {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        let _left = Inside(self.inside.clone());
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.arrived.add_permits(1);
        self.open.acquire().await.unwrap().forget();
    }

    /// Waits until one more has come.
    pub(crate) async fn arrival(&self) {
        within(self.arrived.acquire()).await.unwrap().forget();
    }

    pub(crate) fn let_through(&self, count: usize) {
        self.open.add_permits(count);
    }

    /// How many are inside now.
    pub(crate) fn inside(&self) -> usize {
        self.inside.load(Ordering::SeqCst)
    }

    /// How many were inside at once, at most.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Waits until nobody is inside any more.
    pub(crate) async fn emptied(&self) {
        within(async {
            while self.inside() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
}

/// This machine may be called.
pub(crate) fn private() -> Egress {
    Egress { private_addresses: true, proxy: None }
}

/// Built-in skills with `shell`.
pub(crate) fn config() -> Config {
    Config { skills: Skills::built_in(&BuiltInOptions { shell: true, egress: private() }), ..Config::default() }
}

pub(crate) trait WithGate {
    fn gate(self, gate: &Gate) -> Config;
}

impl WithGate for Config {
    /// Adds the skill `gate`, which gives its input back once it is let through.
    fn gate(self, gate: &Gate) -> Config {
        let gate = gate.clone();
        self.skill("gate", move |_, input: Value| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, SkillError>(input)
            }
        })
    }
}

/// Something that hangs is a failed test, not a hanging one.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("this takes far too long: something is stuck")
}

pub(crate) fn payload(value: &Value) -> NewRun {
    NewRun { payload: Json::of(value), ..NewRun::default() }
}

pub(crate) fn now() -> milepost_core::time::Timestamp {
    SystemClock.now()
}

/// Runs a document to its end.
pub(crate) async fn run(engine: &Engine, document: &str, new: NewRun) -> (RunId, RunStatus) {
    let run = start(engine, document, new).await;
    (run, ended(engine, run).await)
}

pub(crate) async fn start(engine: &Engine, document: &str, new: NewRun) -> RunId {
    within(engine.start_document(document, new)).await.unwrap().run
}

pub(crate) async fn ended(engine: &Engine, run: RunId) -> RunStatus {
    within(engine.wait(run)).await.unwrap()
}

pub(crate) async fn send(engine: &Engine, run: RunId, name: &str) {
    within(engine.signal(run, Engine::new_signal(name))).await.unwrap();
}

pub(crate) async fn send_to(engine: &Engine, run: RunId, name: &str, step: &str) {
    let signal = Signal { step: Some(step.to_owned()), ..Engine::new_signal(name) };
    within(engine.signal(run, signal)).await.unwrap();
}

pub(crate) async fn log(store: &Arc<dyn Store>, run: RunId) -> Vec<EventRow> {
    store.events(ORG, run, 0, 1_000_000).await.unwrap()
}

pub(crate) async fn types(store: &Arc<dyn Store>, run: RunId) -> Vec<String> {
    log(store, run).await.iter().map(|event| event.event_type.to_string()).collect()
}

/// Waits for an event of this type, whether it is there already or comes later.
pub(crate) async fn event(engine: &Engine, run: RunId, event_type: &str) -> EventRow {
    let mut coming: mpsc::Receiver<Arc<[EventRow]>> = engine.watch(run);
    let there = log(engine.store(), run).await.into_iter().find(|event| event.event_type == event_type);
    if let Some(there) = there {
        return there;
    }
    within(async {
        loop {
            let rows = coming.recv().await.expect("the engine lives");
            if let Some(row) = rows.iter().find(|event| event.event_type == event_type) {
                return row.clone();
            }
        }
    })
    .await
}

pub(crate) fn output(view: &RunView, step: &str) -> Value {
    let found = view.steps.iter().find(|view| view.step_id == step).unwrap_or_else(|| panic!("no step {step}"));
    found.output.as_ref().map_or(Value::Null, Json::to_value)
}

/// `greet completed, shout skipped (condition)`: what became of the whole steps.
pub(crate) fn steps(view: &RunView) -> String {
    let word = |step: &milepost_engine::view::StepView| match step.skip_reason {
        Some(reason) => format!("{} {} ({})", step.step_id, step.status, json!(reason).as_str().unwrap_or_default()),
        None => format!("{} {}", step.step_id, step.status),
    };
    view.steps.iter().filter(|step| !step.step_id.contains('[')).map(word).collect::<Vec<_>>().join(", ")
}

/// What must be true of a run whatever happened: its log has no gap, each attempt ended once, its projection says what the
/// log says.
pub(crate) async fn sound(engine: &Engine, run: RunId) {
    let store = engine.store();
    one_history(store, run).await;
    engine.flush_projections().await;
    let read = async || store.projection(ORG, run).await.unwrap();
    let projected = read().await;
    engine.rebuild_projection(run).await.unwrap();
    assert_eq!(projected, read().await, "the projection of {run} is not what its log says");
    let head = store.head(ORG, run).await.unwrap().unwrap();
    let (snapshot, _) = projected.unwrap();
    assert_eq!((head.status, head.last_seq), (snapshot.status, snapshot.last_event_seq), "{run}");
    assert_eq!((head.started_at, head.completed_at), (snapshot.started_at, snapshot.completed_at), "{run}");
}

/// The log counts 1, 2, 3, …, its keys are different, and no attempt has ended twice.
pub(crate) async fn one_history(store: &Arc<dyn Store>, run: RunId) {
    let events = log(store, run).await;
    let head = store.head(ORG, run).await.unwrap().unwrap();
    assert!(events.iter().map(|event| event.seq).eq(1..=head.last_seq), "{run} has a gap");
    let mut outcomes: BTreeMap<(String, u32), u32> = BTreeMap::new();
    for event in &events {
        if let ("StepCompleted" | "StepFailed", Some(step), Some(attempt)) =
            (&*event.event_type, &event.step_id, event.logical_attempt)
        {
            *outcomes.entry((step.to_string(), attempt)).or_default() += 1;
        }
    }
    let twice: Vec<_> = outcomes.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "{run}: attempts that ended twice: {twice:?}");
}

/// `doctor` has nothing to say.
pub(crate) async fn healthy(store: &Arc<dyn Store>) {
    let diagnosis = diagnose(store, None, now()).await.unwrap();
    assert!(diagnosis.findings.is_empty(), "{:#?}", diagnosis.findings);
}

/// What a test that waits in vain should say.
pub(crate) async fn open_ends(store: &Arc<dyn Store>) -> String {
    let mut text = format!("dead: {:?}\n", store.dead_nodes(now()).await.unwrap());
    for dead in store.dead_nodes(now()).await.unwrap() {
        text += &format!("{dead:?} owns {:?}\n", store.owned_runs(dead, None, 10).await.unwrap());
    }
    for (org, run, behind) in store.unprojected(10).await.unwrap() {
        let head = store.head(org, run).await.unwrap();
        let rows: Vec<_> =
            log(store, run).await.iter().map(|row| (row.event_type.to_string(), row.data.clone())).collect();
        text += &format!("unprojected by {behind}: {head:?}\n  {rows:?}\n");
    }
    for head in store.open_runs(None, 10).await.unwrap() {
        text += &format!("open: {head:?}\n  {:?}\n", types(store, head.run).await);
    }
    text
}

/// Changes the database file behind the engine's back.
pub(crate) fn tamper(home: &Home, sql: &str) {
    let Home::Sqlite(folder) = home else { panic!("only a file can be tampered with") };
    let connection = rusqlite::Connection::open(folder.path().join("runs.db")).unwrap();
    connection.busy_timeout(Duration::from_secs(10)).unwrap();
    // Whoever owns the file can do away with what protects it.
    let unprotected = "DROP TRIGGER IF EXISTS run_events_never_change; DROP TRIGGER IF EXISTS run_events_stay;";
    connection.execute_batch(unprotected).unwrap();
    connection.execute_batch(sql).unwrap();
}

/// Damages a database behind the engine's back, past what protects them.
pub(crate) async fn damage(home: &Home, sql: &str) {
    match home {
        Home::Memory(_) => panic!("only a database can be damaged"),
        Home::Sqlite(_) => tamper(
            home,
            &format!(
                "PRAGMA foreign_keys = OFF; DROP TRIGGER IF EXISTS revisions_stay;
                 DROP TRIGGER IF EXISTS patch_chain_members_never_change; {sql}"
            ),
        ),
        Home::Postgres(url) => {
            let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
            tokio::spawn(connection);
            // Neither triggers nor foreign keys count in such a session.
            client.batch_execute(&format!("SET session_replication_role = replica; {sql}")).await.unwrap();
        }
    }
}

/// A run's id as SQL text.
pub(crate) fn sql_id(run: RunId) -> String {
    format!("x'{}'", run.0.simple())
}
