//! The one thread that writes.
//!
//! ```text
//! callers ── jobs ──► writer thread ── owns ──► the connection
//!    ▲                     │
//!    └──── oneshot ────────┘
//! ```
//!
//! A job is a function of the connection. An open transaction is a job too: one that does not end before the caller has
//! committed or dropped it. So no two writers of this process ever meet in SQLite.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::oneshot;

use super::{open, read, write};
use crate::meter::Meter;
use crate::rows::{Answer, Batch, Question, WriteResult};
use crate::{Result, StoreError, Transaction};

/// An open transaction holds up everybody else. One that asks nothing for so long belongs to a caller that waits for
/// something behind it; it is rolled back, and its commit fails.
const IDLE_LIMIT: Duration = Duration::from_secs(20);

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

#[derive(Debug)]
pub(super) struct Writer {
    /// `None` only while being dropped.
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    meter: Meter,
}

impl Writer {
    pub(super) fn start(path: &Path, migrate: bool, meter: Meter) -> Result<Writer> {
        let mut conn = open::writer(path, migrate)?;
        let (jobs, queue) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("sqlite-writer".to_owned())
            .spawn(move || {
                for job in queue {
                    job(&mut conn);
                }
            })
            .map_err(|error| StoreError::Unavailable(format!("no thread for the writer: {error}")))?;
        Ok(Writer { jobs: Some(jobs), thread: Some(thread), meter })
    }

    fn send(&self, job: Job) -> Result<()> {
        self.meter.write();
        self.jobs.as_ref().and_then(|jobs| jobs.send(job).ok()).ok_or_else(ended)
    }

    /// Runs `job` on the writer's connection.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(move |conn| {
            // Nobody listens any more: the caller was cancelled, the work is done all the same.
            let _ = reply.send(job(conn));
        }))?;
        answer.await.map_err(|_| ended())?
    }

    pub(super) async fn begin(self: &Arc<Writer>, questions: Vec<Question>) -> Result<(OpenTransaction, Vec<Answer>)> {
        let (requests, queue) = channel();
        let (reply, answer) = oneshot::channel();
        self.send(Box::new(move |conn| serve(conn, &questions, reply, &queue)))?;
        let answers = answer.await.map_err(|_| ended())??;
        Ok((OpenTransaction { requests, _writer: Arc::clone(self) }, answers))
    }
}

impl Drop for Writer {
    /// Waits for the jobs that were sent, so that the file is closed in good order.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A writer that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn ended() -> StoreError {
    StoreError::Unavailable("the thread that writes has ended".to_owned())
}

enum Request {
    Ask(Vec<Question>, oneshot::Sender<Result<Vec<Answer>>>),
    Commit(Arc<Batch>, oneshot::Sender<Result<Vec<WriteResult>>>),
}

/// The caller's end of a transaction. Dropping it closes the channel, which rolls back.
#[derive(Debug)]
pub(super) struct OpenTransaction {
    requests: Sender<Request>,
    /// Dropped after `requests`: the writer's thread is waited for only once this transaction has ended.
    _writer: Arc<Writer>,
}

impl OpenTransaction {
    async fn request<T>(&self, make: impl FnOnce(oneshot::Sender<Result<T>>) -> Request) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let over =
            || StoreError::Unavailable("the transaction is over: it failed before, or was idle for too long".into());
        self.requests.send(make(reply)).map_err(|_| over())?;
        answer.await.map_err(|_| over())?
    }
}

#[async_trait]
impl Transaction for OpenTransaction {
    async fn ask(&mut self, questions: Vec<Question>) -> Result<Vec<Answer>> {
        self.request(|reply| Request::Ask(questions, reply)).await
    }

    async fn commit(self: Box<Self>, batch: Arc<Batch>) -> Result<Vec<WriteResult>> {
        self.request(|reply| Request::Commit(batch, reply)).await
    }
}

/// Serves one transaction until it is committed, dropped, fails, or is idle for too long.
fn serve(
    conn: &mut Connection,
    questions: &[Question],
    reply: oneshot::Sender<Result<Vec<Answer>>>,
    queue: &Receiver<Request>,
) {
    let tx = match conn.transaction_with_behavior(TransactionBehavior::Immediate) {
        Ok(tx) => tx,
        Err(error) => {
            let _ = reply.send(Err(error.into()));
            return;
        }
    };
    let answers = read::answers(&tx, questions);
    let failed = answers.is_err();
    if reply.send(answers).is_err() || failed {
        return;
    }
    while let Ok(request) = queue.recv_timeout(IDLE_LIMIT) {
        match request {
            Request::Ask(questions, reply) => {
                let answers = read::answers(&tx, &questions);
                let failed = answers.is_err();
                if reply.send(answers).is_err() || failed {
                    return;
                }
            }
            Request::Commit(batch, reply) => {
                let written = write::batch(&tx, &batch).and_then(|results| {
                    tx.commit()?;
                    Ok(results)
                });
                let _ = reply.send(written);
                return;
            }
        }
    }
}
