//! Writes to Redis what others have put in line, and drops what does not fit there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::hash::Digest;
use milepost_core::json::Json;
use tokio::sync::mpsc;

use super::link::Link;
use crate::telemetry::metrics::Metrics;

/// What may wait in line.
const ENTRIES: usize = 4096;
const BYTES: usize = 64 * 1024 * 1024;
/// What is sent at once.
const AT_ONCE: usize = 64;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) hash: Digest,
    pub(super) output: Json,
}

/// Where entries wait.
#[derive(Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Entry>,
    bytes: Arc<AtomicUsize>,
    metrics: Arc<Metrics>,
}

pub(super) struct Writer {
    entries: mpsc::Receiver<Entry>,
    bytes: Arc<AtomicUsize>,
    link: Arc<Link>,
    ttl: Duration,
    metrics: Arc<Metrics>,
}

pub(super) fn open(link: Arc<Link>, ttl: Duration, metrics: Arc<Metrics>) -> (Queue, Writer) {
    let (sender, entries) = mpsc::channel(ENTRIES);
    let bytes = Arc::<AtomicUsize>::default();
    let queue = Queue { sender, bytes: bytes.clone(), metrics: metrics.clone() };
    (queue, Writer { entries, bytes, link, ttl, metrics })
}

impl Queue {
    pub(super) fn push(&self, entry: Entry) {
        let size = entry.output.len();
        let fits = self.bytes.fetch_add(size, Ordering::Relaxed) + size <= BYTES;
        if !fits || self.sender.try_send(entry).is_err() {
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            self.metrics.redis_dropped.increment(1);
        }
    }
}

impl Writer {
    /// Until nobody is left who puts anything in line.
    pub(super) async fn run(mut self) {
        let mut entries = Vec::with_capacity(AT_ONCE);
        while self.entries.recv_many(&mut entries, AT_ONCE).await > 0 {
            let count = entries.len() as u64;
            match self.link.set_all(&entries, self.ttl).await {
                true => self.metrics.redis_written.increment(count),
                false => self.metrics.redis_dropped.increment(count),
            }
            let size: usize = entries.iter().map(|entry| entry.output.len()).sum();
            self.bytes.fetch_sub(size, Ordering::Relaxed);
            entries.clear();
        }
    }
}
