//! Skills: async functions by name, and how they fail.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::{RawValue, to_raw_value};

use super::Context;
use crate::wire::TaskError;

/// Why a skill failed. Any other error becomes one with the code `failed`, so `?` works in skills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkillError {
    pub code: String,
    pub message: String,
    pub retryable: bool,
}

impl SkillError {
    /// Worth another attempt, if the step's policy has one.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> SkillError {
        SkillError { code: code.into(), message: message.into(), retryable: true }
    }

    /// The same input would fail again.
    pub fn fatal(code: impl Into<String>, message: impl Into<String>) -> SkillError {
        SkillError { retryable: false, ..SkillError::new(code, message) }
    }
}

impl fmt::Display for SkillError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

// `SkillError` is no `std::error::Error` itself: then this could not be.
impl<E: std::error::Error> From<E> for SkillError {
    fn from(error: E) -> SkillError {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message = format!("{message}: {cause}");
            source = cause.source();
        }
        SkillError::new("failed", message)
    }
}

impl From<SkillError> for TaskError {
    fn from(error: SkillError) -> TaskError {
        TaskError { code: error.code, message: error.message, retryable: error.retryable }
    }
}

pub(crate) type Output = Result<Box<RawValue>, SkillError>;
pub(crate) type SkillFn = dyn Fn(Context) -> BoxFuture<'static, Output> + Send + Sync;

/// The skills of one worker, by name.
#[derive(Clone, Default)]
pub(crate) struct Skills {
    by_name: BTreeMap<String, Arc<SkillFn>>,
}

impl Skills {
    /// Adds an async function from typed input to typed output.
    pub(crate) fn add<I, O, F, R>(&mut self, name: String, function: F)
    where
        I: DeserializeOwned + Send + 'static,
        O: Serialize,
        F: Fn(Context, I) -> R + Send + Sync + 'static,
        R: Future<Output = Result<O, SkillError>> + Send + 'static,
    {
        let function = Arc::new(function);
        let skill = move |context: Context| -> BoxFuture<'static, Output> {
            let function = function.clone();
            Box::pin(async move {
                let input = serde_json::from_str(context.task().input.get())
                    .map_err(|error| SkillError::fatal("bad_input", format!("the input does not fit: {error}")))?;
                let output = function(context, input).await?;
                to_raw_value(&output)
                    .map_err(|error| SkillError::fatal("bad_output", format!("the output is not JSON: {error}")))
            })
        };
        self.by_name.insert(name, Arc::new(skill));
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Arc<SkillFn>> {
        self.by_name.get(name)
    }

    pub(crate) fn names(&self) -> Vec<&str> {
        self.by_name.keys().map(String::as_str).collect()
    }
}

impl fmt::Debug for Skills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_is_one_of_a_skill_with_all_its_causes() {
        #[derive(Debug, thiserror::Error)]
        #[error("the file is gone")]
        struct Gone(#[source] std::fmt::Error);
        let failed = || -> Result<(), SkillError> { Err(Gone(std::fmt::Error))? };
        let error = failed().unwrap_err();
        assert_eq!(error.message, format!("the file is gone: {}", std::fmt::Error));
        assert_eq!((error.code.as_str(), error.retryable), ("failed", true));
    }
}
