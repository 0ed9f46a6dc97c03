//! What the outbox is asked to do: the kinds of its rows.

use std::sync::Arc;

use milepost_core::id::{OrgId, OutboxId};
use milepost_core::json::Json;
use milepost_store::rows::OutboxRow;
use serde::{Deserialize, Serialize};

use crate::workers::LeaseToken;

/// A deed that is owed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A task is to be pushed to its receiver.
    Push(PushOrder),
}

/// Names the attempt. What it is given is put together when it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PushOrder {
    pub(crate) token: LeaseToken,
    pub(crate) step_id: Arc<str>,
    pub(crate) url: Arc<str>,
    pub(crate) host: Arc<str>,
}

#[derive(Deserialize, Serialize)]
struct StoredPush {
    lease_token: String,
    step_id: Arc<str>,
    url: Arc<str>,
    host: Arc<str>,
}

impl Message {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Message::Push(_) => "push",
        }
    }

    pub(crate) fn payload(&self) -> Json {
        match self {
            Message::Push(PushOrder { token, step_id, url, host }) => {
                let (step_id, url, host) = (step_id.clone(), url.clone(), host.clone());
                let stored = StoredPush { lease_token: token.to_string(), step_id, url, host };
                Json::trusted(serde_json::to_string(&stored).expect("texts are JSON"))
            }
        }
    }

    /// What a row says; nothing, if it was written by a Milepost that knows more.
    pub(crate) fn read(row: &OutboxRow) -> Option<Message> {
        match &*row.kind {
            "push" => {
                let StoredPush { lease_token, step_id, url, host } = serde_json::from_str(row.payload.as_str()).ok()?;
                Some(Message::Push(PushOrder { token: lease_token.parse().ok()?, step_id, url, host }))
            }
            _ => None,
        }
    }
}

/// A row that is being carried out here.
#[derive(Clone, Debug)]
pub(crate) struct Letter {
    pub(crate) id: OutboxId,
    pub(crate) org: OrgId,
    /// Tries, this one among them.
    pub(crate) attempts: u32,
    pub(crate) last_error: Option<String>,
    pub(crate) message: Message,
}

#[cfg(test)]
mod tests {
    use milepost_core::event::StepRef;
    use milepost_core::id::RunId;
    use milepost_core::run::TaskRef;
    use milepost_core::time::Timestamp;
    use milepost_store::rows::OutboxState;

    use super::*;

    #[test]
    fn what_is_stored_is_read_again_and_what_is_not_known_is_left() {
        let task = TaskRef { step: StepRef::item(3, 7), logical_attempt: 2, engine_attempt: 1 };
        let token = LeaseToken { org: OrgId::DEFAULT, run: RunId(uuid::Uuid::from_u128(9)), task, nonce: 0xABCD };
        let order = PushOrder { token, step_id: "a[7]".into(), url: "https://e.com/x".into(), host: "e.com".into() };
        let message = Message::Push(order);
        let row = OutboxRow {
            id: OutboxId(uuid::Uuid::nil()),
            org: OrgId::DEFAULT,
            run: token.run,
            kind: message.kind().into(),
            payload: message.payload(),
            attempts: 1,
            state: OutboxState::Waiting { available_at: Timestamp(0) },
            last_error: None,
            created_at: Timestamp(0),
        };
        assert_eq!(Message::read(&row), Some(message));
        assert_eq!(Message::read(&OutboxRow { kind: "telegram".into(), ..row }), None);
    }
}
