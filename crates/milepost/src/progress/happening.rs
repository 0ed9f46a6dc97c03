//! An event of a run's log, read for showing it. Needs no plan: what is on the wire is enough.

use milepost_core::event::ErrorInfo;
use milepost_core::json::Json;
use milepost_core::status::RunStatus;
use milepost_core::time::Timestamp;
use milepost_engine::view::EventView;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What happened, to the run or to one of its steps.
#[derive(Debug)]
pub(super) struct Happening {
    pub(super) at: Timestamp,
    pub(super) step: Option<StepName>,
    /// Of the step; 0 on events of the run.
    pub(super) attempt: u32,
    pub(super) what: What,
}

/// `shots`, or `shots[3]` for one item of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StepName {
    pub(super) id: String,
    pub(super) item: Option<u32>,
}

#[derive(Debug)]
pub(super) enum What {
    RunBecame(RunStatus),
    RunFailed(ErrorInfo),
    /// Cancelled or terminated.
    RunStopped(RunStatus, String),
    SignalAccepted(String),
    SignalRejected(String, String),
    RunPatched(PatchData),
    StepStarted {
        items: Option<u32>,
        waits_for: Option<String>,
    },
    StepCompleted,
    StepFailed(ErrorInfo),
    StepSkipped(String),
    /// Many at once, by their ids.
    StepsSkipped {
        reason: String,
        steps: Vec<String>,
    },
    /// Another attempt; the steps in `reset` had been skipped for this failure and are open again.
    StepRetryScheduled {
        retry_at: Timestamp,
        reset: Vec<String>,
    },
}

/// The steps that a patch is about.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PatchData {
    pub(super) added: Vec<String>,
    pub(super) changed: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) rerun: Vec<String>,
    pub(super) reset: Vec<String>,
}

/// The fields of all kinds of data; each event has those of its type.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    status: Option<RunStatus>,
    error: Option<ErrorInfo>,
    reason: String,
    #[serde(rename = "type")]
    signal: String,
    items: Option<u32>,
    waits_for: Option<String>,
    retry_at: Option<Timestamp>,
    reset: Vec<String>,
    steps: Vec<String>,
}

impl Happening {
    /// `None` for what is not shown, and for what this release cannot read.
    pub(super) fn of(event: &EventView) -> Option<Happening> {
        Some(Happening {
            at: event.emitted_at,
            step: event.step_id.as_deref().map(StepName::parse),
            attempt: event.logical_attempt.unwrap_or(0),
            what: what(&event.event_type, &event.data)?,
        })
    }

    /// The status this gives the run, if it gives one.
    pub(super) fn run_status(&self) -> Option<RunStatus> {
        match &self.what {
            What::RunBecame(status) | What::RunStopped(status, _) => Some(*status),
            What::RunFailed(_) => Some(RunStatus::Failed),
            _ => None,
        }
    }
}

fn what(event_type: &str, data: &Json) -> Option<What> {
    let plain = match event_type {
        "RunApproved" => Some(RunStatus::Approved),
        "RunProvisioning" => Some(RunStatus::Provisioning),
        "RunStarted" | "RunResumed" | "RunReopened" => Some(RunStatus::Running),
        "RunPaused" => Some(RunStatus::Paused),
        "RunCompleted" => Some(RunStatus::Completed),
        _ => None,
    };
    if let Some(status) = plain {
        return Some(What::RunBecame(status));
    }
    // An output may be large and is not shown: it is not read.
    if event_type == "StepCompleted" {
        return Some(What::StepCompleted);
    }
    if event_type == "RunPatched" {
        return Some(What::RunPatched(read(data)?));
    }
    let data: Data = read(data)?;
    Some(match event_type {
        "RunQueued" => What::RunBecame(data.status?),
        "RunFailed" => What::RunFailed(data.error?),
        "RunCancelled" => What::RunStopped(RunStatus::Cancelled, data.reason),
        "RunTerminated" => What::RunStopped(RunStatus::Terminated, data.reason),
        "SignalAccepted" => What::SignalAccepted(data.signal),
        "SignalRejected" => What::SignalRejected(data.signal, data.reason),
        "StepStarted" => What::StepStarted { items: data.items, waits_for: data.waits_for },
        "StepFailed" => What::StepFailed(data.error?),
        "StepSkipped" if !data.steps.is_empty() => What::StepsSkipped { reason: data.reason, steps: data.steps },
        "StepSkipped" => What::StepSkipped(data.reason),
        "StepRetryScheduled" => What::StepRetryScheduled { retry_at: data.retry_at?, reset: data.reset },
        _ => return None,
    })
}

fn read<T: DeserializeOwned>(data: &Json) -> Option<T> {
    serde_json::from_str(data.as_str()).ok()
}

impl StepName {
    pub(super) fn parse(name: &str) -> StepName {
        let item = name.strip_suffix(']').and_then(|rest| rest.rsplit_once('['));
        match item.and_then(|(id, item)| Some((id, item.parse().ok()?))) {
            Some((id, item)) => StepName { id: id.to_owned(), item: Some(item) },
            None => StepName { id: name.to_owned(), item: None },
        }
    }
}

impl std::fmt::Display for StepName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.item {
            None => f.write_str(&self.id),
            Some(item) => write!(f, "{}[{item}]", self.id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_told_from_steps() {
        assert_eq!(StepName::parse("shots[3]"), StepName { id: "shots".to_owned(), item: Some(3) });
        assert_eq!(StepName::parse("shots"), StepName { id: "shots".to_owned(), item: None });
        assert_eq!(StepName::parse("shots[x]").to_string(), "shots[x]");
    }

    #[test]
    fn what_a_later_release_writes_is_passed_over() {
        assert!(what("RunDreamt", &Json::trusted("{}")).is_none());
        assert!(what("StepFailed", &Json::trusted("{\"error\": 7}")).is_none());
        let more = Json::trusted("{\"status\": \"queued\", \"colour\": \"blue\"}");
        assert!(matches!(what("RunQueued", &more), Some(What::RunBecame(RunStatus::Queued))));
    }
}
