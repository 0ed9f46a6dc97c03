//! Words to a run.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use uuid::Uuid;

use super::Client;
use crate::error::Error;
use crate::wire::{Accepted, RunId};

/// A signal to a run. It has its id from the beginning, so that sending it twice is sending it once.
#[derive(Clone, Debug, Serialize)]
pub struct Signal {
    #[serde(rename = "type")]
    name: String,
    signal_id: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

impl Signal {
    /// `PAUSE`, `RETRY_STEP`, …, or a name that a `wait` step waits for.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Signal {
        Signal { name: name.into(), signal_id: Uuid::now_v7(), step_id: None, payload: None }
    }

    /// The step it is about.
    #[must_use]
    pub fn step(self, step_id: impl Into<String>) -> Signal {
        Signal { step_id: Some(step_id.into()), ..self }
    }

    /// # Errors
    /// The payload is nothing that JSON has.
    pub fn payload(self, payload: &impl Serialize) -> Result<Signal, Error> {
        Ok(Signal { payload: Some(to_raw_value(payload)?), ..self })
    }
}

/// What goes with a word to a run.
#[derive(Serialize)]
struct Word<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<&'a str>,
}

impl Client {
    /// Sends a signal; returns when it is on disk.
    ///
    /// # Errors
    /// It does not fit the run as it stands, or the server does not answer.
    pub async fn signal(&self, run: RunId, signal: &Signal) -> Result<Accepted, Error> {
        Ok(self.post(&["runs", &run.to_string(), "signals"], signal).await?.1)
    }

    /// What is under way ends, nothing new begins.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn pause(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "pause", None).await
    }

    /// Goes on with a paused run.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn resume(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "resume", None).await
    }

    /// What is under way is told to stop.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn cancel(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "cancel", None).await
    }

    /// Ends a run at once.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn terminate(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "terminate", None).await
    }

    /// Approves a run that waits for it.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn approve(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "approve", None).await
    }

    /// Rejects a run that waits for approval.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn reject(&self, run: RunId) -> Result<Accepted, Error> {
        self.word(run, "reject", None).await
    }

    /// Tries a failed step again, or all failed steps.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn retry(&self, run: RunId, step_id: Option<&str>) -> Result<Accepted, Error> {
        self.word(run, "retry", step_id).await
    }

    /// Skips a step.
    ///
    /// # Errors
    /// As of `signal`.
    pub async fn skip(&self, run: RunId, step_id: &str) -> Result<Accepted, Error> {
        self.word(run, "skip", Some(step_id)).await
    }

    async fn word(&self, run: RunId, word: &str, step_id: Option<&str>) -> Result<Accepted, Error> {
        Ok(self.post(&["runs", &run.to_string(), word], &Word { step_id }).await?.1)
    }
}
