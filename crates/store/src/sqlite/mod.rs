//! Runs in one SQLite file: the embedded default.
//!
//! One thread writes, a few connections read, nodes of this machine know of each other by lock files. Another process may
//! have the same file open.

mod artifacts;
mod cache;
mod cache_counts;
mod columns;
mod definitions;
mod errors;
mod flights;
mod forget;
mod list;
mod logs;
mod nodes;
mod open;
mod outbox;
mod preimages;
mod projections;
mod queues;
mod read;
mod readers;
mod replay;
mod run_blobs;
mod secrets;
mod suspects;
mod tasks;
mod whole;
mod write;
mod writer;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use milepost_core::hash::Digest;
use milepost_core::id::{NodeId, OrgId, RunId, TaskId};
use milepost_core::record::EventRow;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;

use nodes::{Lock, NodeLocks};
use readers::Readers;
use whole::Whole;
use writer::Writer;

use crate::meter::Meter;
use crate::rows::{
    Answer, Batch, Forgotten, HeadRow, LeaseExtension, LoadedRun, LogChunkRow, LogGap, LogPosition, ProjectionWrite,
    Question, QueueCount, QueueRow, RunFilter, RunRows, SlotRow, SnapshotRow, StepRow, TaskRow, TimerRow,
    TransitionRow, WriteResult,
};
use crate::{OutboxStore, Result, Store, StoreError, Transaction};

pub use replay::replay;

/// So many rows are read by their keys faster than another thread is told to.
const FEW_ROWS: usize = 128;

/// How to open a database.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Make the file, and bring its schema up to date. Without it, an old schema is an error that says what to do.
    pub migrate: bool,
    /// Only read, beside whoever writes. Every write is refused.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { migrate: true, read_only: false }
    }
}

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    // Readers close first: the last connection to close tidies up the file, and only the writer's can.
    readers: Arc<Readers>,
    /// `None`: opened for reading only.
    writer: Option<Arc<Writer>>,
    locks: Arc<NodeLocks>,
}

impl SqliteStore {
    /// Opens the database at `path`, makes it if there is none, and brings its schema up to date.
    ///
    /// # Errors
    /// `Unusable` with what to do: not a database, not ours, newer than this release, or not to be reached.
    pub fn open(path: &Path) -> Result<SqliteStore> {
        SqliteStore::open_with(path, Options::default())
    }

    /// # Errors
    /// As [`SqliteStore::open`].
    pub fn open_with(path: &Path, options: Options) -> Result<SqliteStore> {
        let meter = Meter::of("sqlite");
        let write = || Writer::start(path, options.migrate, meter.clone()).map(Arc::new);
        let writer = (!options.read_only).then(write).transpose()?;
        Ok(SqliteStore { readers: Readers::open(path, meter)?, writer, locks: Arc::new(NodeLocks::beside(path)) })
    }

    /// The number of the database's schema.
    ///
    /// # Errors
    /// The database cannot be read.
    pub async fn schema_version(&self) -> Result<u32> {
        self.readers.run(open::schema_version).await
    }

    /// Sets how many pages the file may have, to see what happens when the disk is full. `None`: no limit.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[doc(hidden)]
    pub async fn limit_pages(&self, spare: Option<u32>) -> Result<()> {
        self.writer()?
            .run(move |conn| {
                let pages: u32 = conn.query_row("PRAGMA page_count", [], |row| row.get(0))?;
                let most = spare.map_or(u32::MAX - 1, |spare| pages + spare);
                Ok(conn.query_row(&format!("PRAGMA max_page_count = {most}"), [], |_| Ok(()))?)
            })
            .await
    }

    fn writer(&self) -> Result<&Arc<Writer>> {
        self.writer.as_ref().ok_or_else(|| StoreError::Refused("it was opened for reading only".to_owned()))
    }

    async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.writer()?.run(move |conn| write::in_transaction(conn, |tx| work(tx))).await
    }

    async fn read<T: Send + 'static>(&self, work: impl FnOnce(&Connection) -> Result<T> + Send + 'static) -> Result<T> {
        self.readers.run(work).await
    }

    /// Reads so many rows by their keys.
    async fn read_rows<T: Send + 'static>(
        &self,
        rows: usize,
        work: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match rows {
            ..=FEW_ROWS => self.readers.run_short(work).await,
            _ => self.readers.run(work).await,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    async fn commit(&self, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        self.write(move |tx| write::batch(tx, &batch)).await
    }

    async fn ask(&self, questions: Vec<Question>) -> Result<(Box<dyn Transaction>, Vec<Answer>)> {
        let (transaction, answers) = self.writer()?.begin(questions).await?;
        Ok((Box::new(transaction), answers))
    }

    async fn load_runs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<LoadedRun>> {
        let runs = runs.to_vec();
        self.read(move |conn| read::load_runs(conn, &runs)).await
    }

    async fn head(&self, org: OrgId, run: RunId) -> Result<Option<HeadRow>> {
        self.read_rows(1, move |conn| read::head(conn, org, run)).await
    }

    async fn last_seqs(&self, runs: &[(OrgId, RunId)]) -> Result<Vec<(OrgId, RunId, u64)>> {
        let runs = runs.to_vec();
        self.read_rows(runs.len(), move |conn| read::last_seqs(conn, &runs)).await
    }

    async fn events(&self, org: OrgId, run: RunId, after_seq: u64, limit: u32) -> Result<Vec<EventRow>> {
        self.read_rows(limit as usize, move |conn| read::events(conn, org, run, after_seq, limit)).await
    }

    async fn events_at(&self, org: OrgId, run: RunId, seqs: &[u64]) -> Result<Vec<EventRow>> {
        let seqs = seqs.to_vec();
        self.read_rows(seqs.len(), move |conn| read::events_at(conn, org, run, &seqs)).await
    }

    async fn events_by_key(&self, org: OrgId, run: RunId, keys: &[Digest]) -> Result<Vec<EventRow>> {
        let keys = keys.to_vec();
        self.read(move |conn| read::events_by_key(conn, org, run, &keys)).await
    }

    async fn step_events(
        &self,
        org: OrgId,
        run: RunId,
        step_id: &str,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRow>> {
        let step = step_id.to_owned();
        self.read(move |conn| whole::step_events(conn, org, run, &step, after_seq, limit)).await
    }

    async fn timers_until(&self, after: Option<TimerRow>, until: Timestamp, limit: u32) -> Result<Vec<TimerRow>> {
        self.read(move |conn| read::timers_until(conn, after, until, limit)).await
    }

    async fn timers_of(&self, org: OrgId, run: RunId) -> Result<Vec<TimerRow>> {
        self.read(move |conn| read::timers_of(conn, org, run)).await
    }

    async fn slots_to_wake(&self, limit: u32) -> Result<Vec<SlotRow>> {
        self.read(move |conn| read::slots_to_wake(conn, limit)).await
    }

    async fn slots_to_wake_of(&self, org: OrgId, key: &str, limit: u32) -> Result<Vec<SlotRow>> {
        let key = key.to_owned();
        self.read(move |conn| read::slots_to_wake_of(conn, org, &key, limit)).await
    }

    async fn slot_of(&self, org: OrgId, run: RunId) -> Result<Option<SlotRow>> {
        self.read_rows(1, move |conn| read::slot_of(conn, org, run)).await
    }

    async fn tasks(&self, org: OrgId, tasks: &[TaskId]) -> Result<Vec<TaskRow>> {
        let tasks = tasks.to_vec();
        self.read(move |conn| tasks::by_id(conn, org, &tasks)).await
    }

    async fn tasks_of(&self, org: OrgId, run: RunId) -> Result<Vec<TaskRow>> {
        self.read(move |conn| tasks::of_run(conn, org, run)).await
    }

    async fn pull_tasks(
        &self,
        node: NodeId,
        queues: &[String],
        before: Timestamp,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<TaskRow>> {
        let queues = queues.to_vec();
        self.write(move |tx| tasks::pull(tx, node, &queues, before, now, limit)).await
    }

    async fn take_over_tasks(&self, dead: NodeId, node: NodeId, now: Timestamp, limit: u32) -> Result<Vec<TaskRow>> {
        self.write(move |tx| tasks::take_over(tx, dead, node, now, limit)).await
    }

    async fn extend_leases(
        &self,
        org: OrgId,
        node: NodeId,
        now: Timestamp,
        leases: &[LeaseExtension],
    ) -> Result<Vec<TaskRow>> {
        let leases = leases.to_vec();
        self.write(move |tx| tasks::extend(tx, org, node, now, &leases)).await
    }

    async fn queue_counts(&self) -> Result<Vec<QueueCount>> {
        self.read(tasks::counts).await
    }

    async fn queues(&self) -> Result<Vec<QueueRow>> {
        self.read(queues::read).await
    }

    async fn set_queue(&self, queue: &QueueRow) -> Result<()> {
        let queue = queue.clone();
        self.write(move |tx| queues::set(tx, &queue)).await
    }

    fn outbox(&self) -> &dyn OutboxStore {
        self
    }

    async fn heartbeat(&self, node: NodeId, now: Timestamp, lease_ms: u64) -> Result<()> {
        let writer = self.writer()?;
        // Only the first heartbeat of a node makes a file; the rest look into a map.
        self.locks.hold(node)?;
        writer.run(move |conn| write::heartbeat(conn, node, now.plus_ms(lease_ms))).await
    }

    async fn leave(&self, node: NodeId) -> Result<()> {
        self.write(move |tx| write::leave(tx, node)).await?;
        self.locks.give_back(node);
        Ok(())
    }

    async fn dead_nodes(&self, now: Timestamp) -> Result<Vec<NodeId>> {
        let locks = Arc::clone(&self.locks);
        let (dead, done_with) = self.read(move |conn| dead_nodes(conn, &locks, now)).await?;
        if !done_with.is_empty() && self.writer.is_some() {
            let rows = done_with.clone();
            self.write(move |tx| write::forget_nodes(tx, &rows)).await?;
            done_with.into_iter().for_each(|node| self.locks.remove(node));
        }
        Ok(dead)
    }

    async fn owned_runs(&self, node: NodeId, after: Option<RunId>, limit: u32) -> Result<Vec<(OrgId, RunId)>> {
        self.read(move |conn| read::owned_runs(conn, node, after, limit)).await
    }

    async fn maintain(&self, _now: Timestamp) -> Result<()> {
        Ok(())
    }

    async fn forget_runs(&self, ended_before: Timestamp, limit: u32) -> Result<Forgotten> {
        // What a process left that died in the middle comes first.
        while self.write(forget::leftovers).await? {}
        let mut forgotten = Forgotten::default();
        let asked = limit.saturating_add(1);
        let found = self.read(move |conn| forget::candidates(conn, ended_before, asked)).await?;
        let within = &found[..found.len().min(limit as usize)];
        forgotten.more = found.len() > within.len();
        for chunk in within.chunks(forget::HEADS) {
            let runs = chunk.to_vec();
            let gone = self.write(move |tx| forget::heads(tx, &runs, ended_before)).await?;
            forgotten.runs += gone.runs;
            forgotten.more |= gone.frees_others;
            while self.write(forget::leftovers).await? {}
        }
        Ok(forgotten)
    }

    fn definitions(&self) -> &dyn crate::DefinitionStore {
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

    fn suspects(&self) -> &dyn crate::SuspectStore {
        self
    }

    async fn append_logs(&self, chunks: Vec<LogChunkRow>) -> Result<()> {
        self.write(move |tx| logs::append(tx, &chunks)).await
    }

    async fn logs(
        &self,
        org: OrgId,
        run: RunId,
        step: Option<&str>,
        after: Option<&LogPosition>,
        limit: u32,
    ) -> Result<Vec<LogChunkRow>> {
        let (step, after) = (step.map(ToOwned::to_owned), after.cloned());
        self.read(move |conn| logs::read(conn, org, run, step.as_deref(), after.as_ref(), limit)).await
    }

    async fn log_lines(
        &self,
        org: OrgId,
        run: RunId,
        step: &str,
        logical_attempt: u32,
        engine_attempt: u32,
    ) -> Result<u32> {
        let step = step.to_owned();
        self.read(move |conn| logs::lines(conn, org, run, &step, logical_attempt, engine_attempt)).await
    }

    async fn project(&self, writes: Vec<ProjectionWrite>) -> Result<Vec<WriteResult>> {
        self.write(move |tx| write::projections(tx, &writes)).await
    }

    async fn drop_projection(&self, org: OrgId, run: RunId) -> Result<()> {
        self.write(move |tx| write::drop_projection(tx, org, run)).await
    }

    async fn transitions(&self, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>> {
        self.read(move |conn| read::transitions(conn, org, run)).await
    }

    async fn snapshot(&self, org: OrgId, run: RunId) -> Result<Option<SnapshotRow>> {
        self.read_rows(1, move |conn| projections::snapshot(conn, org, run)).await
    }

    async fn projection(&self, org: OrgId, run: RunId) -> Result<Option<(SnapshotRow, Vec<StepRow>)>> {
        self.read(move |conn| projections::projection(conn, org, run)).await
    }

    async fn read_run(&self, org: OrgId, run: RunId) -> Result<Option<RunRows>> {
        match self.readers.run_short(move |conn| whole::read_short_run(conn, org, run)).await? {
            Whole::Read(found) => Ok(found.map(|rows| *rows)),
            Whole::Long => self.read(move |conn| whole::read_run(conn, org, run)).await,
        }
    }

    async fn steps_by_id(&self, org: OrgId, run: RunId, ids: &[String]) -> Result<Vec<StepRow>> {
        let ids = ids.to_vec();
        self.read_rows(ids.len(), move |conn| projections::steps_by_id(conn, org, run, &ids)).await
    }

    async fn list_runs(&self, org: OrgId, filter: &RunFilter) -> Result<Vec<SnapshotRow>> {
        let filter = filter.clone();
        self.read(move |conn| list::list_runs(conn, org, &filter)).await
    }

    async fn count_matching(&self, org: OrgId, filter: &RunFilter, up_to: u64) -> Result<u64> {
        let filter = filter.clone();
        self.read(move |conn| list::count_matching(conn, org, &filter, up_to)).await
    }

    async fn status_counts(&self) -> Result<Vec<(OrgId, RunStatus, u64)>> {
        self.read(list::status_counts).await
    }

    async fn open_runs(&self, after: Option<RunId>, limit: u32) -> Result<Vec<HeadRow>> {
        self.read(move |conn| read::open_runs(conn, after, limit)).await
    }

    async fn unprojected(&self, limit: u32) -> Result<Vec<(OrgId, RunId, u64)>> {
        self.read(move |conn| read::unprojected(conn, limit)).await
    }

    async fn log_gaps(&self, limit: u32) -> Result<Vec<LogGap>> {
        self.read(move |conn| read::log_gaps(conn, limit)).await
    }

    async fn first_missing(&self, org: OrgId, run: RunId) -> Result<u64> {
        self.read(move |conn| read::first_missing(conn, org, run)).await
    }

    async fn mark_stale(&self, org: OrgId, run: RunId, from_seq: Option<u64>) -> Result<()> {
        self.write(move |tx| write::mark_stale(tx, org, run, from_seq)).await
    }

    async fn stale_runs(&self, org: OrgId, runs: &[RunId]) -> Result<Vec<(RunId, u64)>> {
        let runs = runs.to_vec();
        self.read_rows(runs.len(), move |conn| read::stale_runs(conn, org, &runs)).await
    }

    async fn count_runs(&self) -> Result<u64> {
        self.read(read::count_runs).await
    }
}

/// Where there is a lock file, the lock alone decides: a process that is slow or stopped is not dead. The lease decides
/// for nodes that have none.
fn is_dead(rows: &[read::NodeRow], locks: &NodeLocks, node: NodeId, now: Timestamp) -> Result<bool> {
    Ok(match locks.look(node)? {
        Lock::Held => false,
        Lock::Free => true,
        Lock::Missing => !rows.iter().any(|row| row.node == node && !row.left && row.lease_expires_at >= now),
    })
}

/// The dead nodes that own runs, and those that own none any more and can be forgotten.
fn dead_nodes(conn: &Connection, locks: &NodeLocks, now: Timestamp) -> Result<(Vec<NodeId>, Vec<NodeId>)> {
    let rows = read::nodes(conn)?;
    let owners: BTreeSet<NodeId> = read::owners(conn)?.into_iter().chain(tasks::nodes(conn)?).collect();
    let known: BTreeSet<NodeId> = rows.iter().map(|row| row.node).chain(locks.files()?).collect();
    let mut dead = Vec::new();
    for node in &owners {
        if is_dead(&rows, locks, *node, now)? {
            dead.push(*node);
        }
    }
    // That a node has crashed is remembered for a while, and what it was about to decide until somebody has seen it.
    let matters = |node: NodeId| {
        let row = rows.iter().find(|row| row.node == node);
        row.is_some_and(|row| {
            let recent = |at: Timestamp| now.ms_since(at) < crate::suspects::CRASH_MEMORY_MS;
            !row.left && (row.deciding.is_some() || row.crashed_at.is_none_or(recent))
        })
    };
    let mut done_with = Vec::new();
    for node in known.difference(&owners).filter(|node| !matters(**node)) {
        if is_dead(&rows, locks, *node, now)? {
            done_with.push(*node);
        }
    }
    Ok((dead, done_with))
}
