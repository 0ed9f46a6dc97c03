//! The inline executor: carries tasks out in this process. An inline step needs no row of its own; its lease is its node's.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::FutureExt;
use milepost_core::artifact::{Artifact, Beyond};
use milepost_core::event::ErrorInfo;
use milepost_core::id::{OrgId, RunId};
use milepost_core::json::Json;
use milepost_core::limits::Limits;
use milepost_core::plan::Plan;
use milepost_core::run::{Command, Task, TaskRef};
use tokio::task::AbortHandle;

use crate::artifacts::Artifacts;
use crate::committer::{Inbox, Request};
use crate::logs::{AttemptKey, AttemptLog, LogHandle};
use crate::secrets::{INLINE_QUEUE, Redactor, Resolved, Secrets};
use crate::skills::{Files, SkillContext, SkillError, Skills};
use crate::supervisor::panic_text;

type Key = (RunId, TaskRef);

/// Runs tasks and reports how they ended.
#[derive(Clone)]
pub(crate) struct Executor {
    shared: Arc<Shared>,
}

struct Shared {
    skills: Skills,
    limits: Limits,
    inbox: Inbox,
    logs: LogHandle,
    secrets: Arc<Secrets>,
    artifacts: Arc<Artifacts>,
    under_way: Mutex<HashMap<Key, UnderWay>>,
    /// Bytes of the inputs of what is under way.
    input_bytes: AtomicUsize,
}

struct UnderWay {
    org: OrgId,
    input_bytes: usize,
    since: Instant,
    handle: AbortHandle,
}

impl Executor {
    pub(crate) fn new(
        skills: Skills,
        limits: Limits,
        inbox: Inbox,
        logs: LogHandle,
        secrets: Arc<Secrets>,
        artifacts: Arc<Artifacts>,
    ) -> Executor {
        let (under_way, input_bytes) = Default::default();
        let shared = Shared { skills, limits, inbox, logs, secrets, artifacts, under_way, input_bytes };
        Executor { shared: Arc::new(shared) }
    }

    pub(crate) fn knows(&self, skill: &str) -> bool {
        self.shared.skills.has(skill)
    }

    /// Begins a task. Its outcome comes to the committer as a command.
    pub(crate) fn begin(&self, org: OrgId, run: RunId, plan: &Arc<Plan>, task: Task) {
        let shared = self.shared.clone();
        let plan = plan.clone();
        let (key, input_bytes) = ((run, task.task), task.input.len());
        self.shared.input_bytes.fetch_add(input_bytes, Ordering::Relaxed);
        let mut under_way = self.shared.under_way.lock().expect("no holder of this lock panics");
        let handle = tokio::spawn(async move {
            let outcome = std::panic::AssertUnwindSafe(shared.outcome(org, run, &plan, &task)).catch_unwind().await;
            // The step must end, whatever went wrong around its skill.
            let command = outcome.unwrap_or_else(|panic| {
                let error = ErrorInfo::fatal("panic", format!("the executor panicked: {}", panic_text(&*panic)));
                Command::Fail { task: task.task, error }
            });
            // Whoever takes the entry reports: this task, or the one that cancelled it.
            if shared.forget(&(run, task.task)).is_none() {
                return;
            }
            shared.inbox.report(Request::outcome(org, run, command)).await;
        });
        let before =
            under_way.insert(key, UnderWay { org, input_bytes, since: Instant::now(), handle: handle.abort_handle() });
        self.shared.input_bytes.fetch_sub(before.map_or(0, |before| before.input_bytes), Ordering::Relaxed);
    }

    /// Bytes of the inputs of what is under way here.
    pub(crate) fn input_bytes(&self) -> usize {
        self.shared.input_bytes.load(Ordering::Relaxed)
    }

    /// How many attempts are under way here.
    pub(crate) fn count(&self) -> usize {
        self.shared.under_way.lock().expect("no holder of this lock panics").len()
    }

    /// The attempts of a run that are under way here.
    pub(crate) fn tasks_of(&self, run: RunId) -> Vec<TaskRef> {
        let under_way = self.shared.under_way.lock().expect("no holder of this lock panics");
        under_way.keys().filter(|(of, _)| *of == run).map(|(_, task)| *task).collect()
    }

    /// The runs of attempts that have been under way for at least so long.
    pub(crate) fn runs_under_way(&self, at_least: Duration) -> BTreeSet<(OrgId, RunId)> {
        let under_way = self.shared.under_way.lock().expect("no holder of this lock panics");
        let long = under_way.iter().filter(|(_, task)| task.since.elapsed() >= at_least);
        long.map(|((run, _), task)| (task.org, *run)).collect()
    }

    /// Stops a task, if it has not ended by itself. Its future is dropped; the attempt is reported as cancelled.
    pub(crate) fn cancel(&self, org: OrgId, run: RunId, task: TaskRef) {
        let Some(under_way) = self.shared.forget(&(run, task)) else { return };
        under_way.handle.abort();
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let error = ErrorInfo::fatal("cancelled", "the run was stopped");
            shared.inbox.report(Request::outcome(org, run, Command::Fail { task, error })).await;
        });
    }

    pub(crate) fn abort_all(&self) {
        let mut under_way = self.shared.under_way.lock().expect("no holder of this lock panics");
        for (_, task) in under_way.drain() {
            task.handle.abort();
        }
    }
}

impl std::fmt::Debug for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Executor").field(&self.shared.skills).finish()
    }
}

impl Shared {
    fn forget(&self, key: &Key) -> Option<UnderWay> {
        let forgotten = self.under_way.lock().expect("no holder of this lock panics").remove(key)?;
        self.input_bytes.fetch_sub(forgotten.input_bytes, Ordering::Relaxed);
        Some(forgotten)
    }

    async fn outcome(&self, org: OrgId, run: RunId, plan: &Plan, task: &Task) -> Command {
        let references = &plan.step(task.index).secrets;
        let files = Files::new(org, self.artifacts.clone());
        let outcome = match self.secrets.resolve(org, &plan.name, INLINE_QUEUE, references).await {
            Ok(secrets) => {
                let redactor = secrets.redactor().map(Arc::new);
                let ended = self.carry_out(run, plan, task, secrets, redactor.clone(), files.clone()).await;
                redacted_outcome(ended, redactor.as_deref())
            }
            Err(error) => Err(error),
        };
        match outcome {
            Ok(output) => match self.keep_output(org, &output).await {
                Ok(kept) => leaving(Command::Complete { task: task.task, output }, files.take(), kept),
                Err(error) => Command::Fail { task: task.task, error: error.into() },
            },
            Err(error) => Command::Fail { task: task.task, error: error.into() },
        }
    }

    /// Few are large: what that takes is not part of every attempt.
    async fn keep_output(&self, org: OrgId, output: &Json) -> Result<Option<Beyond>, SkillError> {
        match self.artifacts.is_large(output) {
            true => Box::pin(self.artifacts.keep_own_output(org, output)).await,
            false => Ok(None),
        }
    }

    async fn carry_out(
        &self,
        run: RunId,
        plan: &Plan,
        task: &Task,
        secrets: Resolved,
        redactor: Option<Arc<Redactor>>,
        files: Files,
    ) -> Result<Json, SkillError> {
        let step = plan.step(task.index);
        let skill = self
            .skills
            .get(&step.skill)
            .ok_or_else(|| SkillError::fatal("unknown_skill", format!("there is no skill `{}` here", step.skill)))?;
        let (step_id, TaskRef { logical_attempt, engine_attempt, .. }) = (Arc::<str>::from(&*task.step_id), task.task);
        let key = AttemptKey { org: files.org, run, step_id: step_id.clone(), logical_attempt, engine_attempt };
        let context = SkillContext {
            run,
            step_id,
            logical_attempt,
            engine_attempt,
            env: self.secrets.env_of(step)?,
            secrets,
            placeholders: Arc::new(task.placeholders.clone()),
            timeout_ms: step.timeout_ms,
            trace: task.trace,
            log: Arc::new(AttemptLog::new(key, self.logs.clone()).redacting(redactor)),
            files,
        };
        // Called in there, too: a function may panic before it returns its future.
        let input = task.input.clone();
        let work = std::panic::AssertUnwindSafe(async move { skill(context, input).await }).catch_unwind();
        let ended = match step.timeout_ms {
            None => work.await,
            Some(ms) => tokio::time::timeout(Duration::from_millis(ms), work)
                .await
                .map_err(|_| SkillError::new("timeout", format!("the step took longer than {ms} ms")))?,
        };
        let output = ended.unwrap_or_else(|panic| {
            Err(SkillError::new("panic", format!("the skill panicked: {}", panic_text(&*panic))))
        })?;
        check_output(&output, &self.limits, self.artifacts.most_output())?;
        Ok(output)
    }
}

/// An outcome with the files that come with it, and with where its output is.
pub(crate) fn leaving(outcome: Command, artifacts: Vec<Artifact>, kept: Option<Beyond>) -> Command {
    let mut beyond = kept.unwrap_or_default();
    beyond.artifacts.extend(artifacts);
    if beyond.is_empty() {
        return outcome;
    }
    Command::Leaving { outcome: Box::new(outcome), beyond: Box::new(beyond) }
}

/// What comes out of a skill, wherever it ran, must be JSON that means the same everywhere.
pub(crate) fn check_output(output: &Json, limits: &Limits, most: usize) -> Result<(), SkillError> {
    if output.len() > most {
        return Err(SkillError::fatal(
            "output_too_large",
            format!(
                "the output has {} bytes, the limit is {}; store it elsewhere and return a reference to it",
                output.len(),
                most
            ),
        ));
    }
    milepost_core::canonical::check_strict(output.as_str(), limits.json_depth)
        .map_err(|error| SkillError::fatal("bad_output", format!("the output: {error}")))
}

/// How an attempt ended, without what it must not tell.
pub(crate) fn redacted_outcome(
    ended: Result<Json, SkillError>,
    redactor: Option<&Redactor>,
) -> Result<Json, SkillError> {
    let Some(redactor) = redactor else { return ended };
    match ended {
        Ok(output) => Ok(redactor.json(output.as_str()).map_or(output, Json::trusted)),
        Err(SkillError { code, message, retryable }) => {
            Err(SkillError { code: redactor.text(code), message: redactor.text(message), retryable })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_not_every_reader_takes_is_no_output() {
        let limits = Limits::default();
        let check = |text: &str| check_output(&Json::trusted(text), &limits, 1000).map_err(|error| error.code);
        for text in ["1e999", "[-1E999]", r#""\ud800""#, r#"{"a": "\udc00\ud800"}"#, r#"{"\ud800": 1}"#] {
            assert_eq!(check(text).unwrap_err(), "bad_output", "{text}");
        }
        assert_eq!(check(&("[".repeat(65) + &"]".repeat(65))).unwrap_err(), "bad_output");
        for text in ["1e3", "[1.5E-3]", r#""\ud83d\ude00""#, r#""\u00e9""#, r#""the\\u""#, r#""1e999""#] {
            assert!(check(text).is_ok(), "{text}");
        }
    }
}
