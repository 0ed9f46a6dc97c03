//! What the engine tells those who watch over it: metrics, and traces of the runs that ended here.
//!
//! **Invariant:** nothing here slows a run down or fails one. Counting touches atomics, traces are made of the log in the
//! background, and what cannot be delivered is dropped and counted.

mod config;
mod exporter;
pub mod metrics;
mod otlp;
mod spans;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use milepost_core::event::Event;
use milepost_core::id::{NodeId, OrgId, RunId};
use milepost_core::plan::Plan;
use milepost_store::Store;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use self::exporter::{Ended, Exporter};
use self::metrics::Metrics;

pub use config::{BadOtlpConfig, OtlpConfig};

/// Ended runs that may wait to be exported; more are dropped.
const QUEUE: usize = 4096;
/// So long a node that ends waits for what is still to be exported.
const PATIENCE: Duration = Duration::from_secs(3);

/// Where the parts of an engine say what they did.
#[derive(Clone, Debug)]
pub(crate) struct Telemetry {
    pub(crate) metrics: Arc<Metrics>,
    /// Steps that wait for an executor, as the committer last saw them.
    ready: Arc<AtomicUsize>,
    traces: Option<mpsc::Sender<Ended>>,
}

/// The background task that exports traces.
#[derive(Debug)]
pub(crate) struct Tracing {
    task: JoinHandle<()>,
    /// Dropped when the engine ends: from then on nothing is tried twice.
    hurry: watch::Sender<()>,
}

impl Telemetry {
    pub(crate) fn new(
        config: Option<OtlpConfig>,
        store: &Arc<dyn Store>,
        node: NodeId,
    ) -> (Telemetry, Option<Tracing>) {
        let metrics = Arc::new(Metrics::new());
        let (sender, tracing) = config.map(|config| trace(config, store, node, &metrics)).unzip();
        (Telemetry { metrics, ready: Arc::default(), traces: sender }, tracing)
    }

    /// Events of a run are on disk.
    pub(crate) fn written(&self, org: OrgId, run: RunId, plan: &Arc<Plan>, events: &[Event]) {
        self.metrics.written(events);
        let Some(traces) = &self.traces else { return };
        for end in events.iter().filter(|event| event.body.run_status().is_some_and(|status| status.is_terminal())) {
            let ended = Ended { org, run, plan: plan.clone(), seq: end.seq };
            if traces.try_send(ended).is_err() {
                self.metrics.traces_queue_full.increment(1);
            }
        }
    }

    /// For those who end no runs: the exporter ends once nobody is left who does.
    pub(crate) fn without_traces(self) -> Telemetry {
        Telemetry { traces: None, ..self }
    }

    pub(crate) fn set_ready(&self, steps: usize) {
        self.ready.store(steps, Ordering::Relaxed);
    }

    pub(crate) fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }
}

fn trace(
    config: OtlpConfig,
    store: &Arc<dyn Store>,
    node: NodeId,
    metrics: &Arc<Metrics>,
) -> (mpsc::Sender<Ended>, Tracing) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let (hurry, hurried) = watch::channel(());
    let exporter = Exporter::new(config, store.clone(), node, metrics.clone(), queue, hurried);
    (sender, Tracing { task: tokio::spawn(exporter.run()), hurry })
}

impl Tracing {
    /// Waits a moment for what is still to be exported. All that could add to it must have ended before.
    pub(crate) async fn finish(self) {
        let Tracing { mut task, hurry } = self;
        drop(hurry);
        if tokio::time::timeout(PATIENCE, &mut task).await.is_err() {
            tracing::warn!("traces of the last runs were not exported: the collector is too slow");
            task.abort();
            // It may be reading: once this returns, nothing of this engine touches the store.
            let _ = task.await;
        }
    }

    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}
