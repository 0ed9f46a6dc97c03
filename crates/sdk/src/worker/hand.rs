//! One attempt from its beginning to what is reported of it.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;

use super::Context;
use super::context::Stop;
use super::skill::{Output, SkillError, SkillFn};
use crate::wire::{Outcome, TaskResult};

/// Carries a task out. `None`: somebody else has it, and nothing is reported.
pub(crate) async fn carry_out(context: Context, skill: Option<Arc<SkillFn>>, grace: Duration) -> Option<TaskResult> {
    let output = match skill {
        Some(skill) => attempt(&context, &*skill, grace).await,
        None => {
            let message = format!("this worker does not have the skill `{}`", context.task().skill);
            Err(SkillError::new("unknown_skill", message))
        }
    };
    report(&context, output)
}

async fn attempt(context: &Context, skill: &SkillFn, grace: Duration) -> Output {
    let (given, skill) = (context.clone(), AssertUnwindSafe(skill));
    // In here, so that a panic before the first await is one of the skill's as well.
    let work = async move { (skill.0)(given).await };
    let work = AssertUnwindSafe(work).catch_unwind();
    tokio::select! {
        biased;
        output = work => output.unwrap_or_else(|panic| Err(SkillError::new("panic", message_of(&*panic)))),
        () = patience(context, grace) => Err(SkillError::new("cancelled", "it did not stop when it was told to, and was dropped")),
    }
}

/// Comes back when the skill has had its time, and after it was told to end a while more.
async fn patience(context: &Context, grace: Duration) {
    match context.task().timeout_ms {
        Some(ms) => {
            if tokio::time::timeout(Duration::from_millis(ms), context.cancelled()).await.is_err() {
                context.stop(Stop::TimedOut);
            }
        }
        None => context.cancelled().await,
    }
    tokio::time::sleep(grace).await;
}

/// What the server is told. A skill that completes although it was told to end has completed.
fn report(context: &Context, output: Output) -> Option<TaskResult> {
    let task = context.task();
    let outcome = match (output, context.stopped()) {
        (_, Some(Stop::Disowned)) => return None,
        (Ok(output), _) => Outcome::Completed { output },
        (Err(error), stopped) => {
            let error = match stopped {
                Some(Stop::TimedOut) => {
                    let ms = task.timeout_ms.unwrap_or_default();
                    SkillError::new("timeout", format!("the step took longer than {ms} ms"))
                }
                Some(_) => SkillError { code: "cancelled".to_owned(), retryable: false, ..error },
                None => error,
            };
            let message = context.redact(&error.message);
            Outcome::Failed { error: SkillError { message, ..error }.into() }
        }
    };
    let artifacts = match outcome {
        Outcome::Completed { .. } => std::mem::take(&mut *context.left()),
        Outcome::Failed { .. } => Vec::new(),
    };
    let (_, lines) = context.said().take(usize::MAX);
    let (task_id, lease_token) = (task.task_id.clone(), task.lease_token.clone());
    Some(TaskResult { task_id, lease_token, outcome, artifacts, lines })
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("the skill panicked: {}", text.unwrap_or("it did not say why"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::skill::Skills;
    use super::*;
    use crate::wire::LogStream;

    fn context(timeout_ms: Option<u64>) -> Context {
        let task = json!({
            "task_id": "t", "run_id": "01a1defb-20b0-76b2-bcac-6128b7360903", "step_id": "only", "skill": "any", "input": {"n": 1},
            "logical_attempt": 1, "engine_attempt": 1, "lease_token": "l", "heartbeat_ms": 10_000, "timeout_ms": timeout_ms,
            "secrets": {"KEY": "hush"},
        });
        Context::new(serde_json::from_str(&task.to_string()).unwrap(), None, || {})
    }

    fn skill<F, R>(function: F) -> Option<Arc<SkillFn>>
    where
        F: Fn(Context, Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, SkillError>> + Send + 'static,
    {
        let mut skills = Skills::default();
        skills.add("any".to_owned(), function);
        skills.get("any").cloned()
    }

    async fn carried_out(context: &Context, skill: Option<Arc<SkillFn>>) -> Value {
        let result = carry_out(context.clone(), skill, Duration::from_millis(20)).await;
        serde_json::to_value(result).unwrap()
    }

    #[tokio::test]
    async fn input_and_output_are_of_the_skills_own_types() {
        let context = context(None);
        let result = carried_out(&context, skill(|_, input| async move { Ok(input["n"].clone()) })).await;
        assert_eq!(result, json!({"task_id": "t", "lease_token": "l", "outcome": "completed", "output": 1}));
        let mut typed = Skills::default();
        typed.add("any".to_owned(), |_, input: String| async move { Ok(input) });
        let result = carried_out(&context, typed.get("any").cloned()).await;
        assert_eq!((&result["error"]["code"], &result["error"]["retryable"]), (&json!("bad_input"), &json!(false)));
    }

    #[tokio::test]
    async fn a_panic_fails_the_attempt() {
        let context = context(None);
        let result = carried_out(&context, skill(|_, _| async move { panic!("no {}", "luck") })).await;
        assert_eq!(
            result["error"],
            json!({"code": "panic", "message": "the skill panicked: no luck", "retryable": true})
        );
        let early = skill(|context, _| {
            assert!(context.is_cancelled(), "too early");
            async move { Ok(Value::Null) }
        });
        assert_eq!(carried_out(&context, early).await["error"]["message"], "the skill panicked: too early");
    }

    #[tokio::test]
    async fn no_secret_is_in_what_is_reported() {
        let failing = skill(|context: Context, _| async move {
            context.log(LogStream::Stderr, "the key is hush\nand nothing else");
            Err(SkillError::new("refused", "they did not take hush"))
        });
        let result = carried_out(&context(None), failing).await;
        assert_eq!(result["error"]["message"], "they did not take ***");
        let texts: Vec<&Value> = result["lines"].as_array().unwrap().iter().map(|line| &line["text"]).collect();
        assert_eq!(texts, ["the key is ***", "and nothing else"]);
    }

    #[tokio::test]
    async fn a_skill_that_is_told_to_end_may_do_so_in_good_order() {
        let context = context(None);
        let orderly = skill(|context: Context, _| async move {
            context.cancelled().await;
            Err(SkillError::new("stopped_halfway", "the upload was taken back"))
        });
        let (result, ()) = tokio::join!(carried_out(&context, orderly), async { context.stop(Stop::Cancelled) });
        assert_eq!(
            result["error"],
            json!({"code": "cancelled", "message": "the upload was taken back", "retryable": false})
        );
    }

    #[tokio::test]
    async fn a_skill_that_does_not_listen_is_dropped() {
        let cancelled = context(None);
        cancelled.stop(Stop::Cancelled);
        let deaf = || skill(|_, _| std::future::pending());
        assert_eq!(carried_out(&cancelled, deaf()).await["error"]["code"], "cancelled");
        let late = carried_out(&context(Some(1)), deaf()).await;
        assert_eq!(
            late["error"],
            json!({"code": "timeout", "message": "the step took longer than 1 ms", "retryable": true})
        );
    }

    #[tokio::test]
    async fn nothing_is_reported_of_what_somebody_else_has() {
        let context = context(None);
        context.stop(Stop::Cancelled);
        context.stop(Stop::Disowned);
        assert_eq!(carried_out(&context, skill(|_, input| async move { Ok(input) })).await, Value::Null);
    }

    #[tokio::test]
    async fn who_waits_while_a_run_is_paused_goes_on_when_it_is_not() {
        let context = context(None);
        context.pause(true);
        let waiting = skill(|context: Context, _| async move {
            context.resumed().await;
            Ok(json!(context.tuned::<f64>("optimizer.lr")))
        });
        let (result, ()) = tokio::join!(carried_out(&context, waiting), async {
            context.tune("optimizer.lr", json!(0.5));
            context.pause(false);
        });
        assert_eq!(result["output"], 0.5);
    }

    #[tokio::test]
    async fn a_skill_that_is_not_there_fails() {
        assert_eq!(carried_out(&context(None), None).await["error"]["code"], "unknown_skill");
    }
}
