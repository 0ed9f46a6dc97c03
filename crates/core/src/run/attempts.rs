//! The attempts of one step, read from its events.

use crate::event::{Body, ErrorInfo, Event, Started};
use crate::time::Timestamp;

/// One attempt, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub logical_attempt: u32,
    /// 0 for one that failed before it could begin.
    pub engine_attempt: u32,
    pub status: AttemptStatus,
    /// How it began; empty for one that did not.
    pub started: Started,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub error: Option<ErrorInfo>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptStatus {
    Running,
    Completed,
    Failed,
    /// It has no outcome of its own: its process was lost, or it was stopped while it was under way.
    Lost,
}

impl AttemptStatus {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            AttemptStatus::Running => "running",
            AttemptStatus::Completed => "completed",
            AttemptStatus::Failed => "failed",
            AttemptStatus::Lost => "lost",
        }
    }
}

/// The attempts that the events of one step tell of, in order.
pub fn attempts<'e>(events: impl IntoIterator<Item = &'e Event>) -> Vec<Attempt> {
    let mut attempts: Vec<Attempt> = Vec::new();
    for event in events {
        let open = attempts.last_mut().filter(|attempt| attempt.status == AttemptStatus::Running);
        match (&event.body, open) {
            (Body::StepStarted(started), _) => attempts.push(Attempt::begun(event, started.clone())),
            (Body::StepCompleted { .. }, Some(open)) => open.end(AttemptStatus::Completed, event, None),
            (Body::StepFailed { error }, Some(open)) => open.end(AttemptStatus::Failed, event, Some(error.clone())),
            // An expression failed, so there was nothing to begin with.
            (Body::StepFailed { error }, None) => {
                let mut attempt = Attempt::begun(event, Started::default());
                attempt.started_at = None;
                attempt.end(AttemptStatus::Failed, event, Some(error.clone()));
                attempts.push(attempt);
            }
            (Body::StepSkipped { reason }, Some(open)) => {
                let message = format!("the attempt was stopped: the step is skipped ({reason})");
                open.end(AttemptStatus::Lost, event, Some(ErrorInfo::fatal("stopped", message)));
            }
            (Body::StepRetryScheduled { .. }, Some(open)) => {
                let message = "the process that had it is gone; it was handed out again";
                open.end(AttemptStatus::Lost, event, Some(ErrorInfo::retryable("worker_lost", message)));
            }
            _ => {}
        }
    }
    attempts
}

impl Attempt {
    fn begun(event: &Event, started: Started) -> Attempt {
        Attempt {
            logical_attempt: event.logical_attempt,
            engine_attempt: event.engine_attempt,
            status: AttemptStatus::Running,
            started,
            started_at: Some(event.at),
            ended_at: None,
            error: None,
        }
    }

    fn end(&mut self, status: AttemptStatus, event: &Event, error: Option<ErrorInfo>) {
        self.status = status;
        self.ended_at = Some(event.at);
        self.error = error;
    }
}
