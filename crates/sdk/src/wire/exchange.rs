//! The one call of a worker: what it reports, and what it is told.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{NewArtifact, Task};

/// Where a line of a step's log comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Neither: the skill itself has something to say.
    #[default]
    Log,
}

/// A line of a step's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    pub stream: LogStream,
    pub text: String,
    pub at: String,
}

/// Why an attempt failed, or a run or a step.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct TaskError {
    pub code: String,
    pub message: String,
    #[serde(default)]
    pub retryable: bool,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Completed { output: Box<RawValue> },
    Failed { error: TaskError },
}

/// What is reported of an attempt that ended.
#[derive(Clone, Debug)]
pub(crate) struct TaskResult {
    pub(crate) task_id: String,
    pub(crate) lease_token: String,
    pub(crate) outcome: Outcome,
    /// Of one that completed.
    pub(crate) artifacts: Vec<NewArtifact>,
    pub(crate) lines: Vec<Line>,
}

// By hand: serde's `flatten` cannot pass JSON through as it is written.
impl Serialize for TaskResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut result = serializer.serialize_struct("TaskResult", 6)?;
        result.serialize_field("task_id", &self.task_id)?;
        result.serialize_field("lease_token", &self.lease_token)?;
        match &self.outcome {
            Outcome::Completed { output } => {
                result.serialize_field("outcome", "completed")?;
                result.serialize_field("output", output)?;
            }
            Outcome::Failed { error } => {
                result.serialize_field("outcome", "failed")?;
                result.serialize_field("error", error)?;
            }
        }
        if !self.artifacts.is_empty() {
            result.serialize_field("artifacts", &self.artifacts)?;
        }
        if !self.lines.is_empty() {
            result.serialize_field("lines", &self.lines)?;
        }
        result.end()
    }
}

impl TaskResult {
    /// About what it takes on the wire.
    pub(crate) fn bytes(&self) -> usize {
        let outcome = match &self.outcome {
            Outcome::Completed { output } => output.get().len(),
            Outcome::Failed { error } => error.message.len(),
        };
        200 + outcome + self.artifacts.len() * 500 + self.lines.iter().map(|line| line.text.len() + 70).sum::<usize>()
    }
}

/// A sign of life of an attempt that is under way.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Heartbeat {
    pub(crate) task_id: String,
    pub(crate) lease_token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) progress: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lines: Vec<Line>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) tasks: Vec<Task>,
    pub(crate) directives: Vec<Directive>,
    pub(crate) rejected: Vec<Rejected>,
}

/// A word about a task that is under way.
#[derive(Debug, Deserialize)]
pub(crate) struct Directive {
    pub(crate) task_id: String,
    /// `cancel`, `pause`, `tune`; others are passed over.
    pub(crate) kind: String,
    /// Of a `tune`.
    #[serde(default)]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) value: Value,
}

/// A result or a heartbeat that the server did not take.
#[derive(Debug, Deserialize)]
pub(crate) struct Rejected {
    pub(crate) task_id: String,
    #[serde(default)]
    pub(crate) lease_token: String,
    pub(crate) code: String,
    #[serde(default)]
    pub(crate) message: String,
}

impl Rejected {
    /// Somebody else has the attempt now, or the run has ended.
    pub(crate) fn is_stale(&self) -> bool {
        self.code == "stale_attempt"
    }

    /// Whether a heartbeat was refused with its lease, not only what it said.
    pub(crate) fn ends_the_attempt(&self) -> bool {
        self.is_stale() || self.code == "bad_lease_token"
    }
}

/// This moment, as it goes over the wire.
pub(crate) fn instant_text() -> String {
    jiff::Timestamp::now().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_has_what_its_outcome_needs_and_nothing_else() {
        let result = |outcome| TaskResult {
            task_id: "t".to_owned(),
            lease_token: "l".to_owned(),
            outcome,
            artifacts: Vec::new(),
            lines: Vec::new(),
        };
        let output = RawValue::from_string("[1 ,2]".to_owned()).unwrap();
        let completed = serde_json::to_string(&result(Outcome::Completed { output })).unwrap();
        assert_eq!(completed, r#"{"task_id":"t","lease_token":"l","outcome":"completed","output":[1 ,2]}"#);
        let error = TaskError { code: "bad".to_owned(), message: "it is".to_owned(), retryable: false };
        let mut failed = result(Outcome::Failed { error });
        failed.lines.push(Line {
            stream: LogStream::Stderr,
            text: "oh".to_owned(),
            at: "2026-11-15T11:12:25Z".to_owned(),
        });
        assert_eq!(
            serde_json::to_string(&failed).unwrap(),
            r#"{"task_id":"t","lease_token":"l","outcome":"failed","error":{"code":"bad","message":"it is","retryable":false},"lines":[{"stream":"stderr","text":"oh","at":"2026-11-15T11:12:25Z"}]}"#
        );
    }

    #[test]
    fn an_answer_may_say_more_than_is_understood() {
        let text = r#"{"tasks":[],"directives":[{"task_id":"t","kind":"dance","tempo":120}],"colour":"blue"}"#;
        let answer: Answer = serde_json::from_str(text).unwrap();
        assert_eq!(answer.directives[0].kind, "dance");
    }
}
