//! Skills: what steps do. The built-in ones, and functions of the program that uses the engine as a library.

mod basic;
mod files;
mod http;
mod placeholder;
mod shell;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use milepost_core::event::ErrorInfo;
use milepost_core::id::RunId;
use milepost_core::json::Json;
use milepost_core::secret::Placeholders;
use milepost_core::time::Timestamp;
use milepost_core::trace::{SpanId, TraceContext};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::egress::Egress;
use crate::logs::AttemptLog;
use crate::secrets::Resolved;
pub(crate) use files::Files;

/// Skills that every engine has. The last three need no executor and are the core's own.
pub const BUILT_IN: &[&str] = &["noop", "echo", "fail", "shell", "http", "sleep", "wait", "workflow"];

/// Why a skill failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct SkillError {
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

impl SkillError {
    /// Worth another attempt, if the step's policy has one.
    pub fn new(code: &str, message: impl Into<String>) -> SkillError {
        SkillError { code: code.to_owned(), message: message.into(), retryable: true }
    }

    /// The same input would fail again.
    pub fn fatal(code: &str, message: impl Into<String>) -> SkillError {
        SkillError { retryable: false, ..SkillError::new(code, message) }
    }
}

impl From<SkillError> for ErrorInfo {
    fn from(error: SkillError) -> ErrorInfo {
        ErrorInfo { code: error.code, message: error.message, retryable: error.retryable }
    }
}

/// One line that a step said while it ran.
#[derive(Clone, Debug)]
pub struct LogLine {
    pub run: RunId,
    pub step_id: Arc<str>,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    pub at: Timestamp,
    pub stream: LogStream,
    pub text: String,
}

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogStream {
    Stdout,
    Stderr,
    /// Neither: the skill itself, or the engine, has something to say.
    Log,
}

impl LogStream {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
            LogStream::Log => "log",
        }
    }
}

/// Where log lines go.
pub type LogSink = Arc<dyn Fn(LogLine) + Send + Sync>;

/// What a skill knows of the attempt it carries out.
#[derive(Clone)]
pub struct SkillContext {
    pub run: RunId,
    pub step_id: Arc<str>,
    pub logical_attempt: u32,
    pub engine_attempt: u32,
    /// Environment variables that the step declares, those that are set.
    pub env: Vec<(String, String)>,
    /// The secrets that the step refers to.
    pub secrets: Resolved,
    /// Where the document says that they go.
    pub(crate) placeholders: Arc<Placeholders>,
    /// How long the step may take.
    pub(crate) timeout_ms: Option<u64>,
    /// The trace of whoever started the run.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) log: Arc<AttemptLog>,
    /// What it leaves.
    pub(crate) files: Files,
}

impl SkillContext {
    /// What to pass on to whomever the skill calls, so that their traces are parts of this run's: the value of the W3C header
    /// `traceparent`, with this attempt as the parent. The same on every node.
    #[must_use]
    pub fn traceparent(&self) -> String {
        let span = SpanId::of_attempt(self.run, &self.step_id, self.logical_attempt, self.engine_attempt);
        TraceContext::of_span(self.run, self.trace, span).to_string()
    }

    /// A secret of the step, by the name that it gives it.
    #[must_use]
    pub fn secret(&self, name: &str) -> Option<&str> {
        self.secrets.get(name)
    }

    /// Adds a line to the step's log. Never waits: a line for which there is no room is left out, and that is said.
    pub fn log(&self, stream: LogStream, text: impl Into<String>) {
        self.log.say(stream, text.into());
    }
}

impl fmt::Debug for SkillContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({}/{})", self.step_id, self.run, self.logical_attempt, self.engine_attempt)
    }
}

type SkillFn = dyn Fn(SkillContext, Json) -> BoxFuture<'static, Result<Json, SkillError>> + Send + Sync;

/// The skills of one engine, by name.
#[derive(Clone, Default)]
pub struct Skills {
    by_name: HashMap<Arc<str>, Arc<SkillFn>>,
}

impl Skills {
    /// `noop`, `echo`, `fail`, `shell` and `http`.
    #[must_use]
    pub fn built_in(options: &BuiltInOptions) -> Skills {
        let mut skills = Skills::default();
        basic::register(&mut skills);
        if options.shell {
            shell::register(&mut skills);
        }
        http::register(&mut skills, &options.egress);
        skills
    }

    /// Adds an async function from typed input to typed output.
    pub fn add<I, O, F, R>(&mut self, name: &str, function: F)
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(SkillContext, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, SkillError>> + Send + 'static,
    {
        let function = Arc::new(function);
        self.add_raw(name, move |context, input| {
            let function = function.clone();
            Box::pin(async move {
                let input = serde_json::from_str(input.as_str())
                    .map_err(|error| SkillError::fatal("bad_input", format!("the input does not fit: {error}")))?;
                let output = function(context, input).await?;
                let text = serde_json::to_string(&output)
                    .map_err(|error| SkillError::fatal("bad_output", format!("the output is not JSON: {error}")))?;
                Ok(Json::trusted(text))
            })
        });
    }

    /// Adds a skill that reads and writes JSON text itself.
    pub fn add_raw(
        &mut self,
        name: &str,
        function: impl Fn(SkillContext, Json) -> BoxFuture<'static, Result<Json, SkillError>> + Send + Sync + 'static,
    ) {
        self.by_name.insert(name.into(), Arc::new(function));
    }

    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<SkillFn>> {
        self.by_name.get(name).cloned()
    }
}

impl fmt::Debug for Skills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.by_name.keys().collect();
        names.sort();
        f.debug_set().entries(names).finish()
    }
}

/// What the built-in skills may do.
#[derive(Clone, Debug, Default)]
pub struct BuiltInOptions {
    /// `shell` runs programs of this machine.
    pub shell: bool,
    /// What `http` may call.
    pub egress: Egress,
}
