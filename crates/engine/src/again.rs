//! What is sent again under its id: a signal, or an artifact that is recorded. It is answered as the first time, by what the
//! log has of it, however long ago that was.
//!
//! A state remembers the newest ids. Those that it may have forgotten are looked for by the keys of their events, before
//! anything is decided; so the committer waits for none of it, and a run that has had few signals costs nothing more.

use milepost_core::codec::{self, ARTIFACT_EVENT, RecordedSignal, SIGNAL_EVENTS};
use milepost_core::hash::Digest;
use milepost_core::id::{ArtifactId, RunId, SignalId};
use milepost_core::plan::Plan;
use milepost_core::record::EventRow;
use milepost_core::run::{Command, Rejection, RejectionKind, Signal};
use milepost_store::rows::ArtifactRow;

use crate::committer::{Accepted, RequestKind, artifact_rows};
use crate::engine::Engine;
use crate::error::EngineError;

/// What was sent the first time may be lost on its way to the disk; then it is sent again.
const TRIES: usize = 3;
/// An artifact is looked for under so many steps that it is not said to be of.
const STEPS: usize = 64;
/// So many events are read at once where a log is searched from its beginning.
const PAGE: u32 = 200;

/// What became of something with an id.
pub(crate) enum Sent {
    Now(Accepted),
    /// It was sent before, or something else was under this id.
    Before,
}

/// Under what something is on record.
#[derive(Clone, Copy)]
pub(crate) enum SentAs<'a> {
    Signal(SignalId),
    /// For this step.
    Artifact(ArtifactId, Option<&'a str>),
}

impl Engine {
    /// Sends a command that has an id, if it was not sent before.
    pub(crate) async fn send_if_new(&self, run: RunId, command: Command, id: SentAs<'_>) -> Result<Sent, EngineError> {
        let command = match self.ask(run, command.clone()).await {
            Ok(accepted) if accepted.existing => return Ok(Sent::Before),
            Ok(accepted) => return Ok(Sent::Now(accepted)),
            Err(EngineError::Rejected(rejection)) if rejection.code == Rejection::UNSURE => {
                match self.event_of(run, id).await? {
                    Some(_) => return Ok(Sent::Before),
                    None => Command::Unseen(Box::new(command)),
                }
            }
            Err(error) => return Err(error),
        };
        let accepted = self.ask(run, command).await?;
        Ok(if accepted.existing { Sent::Before } else { Sent::Now(accepted) })
    }

    async fn ask(&self, run: RunId, command: Command) -> Result<Accepted, EngineError> {
        self.inbox.ask(RequestKind::Command { org: self.org, run, command }).await
    }

    pub(crate) async fn send_once(
        &self,
        run: RunId,
        command: Command,
        signal: &Signal,
    ) -> Result<Accepted, EngineError> {
        for _ in 0..TRIES {
            let id = SentAs::Signal(signal.id);
            if let Sent::Now(accepted) = self.send_if_new(run, command.clone(), id).await? {
                return Ok(accepted);
            }
            // Whoever sent it first may be on the way to the disk.
            self.inbox.caught_up().await;
            if let Some(row) = self.event_of(run, id).await? {
                let recorded = recorded(run, &row)?;
                return match recorded.is(signal) {
                    true => self.answer_again(run, &row, recorded).await,
                    false => Err(reused(signal.id, &recorded.name)),
                };
            }
        }
        Err(reused(signal.id, "something else than a signal"))
    }

    /// How a signal of this type that has this id was answered, if it was sent before.
    ///
    /// # Errors
    /// It was refused, it was of another type, or the log cannot be read.
    pub async fn answered(&self, run: RunId, name: &str, id: SignalId) -> Result<Option<Accepted>, EngineError> {
        let Some(row) = self.event_of(run, SentAs::Signal(id)).await? else { return Ok(None) };
        let recorded = recorded(run, &row)?;
        match recorded.name == name {
            true => self.answer_again(run, &row, recorded).await.map(Some),
            false => Err(reused(id, &recorded.name)),
        }
    }

    /// As it was answered the first time, also where that was a refusal.
    async fn answer_again(&self, run: RunId, row: &EventRow, signal: RecordedSignal) -> Result<Accepted, EngineError> {
        if let Some(message) = signal.refused {
            return Err(Rejection { kind: RejectionKind::Conflict, code: "signal_rejected", message }.into());
        }
        // All that was decided about it is in the log with its id.
        let transitions = self.store.transitions(self.org, run).await?;
        let then = transitions.iter().rfind(|change| change.seq <= row.seq || change.signal == row.signal);
        let then = then.ok_or_else(|| corrupt(run, "its log has no status"))?;
        Ok(Accepted { run, status: then.to, existing: true, last_seq: then.seq.max(row.seq) })
    }

    /// The row of an artifact that was recorded on its own under this id, as it was then.
    pub(crate) async fn artifact_on_record(
        &self,
        run: RunId,
        id: ArtifactId,
        step_id: Option<&str>,
    ) -> Result<Option<ArtifactRow>, EngineError> {
        let Some(row) = self.event_of(run, SentAs::Artifact(id, step_id)).await? else { return Ok(None) };
        let head = self.head(run).await?;
        let plan = self.plans.by_hash(self.org, head.plan_hash).await?;
        let event = codec::decode(&row, &plan).map_err(|error| corrupt(run, error))?;
        Ok(artifact_rows(&[event], run, &plan).pop())
    }

    /// An event by the keys that it may have. They are made of the plan that was in force then, so the log of a run that was
    /// patched is searched instead.
    async fn event_of(&self, run: RunId, id: SentAs<'_>) -> Result<Option<EventRow>, EngineError> {
        let head = self.head(run).await?;
        let plan = self.plans.by_hash(self.org, head.plan_hash).await?;
        if plan.after.is_none() {
            return Ok(self.store.events_by_key(self.org, run, &id.keys(run, &plan)).await?.pop());
        }
        let mut after = 0;
        loop {
            let mut rows = self.store.events(self.org, run, after, PAGE).await?;
            if let Some(at) = rows.iter().position(|row| id.is_of(row)) {
                return Ok(Some(rows.swap_remove(at)));
            }
            match rows.last() {
                Some(last) if rows.len() == PAGE as usize => after = last.seq,
                _ => return Ok(None),
            }
        }
    }
}

impl SentAs<'_> {
    fn keys(self, run: RunId, plan: &Plan) -> Vec<Digest> {
        match self {
            SentAs::Signal(id) => codec::keys_of_signal(run, &plan.hash, id).to_vec(),
            SentAs::Artifact(id, step) => {
                // It may have been of another step than it is said to be of now.
                let others = plan.steps.iter().take(STEPS).map(|step| Some(&*step.id));
                let steps = [None].into_iter().chain(step.map(Some)).chain(others);
                steps.map(|step| codec::key_of_artifact(run, &plan.hash, step, id)).collect()
            }
        }
    }

    fn is_of(self, row: &EventRow) -> bool {
        match self {
            SentAs::Signal(id) => row.signal == Some(id) && SIGNAL_EVENTS.contains(&&*row.event_type),
            SentAs::Artifact(id, _) => row.signal == Some(SignalId(id.0)) && row.event_type == ARTIFACT_EVENT,
        }
    }
}

fn recorded(run: RunId, row: &EventRow) -> Result<RecordedSignal, EngineError> {
    let recorded = RecordedSignal::of(row).map_err(|error| corrupt(run, error))?;
    recorded.ok_or_else(|| corrupt(run, "an event of a signal has another type"))
}

fn corrupt(run: RunId, reason: impl ToString) -> EngineError {
    EngineError::Corrupt { run, reason: reason.to_string() }
}

fn reused(id: SignalId, name: &str) -> EngineError {
    let message = format!("the run has had signal {id} before, as another one ({name}); use a new id for a new signal");
    Rejection { kind: RejectionKind::Invalid, code: "signal_id_reused", message }.into()
}
