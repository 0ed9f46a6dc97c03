//! Whoever does what the verbs ask for: a server, or an engine in this process on a database. Both answer in the same words.

pub(crate) mod artifacts;
mod cache;
mod definitions;
pub(crate) mod feed;
mod local;
pub(crate) mod logs;
mod request;

use milepost_core::document;
use milepost_core::hash::Digest;
use milepost_core::id::{OutboxId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::trace::TraceContext;
use milepost_engine::view::EventView;
use serde::Deserialize;

use crate::client::Client;
use crate::commands::queues::NewLimits;
use crate::progress::Outline;
use crate::target::Target;
use crate::wire::{
    Accepted, Artifact, Bulk, Definition, Delivery, Deployed, Explanation, Limited, LogLine, Page, PatchOutlook,
    Patched, Planned, Queue, Retried, Rotated, Run, Said, Secret, SecretSet, Started, StepDetail, Summary, Transition,
    Workflow,
};
use artifacts::{Artifacts, Pieces, Which};
pub(crate) use cache::ResultsOf;
use feed::Feed;
use local::Local;
pub(crate) use local::{RunSettings, config, traces};
use logs::Logs;
pub(crate) use request::{
    Action, BulkOrder, Change, Documents, Mover, NewPatch, NewRun, NewSecret, NewSignal, Newer, Past, RunFilter,
    Subject, UndoPatch, Update, joined,
};

#[derive(Debug)]
pub(crate) enum Backend {
    Local(Box<Local>),
    Remote(Client),
}

/// What a verb does with a database.
#[derive(Debug)]
pub(crate) enum Access {
    Read,
    /// Has no use for one: works on documents alone.
    Nothing(Limits),
    /// Writes to one that is there, and leaves the steps to whoever runs them.
    Write(Limits),
    /// The same, and makes the database where there is none.
    Make(Limits),
    /// Carries steps out.
    Run(RunSettings),
}

/// A run that was started.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) said: Said<Started>,
    /// It was there already, with the same request id.
    pub(crate) existing: bool,
    /// Of a run whose document is at hand.
    pub(crate) outline: Option<Outline>,
}

impl Backend {
    pub(crate) async fn open(target: Target, access: Access) -> anyhow::Result<Backend> {
        Ok(match target {
            Target::Server(server) => Backend::Remote(Client::new(server)?),
            Target::Database(database) => Backend::Local(Box::new(Local::open(database, access).await?)),
        })
    }

    /// Ends in good order. Steps under way here are left to the next process.
    pub(crate) async fn close(self) {
        if let Backend::Local(local) = self {
            local.close().await;
        }
    }

    /// The flag that names it, for a command that is shown to somebody.
    pub(crate) fn as_flag(&self) -> String {
        match self {
            Backend::Local(local) => local.database().as_flag(),
            Backend::Remote(client) => Target::Server(client.server().clone()).as_flag(),
        }
    }

    pub(crate) async fn list(
        &self,
        filter: &RunFilter,
        cursor: Option<RunId>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Summary>>> {
        match self {
            Backend::Local(local) => local.list(filter, cursor, limit).await,
            Backend::Remote(client) => client.list(filter, cursor, limit).await,
        }
    }

    /// Whether there is such a run.
    pub(crate) async fn has(&self, run: RunId) -> anyhow::Result<bool> {
        match self {
            Backend::Local(local) => local.has(run).await,
            Backend::Remote(client) => client.has(run).await,
        }
    }

    pub(crate) async fn show(&self, run: RunId) -> anyhow::Result<Said<Run>> {
        match self {
            Backend::Local(local) => local.show(run).await,
            Backend::Remote(client) => client.show(run).await,
        }
    }

    /// One step with its attempts, its input and its output.
    pub(crate) async fn step(&self, run: RunId, step: &str) -> anyhow::Result<Said<StepDetail>> {
        match self {
            Backend::Local(local) => local.step(run, step).await,
            Backend::Remote(client) => client.step(run, step).await,
        }
    }

    /// Why a step ran, was reused or waits.
    pub(crate) async fn explain(&self, run: RunId, step: &str) -> anyhow::Result<Said<Explanation>> {
        match self {
            Backend::Local(local) => local.explain(run, step).await,
            Backend::Remote(client) => client.explain(run, step).await,
        }
    }

    /// A page of what the run's steps said, or one of them.
    pub(crate) async fn log_page(
        &self,
        run: RunId,
        step: Option<&str>,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<LogLine>>> {
        match self {
            Backend::Local(local) => local.log_page(run, step, cursor, limit).await,
            Backend::Remote(client) => client.log_page(run, step, cursor, limit).await,
        }
    }

    /// A page of the files that a run left.
    pub(crate) async fn artifacts(&self, run: RunId, which: &Which, cursor: Option<&str>) -> anyhow::Result<Artifacts> {
        match self {
            Backend::Local(local) => local.artifacts(run, which, cursor).await,
            Backend::Remote(client) => client.artifacts(run, which, cursor).await,
        }
    }

    /// The content of a file that a run left.
    pub(crate) async fn content(&self, artifact: &Said<Artifact>) -> anyhow::Result<Pieces> {
        match self {
            Backend::Local(local) => local.content(artifact).await,
            Backend::Remote(client) => client.content(artifact).await,
        }
    }

    /// One word to many runs.
    pub(crate) async fn bulk(&self, order: &BulkOrder) -> anyhow::Result<Said<Bulk>> {
        match self {
            Backend::Local(local) => local.bulk(order).await,
            Backend::Remote(client) => client.bulk(order).await,
        }
    }

    pub(crate) async fn transitions(&self, run: RunId) -> anyhow::Result<Vec<Transition>> {
        match self {
            Backend::Local(local) => local.transitions(run).await,
            Backend::Remote(client) => client.transitions(run).await,
        }
    }

    /// At most `limit` events after `after_seq`.
    pub(crate) async fn events(&self, run: RunId, after_seq: u64, limit: u32) -> anyhow::Result<Page<Said<EventView>>> {
        match self {
            Backend::Local(local) => local.events(run, after_seq, limit).await,
            Backend::Remote(client) => client.events(run, after_seq, limit).await,
        }
    }

    /// The events after `after_seq` as they happen, up to the run's end.
    pub(crate) fn feed(&self, run: RunId, after_seq: u64) -> Feed {
        match self {
            Backend::Local(local) => local.feed(run, after_seq),
            Backend::Remote(client) => client.stream(run, after_seq),
        }
    }

    /// What the run's steps say while it is followed.
    pub(crate) fn logs(&self, run: RunId) -> Logs {
        match self {
            Backend::Local(local) => local.logs(),
            Backend::Remote(client) => client.follow_logs(run),
        }
    }

    pub(crate) async fn signal(&self, run: RunId, signal: NewSignal) -> anyhow::Result<Said<Accepted>> {
        match self {
            Backend::Local(local) => local.signal(run, signal).await,
            Backend::Remote(client) => client.signal(run, &signal).await,
        }
    }

    /// Changes a run's definition while it runs.
    pub(crate) async fn patch_run(&self, run: RunId, patch: &NewPatch) -> anyhow::Result<Said<Patched>> {
        match self {
            Backend::Local(local) => local.patch_run(run, patch).await,
            Backend::Remote(client) => client.patch_run(run, patch).await,
        }
    }

    /// What a patch would do. Nothing is stored.
    pub(crate) async fn preview_patch(&self, run: RunId, ops: Json, rerun: bool) -> anyhow::Result<Said<PatchOutlook>> {
        match self {
            Backend::Local(local) => local.preview_patch(run, &ops, rerun).await,
            Backend::Remote(client) => client.preview_patch(run, &ops, rerun).await,
        }
    }

    /// Takes the newest patch back.
    pub(crate) async fn undo_patch(&self, run: RunId, undo: &UndoPatch) -> anyhow::Result<Said<Patched>> {
        match self {
            Backend::Local(local) => local.undo_patch(run, undo).await,
            Backend::Remote(client) => client.undo_patch(run, undo).await,
        }
    }

    pub(crate) async fn start(&self, new: NewRun) -> anyhow::Result<Begun> {
        match self {
            Backend::Local(local) => local.start(new).await,
            Backend::Remote(client) => client.start(new).await,
        }
    }

    /// What a run would do. Nothing is stored.
    pub(crate) async fn plan(&self, new: NewRun) -> anyhow::Result<Said<Planned>> {
        match self {
            Backend::Local(local) => local.plan(new).await,
            Backend::Remote(client) => client.plan(new).await,
        }
    }

    /// Stores the documents of a file and points names at them: the first under `tag` if that is given.
    pub(crate) async fn deploy(
        &self,
        documents: Documents,
        tag: Option<&str>,
        mover: &Mover,
    ) -> anyhow::Result<Vec<Said<Deployed>>> {
        let mut deployed = Vec::new();
        for document in std::iter::once(documents.first).chain(documents.others) {
            deployed.push(match self {
                Backend::Local(local) => local.deploy(document, tag, mover).await?,
                Backend::Remote(client) => client.deploy(&document, tag, mover).await?,
            });
        }
        Ok(deployed)
    }

    /// Names and what they point at, by name.
    pub(crate) async fn workflows(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Workflow>>> {
        match self {
            Backend::Local(local) => local.workflows(cursor, limit).await,
            Backend::Remote(client) => client.workflows(cursor, limit).await,
        }
    }

    /// The document that a reference means, and what is known of it.
    pub(crate) async fn workflow(&self, reference: &str) -> anyhow::Result<Said<Definition>> {
        match self {
            Backend::Local(local) => local.workflow(reference).await,
            Backend::Remote(client) => client.workflow(reference).await,
        }
    }

    /// What is owed to others and what was given up, or only the latter.
    pub(crate) async fn outbox(
        &self,
        dead: bool,
        cursor: Option<&str>,
        limit: u32,
    ) -> anyhow::Result<Page<Said<Delivery>>> {
        match self {
            Backend::Local(local) => local.outbox(dead, cursor, limit).await,
            Backend::Remote(client) => client.outbox(dead, cursor, limit).await,
        }
    }

    /// What waits for workers, and what queues may do at most.
    pub(crate) async fn queues(&self) -> anyhow::Result<Page<Said<Queue>>> {
        match self {
            Backend::Local(local) => local.queues().await,
            Backend::Remote(client) => client.queues().await,
        }
    }

    /// Sets what a queue may do at most.
    pub(crate) async fn limit_queue(&self, new: &NewLimits) -> anyhow::Result<Said<Limited>> {
        match self {
            Backend::Local(local) => local.limit_queue(new).await,
            Backend::Remote(client) => client.limit_queue(new).await,
        }
    }

    /// Has a delivery tried now.
    pub(crate) async fn retry_delivery(&self, id: OutboxId) -> anyhow::Result<Said<Retried>> {
        match self {
            Backend::Local(local) => local.retry_delivery(id).await,
            Backend::Remote(client) => client.retry_delivery(id).await,
        }
    }

    /// Keeps a secret.
    pub(crate) async fn set_secret(&self, new: &NewSecret) -> anyhow::Result<Said<SecretSet>> {
        match self {
            Backend::Local(local) => local.set_secret(new).await,
            Backend::Remote(client) => client.set_secret(new).await,
        }
    }

    /// Secrets without their values, by name.
    pub(crate) async fn secrets(&self, cursor: Option<&str>, limit: u32) -> anyhow::Result<Page<Said<Secret>>> {
        match self {
            Backend::Local(local) => local.secrets(cursor, limit).await,
            Backend::Remote(client) => client.secrets(cursor, limit).await,
        }
    }

    /// Removes a secret, or one of its versions.
    pub(crate) async fn remove_secret(&self, name: &str, version: Option<u32>) -> anyhow::Result<()> {
        match self {
            Backend::Local(local) => local.remove_secret(name, version).await,
            Backend::Remote(client) => client.remove_secret(name, version).await,
        }
    }

    /// Seals all secrets with the first key.
    pub(crate) async fn rotate_secrets(&self) -> anyhow::Result<Said<Rotated>> {
        match self {
            Backend::Local(local) => local.rotate_secrets().await,
            Backend::Remote(client) => client.rotate_secrets().await,
        }
    }

    /// The steps of a run as they are shown: by its document, and where that cannot be had by its own list.
    pub(crate) async fn outline(&self, run: RunId) -> anyhow::Result<Outline> {
        if let Some(outline) = self.outline_by_document(run).await {
            return Ok(outline);
        }
        let view = self.show(run).await?;
        Ok(Outline::of_names(view.value.steps.iter().map(|step| step.step_id.as_str())))
    }

    async fn outline_by_document(&self, run: RunId) -> Option<Outline> {
        #[derive(Deserialize)]
        struct Queued {
            plan_hash: Digest,
        }
        let first = self.events(run, 0, 1).await.ok()?.items.into_iter().next()?;
        let queued: Queued = serde_json::from_str(first.value.data.as_str()).ok()?;
        let definition = self.workflow(&format!("sha256:{}", queued.plan_hash)).await.ok()?;
        let plan = document::load_stored(definition.value.document.as_str()).ok()?;
        Some(Outline::of_plan(&plan))
    }
}

/// Whoever traces what starts this program finds the run in the same trace.
pub(crate) fn caller_trace() -> Option<TraceContext> {
    std::env::var("TRACEPARENT").ok().and_then(|text| text.parse().ok())
}
