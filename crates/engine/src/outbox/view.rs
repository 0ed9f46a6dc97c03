//! The outbox as its keepers see it: what is owed, what was given up, and trying it again.

use std::sync::Arc;

use milepost_core::id::{OrgId, OutboxId, RunId, SignalId};
use milepost_core::json::Json;
use milepost_core::run::Signal;
use milepost_core::time::Timestamp;
use milepost_store::Store;
use milepost_store::rows::{OutboxFilter, OutboxRow, OutboxState};
use serde::Serialize;

use super::{Message, PushOrder};
use crate::engine::Engine;
use crate::error::EngineError;

/// Something that is owed, or was given up.
#[derive(Clone, Debug, Serialize)]
pub struct OutboxItem {
    pub id: OutboxId,
    pub kind: String,
    pub status: OutboxStatus,
    pub run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Tries, the one under way among them.
    pub attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub created_at: Timestamp,
    /// Of one that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try_at: Option<Timestamp>,
    /// When it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub died_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutboxStatus {
    /// Waits for its next try.
    Pending,
    /// Is being tried.
    Processing,
    /// Was given up: a dead letter.
    Dead,
}

impl From<OutboxRow> for OutboxItem {
    fn from(row: OutboxRow) -> OutboxItem {
        let (step_id, url) = match Message::read(&row) {
            Some(Message::Push(PushOrder { step_id, url, .. })) => (Some(step_id.to_string()), Some(url.to_string())),
            None => (None, None),
        };
        let (status, next_try_at, died_at) = match row.state {
            OutboxState::Waiting { available_at } => (OutboxStatus::Pending, Some(available_at), None),
            OutboxState::Claimed(_) => (OutboxStatus::Processing, None, None),
            OutboxState::Dead { died_at } => (OutboxStatus::Dead, None, Some(died_at)),
        };
        OutboxItem {
            id: row.id,
            kind: row.kind.to_string(),
            status,
            run_id: row.run,
            step_id,
            url,
            attempts: row.attempts,
            last_error: row.last_error,
            created_at: row.created_at,
            next_try_at,
            died_at,
        }
    }
}

/// What trying again came to.
#[derive(Clone, Debug, Serialize)]
pub struct Retried {
    pub id: OutboxId,
    /// `pending`: it is tried now. `step_retried`: its attempt had failed, so its step is tried again. `dropped`: nobody
    /// wants it any more.
    pub status: &'static str,
    /// Why it was dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is owed and what was given up, the oldest first. Needs no engine.
///
/// # Errors
/// The store cannot be read.
pub async fn list_outbox(
    store: &Arc<dyn Store>,
    org: OrgId,
    filter: OutboxFilter,
    after: Option<OutboxId>,
    limit: u32,
) -> Result<Vec<OutboxItem>, EngineError> {
    let rows = store.outbox().list(org, filter, after, limit).await?;
    Ok(rows.into_iter().map(OutboxItem::from).collect())
}

impl Engine {
    /// Has something tried now that waits or was given up. The attempt of a step that could not be pushed has failed by
    /// then, so its step is tried again.
    ///
    /// # Errors
    /// There is no such thing (any more), or the store cannot be written.
    pub async fn retry_delivery(&self, id: OutboxId, actor: Option<String>) -> Result<Retried, EngineError> {
        let row = self.store.outbox().get(self.org, id).await?.ok_or(EngineError::NoSuchDelivery(id))?;
        if let (OutboxState::Dead { .. }, Some(Message::Push(order))) = (row.state, Message::read(&row)) {
            return self.retry_step_of(id, &order, actor).await;
        }
        let retried = self.store.outbox().retry(self.org, id, self.clock.now()).await?;
        retried.ok_or(EngineError::NoSuchDelivery(id))?;
        self.outbox.look_now();
        Ok(Retried { id, status: "pending", reason: None })
    }

    /// The signal has the letter's id: asking twice is asking once.
    async fn retry_step_of(
        &self,
        id: OutboxId,
        order: &PushOrder,
        actor: Option<String>,
    ) -> Result<Retried, EngineError> {
        let signal = Signal {
            id: SignalId(id.0),
            name: "RETRY_STEP".to_owned(),
            step: Some(order.step_id.to_string()),
            payload: Json::trusted("{}"),
            actor,
        };
        let (status, reason) = match self.signal(order.token.run, signal).await {
            Ok(_) => ("step_retried", None),
            Err(error @ (EngineError::Rejected(_) | EngineError::NoSuchRun(_))) => ("dropped", Some(error.to_string())),
            Err(error) => return Err(error),
        };
        self.store.outbox().discard(self.org, id).await?;
        Ok(Retried { id, status, reason })
    }
}
