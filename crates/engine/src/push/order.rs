//! What the outbox is told of a step that is pushed.

use milepost_core::id::NodeId;
use milepost_core::time::Timestamp;
use milepost_store::rows::{Claim, OutboxWrite};

use crate::outbox::{Letter, Message, PushOrder};
use crate::workers::Handed;

/// A claim outlives the request by so much.
const AFTER_MS: u64 = 60_000;

impl Handed {
    /// What is owed to its receiver; nothing, if it is in the hands of a worker.
    pub(crate) fn letter(&self) -> Option<Letter> {
        let (id, push) = (self.outbox?, self.plan.step(self.task.index).push.as_ref()?);
        let (token, step_id) = (self.token(), self.task.step_id.as_str().into());
        let (url, host) = (push.url.clone(), push.host.clone());
        let message = Message::Push(PushOrder { token, step_id, url, host });
        Some(Letter { id, org: self.org, attempts: 1, last_error: None, message })
    }

    /// The row that is written with the lease.
    pub(crate) fn outbox_write(&self, node: NodeId, now: Timestamp) -> Option<OutboxWrite> {
        let push = self.plan.step(self.task.index).push.as_ref()?;
        let letter = self.letter()?;
        Some(OutboxWrite {
            id: letter.id,
            kind: letter.message.kind().into(),
            payload: letter.message.payload(),
            claim: Claim { node, until: now.plus_ms(push.timeout_ms + AFTER_MS) },
            created_at: now,
        })
    }
}
