//! `noop`, `echo` and `fail`.

use milepost_core::json::Json;
use serde::Deserialize;
use serde_json::Value;

use super::{SkillError, Skills};

pub(super) fn register(skills: &mut Skills) {
    skills.add_raw("noop", |_, _| Box::pin(async { Ok(Json::trusted("{}")) }));
    skills.add_raw("echo", |_, input| Box::pin(async { Ok(input) }));
    skills.add("fail", |context, input: Value| async move { fail(context.logical_attempt, input) });
}

#[derive(Deserialize)]
struct Fail {
    #[serde(default = "always")]
    times: u32,
    #[serde(default = "code")]
    code: String,
    #[serde(default = "yes")]
    retryable: bool,
}

fn always() -> u32 {
    u32::MAX
}

fn code() -> String {
    "failed".to_owned()
}

fn yes() -> bool {
    true
}

/// Fails as many attempts as it is told to, then gives its input back.
fn fail(attempt: u32, input: Value) -> Result<Value, SkillError> {
    let asked: Fail = serde_json::from_value(input.clone())
        .map_err(|error| SkillError::fatal("bad_input", format!("`fail` takes times, code and retryable: {error}")))?;
    if attempt > asked.times {
        return Ok(input);
    }
    let message = format!("attempt {attempt} failed, as it was asked to");
    Err(SkillError { code: asked.code, message, retryable: asked.retryable })
}
