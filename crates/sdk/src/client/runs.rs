//! Runs: started, read, listed, waited for.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::Client;
use crate::error::Error;
use crate::wire::{Event, Page, Run, RunId, RunStatus, RunSummary, Started, Step};

/// A run to be started.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewRun {
    #[serde(skip_serializing_if = "Option::is_none")]
    workflow: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    document: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_at: Option<Timestamp>,
}

impl NewRun {
    /// A run of what was deployed under this name, or has this hash.
    #[must_use]
    pub fn of(workflow: impl Into<String>) -> NewRun {
        NewRun { workflow: Some(workflow.into()), ..NewRun::default() }
    }

    /// A run of a document that comes along, YAML or JSON.
    #[must_use]
    pub fn of_document(document: impl Into<String>) -> NewRun {
        NewRun { document: Some(document.into()), ..NewRun::default() }
    }

    /// # Errors
    /// The payload is nothing that JSON has.
    pub fn payload(self, payload: &impl Serialize) -> Result<NewRun, Error> {
        Ok(NewRun { payload: Some(to_raw_value(payload)?), ..self })
    }

    /// Your own id of the start; the same id again gives the same run.
    #[must_use]
    pub fn request_id(self, request_id: impl Into<String>) -> NewRun {
        NewRun { request_id: Some(request_id.into()), ..self }
    }

    /// Higher goes first.
    #[must_use]
    pub fn priority(self, priority: i32) -> NewRun {
        NewRun { priority: Some(priority), ..self }
    }

    #[must_use]
    pub fn start_at(self, moment: Timestamp) -> NewRun {
        NewRun { start_at: Some(moment), ..self }
    }
}

/// Which runs a list has.
#[derive(Clone, Debug, Default)]
pub struct RunFilter {
    /// Any of these; all if empty.
    pub status: Vec<RunStatus>,
    pub workflow: Option<String>,
    pub request_id: Option<String>,
    pub base_run_id: Option<RunId>,
    pub parent_run_id: Option<RunId>,
    /// Who asked for them.
    pub submitted_by: Option<String>,
    pub created_after: Option<Timestamp>,
    pub created_before: Option<Timestamp>,
    /// Only runs that are parked.
    pub stuck: bool,
}

impl RunFilter {
    fn query(&self, cursor: Option<&str>, limit: u32) -> Vec<(&'static str, String)> {
        let status: Vec<String> = self.status.iter().map(ToString::to_string).collect();
        let pairs = [
            ("status", Some(status.join(",")).filter(|status| !status.is_empty())),
            ("workflow", self.workflow.clone()),
            ("request_id", self.request_id.clone()),
            ("base_run_id", self.base_run_id.map(|run| run.to_string())),
            ("parent_run_id", self.parent_run_id.map(|run| run.to_string())),
            ("submitted_by", self.submitted_by.clone()),
            ("created_after", self.created_after.map(|at| at.to_string())),
            ("created_before", self.created_before.map(|at| at.to_string())),
            ("stuck", self.stuck.then(|| "true".to_owned())),
            ("cursor", cursor.map(ToOwned::to_owned)),
            ("limit", Some(limit.to_string())),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

impl Client {
    /// Starts a run; returns when it is on disk. With a request id, the same again gives the run that is there.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn start(&self, new: &NewRun) -> Result<Started, Error> {
        Ok(self.post(&["runs"], new).await?.1)
    }

    /// A run with its steps.
    ///
    /// # Errors
    /// There is no such run, or the server does not answer.
    pub async fn run(&self, run: RunId) -> Result<Run, Error> {
        self.get(&["runs", &run.to_string()], &[]).await
    }

    /// One step, or one item (`shots[3]`).
    ///
    /// # Errors
    /// There is no such step, or the server does not answer.
    pub async fn step(&self, run: RunId, step_id: &str) -> Result<Step, Error> {
        self.get(&["runs", &run.to_string(), "steps", step_id], &[]).await
    }

    /// The steps of a run in any of these statuses (all if none is named), page by page.
    ///
    /// # Errors
    /// There is no such run, or the server does not answer.
    pub async fn steps(
        &self,
        run: RunId,
        status: &[&str],
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<Step>, Error> {
        let mut query = vec![("limit", limit.to_string())];
        query.extend((!status.is_empty()).then(|| ("status", status.join(","))));
        query.extend(cursor.map(|cursor| ("cursor", cursor.to_owned())));
        self.get(&["runs", &run.to_string(), "steps"], &query).await
    }

    /// Runs, newest first.
    ///
    /// # Errors
    /// The server refuses, or does not answer.
    pub async fn list(&self, filter: &RunFilter, cursor: Option<&str>, limit: u32) -> Result<Page<RunSummary>, Error> {
        self.get(&["runs"], &filter.query(cursor, limit)).await
    }

    /// A page of a run's log: at most `limit` events after `after_seq`.
    ///
    /// # Errors
    /// There is no such run, or the server does not answer.
    pub async fn events(&self, run: RunId, after_seq: u64, limit: u32) -> Result<Page<Event>, Error> {
        let query = [("after_seq", after_seq.to_string()), ("limit", limit.to_string())];
        self.get(&["runs", &run.to_string(), "events"], &query).await
    }

    /// Waits for the end of a run, over as many connections as it takes.
    ///
    /// # Errors
    /// There is no such run, or the server is away for long.
    pub async fn wait(&self, run: RunId) -> Result<Run, Error> {
        let now = self.run(run).await?;
        if now.status().is_terminal() {
            return Ok(now);
        }
        let mut events = self.watch(run, now.summary.last_event_seq);
        while events.next().await?.is_some() {}
        self.run(run).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_asks_for_what_it_names_and_nothing_else() {
        let filter = RunFilter {
            status: vec![RunStatus::Failed, RunStatus::Paused],
            created_after: Some(Timestamp::UNIX_EPOCH),
            ..RunFilter::default()
        };
        let pairs = filter.query(None, 20);
        let shown: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(shown, ["status=failed,paused", "created_after=1970-01-01T00:00:00Z", "limit=20"]);
    }

    #[test]
    fn a_start_says_what_was_given_and_nothing_else() {
        let new = NewRun::of("hello").payload(&serde_json::json!({"n": 1})).unwrap().request_id("first");
        let text = serde_json::to_string(&new).unwrap();
        assert_eq!(text, r#"{"workflow":"hello","payload":{"n":1},"request_id":"first"}"#);
    }
}
