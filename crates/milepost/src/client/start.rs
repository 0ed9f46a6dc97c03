//! Runs that a server is to start, or to say what they would do.

use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use serde::Serialize;

use super::Client;
use crate::backend::{Begun, Change, Mover, NewRun, Subject};
use crate::progress::Outline;
use crate::wire::{Planned, Said};

/// The body of a start, and of a plan.
#[derive(Default, Serialize)]
struct StartBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    base_run_id: Option<RunId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<Vec<Change>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    priority: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
}

impl StartBody {
    fn of(new: NewRun) -> StartBody {
        let NewRun { subject, payload, request_id, priority, start_at } = new;
        let body = StartBody { request_id, priority, start_at, ..StartBody::default() };
        match subject {
            Subject::Workflow(reference) => StartBody { workflow: Some(reference), payload: Some(payload), ..body },
            Subject::Documents(documents) => {
                let document = Some(Json::trusted(documents.first.canonical));
                StartBody { document, payload: Some(payload), ..body }
            }
            Subject::Update(update) => StartBody {
                base_run_id: Some(update.base),
                changes: Some(update.changes),
                workflow: update.workflow,
                ..body
            },
        }
    }
}

impl Client {
    pub(crate) async fn start(&self, new: NewRun) -> anyhow::Result<Begun> {
        let mut outline = None;
        if let Subject::Documents(documents) = &new.subject {
            for other in &documents.others {
                self.deploy(other, None, &Mover::default()).await?;
            }
            outline = Some(Outline::of_plan(&documents.first.plan));
        }
        let (status, said) = self.post(&["runs"], &StartBody::of(new)).await?;
        let existing = status == 200;
        // A run that was there already may be one of another document.
        Ok(Begun { said, existing, outline: outline.filter(|_| !existing) })
    }

    pub(crate) async fn plan(&self, new: NewRun) -> anyhow::Result<Said<Planned>> {
        Ok(self.post(&["runs", "plan"], &StartBody::of(new)).await?.1)
    }
}
