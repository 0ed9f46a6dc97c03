//! Every metric of the engine: its name, what it says, and the handle that counts.
//!
//! Handles are taken once, when an engine opens, from the recorder that is installed then. Without one they do nothing, and
//! counting costs a look at an empty option. What can be read on demand is not kept up to date at all: `Engine::observe_gauges`
//! sets it when somebody asks.

use metrics::{Counter, Gauge, Histogram};
use milepost_core::event::{Body, Event};
use milepost_core::status::{RunStatus, StepStatus};

/// A metric, for whoever registers, describes or documents it.
#[derive(Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Debug)]
pub enum Kind {
    Counter,
    Gauge,
    /// With the upper ends of its buckets.
    Histogram(&'static [f64]),
}

/// From a tenth of a millisecond to half a minute.
pub const SECONDS: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
const LATE_SECONDS: &[f64] = &[0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0];
const SIZES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0];

impl Metric {
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, kind: Kind::Counter, labels, help }
    }

    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
        Metric { name, kind: Kind::Gauge, labels, help }
    }

    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Metric {
        Metric { name, kind: Kind::Histogram(buckets), labels, help }
    }

    /// Tells the recorder what the metric says.
    pub fn describe(&self) {
        match self.kind {
            Kind::Counter => metrics::describe_counter!(self.name, self.help),
            Kind::Gauge => metrics::describe_gauge!(self.name, self.help),
            Kind::Histogram(_) => metrics::describe_histogram!(self.name, self.help),
        }
    }

    fn with(&self, value: &'static str) -> Counter {
        metrics::counter!(self.name, self.labels[0] => value)
    }
}

const QUEUE_DEPTH: Metric =
    Metric::gauge("milepost_committer_queue_depth", &[], "Requests that wait for the committer of this node.");
const READY: Metric = Metric::gauge("milepost_ready_steps", &[], "Steps that wait for an executor of this node.");
const LEASED: Metric = Metric::gauge("milepost_leased_tasks", &[], "Tasks of workers whose leases this node watches.");
const STUCK: Metric = Metric::gauge(
    "milepost_runs_stuck",
    &[],
    "Runs that are parked because they took their process down twice; the same on every node.",
);
const EXECUTING: Metric = Metric::gauge("milepost_executing_steps", &[], "Steps that this node carries out now.");
const READY_TO_STARTED: Metric = Metric::histogram(
    "milepost_ready_to_started_seconds",
    &[],
    SECONDS,
    "From a step being ready to its start on this node, the commit that says so included.",
);
const BATCH_RUNS: Metric = Metric::histogram("milepost_commit_batch_runs", &[], SIZES, "Runs written by one commit.");
const BATCH_EVENTS: Metric =
    Metric::histogram("milepost_commit_batch_events", &[], SIZES, "Events written by one commit.");
const COMMIT: Metric = Metric::histogram(
    "milepost_commit_seconds",
    &[],
    SECONDS,
    "How long a commit took, from when it was sent to the database to its answer.",
);
const COMMITS: Metric = Metric::counter("milepost_commits_total", &[], "Commits that were sent to the database.");
const CONFLICTS: Metric = Metric::counter(
    "milepost_commit_conflicts_total",
    &[],
    "Runs that another node had changed first; what was asked of them was decided again.",
);
const EVENTS: Metric = Metric::counter("milepost_events_total", &["type"], "Events that this node wrote.");
const RUNS: Metric =
    Metric::counter("milepost_runs_total", &["status"], "Runs that ended here, by the status they ended with.");
const STEPS: Metric = Metric::counter(
    "milepost_steps_total",
    &["status"],
    "Attempts of steps that ended here, by how they ended; a retried step counts once per attempt.",
);
const PROJECTOR_LAG: Metric = Metric::gauge(
    "milepost_projector_lag_seconds",
    &[],
    "How old the oldest commit is that lists do not show yet; the goal is one second.",
);
const PROJECTOR_QUEUE: Metric = Metric::gauge(
    "milepost_projector_queue",
    &[],
    "Commits that wait to be projected; at 16384 committing slows down.",
);
const TIMERS_LATE: Metric = Metric::histogram(
    "milepost_timers_late_seconds",
    &[],
    LATE_SECONDS,
    "How much later than it was due a timer moved its run.",
);
const ADOPTED: Metric =
    Metric::counter("milepost_adopted_runs_total", &[], "Runs that this node took over from a node that was gone.");
const CACHE_HITS: Metric =
    Metric::counter("milepost_cache_hits_total", &[], "Steps that took a result that was there, on this node.");
const CACHE_MISSES: Metric = Metric::counter(
    "milepost_cache_misses_total",
    &[],
    "Attempts of steps with a cache that had to run, on this node: no result was there, or none was wanted.",
);
const CACHE_READS: Metric = Metric::counter(
    "milepost_cache_reads_total",
    &["from"],
    "Results that were found, by where their outputs were read; whether there is one always tells the database.",
);
const REDIS_DOWN: Metric =
    Metric::gauge("milepost_redis_down", &[], "1 while the Redis that was asked for cannot be reached.");
const REDIS_WRITTEN: Metric = Metric::counter("milepost_redis_written_total", &[], "Outputs that Redis took.");
const REDIS_DROPPED: Metric = Metric::counter(
    "milepost_redis_dropped_total",
    &[],
    "Outputs that Redis was not given: too many waited, or it did not take them.",
);
const REDIS_ERRORS: Metric =
    Metric::counter("milepost_redis_errors_total", &[], "Requests to Redis that failed or took too long.");
const DELIVERIES: Metric = Metric::counter(
    "milepost_outbox_deliveries_total",
    &["result"],
    "Tries to do what commits asked for beyond the database, by what they came to.",
);
const DELIVERING: Metric =
    Metric::gauge("milepost_outbox_under_way", &[], "Tries of the outbox that this node has under way.");
const ALERTS: Metric =
    Metric::counter("milepost_alerts_total", &["code"], "What somebody should look at, by its code in the log.");
const TRACES_EXPORTED: Metric =
    Metric::counter("milepost_traces_exported_total", &[], "Runs whose spans a collector took.");
const TRACES_DROPPED: Metric =
    Metric::counter("milepost_traces_dropped_total", &["reason"], "Runs whose spans were given up, and why.");

/// What a try of the outbox may come to.
const RESULTS: [&str; 8] = ["completed", "failed", "accepted", "retried", "dead", "expired", "cancelled", "stale"];

/// All of them.
pub const METRICS: &[&Metric] = &[
    &QUEUE_DEPTH,
    &READY,
    &EXECUTING,
    &LEASED,
    &STUCK,
    &READY_TO_STARTED,
    &BATCH_RUNS,
    &BATCH_EVENTS,
    &COMMIT,
    &COMMITS,
    &CONFLICTS,
    &EVENTS,
    &RUNS,
    &STEPS,
    &PROJECTOR_LAG,
    &PROJECTOR_QUEUE,
    &TIMERS_LATE,
    &ADOPTED,
    &CACHE_HITS,
    &CACHE_MISSES,
    &CACHE_READS,
    &REDIS_DOWN,
    &REDIS_WRITTEN,
    &REDIS_DROPPED,
    &REDIS_ERRORS,
    &DELIVERIES,
    &DELIVERING,
    &ALERTS,
    &TRACES_EXPORTED,
    &TRACES_DROPPED,
];

/// Makes a counter for each type of event. A type that is missing here does not compile.
macro_rules! by_event_type {
    ($($field:ident: $pattern:pat => $name:literal,)+) => {
        struct ByEventType { $($field: Counter,)+ }

        impl ByEventType {
            fn new() -> ByEventType {
                ByEventType { $($field: EVENTS.with($name),)+ }
            }

            fn of(&self, body: &Body) -> &Counter {
                match body { $($pattern => &self.$field,)+ }
            }
        }
    };
}

by_event_type! {
    run_queued: Body::RunQueued(_) => "RunQueued",
    run_approved: Body::RunApproved => "RunApproved",
    run_started: Body::RunStarted(_) => "RunStarted",
    run_paused: Body::RunPaused => "RunPaused",
    run_resumed: Body::RunResumed => "RunResumed",
    run_completed: Body::RunCompleted => "RunCompleted",
    run_failed: Body::RunFailed { .. } => "RunFailed",
    run_cancelled: Body::RunCancelled { .. } => "RunCancelled",
    run_terminated: Body::RunTerminated { .. } => "RunTerminated",
    run_reopened: Body::RunReopened => "RunReopened",
    run_continued: Body::RunContinued { .. } => "RunContinued",
    run_patched: Body::RunPatched(_) => "RunPatched",
    step_started: Body::StepStarted(_) => "StepStarted",
    artifact_recorded: Body::ArtifactRecorded(_) => "ArtifactRecorded",
    step_completed: Body::StepCompleted { .. } => "StepCompleted",
    step_failed: Body::StepFailed { .. } => "StepFailed",
    step_skipped: Body::StepSkipped { .. } | Body::StepsSkipped { .. } | Body::StepReused(_) => "StepSkipped",
    step_retry_scheduled: Body::StepRetryScheduled { .. } => "StepRetryScheduled",
    signal_accepted: Body::SignalAccepted { .. } => "SignalAccepted",
    signal_rejected: Body::SignalRejected { .. } => "SignalRejected",
}

/// The handles.
pub(crate) struct Metrics {
    pub(crate) queue_depth: Gauge,
    pub(crate) ready: Gauge,
    pub(crate) executing: Gauge,
    pub(crate) leased: Gauge,
    pub(crate) stuck: Gauge,
    pub(crate) ready_to_started: Histogram,
    pub(crate) batch_runs: Histogram,
    pub(crate) batch_events: Histogram,
    pub(crate) commit_seconds: Histogram,
    pub(crate) commits: Counter,
    pub(crate) conflicts: Counter,
    pub(crate) projector_lag: Gauge,
    pub(crate) projector_queue: Gauge,
    pub(crate) timers_late: Histogram,
    pub(crate) adopted: Counter,
    cache_hits: Counter,
    cache_misses: Counter,
    pub(crate) results_from_database: Counter,
    pub(crate) results_from_redis: Counter,
    pub(crate) redis_down: Gauge,
    pub(crate) redis_written: Counter,
    pub(crate) redis_dropped: Counter,
    pub(crate) redis_errors: Counter,
    pub(crate) delivering: Gauge,
    deliveries: [(&'static str, Counter); 8],
    pub(crate) projector_lag_high: Counter,
    pub(crate) projector_gap: Counter,
    pub(crate) traces_exported: Counter,
    pub(crate) traces_unreachable: Counter,
    pub(crate) traces_refused: Counter,
    pub(crate) traces_queue_full: Counter,
    pub(crate) traces_unreadable: Counter,
    events: ByEventType,
    runs_completed: Counter,
    runs_failed: Counter,
    runs_cancelled: Counter,
    runs_terminated: Counter,
    steps_completed: Counter,
    steps_failed: Counter,
    steps_skipped: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        METRICS.iter().for_each(|metric| metric.describe());
        let run = |status: RunStatus| RUNS.with(status.as_str());
        let step = |status: StepStatus| STEPS.with(status.as_str());
        Metrics {
            queue_depth: metrics::gauge!(QUEUE_DEPTH.name),
            ready: metrics::gauge!(READY.name),
            executing: metrics::gauge!(EXECUTING.name),
            leased: metrics::gauge!(LEASED.name),
            stuck: metrics::gauge!(STUCK.name),
            ready_to_started: metrics::histogram!(READY_TO_STARTED.name),
            batch_runs: metrics::histogram!(BATCH_RUNS.name),
            batch_events: metrics::histogram!(BATCH_EVENTS.name),
            commit_seconds: metrics::histogram!(COMMIT.name),
            commits: metrics::counter!(COMMITS.name),
            conflicts: metrics::counter!(CONFLICTS.name),
            projector_lag: metrics::gauge!(PROJECTOR_LAG.name),
            projector_queue: metrics::gauge!(PROJECTOR_QUEUE.name),
            timers_late: metrics::histogram!(TIMERS_LATE.name),
            adopted: metrics::counter!(ADOPTED.name),
            cache_hits: metrics::counter!(CACHE_HITS.name),
            cache_misses: metrics::counter!(CACHE_MISSES.name),
            results_from_database: CACHE_READS.with("database"),
            results_from_redis: CACHE_READS.with("redis"),
            redis_down: metrics::gauge!(REDIS_DOWN.name),
            redis_written: metrics::counter!(REDIS_WRITTEN.name),
            redis_dropped: metrics::counter!(REDIS_DROPPED.name),
            redis_errors: metrics::counter!(REDIS_ERRORS.name),
            delivering: metrics::gauge!(DELIVERING.name),
            deliveries: RESULTS.map(|result| (result, DELIVERIES.with(result))),
            projector_lag_high: ALERTS.with("PROJECTOR_LAG_HIGH"),
            projector_gap: ALERTS.with("PROJECTOR_GAP_DETECTED"),
            traces_exported: metrics::counter!(TRACES_EXPORTED.name),
            traces_unreachable: TRACES_DROPPED.with("unreachable"),
            traces_refused: TRACES_DROPPED.with("refused"),
            traces_queue_full: TRACES_DROPPED.with("queue_full"),
            traces_unreadable: TRACES_DROPPED.with("unreadable"),
            events: ByEventType::new(),
            runs_completed: run(RunStatus::Completed),
            runs_failed: run(RunStatus::Failed),
            runs_cancelled: run(RunStatus::Cancelled),
            runs_terminated: run(RunStatus::Terminated),
            steps_completed: step(StepStatus::Completed),
            steps_failed: step(StepStatus::Failed),
            steps_skipped: step(StepStatus::Skipped),
        }
    }

    /// Counts a try of the outbox.
    pub(crate) fn delivered(&self, result: &str) {
        if let Some((_, counter)) = self.deliveries.iter().find(|(word, _)| *word == result) {
            counter.increment(1);
        }
    }

    /// Counts what is on disk now.
    pub(crate) fn written(&self, events: &[Event]) {
        for event in events {
            self.events.of(&event.body).increment(1);
            match &event.body {
                Body::StepCompleted { .. } => self.steps_completed.increment(1),
                Body::StepFailed { .. } => self.steps_failed.increment(1),
                Body::StepReused(_) => {
                    self.steps_skipped.increment(1);
                    self.cache_hits.increment(1);
                }
                Body::StepSkipped { .. } => self.steps_skipped.increment(1),
                Body::StepsSkipped { steps } => self.steps_skipped.increment(steps.len() as u64),
                Body::StepStarted(started) if started.cache_key.is_some() => self.cache_misses.increment(1),
                Body::RunCompleted => self.runs_completed.increment(1),
                Body::RunFailed { .. } => self.runs_failed.increment(1),
                Body::RunCancelled { .. } => self.runs_cancelled.increment(1),
                Body::RunTerminated { .. } => self.runs_terminated.increment(1),
                _ => {}
            }
        }
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_customs_of_prometheus() {
        for metric in METRICS {
            assert!(metric.name.starts_with("milepost_") && metric.help.ends_with('.'), "{}", metric.name);
            let counts = matches!(metric.kind, Kind::Counter);
            assert_eq!(counts, metric.name.ends_with("_total"), "{}", metric.name);
            if let Kind::Histogram(buckets) = metric.kind {
                assert!(buckets.is_sorted() && !buckets.is_empty(), "{}", metric.name);
            }
        }
    }
}
