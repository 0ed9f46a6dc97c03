//! Runs that a server is to start, or to say what they would do.

use milepost_core::change::RebuildRequest;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::Client;
use crate::backend::{Begun, Change, Documents, Mover, NewRun, Newer, Subject, Update};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuild: Option<Value>,
}

impl StartBody {
    fn of(new: NewRun) -> StartBody {
        let NewRun { subject, payload, request_id, priority, start_at, rebuild } = new;
        let rebuild = rebuild.map(|rebuild| match rebuild {
            RebuildRequest::All => json!("all"),
            RebuildRequest::Steps(steps) => json!(steps),
        });
        let body = StartBody { request_id, priority, start_at, rebuild, ..StartBody::default() };
        match subject {
            Subject::Workflow(reference) => StartBody { workflow: Some(reference), payload: Some(payload), ..body },
            Subject::Documents(documents) => {
                StartBody { document: Some(first(*documents)), payload: Some(payload), ..body }
            }
            Subject::Update(Update { base, changes, definition }) => {
                let (workflow, document) = match definition {
                    None => (None, None),
                    Some(Newer::Workflow(reference)) => (Some(reference), None),
                    Some(Newer::Documents(documents)) => (None, Some(first(*documents))),
                };
                StartBody { base_run_id: Some(base), changes: Some(changes), workflow, document, ..body }
            }
        }
    }
}

/// The one that is run.
fn first(documents: Documents) -> Json {
    Json::trusted(documents.first.canonical)
}

impl Client {
    pub(crate) async fn start(&self, new: NewRun) -> anyhow::Result<Begun> {
        let mut outline = None;
        if let Subject::Documents(documents)
        | Subject::Update(Update { definition: Some(Newer::Documents(documents)), .. }) = &new.subject
        {
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
