//! Postgres: the store for any number of nodes.
//!
//! Nodes share nothing but the database, and it decides: a run's head is moved by compare-and-swap, what follows from it is
//! written in the same statement. Nothing here polls, listens or runs in the background.
//!
//! When a connection is lost while a commit is on its way, whether it arrived is unknown; the caller is told `Unavailable`
//! and finds out by trying again: a batch that did arrive conflicts.
//!
//! **Invariant:** no statement on the way of a run reads more than the rows it is about.

mod artifacts;
mod ask;
mod cache;
mod cache_counts;
mod columns;
mod commit;
mod connect;
mod definitions;
mod doctor;
mod error;
mod flights;
mod forget;
mod list;
mod logs;
mod migrate;
mod months;
mod outbox;
mod outbox_columns;
mod preimages;
mod project;
mod queues;
mod registry;
mod replay;
mod run_blobs;
mod runs;
mod secrets;
mod suspects;
mod task_columns;
mod tasks;
#[cfg(test)]
mod testing;
mod transaction;
mod whole;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use deadpool_postgres::{Object, Pool};
use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

pub use migrate::latest as latest_schema;
pub use replay::replay;

use crate::meter::Meter;
use crate::rows::{
    Answer, Batch, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition, ProjectionWrite,
    Question, QueueCount, QueueRow, RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow,
    TransitionRow, WriteResult,
};
use crate::{OutboxStore, Result, Store, StoreError, Transaction};

/// How to connect.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bring the schema up to date; otherwise it must be.
    pub migrate: bool,
    /// Connections at most.
    pub pool_size: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { migrate: true, pool_size: 10 }
    }
}

/// A pool of connections to one schema.
pub struct PostgresStore {
    pool: Pool,
    meter: Meter,
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("pool", &self.pool.status()).finish()
    }
}

impl PostgresStore {
    /// Connects and brings the schema up to date.
    ///
    /// # Errors
    /// As [`PostgresStore::connect_with`].
    pub async fn connect(url: &str) -> Result<PostgresStore> {
        PostgresStore::connect_with(url, Options::default()).await
    }

    /// # Errors
    /// The server cannot be reached, or what is there cannot be used; the text says what to do.
    pub async fn connect_with(url: &str, options: Options) -> Result<PostgresStore> {
        let config = connect::parse(url)?;
        let client = connect::single(&config).await?;
        connect::check_server(&client).await?;
        if options.migrate {
            migrate::migrate(&client).await?;
        } else {
            migrate::check(&client).await?;
        }
        Ok(PostgresStore { pool: connect::pool(&config, options.pool_size)?, meter: Meter::of("postgres") })
    }

    /// The version of the schema in the database.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub async fn schema_version(&self) -> Result<u32> {
        migrate::version(&**self.reading().await?).await
    }

    /// Makes the partitions of this month and the next two where they are missing; any node may call it at any time.
    /// Answers how many it made.
    ///
    /// # Errors
    /// The database cannot be reached, or is so busy that the partition could not be made now.
    pub async fn ensure_partitions(&self, now: Timestamp) -> Result<u32> {
        migrate::ensure_partitions(&**self.writing().await?, now).await
    }

    /// A connection for something that only reads.
    async fn reading(&self) -> Result<Object> {
        self.meter.read();
        self.pool.get().await.map_err(StoreError::from)
    }

    async fn writing(&self) -> Result<Object> {
        self.written().get().await.map_err(StoreError::from)
    }

    /// For what takes its connections itself, to write.
    fn written(&self) -> &Pool {
        self.meter.write();
        &self.pool
    }

    /// The same, to read.
    fn read(&self) -> &Pool {
        self.meter.read();
        &self.pool
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        commit::commit(self.written(), &batch).await
    }

    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)> {
        ask::ask(self.written(), &questions).await
    }

    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
        runs::load(&self.reading().await?, runs).await
    }

    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
        runs::head(&self.reading().await?, org, run).await
    }

    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
        runs::last_seqs(&self.reading().await?, runs).await
    }

    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>> {
        runs::events(&self.reading().await?, org, run, after_seq, limit).await
    }

    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
        runs::events_at(&self.reading().await?, org, run, seqs).await
    }

    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>> {
        runs::events_by_key(&self.reading().await?, org, run, keys).await
    }

    async fn step_events(
        &self,
        org: OrgId,
        run: RunId,
        step_id: &str,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>> {
        whole::step_events(&self.reading().await?, org, run, step_id, after_seq, limit).await
    }

    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>> {
        runs::timers_until(&self.reading().await?, after, until, limit).await
    }

    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
        runs::timers_of(&self.reading().await?, org, run).await
    }

    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>> {
        runs::slots_to_wake(&self.reading().await?, limit).await
    }

    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
        runs::slots_to_wake_of(&self.reading().await?, org, key, limit).await
    }

    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
        runs::slot_of(&self.reading().await?, org, run).await
    }

    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
        tasks::by_id(&self.reading().await?, org, tasks).await
    }

    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
        tasks::of_run(&self.reading().await?, org, run).await
    }

    async fn pull_tasks(
        &self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TaskRow>> {
        tasks::pull(&self.writing().await?, node, queues, before, now, limit).await
    }

    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>> {
        tasks::take_over(&self.writing().await?, dead, node, now, limit).await
    }

    async fn extend_leases(
        &self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Result<Vec<TaskRow>> {
        tasks::extend(&self.writing().await?, org, node, now, leases).await
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCount>> {
        tasks::counts(&self.reading().await?).await
    }

    async fn queues(&self) -> Result<Vec<QueueRow>> {
        queues::read(&self.reading().await?).await
    }

    async fn set_queue(&self, queue: &QueueRow) -> Result<()> {
        queues::set(&self.writing().await?, queue).await
    }

    fn outbox(&self) -> &dyn OutboxStore {
        self
    }

    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
        registry::heartbeat(&self.writing().await?, node, now, lease_ms).await
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        registry::leave(&self.writing().await?, node).await
    }

    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>> {
        runs::dead_nodes(&self.reading().await?, now).await
    }

    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        runs::owned(&self.reading().await?, node, after, limit).await
    }

    async fn maintain(&self, now: Timestamp) -> Result<()> {
        self.ensure_partitions(now).await?;
        runs::forget_nodes(&self.writing().await?, now).await
    }

    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten> {
        forget::forget_runs(self.written(), ended_before, migrate::now(), limit).await
    }

    fn definitions(&self) -> &dyn crate::DefinitionStore {
        self
    }

    fn suspects(&self) -> &dyn crate::SuspectStore {
        self
    }

    fn cache(&self) -> &dyn crate::CacheStore {
        self
    }

    fn flights(&self) -> &dyn crate::FlightStore {
        self
    }

    fn artifacts(&self) -> &dyn crate::ArtifactStore {
        self
    }

    fn secrets(&self) -> &dyn crate::SecretStore {
        self
    }

    fn run_blobs(&self) -> &dyn crate::RunBlobs {
        self
    }

    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()> {
        logs::append(&self.writing().await?, &chunks).await
    }

    async fn logs(
        &self,
        org: OrgId,
        run: RunId,
        step: Option<&str>,
        after: Option<&LogPosition>,
        limit: u32,
    ) -> Result<Vec<LogChunkRow>> {
        logs::read(&self.reading().await?, org, run, step, after, limit).await
    }

    async fn log_lines(
        &self,
        org: OrgId,
        run: RunId,
        step: &str,
        logical_attempt: u32,
        engine_attempt: u32,
    ) -> Result<u32> {
        logs::lines(&self.reading().await?, org, run, step, logical_attempt, engine_attempt).await
    }

    async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>> {
        project::project(self.written(), &writes).await
    }

    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()> {
        project::drop_projection(&self.writing().await?, org, run).await
    }

    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
        runs::transitions(&self.reading().await?, org, run).await
    }

    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
        project::snapshot(&self.reading().await?, org, run).await
    }

    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
        project::projection(&self.reading().await?, org, run).await
    }

    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
        whole::read_run(&self.reading().await?, org, run).await
    }

    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
        project::steps_by_id(&self.reading().await?, org, run, ids).await
    }

    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
        list::list_runs(&self.reading().await?, org, filter).await
    }

    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
        list::count_matching(&self.reading().await?, org, filter, up_to).await
    }

    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>> {
        list::status_counts(&self.reading().await?).await
    }

    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
        runs::open(&self.reading().await?, after, limit).await
    }

    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
        doctor::unprojected(self.read(), limit).await
    }

    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>> {
        doctor::log_gaps(self.read(), limit).await
    }

    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64> {
        doctor::first_missing(&self.reading().await?, org, run).await
    }

    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
        doctor::mark_stale(&self.writing().await?, org, run, from_seq).await
    }

    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
        doctor::stale_runs(&self.reading().await?, org, runs).await
    }

    async fn count_runs(&self) -> Result<u64> {
        doctor::count_runs(&self.pool).await
    }
}
