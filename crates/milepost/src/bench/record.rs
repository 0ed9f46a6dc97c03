//! A store that keeps what is written through it, so that the same can be written again without an engine.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_store::rows::{
    Answer, Batch, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition, ProjectionWrite,
    Question, QueueCount, QueueRow, Recorded, RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow,
    TransitionRow, WriteResult,
};
use milepost_store::{OutboxStore, Result, Store, Transaction, postgres, sqlite};

use crate::database::Database;

#[derive(Debug)]
pub(super) struct Recorder {
    store: Arc<dyn Store>,
    on: AtomicBool,
    calls: Mutex<Vec<Recorded>>,
}

impl Recorder {
    pub(super) fn new(store: Arc<dyn Store>) -> Recorder {
        Recorder { store, on: AtomicBool::new(false), calls: Mutex::default() }
    }

    pub(super) fn kind(&self) -> &'static str {
        self.store.name()
    }

    pub(super) fn record(&self, on: bool) {
        self.on.store(on, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Vec<Recorded> {
        self.record(false);
        std::mem::take(&mut self.calls.lock().expect("no holder of this lock panics"))
    }

    fn keep(&self, call: impl FnOnce() -> Recorded) {
        if self.on.load(Ordering::Relaxed) {
            self.calls.lock().expect("no holder of this lock panics").push(call());
        }
    }

    /// Writes what was recorded into an empty database of the same kind. Answers how long that took.
    pub(super) async fn replay(
        &self,
        database: &Database,
        folder: &Path,
        calls: &[Recorded],
    ) -> anyhow::Result<Duration> {
        Ok(match database {
            Database::Sqlite(path) => {
                // On the same disk as the database that was measured.
                let beside = path.parent().unwrap_or(folder).join(format!("limit-{}.db", std::process::id()));
                let took = tokio::task::block_in_place(|| sqlite::replay(&beside, calls))?;
                for suffix in ["", "-wal", "-shm"] {
                    let _ = std::fs::remove_file(format!("{}{suffix}", beside.display()));
                }
                took
            }
            Database::Postgres(url) => postgres::replay(url, calls).await?,
        })
    }
}

macro_rules! pass_on {
    ($(async fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)+) => {
        #[async_trait]
        impl Store for Recorder {
            fn name(&self) -> &'static str {
                self.store.name()
            }

            fn cache(&self) -> &dyn milepost_store::CacheStore {
                self.store.cache()
            }

            fn flights(&self) -> &dyn milepost_store::FlightStore {
                self.store.flights()
            }

            fn artifacts(&self) -> &dyn milepost_store::ArtifactStore {
                self.store.artifacts()
            }

            fn secrets(&self) -> &dyn milepost_store::SecretStore {
                self.store.secrets()
            }

            fn definitions(&self) -> &dyn milepost_store::DefinitionStore {
                self.store.definitions()
            }

            fn run_blobs(&self) -> &dyn milepost_store::RunBlobs {
                self.store.run_blobs()
            }

            fn suspects(&self) -> &dyn milepost_store::SuspectStore {
                self.store.suspects()
            }

            fn outbox(&self) -> &dyn OutboxStore {
                self.store.outbox()
            }

            async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
                self.keep(|| Recorded::Commit(batch.clone()));
                self.store.commit(batch).await
            }

            async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>> {
                self.keep(|| Recorded::Project(writes.clone()));
                self.store.project(writes).await
            }

            $(async fn $name(&self $(, $arg: $type)*) -> $result {
                self.store.$name($($arg),*).await
            })+
        }
    };
}

pass_on! {
    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)>;
    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>>;
    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>>;
    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>>;
    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>>;
    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>>;
    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>>;
    async fn step_events(&self, org: OrgId, run: RunId, step_id: &str, after_seq: u64, limit: u32) -> Result<Vec<EventRow>>;
    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>>;
    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>>;
    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>>;
    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>>;
    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>>;
    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>>;
    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>>;
    async fn pull_tasks(&self, node: NodeId, queues: &[String], before: Timestamp, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>>;
    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>>;
    async fn extend_leases(&self, org: OrgId, node: NodeId, now: Timestamp, leases: &[LeaseExtension]) -> Result<Vec<TaskRow>>;
    async fn queue_counts(&self) -> Result<Vec<QueueCount>>;
    async fn log_lines(&self, org: OrgId, run: RunId, step: &str, logical_attempt: u32, engine_attempt: u32) -> Result<u32>;
    async fn queues(&self) -> Result<Vec<QueueRow>>;
    async fn set_queue(&self, queue: &QueueRow) -> Result<()>;
    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()>;
    async fn leave(&self, node: NodeId) -> Result<()>;
    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>>;
    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>>;
    async fn maintain(&self, now: Timestamp) -> Result<()>;
    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten>;
    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()>;
    async fn logs(
        &self, org: OrgId, run: RunId, step: Option<&str>, after: Option<&LogPosition>, limit: u32
    ) -> Result<Vec<LogChunkRow>>;
    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()>;
    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>>;
    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>>;
    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>>;
    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>>;
    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>>;
    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>>;
    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64>;
    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>>;
    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>>;
    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>>;
    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>>;
    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64>;
    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()>;
    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>>;
    async fn count_runs(&self) -> Result<u64>;
}
