//! The JSON Schema of a payload, compiled once per plan.

use std::fmt;

use jsonschema::{Retrieve, Uri, Validator};
use serde_json::Value;

use super::Problem;

/// Beyond this many, a payload's further problems are not told.
const MAX_PROBLEMS: usize = 100;

/// A compiled schema. References to other documents are refused when it is compiled: nothing is fetched.
pub struct PayloadSchema {
    validator: Validator,
}

/// Fetches nothing.
struct Nothing;

impl Retrieve for Nothing {
    fn retrieve(&self, _: &Uri<String>) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err("references to other documents are not followed".into())
    }
}

impl fmt::Debug for PayloadSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PayloadSchema")
    }
}

impl PayloadSchema {
    pub(super) fn compile(schema: &Value) -> Result<PayloadSchema, String> {
        let validator =
            jsonschema::options().with_retriever(Nothing).build(schema).map_err(|error| error.to_string())?;
        Ok(PayloadSchema { validator })
    }

    /// What is wrong with a payload; empty when it fits. Values are not repeated in the messages.
    #[must_use]
    pub fn check(&self, payload: &Value) -> Vec<Problem> {
        if self.validator.is_valid(payload) {
            return Vec::new();
        }
        let problem = |error: jsonschema::ValidationError<'_>| Problem {
            code: "payload_invalid",
            message: error.masked_with("the value").to_string(),
            path: error.instance_path().to_string(),
            line: None,
            column: None,
            suggestion: None,
        };
        self.validator.iter_errors(payload).take(MAX_PROBLEMS).map(problem).collect()
    }
}
