//! Signals: the ones the engine knows, and names of the user's own.

use std::sync::Arc;

use super::state::{Buffered, REMEMBERED_SIGNALS};
use super::step::json_fits;
use super::{Decider, Rejection, RejectionKind, Signal};
use crate::canonical;
use crate::event::{Body, StepRef};
use crate::hash::Digest;
use crate::id::SignalId;
use crate::json::Json;
use crate::status::RunStatus;
use crate::text;

/// The signals that the engine itself acts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Pause,
    Resume,
    Cancel,
    Terminate,
    Approve,
    Reject,
    RetryStep,
    SkipStep,
}

impl Verb {
    pub(super) fn of(name: &str) -> Option<Verb> {
        Some(match name {
            "PAUSE" => Verb::Pause,
            "RESUME" => Verb::Resume,
            "CANCEL" => Verb::Cancel,
            "TERMINATE" => Verb::Terminate,
            "APPROVE" => Verb::Approve,
            "REJECT" => Verb::Reject,
            "RETRY_STEP" => Verb::RetryStep,
            "SKIP_STEP" => Verb::SkipStep,
            _ => return None,
        })
    }
}

/// The name of who does something goes into the log.
pub(super) fn check_actor(actor: Option<&str>, most_chars: usize) -> Result<(), Rejection> {
    actor.map_or(Ok(()), |actor| text::check_name("the name of who does this", actor, most_chars, "bad_actor"))
}

impl Decider<'_> {
    /// Whether the run has had this id before.
    ///
    /// # Errors
    /// It may have, so long ago that only the log knows.
    pub(super) fn has_seen(&self, id: SignalId) -> Result<bool, Rejection> {
        let seen = &self.state.seen_signals;
        if seen.contains(&id) {
            return Ok(true);
        }
        match self.unseen || seen.len() < REMEMBERED_SIGNALS {
            true => Ok(false),
            false => Err(Rejection::new(RejectionKind::Conflict, Rejection::UNSURE, "the log may have this id")),
        }
    }

    /// The same signal sent twice is one signal.
    pub(super) fn signal(&mut self, signal: Signal) -> Result<(), Rejection> {
        if self.has_seen(signal.id)? {
            return Ok(());
        }
        let verb = Verb::of(&signal.name);
        let step = self.check_signal(&signal, verb)?;
        self.signal = Some(signal.id);
        self.actor = signal.actor.as_deref().map(Arc::from);
        if let Some(refusal) = self.refusal(verb, &signal.name, step) {
            let (name, payload) = (signal.name, Some(payload_digest(&signal.payload)));
            self.emit_run(Body::SignalRejected { name, reason: refusal.message, step, payload });
            // The refusal is on record; the sender learns of it by the event.
            return Ok(());
        }
        let payload = signal.payload;
        let buffered = Buffered { seq: self.state.last_seq + 1, step };
        let accepted = Body::SignalAccepted { name: signal.name.clone(), step, payload: payload.clone() };
        self.emit_run(accepted);
        match verb {
            Some(Verb::Pause) => self.emit_run(Body::RunPaused),
            Some(Verb::Resume) => self.resume(),
            Some(Verb::Cancel) => self.cancel(),
            Some(Verb::Terminate) => self.terminate(&payload),
            Some(Verb::Approve) => self.approve(),
            Some(Verb::Reject) => self.refuse(&payload),
            Some(Verb::RetryStep) => self.retry_step(step),
            Some(Verb::SkipStep) => self.skip_step(step),
            None => {
                if let Some(waiting) = self.waiting_step(&signal.name, buffered) {
                    self.answer_wait(waiting, buffered.seq, payload);
                }
            }
        }
        Ok(())
    }

    /// A signal of somebody who has seen the run up to `expected_seq`. One that was taken before stays taken, however far
    /// the run has come since.
    pub(super) fn signal_at(&mut self, signal: Signal, expected_seq: u64) -> Result<(), Rejection> {
        let last_seq = self.state.last_seq;
        if last_seq != expected_seq && !self.has_seen(signal.id)? {
            let message = format!("the run is at event {last_seq}, not at {expected_seq}: it went on; read it again");
            return Err(Rejection::new(RejectionKind::Conflict, Rejection::MOVED, message));
        }
        self.signal(signal)
    }

    /// What is wrong with a signal whatever the run does: nothing is recorded.
    fn check_signal(&self, signal: &Signal, verb: Option<Verb>) -> Result<Option<StepRef>, Rejection> {
        let limits = self.context.limits;
        let invalid = |code, message: String| Err(Rejection::new(RejectionKind::Invalid, code, message));
        text::check_name("the signal's type", &signal.name, limits.name_chars, "bad_signal")?;
        check_actor(signal.actor.as_deref(), limits.name_chars)?;
        if signal.payload.len() > limits.signal_bytes {
            let message = format!(
                "the signal's payload has {} bytes, the limit is {}; pass a reference to the data instead",
                signal.payload.len(),
                limits.signal_bytes
            );
            return invalid("signal_too_large", message);
        }
        if let Err(error) = json_fits(&signal.payload, limits.json_depth) {
            return invalid("bad_signal", format!("the signal's payload {error}"));
        }
        let step = match &signal.step {
            None => None,
            Some(name) => Some(self.state.find_step(name)?),
        };
        if step.is_none() && matches!(verb, Some(Verb::RetryStep | Verb::SkipStep)) {
            return invalid("missing_step", format!("{} needs `step_id`", signal.name));
        }
        if self.state.status.is_terminal() && !(self.state.status == RunStatus::Failed && verb == Some(Verb::RetryStep))
        {
            let message = format!("the run is {} and takes no {} any more", self.state.status, signal.name);
            return Err(Rejection::new(RejectionKind::Conflict, "run_ended", message));
        }
        self.check_rate(verb)?;
        Ok(step)
    }

    fn check_rate(&self, verb: Option<Verb>) -> Result<(), Rejection> {
        // A run that is being flooded can still be stopped.
        if verb == Some(Verb::Terminate) || (verb == Some(Verb::Cancel) && !self.state.stopping) {
            return Ok(());
        }
        let limits = self.context.limits;
        let recent = self.state.signal_times.iter().filter(|at| self.context.now.ms_since(**at) < 60_000).count();
        let buffered: usize = self.state.inbox.values().map(std::collections::VecDeque::len).sum();
        let limited = |message| Err(Rejection::new(RejectionKind::Limited, "too_many_signals", message));
        if recent >= limits.signals_per_minute {
            return limited(format!("a run takes {} signals a minute; try again later", limits.signals_per_minute));
        }
        if verb.is_none() && buffered >= limits.buffered_signals {
            return limited(format!("{buffered} signals wait for a step that wants them; no more are kept"));
        }
        Ok(())
    }

    /// Why a well-formed signal does not fit the run as it stands. That goes on record.
    fn refusal(&self, verb: Option<Verb>, name: &str, step: Option<StepRef>) -> Option<Rejection> {
        let status = self.state.status;
        let reason = match verb {
            Some(Verb::Pause) if status != RunStatus::Running => {
                format!("only a running run can be paused, it is {status}")
            }
            Some(Verb::Pause) if self.state.stopping => "the run is being cancelled".to_owned(),
            Some(Verb::Resume) if status != RunStatus::Paused => {
                format!("only a paused run can be resumed, it is {status}")
            }
            Some(Verb::Approve | Verb::Reject) if !(status == RunStatus::Pending && self.state.plan.approval) => {
                format!("the run does not wait for approval, it is {status}")
            }
            Some(Verb::Cancel) if self.state.stopping => "the run is being cancelled already".to_owned(),
            Some(Verb::RetryStep) => self.retry_refusal(step?)?,
            Some(Verb::SkipStep) => self.skip_refusal(step?)?,
            _ => return None,
        };
        Some(Rejection::new(RejectionKind::Conflict, "signal_rejected", format!("{name}: {reason}")))
    }

    fn resume(&mut self) {
        self.emit_run(Body::RunResumed);
        self.look_at_all();
    }

    fn approve(&mut self) {
        self.emit_run(Body::RunApproved);
        self.start_if_possible();
    }
}

/// Tells payloads apart, however they are written.
#[must_use]
pub fn payload_digest(payload: &Json) -> Digest {
    let value = serde_json::from_str::<serde_json::Value>(payload.as_str()).ok();
    match value.and_then(|value| canonical::to_string(&value).ok()) {
        Some(canonical) => Digest::of(canonical.as_bytes()),
        None => Digest::of(payload.as_str().as_bytes()),
    }
}
