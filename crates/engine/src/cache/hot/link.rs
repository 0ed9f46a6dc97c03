//! The connection to Redis, while there is one.
//!
//! **Invariant:** whoever finds it broken takes it away, and from then on nobody asks until the keeper has made a new one.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream::FuturesOrdered;
use futures::{Stream, StreamExt as _};
use milepost_core::hash::Digest;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, Pipeline, RedisError};
use tokio::sync::Notify;

use super::writer::Entry;
use crate::telemetry::metrics::Metrics;

/// How long making a connection and a word of the keeper or the writer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Whoever waited for less has not seen that Redis is slow.
const FAIR: Duration = Duration::from_millis(10);
/// So often in a row Redis may be slow; then it is away.
const TOO_OFTEN: u32 = 3;
/// So many values are one answer.
const FEW: usize = 16;

type Values = Vec<Option<Vec<u8>>>;
type Answer = Result<Values, RedisError>;

async fn mget(mut connection: MultiplexedConnection, names: &[String]) -> Answer {
    let mut values: Values = redis::cmd("MGET").arg(names).query_async(&mut connection).await?;
    values.resize(names.len(), None);
    Ok(values)
}

#[derive(Debug)]
pub(super) struct Link {
    connection: Mutex<Option<MultiplexedConnection>>,
    /// It was taken away.
    broken: Notify,
    /// How often in a row it was slow.
    slow: AtomicU32,
    metrics: Arc<Metrics>,
}

/// The connection is of no more use.
fn is_lost(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.is_connection_dropped() || error.is_unrecoverable_error()
}

/// A new connection to somebody who answers what will be asked: a cluster, say, does not give two names at once.
pub(super) async fn connect(client: &redis::Client) -> Result<MultiplexedConnection, RedisError> {
    let config =
        AsyncConnectionConfig::new().set_connection_timeout(Some(PATIENCE)).set_response_timeout(Some(PATIENCE));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    redis::cmd("MGET").arg(&["milepost:a", "milepost:b"]).exec_async(&mut connection).await?;
    Ok(connection)
}

impl Link {
    pub(super) fn new(metrics: Arc<Metrics>) -> Link {
        metrics.redis_down.set(1.0);
        Link { connection: Mutex::default(), broken: Notify::new(), slow: AtomicU32::new(0), metrics }
    }

    fn connection(&self) -> Option<MultiplexedConnection> {
        self.connection.lock().expect("no holder of this lock panics").clone()
    }

    pub(super) fn is_up(&self) -> bool {
        self.connection.lock().expect("no holder of this lock panics").is_some()
    }

    pub(super) fn set(&self, connection: MultiplexedConnection) {
        self.slow.store(0, Ordering::Relaxed);
        *self.connection.lock().expect("no holder of this lock panics") = Some(connection);
        self.metrics.redis_down.set(0.0);
    }

    fn take_away(&self, reason: &dyn std::fmt::Display) {
        self.metrics.redis_errors.increment(1);
        if self.connection.lock().expect("no holder of this lock panics").take().is_some() {
            self.metrics.redis_down.set(1.0);
            tracing::warn!(%reason, "Redis does not answer; results are read from the database until it does");
            self.broken.notify_one();
        }
    }

    /// Waits until the connection is found broken.
    pub(super) async fn broken(&self) {
        self.broken.notified().await;
    }

    /// The values of these names, in order, as far as they come; each few of them within this time after those before.
    pub(super) async fn get(&self, names: &[String], within: Duration) -> Vec<Option<Vec<u8>>> {
        let mut values = Vec::with_capacity(names.len());
        if let Some(connection) = self.connection() {
            // All are on their way at once; what is large is waited for as long as it keeps coming.
            let asked = names.chunks(FEW).map(|few| mget(connection.clone(), few));
            let mut answers: FuturesOrdered<_> = asked.collect();
            while let Some(few) = self.next_of(&mut answers, within).await {
                values.extend(few);
            }
        }
        values.resize(names.len(), None);
        values
    }

    async fn next_of(&self, answers: &mut (impl Stream<Item = Answer> + Unpin), within: Duration) -> Option<Values> {
        match tokio::time::timeout(within, answers.next()).await {
            Ok(None) => None,
            Ok(Some(Ok(values))) => {
                self.slow.store(0, Ordering::Relaxed);
                Some(values)
            }
            Ok(Some(Err(error))) => {
                self.take_away(&error);
                None
            }
            Err(_) => {
                if within >= FAIR && self.slow.fetch_add(1, Ordering::Relaxed) + 1 >= TOO_OFTEN {
                    self.take_away(&format_args!("no answer within {} ms", within.as_millis()));
                }
                None
            }
        }
    }

    /// Writes all of these. Answers whether that was done.
    pub(super) async fn set_all(&self, entries: &[Entry], ttl: Duration) -> bool {
        let Some(mut connection) = self.connection() else { return false };
        let mut pipeline = Pipeline::with_capacity(entries.len());
        for Entry { name, hash, output } in entries {
            let Digest(hash) = hash;
            let value = [&hash[..], output.as_str().as_bytes()].concat();
            pipeline.cmd("SET").arg(name).arg(value).arg("EX").arg(ttl.as_secs()).ignore();
        }
        match pipeline.exec_async(&mut connection).await {
            Ok(()) => true,
            // It is there and will not take it: full, or not to be written to.
            Err(error) if !is_lost(&error) => {
                self.metrics.redis_errors.increment(1);
                tracing::debug!(%error, "Redis does not take results");
                false
            }
            Err(error) => {
                self.take_away(&error);
                false
            }
        }
    }

    /// Sees whether somebody still answers.
    pub(super) async fn look(&self) {
        let Some(mut connection) = self.connection() else { return };
        if let Err(error) = Cmd::ping().exec_async(&mut connection).await {
            self.take_away(&error);
        }
    }
}
