//! What the writes of a batch ask for beyond the database, column by column.

use uuid::Uuid;

use super::task_columns::Parameter;
use crate::rows::RunWrite;

#[derive(Default)]
pub(super) struct Queued<'a> {
    id: Vec<Uuid>,
    org: Vec<i32>,
    run: Vec<Uuid>,
    kind: Vec<&'a str>,
    payload: Vec<&'a str>,
    created_at: Vec<i64>,
    claimed_by: Vec<i64>,
    claimed_until: Vec<i64>,
}

impl<'a> Queued<'a> {
    pub(super) fn add(&mut self, write: &'a RunWrite) {
        for new in &write.outbox {
            self.id.push(new.id.0);
            self.org.push(write.org.0);
            self.run.push(write.run.0);
            self.kind.push(&new.kind);
            self.payload.push(new.payload.as_str());
            self.created_at.push(new.created_at.0);
            self.claimed_by.push(new.claim.node.0);
            self.claimed_until.push(new.claim.until.0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.id.is_empty()
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 8] {
        [
            &self.id,
            &self.org,
            &self.run,
            &self.kind,
            &self.payload,
            &self.created_at,
            &self.claimed_by,
            &self.claimed_until,
        ]
    }
}
