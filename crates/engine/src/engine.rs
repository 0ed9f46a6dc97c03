//! The engine: a committer with the services around it, opened on a store.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use milepost_core::cache::Trust;
use milepost_core::change::{RebuildRequest, both};
use milepost_core::event::{BaseRun, EngineRef};
use milepost_core::id::{NodeId, OrgId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::{Action, Plan, PlanStep, Rebuild, Runtime};
use milepost_core::record::EventRow;
use milepost_core::request::RunRequest;
use milepost_core::run::{Command, RunState, Signal, StartRun, Starting};
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_core::trace::TraceContext;
use milepost_store::Store;
use milepost_store::blobs::Blobs;
use milepost_store::rows::{HeadRow, RunFilter, SnapshotRow, TransitionRow};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::artifacts::{Artifacts, ArtifactsConfig, Keeper};
use crate::cache::{CacheConfig, Evictor, Hot, HotTasks};
use crate::care::Care;
use crate::clock::{Clock, SystemClock};
use crate::committer::{Accepted, Committer, Inbox, LimitedQueues, Parts, RequestKind, restore_with};
use crate::definitions::{Collector, Definitions, DefinitionsConfig, Target};
use crate::error::EngineError;
use crate::executor::Executor;
use crate::flights::{FlightWatch, Flights};
use crate::logs::{LogHandle, LogWriter};
use crate::lookout::Lookout;
use crate::outbox::{self, Outbox, OutboxConfig};
use crate::plans::Plans;
use crate::projector::{self, Projector, ProjectorHandle};
use crate::push::{Hosts, PushConfig, Pusher, room_for_answers};
use crate::reaper::Reaper;
use crate::retention::Retention;
use crate::room::Room;
use crate::secrets::{Secrets, SecretsConfig};
use crate::skills::{BUILT_IN, BuiltInOptions, LogSink, SkillContext, SkillError, Skills};
use crate::streams::{self, EventStream, Hub};
use crate::supervisor::{Failure, SupervisionConfig, Supervisor, Watchdog};
use crate::telemetry::{OtlpConfig, Telemetry, Tracing};
use crate::timers::{TimerHandle, Timers};
use crate::view::{RunSummary, Stale, StuckView};
use crate::watch::Watchers;
use crate::work::{self, Work, check_payload};
use crate::workers::{LeaseKeeper, Leases, Puller, SeenWorkers};

/// What answers to questions about runs take together.
const ROOM_BYTES: usize = 320 * 1024 * 1024;
/// What logs say that began a run.
const VERSION: &str = concat!("milepost/", env!("CARGO_PKG_VERSION"));

/// How an engine is set up.
pub struct Config {
    /// Whose runs these are.
    pub org: OrgId,
    pub limits: Limits,
    /// Steps that this process carries out at once.
    pub inline_concurrency: usize,
    /// Bytes of run states kept in memory.
    pub cached_bytes: usize,
    /// How long a node that says nothing is believed to live.
    pub node_lease_ms: u64,
    pub skills: Skills,
    pub clock: Arc<dyn Clock>,
    pub log: Option<LogSink>,
    /// Where secrets are looked for.
    pub secrets: SecretsConfig,
    /// Where large documents and pieces of logs are kept; in the database if it is not said. All engines of a database need the same.
    pub blobs: Option<Blobs>,
    /// How files that runs leave are kept.
    pub artifacts: ArtifactsConfig,
    /// How definitions are kept.
    pub definitions: DefinitionsConfig,
    /// How long runs that have ended are kept; for ever if it is not said.
    pub retention: Option<Duration>,
    /// How results of steps are kept.
    pub cache: CacheConfig,
    /// Without it the engine only writes what it is asked to: it begins no steps, fires no timers and takes nothing over.
    /// What it leaves ready is taken over by another node once this one has gone.
    pub takes_steps: bool,
    /// Steps that nobody in this process can carry out wait for workers; without it, runs that have such steps are refused.
    pub workers: bool,
    /// How often what is owed to others is tried.
    pub outbox: OutboxConfig,
    /// How steps with `runtime: push` are sent.
    pub push: PushConfig,
    /// Where traces of the runs that end here are sent, if anywhere.
    pub traces: Option<OtlpConfig>,
    /// When a part of the engine that does not answer is believed to hang.
    pub supervision: SupervisionConfig,
    /// How long the check of a document or a payload may take.
    pub check_deadline: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            org: OrgId::DEFAULT,
            limits: Limits::default(),
            inline_concurrency: 256,
            cached_bytes: 32 * 1024 * 1024,
            node_lease_ms: 10_000,
            skills: Skills::built_in(&BuiltInOptions::default()),
            clock: Arc::new(SystemClock),
            log: None,
            secrets: SecretsConfig::default(),
            blobs: None,
            artifacts: ArtifactsConfig::default(),
            definitions: DefinitionsConfig::default(),
            retention: None,
            cache: CacheConfig::default(),
            takes_steps: true,
            workers: false,
            outbox: OutboxConfig::default(),
            push: PushConfig::default(),
            traces: None,
            supervision: SupervisionConfig::default(),
            check_deadline: work::DEADLINE,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("limits", &self.limits)
            .field("inline_concurrency", &self.inline_concurrency)
            .field("skills", &self.skills)
            .finish_non_exhaustive()
    }
}

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct NewRun {
    pub payload: Json,
    pub request_id: Option<String>,
    pub priority: i32,
    pub start_at: Option<Timestamp>,
    /// The trace that the run goes on with; without one it is a trace of its own.
    pub trace: Option<TraceContext>,
    /// Where the plan came from (see [`Engine::definition_of`]); kept with the run for people to read.
    pub definition: Option<Json>,
    /// Whose results its steps may have (see [`Engine::trust_in`]).
    pub trust: Trust,
    /// Steps that run whatever is kept.
    pub rebuild: Option<RebuildRequest>,
    /// Who asks for it; kept with the run.
    pub submitted_by: Option<String>,
}

impl Default for NewRun {
    fn default() -> Self {
        let payload = Json::trusted("{}");
        NewRun {
            payload,
            request_id: None,
            priority: 0,
            start_at: None,
            trace: None,
            definition: None,
            trust: Trust::Open,
            rebuild: None,
            submitted_by: None,
        }
    }
}

/// An engine that runs. Dropping it stops it at once, as a crash would; `shutdown` ends it in good order.
#[derive(Debug)]
pub struct Engine {
    node: NodeId,
    pub(crate) org: OrgId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) plans: Arc<Plans>,
    pub(crate) artifacts: Arc<Artifacts>,
    pub(crate) clock: Arc<dyn Clock>,
    limits: Limits,
    /// What answers to questions about runs take while they are made.
    pub(crate) room: Room,
    pub(crate) inbox: Inbox,
    pub(crate) leases: Arc<Leases>,
    pub(crate) flights: Flights,
    pub(crate) care: Care,
    pub(crate) seen_workers: SeenWorkers,
    pub(crate) outbox: Outbox,
    pub(crate) limited_queues: LimitedQueues,
    /// Steps may wait for workers.
    workers: bool,
    executor: Executor,
    secrets: Arc<Secrets>,
    projector: ProjectorHandle,
    pub(crate) logs: LogHandle,
    pub(crate) blobs: Option<Blobs>,
    watchers: Arc<Watchers>,
    streams: Arc<Hub>,
    telemetry: Telemetry,
    /// Until it is shut down.
    hot: Mutex<Hot>,
    supervisor: Supervisor,
    running: Mutex<Running>,
}

/// The tasks of an engine, until it is shut down.
#[derive(Debug, Default)]
struct Running {
    stop: Option<oneshot::Sender<()>>,
    committer: Option<JoinHandle<()>>,
    services: Vec<JoinHandle<()>>,
    tracing: Option<Tracing>,
    hot: Option<HotTasks>,
    watchdog: Option<Watchdog>,
}

impl Engine {
    /// Starts an engine on a store with the default settings.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn open(store: Arc<dyn Store>) -> Result<Engine, EngineError> {
        Engine::open_with(store, Config::default()).await
    }

    /// Starts an engine. What dead nodes left is taken over before this returns.
    ///
    /// # Errors
    /// The store cannot be written.
    pub async fn open_with(store: Arc<dyn Store>, config: Config) -> Result<Engine, EngineError> {
        let node = NodeId(crate::clock::entropy().cast_signed());
        let supervisor = Supervisor::new(config.supervision);
        let collects = config.definitions.grace.is_some();
        let definitions = Arc::new(Definitions::new(
            store.clone(),
            config.blobs.clone(),
            config.clock.clone(),
            config.limits.clone(),
            config.definitions,
            Work::within(config.check_deadline),
        ));
        let plans = Arc::new(Plans::new(store.clone(), definitions.clone(), config.clock.clone()));
        let (telemetry, tracing) = Telemetry::new(config.traces, &store, node);
        let (inbox, requests) = Inbox::new();
        let (projector, projector_inbox) = ProjectorHandle::new();
        let timers = TimerHandle::new();
        let (streams, herald, poll) = streams::open(store.clone());
        let watchers = Arc::new(Watchers::new(streams.clone()));
        let (logs, log_inbox) = LogHandle::new(config.limits.log_bytes, config.log, config.clock.clone());
        let secrets = Secrets::new(store.clone(), config.clock.clone(), config.secrets, config.limits.clone());
        let secrets = Arc::new(secrets);
        let artifacts = Arc::new(Artifacts::new(
            store.clone(),
            config.blobs.clone(),
            config.clock.clone(),
            config.limits.clone(),
            config.artifacts,
        ));
        let executor = Executor::new(
            config.skills,
            config.limits.clone(),
            inbox.clone(),
            logs.clone(),
            secrets.clone(),
            artifacts.clone(),
        );
        let leases = Arc::new(Leases::new(logs.clone()));
        let flights = Flights::default();
        let care = Care::new(store.clone(), node);
        let limited_queues = LimitedQueues::default();
        let pusher = Pusher {
            node,
            store: store.clone(),
            plans: plans.clone(),
            clock: config.clock.clone(),
            limits: config.limits.clone(),
            inbox: inbox.clone(),
            leases: leases.clone(),
            secrets: secrets.clone(),
            artifacts: artifacts.clone(),
            hosts: Arc::new(Hosts::new(config.push.per_host)),
            config: config.push,
            answers: room_for_answers(artifacts.most_output()),
            client: OnceLock::new(),
        };
        let outbox = Outbox::new(outbox::Parts {
            node,
            store: store.clone(),
            clock: config.clock.clone(),
            inbox: inbox.clone(),
            metrics: telemetry.metrics.clone(),
            pusher,
            config: config.outbox,
        });
        let opened = config.cache.redis.map(|redis| Hot::open(redis, &telemetry.metrics));
        let (hot, hot_tasks) = opened.map_or((Hot::default(), None), |(hot, tasks)| (hot, Some(tasks)));
        let committer = Committer::new(Parts {
            node,
            engine: EngineRef { node, version: VERSION.into() },
            store: store.clone(),
            plans: plans.clone(),
            work: definitions.work().clone(),
            secrets: secrets.clone(),
            artifacts: artifacts.clone(),
            clock: config.clock.clone(),
            limits: config.limits.clone(),
            executor: executor.clone(),
            leases: leases.clone(),
            flights: flights.clone(),
            care: care.clone(),
            outbox: outbox.clone(),
            limited_queues: limited_queues.clone(),
            workers: config.workers,
            projector: projector.clone(),
            timers: timers.clone(),
            watchers: watchers.clone(),
            telemetry: telemetry.clone(),
            hot: hot.clone(),
            inbox: inbox.clone(),
            inline_concurrency: if config.takes_steps { config.inline_concurrency.max(1) } else { 0 },
            cached_bytes: config.cached_bytes,
        });
        let (stop, stopped) = oneshot::channel();
        let reaper = Reaper {
            node,
            store: store.clone(),
            clock: config.clock.clone(),
            inbox: inbox.clone(),
            leases: leases.clone(),
            outbox: outbox.clone(),
            limited_queues: limited_queues.clone(),
            care: care.clone(),
            lease_ms: config.node_lease_ms,
            opened_at: config.clock.now(),
        };
        let committer = supervisor.spawn("committer", |pulse| committer.run(requests, stopped, pulse));
        let timers = Timers { store: store.clone(), clock: config.clock.clone(), inbox: inbox.clone(), handle: timers };
        let projector_task = Projector::new(
            store.clone(),
            plans.clone(),
            config.clock.clone(),
            projector_inbox,
            telemetry.metrics.clone(),
        );
        let log_writer = LogWriter::new(store.clone(), log_inbox, config.blobs.clone());
        let mut services = vec![
            supervisor.spawn("projector", |pulse| projector_task.run(pulse)),
            supervisor.spawn("herald", |pulse| herald.run(pulse)),
            supervisor.spawn("stream poll", |pulse| poll.run(pulse)),
            supervisor.spawn("log writer", |pulse| log_writer.run(pulse)),
        ];
        if config.takes_steps {
            reaper.run_once(config.clock.now()).await?;
            let lookout = Lookout {
                store: store.clone(),
                executor: executor.clone(),
                leases: leases.clone(),
                inbox: inbox.clone(),
            };
            let keeper = LeaseKeeper {
                node,
                store: store.clone(),
                clock: config.clock.clone(),
                inbox: inbox.clone(),
                leases: leases.clone(),
            };
            if config.workers {
                let clock = config.clock.clone();
                let puller = Puller { node, store: store.clone(), clock, inbox: inbox.clone() };
                services.push(supervisor.spawn("puller", |pulse| puller.run(pulse)));
                services.push(supervisor.spawn("outbox", |pulse| outbox.clone().run(pulse)));
            }
            services.push(supervisor.spawn("lease keeper", |pulse| keeper.run(pulse)));
            let watch = FlightWatch { store: store.clone(), flights: flights.clone(), inbox: inbox.clone() };
            services.push(supervisor.spawn("flight watch", |pulse| watch.run(pulse)));
            if collects {
                let collector = Collector::new(definitions.clone());
                services.push(supervisor.spawn_unasked("collector of definitions", collector.run()));
            }
            let files = Keeper { artifacts: artifacts.clone() };
            services.push(supervisor.spawn_unasked("collector of files", files.run()));
            services.extend(config.retention.map(|keep| {
                let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX);
                let (store, clock, blobs) = (store.clone(), config.clock.clone(), config.blobs.clone());
                supervisor.spawn_unasked("retention", Retention { store, clock, blobs, keep_ms }.run())
            }));
            if config.cache.ttl.is_some() || config.cache.bytes.is_some() {
                let ttl_ms = config.cache.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX));
                let (store, clock, bytes) = (store.clone(), config.clock.clone(), config.cache.bytes);
                let evictor = Evictor { store, clock, ttl_ms, bytes };
                services.push(supervisor.spawn_unasked("evictor", evictor.run()));
            }
            services.extend([
                supervisor.spawn("reaper", |pulse| reaper.run(pulse)),
                supervisor.spawn("timers", |pulse| timers.run(pulse)),
                supervisor.spawn("lookout", |pulse| lookout.run(pulse)),
            ]);
        } else {
            store.heartbeat(node, config.clock.now(), config.node_lease_ms).await?;
        }
        let watchdog = supervisor.watch().inspect_err(|error| {
            tracing::error!(%error, "there is no thread for the watchdog: a part that hangs is noticed by nobody");
        });
        tracing::info!(%node, store = store.name(), takes_steps = config.takes_steps, "an engine runs");
        Ok(Engine {
            node,
            org: config.org,
            store,
            definitions,
            plans,
            artifacts,
            clock: config.clock,
            room: Room::new(ROOM_BYTES),
            limits: config.limits,
            inbox,
            leases,
            flights,
            care,
            seen_workers: SeenWorkers::default(),
            outbox,
            limited_queues,
            workers: config.workers,
            executor,
            secrets,
            projector,
            logs,
            blobs: config.blobs,
            watchers,
            streams,
            telemetry: telemetry.without_traces(),
            hot: Mutex::new(hot),
            supervisor,
            running: Mutex::new(Running {
                stop: Some(stop),
                committer: Some(committer),
                services,
                tracing,
                hot: hot_tasks,
                watchdog: watchdog.ok(),
            }),
        })
    }

    #[must_use]
    pub fn node(&self) -> NodeId {
        self.node
    }

    #[must_use]
    pub fn org(&self) -> OrgId {
        self.org
    }

    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub(crate) fn work(&self) -> &Work {
        self.definitions.work()
    }

    pub(crate) fn serves_workers(&self) -> bool {
        self.workers
    }

    /// The secrets that steps may refer to.
    #[must_use]
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Files that runs leave.
    #[must_use]
    pub fn files(&self) -> &Artifacts {
        &self.artifacts
    }

    /// Whether this engine can carry out the steps of a plan.
    ///
    /// # Errors
    /// Nobody here knows some of its skills.
    pub fn check_skills(&self, plan: &Plan) -> Result<(), EngineError> {
        check_skills(plan, &self.executor, self.workers)
    }

    pub(crate) fn check_patch_skills(&self, before: &Plan, plan: &Plan) -> Result<(), EngineError> {
        check_new_skills(before, plan, &self.executor, self.workers)
    }

    /// Checks all of a start that can be checked before anything is stored.
    ///
    /// # Errors
    /// What `start_plan` would answer, apart from what the database has to say.
    pub async fn check_start(&self, plan: &Arc<Plan>, new: &NewRun) -> Result<(), EngineError> {
        self.starting(plan, new.clone(), None).await.map(drop)
    }

    pub(crate) async fn starting(
        &self,
        plan: &Arc<Plan>,
        new: NewRun,
        rebuild: Option<Rebuild>,
    ) -> Result<Starting, EngineError> {
        self.check_skills(plan)?;
        let context = milepost_core::run::Context::new(self.clock.now(), 0, &self.limits);
        let request = self.request_of(plan, &new, None, true);
        let start = self.start_run(plan, new, context.draw_run_id(), request)?;
        let start = StartRun { rebuild: both(start.rebuild, rebuild), ..start };
        check_payload(self.work(), plan, &start.payload, &self.limits).await?;
        Ok(Starting::check(start, plan.clone(), &context)?)
    }

    /// Starts a run of a deployed workflow. Returns when the run is on disk.
    ///
    /// # Errors
    /// There is no such workflow, or the run does not fit it.
    pub async fn start(&self, workflow: &str, new: NewRun) -> Result<Accepted, EngineError> {
        let (plan, target) = self.resolve_target(workflow).await?;
        let definition = Some(self.definition_of(workflow, (&plan, &target), None).await?);
        let trust = self.trust_in(&plan, &target).await?;
        self.start_plan(&plan, NewRun { definition, trust, ..new }).await
    }

    /// What is kept with a run of where its plan came from: what was asked for, what that means now, where the tags are that
    /// lead to it and to the workflows that it may run as children, and the patch for this run alone.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn definition_of(
        &self,
        reference: &str,
        found: (&Plan, &Target),
        patch: Option<&serde_json::Value>,
    ) -> Result<Json, EngineError> {
        self.plans.definition_of(self.org, reference, found, patch).await
    }

    /// Whose results the steps of a run may have that follows what a reference means.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn trust_in(&self, plan: &Plan, target: &Target) -> Result<Trust, EngineError> {
        self.definitions.trust_in(self.org, plan, target).await
    }

    /// Starts a run of a document that need not be deployed.
    ///
    /// # Errors
    /// The document has problems, or the run does not fit it.
    pub async fn start_document(&self, source: &str, new: NewRun) -> Result<Accepted, EngineError> {
        let loaded = self.load(source.to_owned()).await?;
        let plan = self.add(loaded).await?;
        self.start_plan(&plan, new).await
    }

    /// Starts a run of a plan that `deploy` gave.
    ///
    /// # Errors
    /// The run does not fit the plan.
    pub async fn start_plan(&self, plan: &Arc<Plan>, new: NewRun) -> Result<Accepted, EngineError> {
        let request = self.request_of(plan, &new, None, true);
        self.start_from(plan, new, None, None, request).await
    }

    pub(crate) async fn start_from(
        &self,
        plan: &Arc<Plan>,
        new: NewRun,
        base: Option<BaseRun>,
        rebuild: Option<Rebuild>,
        request: Option<Box<RunRequest>>,
    ) -> Result<Accepted, EngineError> {
        match self.start_anew(plan, new, base, rebuild, request.clone()).await {
            Err(error) => self.answer_as_before(plan, request.as_deref(), error).await,
            accepted => accepted,
        }
    }

    async fn start_anew(
        &self,
        plan: &Arc<Plan>,
        new: NewRun,
        base: Option<BaseRun>,
        rebuild: Option<Rebuild>,
        request: Option<Box<RunRequest>>,
    ) -> Result<Accepted, EngineError> {
        check_skills(plan, &self.executor, self.workers)?;
        check_payload(self.work(), plan, &new.payload, &self.limits).await?;
        self.plans.ready(self.org, plan).await?;
        let start = self.start_run(plan, new, self.new_run_id(), request)?;
        let start = StartRun { base, rebuild: both(start.rebuild, rebuild), ..start };
        self.inbox.ask(RequestKind::Start { start: Box::new(start), plan: plan.clone(), at: None }).await
    }

    /// Starts a run and waits for its end.
    ///
    /// # Errors
    /// The run does not fit the plan.
    pub async fn run_plan(&self, plan: &Arc<Plan>, new: NewRun) -> Result<(RunId, RunStatus), EngineError> {
        check_skills(plan, &self.executor, self.workers)?;
        check_payload(self.work(), plan, &new.payload, &self.limits).await?;
        self.plans.ready(self.org, plan).await?;
        let run = self.new_run_id();
        let end = self.watchers.end(run);
        let request = self.request_of(plan, &new, None, true);
        let start = Box::new(self.start_run(plan, new, run, request)?);
        let accepted = self.inbox.ask(RequestKind::Start { start, plan: plan.clone(), at: None }).await?;
        let status = match accepted.run == run {
            true => self.wait_for(run, end).await?,
            false => self.wait(accepted.run).await?,
        };
        Ok((accepted.run, status))
    }

    fn start_run(
        &self,
        plan: &Plan,
        new: NewRun,
        run: RunId,
        request: Option<Box<RunRequest>>,
    ) -> Result<StartRun, EngineError> {
        Ok(StartRun {
            org: self.org,
            run,
            payload: new.payload,
            request,
            priority: new.priority,
            start_at: new.start_at,
            parent: None,
            trace: new.trace,
            definition: new.definition,
            base: None,
            trust: new.trust,
            rebuild: new.rebuild.map(|steps| steps.of(plan)).transpose()?,
            submitted_by: new.submitted_by,
        })
    }

    fn new_run_id(&self) -> RunId {
        milepost_core::run::Context::new(self.clock.now(), crate::clock::entropy(), &self.limits).draw_run_id()
    }

    /// Waits until a run has ended.
    ///
    /// # Errors
    /// There is no such run.
    pub async fn wait(&self, run: RunId) -> Result<RunStatus, EngineError> {
        // First ask to be told, then look: an end between the two is not missed.
        let end = self.watchers.end(run);
        let head = self.head(run).await?;
        if head.status.is_terminal() {
            return Ok(head.status);
        }
        self.wait_for(run, end).await
    }

    async fn wait_for(&self, run: RunId, mut end: oneshot::Receiver<RunStatus>) -> Result<RunStatus, EngineError> {
        loop {
            // Another node may end it, or the answer of the database was lost: that is seen by looking.
            match tokio::time::timeout(std::time::Duration::from_secs(1), &mut end).await {
                Ok(ended) => return ended.map_err(|_| EngineError::ShuttingDown),
                Err(_) => {
                    let head = self.head(run).await?;
                    if head.status.is_terminal() {
                        return Ok(head.status);
                    }
                }
            }
        }
    }

    /// Sends a signal. Returns when it is on disk.
    ///
    /// # Errors
    /// The signal does not fit the run.
    pub async fn signal(&self, run: RunId, signal: Signal) -> Result<Accepted, EngineError> {
        self.signal_if(run, signal, None).await
    }

    /// The same, if the run's last event is still the one given: for those who decide by what they have seen of it.
    ///
    /// # Errors
    /// The run went on, or the signal does not fit it.
    pub async fn signal_if(
        &self,
        run: RunId,
        signal: Signal,
        expected_seq: Option<u64>,
    ) -> Result<Accepted, EngineError> {
        let command = match expected_seq {
            None => Command::Signal(signal.clone()),
            Some(expected_seq) => Command::SignalAt { signal: signal.clone(), expected_seq },
        };
        match self.send_once(run, command.clone(), &signal).await {
            Err(error @ EngineError::Stuck { .. }) => self.signal_parked(run, command, error).await,
            answered => answered,
        }
    }

    /// What a parked run takes: `RESUME` has it decided again, `TERMINATE` ends it without.
    async fn signal_parked(&self, run: RunId, command: Command, parked: EngineError) -> Result<Accepted, EngineError> {
        let (signal, expected) = match command {
            Command::Signal(signal) => (signal, None),
            Command::SignalAt { signal, expected_seq } => (signal, Some(expected_seq)),
            _ => return Err(parked),
        };
        let head = self.head(run).await?;
        if let Some(expected) = expected.filter(|expected| *expected != head.last_seq) {
            return Err(EngineError::Moved { run, expected, last_seq: head.last_seq });
        }
        match signal.name.as_str() {
            "RESUME" => self.unpark(&head).await,
            "TERMINATE" => {
                let accepted = self.inbox.ask(RequestKind::EndParked { org: self.org, run, signal }).await?;
                self.store.suspects().close(self.org, run).await?;
                self.care.ended(run);
                Ok(accepted)
            }
            _ => Err(parked),
        }
    }

    async fn unpark(&self, parked: &HeadRow) -> Result<Accepted, EngineError> {
        let (org, run) = (parked.org, parked.run);
        let released = self.store.suspects().release(org, run).await?;
        self.care.released(run);
        let head = self.head(run).await?;
        if released {
            tracing::info!(%run, "a parked run is decided again, by the next node that looks around");
            // Nobody watched these meanwhile.
            for row in self.store.tasks_of(org, run).await? {
                if let Some(lease) = &row.lease {
                    let (logical, engine) = (lease.logical_attempt, lease.engine_attempt);
                    let lines = self.store.log_lines(org, run, &row.step_id, logical, engine).await?;
                    self.leases.adopt(&row, self.clock.now(), lines);
                }
            }
        }
        Ok(Accepted { run, status: head.status, existing: !released, last_seq: head.last_seq })
    }

    /// A signal with a new id, without payload.
    #[must_use]
    pub fn new_signal(name: &str) -> Signal {
        let id = SignalId(uuid::Uuid::now_v7());
        Signal { id, name: name.to_owned(), step: None, payload: Json::trusted("{}"), actor: None }
    }

    /// Events of a run from now on. Ends when its reader falls behind; the log has everything.
    #[must_use]
    pub fn watch(&self, run: RunId) -> mpsc::Receiver<Arc<[EventRow]>> {
        self.watchers.events(run)
    }

    /// The events of a run after `after_seq`, encoded, whoever writes them: first what is there, then what comes.
    ///
    /// # Errors
    /// There is no such run, or its log does not go up to `after_seq`.
    pub async fn stream(&self, run: RunId, after_seq: u64) -> Result<EventStream, EngineError> {
        self.streams.open(self.org, run, after_seq).await
    }

    /// How many runs somebody watches by a stream.
    #[must_use]
    pub fn watched_runs(&self) -> usize {
        self.streams.len()
    }

    pub(crate) async fn head(&self, run: RunId) -> Result<HeadRow, EngineError> {
        self.store.head(self.org, run).await?.ok_or(EngineError::NoSuchRun(run))
    }

    /// Waits until all that was committed so far is projected.
    pub async fn flush_projections(&self) {
        self.inbox.caught_up().await;
        self.projector.flush().await;
    }

    /// Waits a moment for lists to show what this node has just done, unless it is very busy.
    pub async fn freshen_lists(&self) {
        self.projector.freshen().await;
    }

    /// Runs, newest first. What this node has just done is among them unless it is very busy.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, filter: &RunFilter) -> Result<Vec<RunSummary>, EngineError> {
        self.freshen_lists().await;
        list_runs(&self.store, self.org, filter).await
    }

    /// Whether the Redis that was asked for is there; `None` if none was. All works without it, only slower.
    #[must_use]
    pub fn redis_is_up(&self) -> Option<bool> {
        self.hot.lock().expect("no holder of this lock panics").is_up()
    }

    /// Returns when a task of this engine has died or hangs: it cannot go on. End the process; another one, or the next,
    /// continues from the log. A program whose runtime may stand still is told by
    /// [`SupervisionConfig::on_failure`], too.
    pub async fn failed(&self) -> Failure {
        self.supervisor.failed().await
    }

    /// The same, if it has happened.
    #[must_use]
    pub fn failure(&self) -> Option<Failure> {
        self.supervisor.failure()
    }

    /// Parts that have not answered for [`SupervisionConfig::unready_after`]. Such an engine should be given no work.
    #[must_use]
    pub fn silent_parts(&self) -> Vec<&'static str> {
        self.supervisor.silent_parts()
    }

    /// How old the oldest commit is that is not projected yet.
    #[must_use]
    pub fn projector_lag_ms(&self) -> u64 {
        self.projector.lag_ms()
    }

    /// Sets those metrics that say how things stand at the moment. For whoever is about to read them.
    pub fn observe_gauges(&self) {
        let metrics = &self.telemetry.metrics;
        metrics.queue_depth.set(self.inbox.depth() as f64);
        metrics.ready.set(self.telemetry.ready() as f64);
        metrics.executing.set(self.executor.count() as f64);
        metrics.leased.set(self.leases.count() as f64);
        metrics.stuck.set(self.care.parked() as f64);
        metrics.delivering.set(self.outbox.under_way() as f64);
        metrics.projector_lag.set(self.projector.lag_ms() as f64 / 1000.0);
        metrics.projector_queue.set(self.projector.depth() as f64);
    }

    /// Drops a run's projection and makes it anew from its log.
    ///
    /// # Errors
    /// There is no such run, or its log has a gap.
    pub async fn rebuild_projection(&self, run: RunId) -> Result<(), EngineError> {
        let head = self.head(run).await?;
        let plan = self.plans.by_hash(head.org, head.plan_hash).await?;
        match projector::rebuild(&*self.store, &self.plans, plan, head.org, run).await? {
            true => Ok(()),
            false => Err(EngineError::LogGap { run, seq: self.store.first_missing(self.org, run).await? }),
        }
    }

    /// Ends in good order: takes no more, writes and projects what was taken. Steps under way are left to the next node.
    /// A second call finds nothing left to end.
    pub async fn shutdown(&self) {
        let running = std::mem::take(&mut *self.running.lock().expect("no holder of this lock panics"));
        let (Some(stop), Some(committer)) = (running.stop, running.committer) else { return };
        self.supervisor.stop();
        drop(running.watchdog);
        let _ = stop.send(());
        let _ = committer.await;
        self.executor.abort_all();
        self.streams.close().await;
        self.projector.flush().await;
        self.logs.close().await;
        for service in running.services {
            service.abort();
            // It may be in the middle of something: once this returns, nothing of this engine touches the store.
            let _ = service.await;
        }
        if let Some(tasks) = running.hot {
            // The writer ends once nobody is left who has something for it.
            drop(std::mem::take(&mut *self.hot.lock().expect("no holder of this lock panics")));
            tasks.finish().await;
        }
        self.outbox.leave().await;
        if let Err(error) = self.store.leave(self.node).await {
            tracing::warn!(node = %self.node, %error, "this node could not say that it leaves");
        }
        tracing::info!(node = %self.node, "the engine has ended in good order");
        // Others may take over by now: this only reads.
        if let Some(tracing) = running.tracing {
            tracing.finish().await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.supervisor.stop();
        let running = std::mem::take(&mut *self.running.lock().expect("no holder of this lock panics"));
        running.committer.iter().chain(&running.services).for_each(JoinHandle::abort);
        running.tracing.iter().for_each(Tracing::abort);
        running.hot.iter().for_each(HotTasks::abort);
        self.streams.close_now();
        self.executor.abort_all();
        self.outbox.abort_all();
    }
}

impl Config {
    /// Adds a skill: an async function from typed input to typed output.
    #[must_use]
    pub fn skill<I, O, F, R>(mut self, name: &str, function: F) -> Config
    where
        I: serde::de::DeserializeOwned + Send + 'static,
        O: serde::Serialize,
        F: Fn(SkillContext, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, SkillError>> + Send + 'static,
    {
        self.skills.add(name, function);
        self
    }
}

/// A run's state as a node that takes it over loads it: its last checkpoint and the log after that. Of a run that follows
/// the plan it began with.
///
/// # Errors
/// There is no such run, or it cannot be read.
pub async fn load_state(
    store: &Arc<dyn Store>,
    plan: &Arc<Plan>,
    org: OrgId,
    run: RunId,
) -> Result<RunState, EngineError> {
    let loaded = store.load_runs(&[(org, run)]).await?;
    restore_with(loaded.first().ok_or(EngineError::NoSuchRun(run))?, plan, Vec::new())
}

/// Runs, newest first. Needs no engine.
///
/// # Errors
/// The store cannot be read.
pub async fn list_runs(store: &Arc<dyn Store>, org: OrgId, filter: &RunFilter) -> Result<Vec<RunSummary>, EngineError> {
    let rows = store.list_runs(org, filter).await?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let runs: Vec<RunId> = rows.iter().map(|row| row.run).collect();
    let mut stale: HashMap<RunId, u64> = store.stale_runs(org, &runs).await?.into_iter().collect();
    // A projection that stands before its gap goes on when that closes; of the others nobody would notice.
    for row in &rows {
        let Some(noted) = stale.get(&row.run).copied().filter(|noted| *noted <= row.last_event_seq) else { continue };
        match gap_now(&**store, org, row.run, noted).await? {
            Some(gap) => stale.insert(row.run, gap),
            None => stale.remove(&row.run),
        };
    }
    let summary =
        |row: &SnapshotRow| RunSummary { stale: Stale::at(stale.get(&row.run).copied()), ..RunSummary::from(row) };
    let mut listed: Vec<RunSummary> = rows.iter().map(summary).collect();
    if listed.iter().any(|run| !run.status.is_terminal()) {
        for row in store.suspects().suspects().await?.iter().filter(|row| row.org == org) {
            let run = listed.iter_mut().find(|run| run.run_id == row.run && !run.status.is_terminal());
            if let (Some(run), Some(stuck)) = (run, row.stuck()) {
                run.stuck = Some(StuckView::from(&stuck));
            }
        }
    }
    Ok(listed)
}

/// Where the log of a run has a gap that is noted to have one. It may have closed since: then that is noted, where it can be.
pub(crate) async fn gap_now(store: &dyn Store, org: OrgId, run: RunId, noted: u64) -> Result<Option<u64>, EngineError> {
    let missing = store.first_missing(org, run).await?;
    if missing == noted {
        return Ok(Some(noted));
    }
    let last_seq = store.head(org, run).await?.map_or(0, |head| head.last_seq);
    let gap = Some(missing).filter(|missing| *missing <= last_seq);
    if let Err(error) = store.mark_stale(org, run, gap).await {
        tracing::debug!(%run, %error, "it could not be noted whether its log is whole");
    }
    Ok(gap)
}

/// The changes of a run's status.
///
/// # Errors
/// The store cannot be read.
pub async fn transitions(store: &Arc<dyn Store>, org: OrgId, run: RunId) -> Result<Vec<TransitionRow>, EngineError> {
    Ok(store.transitions(org, run).await?)
}

/// The same of what a patch adds or changes: what the run had before is not to be judged here.
pub(crate) fn check_new_skills(
    before: &Plan,
    plan: &Plan,
    executor: &Executor,
    workers: bool,
) -> Result<(), EngineError> {
    let Err(EngineError::UnknownSkills(mut unknown)) = check_skills(plan, executor, workers) else { return Ok(()) };
    let had = |id: &str| before.find(id).map(|index| before.step(index)).filter(|step| !step.removed);
    unknown.retain(|(id, skill)| had(id).is_none_or(|step| *step.skill != **skill));
    if unknown.is_empty() { Ok(()) } else { Err(EngineError::UnknownSkills(unknown)) }
}

/// Refuses a plan whose steps nobody can carry out: better at the door than in the middle. Where workers may come, a step
/// waits for one, unless it is built in and switched off here.
pub(crate) fn check_skills(plan: &Plan, executor: &Executor, workers: bool) -> Result<(), EngineError> {
    let known = |step: &PlanStep| match step.runtime {
        Some(Runtime::Inline) => executor.knows(&step.skill),
        Some(Runtime::Queue | Runtime::Push) => workers,
        None => executor.knows(&step.skill) || (workers && !BUILT_IN.contains(&&*step.skill)),
    };
    let unknown: Vec<(String, String)> = plan
        .steps
        .iter()
        .filter(|step| step.action == Action::Task && !step.removed && !known(step))
        .map(|step| (step.id.to_string(), step.skill.to_string()))
        .collect();
    if unknown.is_empty() { Ok(()) } else { Err(EngineError::UnknownSkills(unknown)) }
}
