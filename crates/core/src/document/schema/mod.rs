//! The JSON Schema of a payload, compiled once per plan.

mod extent;
mod meter;

use std::fmt;

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, ValidationError, Validator, meta};
use serde_json::Value;

use self::extent::longest_path;
use self::meter::{Budget, Metered, Part, weight, within};
use super::Problem;
use crate::text;

/// Beyond this many, a payload's further problems are not reported.
const MAX_PROBLEMS: usize = 100;
/// Where a problem is, and what it is, in bytes.
const MAX_TEXT: usize = 500;
/// What a check may spend: about a second, however its schema branches.
const WORK: u64 = 200_000_000;
/// What a check without many branches may spend: looks at parts of the payload.
const MAX_LOOKS: u64 = 50_000_000;
/// Looks to find all problems of a payload that does not fit.
const LOOKS_FOR_ALL: u64 = 500_000;
/// Memory of all problems of a payload, those of branches that do not fit among them: the validator makes many for each that is
/// told.
const PROBLEMS_BYTES: u64 = 32 << 20;
/// Memory of one of them, without what it repeats of the payload and of the schema.
const PROBLEM_BYTES: usize = 1024;
/// Memory of a schema that may be copied some hundred times.
const SMALL_SCHEMA: u64 = 128 << 10;
/// Patterns of a schema: each takes memory besides what it compiles to.
const MAX_PATTERNS: usize = 1000;
/// Memory of all compiled patterns of a schema, and of one.
const PATTERNS_BYTES: usize = 128 << 20;
const PATTERN_BYTES: std::ops::RangeInclusive<usize> = 32 << 10..=extent::MAX_COMPILED;
/// Steps of a pattern that looks around itself or back, per text.
const BACKTRACKS: usize = 10_000;

/// A compiled schema. References to other documents are refused when it is compiled: nothing is fetched.
pub struct PayloadSchema {
    validator: Validator<Metered>,
    /// Looks at parts of a payload that a check may take.
    looks: u64,
    /// The validator names a text that it could not hold against a pattern by its place in the whole.
    has_patterns: bool,
    /// Of the way to a schema, for each level of the payload.
    way: usize,
    /// What a problem repeats of the schema.
    copied: usize,
    /// About what it takes of the memory.
    memory: usize,
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
        let measures = extent::measure(schema)?;
        if measures.patterns > MAX_PATTERNS {
            let patterns = measures.patterns;
            return Err(format!(
                "it has {patterns} regular expressions, {MAX_PATTERNS} are allowed; join some of them by `|`"
            ));
        }
        check_large(schema)?;
        let pattern_bytes =
            (PATTERNS_BYTES / measures.patterns.max(1)).clamp(*PATTERN_BYTES.start(), *PATTERN_BYTES.end());
        let patterns = PatternOptions::fancy_regex()
            .backtrack_limit(BACKTRACKS)
            .size_limit(pattern_bytes)
            .dfa_size_limit(pattern_bytes);
        let options = jsonschema::options_for::<Metered>().with_retriever(Nothing).with_pattern_options(patterns);
        let validator = options.build(schema).map_err(|error| text::clean(error.to_string(), MAX_TEXT))?;
        let looks = (WORK / measures.branches).min(MAX_LOOKS);
        let extent::Measures { patterns, way, copied, .. } = measures;
        let memory =
            measures.compiled.min(patterns.saturating_mul(pattern_bytes)).saturating_add(weight(schema) as usize);
        Ok(PayloadSchema { validator, looks, has_patterns: patterns > 0, way, copied, memory })
    }

    /// About what it takes of the memory.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// What finding the problems of a payload may spend.
    fn budget_for_problems(&self, payload: &Value) -> Budget {
        let path = longest_path(payload);
        let way = self.way.saturating_mul(1 + levels(payload));
        let error = [path, way, self.copied].into_iter().fold(PROBLEM_BYTES, usize::saturating_add);
        Budget {
            looks: LOOKS_FOR_ALL.min(self.looks),
            bytes: Some(PROBLEMS_BYTES),
            error: error as u64,
            whole: self.has_patterns.then_some(std::ptr::from_ref(payload)),
        }
    }

    /// What is wrong with a payload; empty when it fits. Values are not repeated in the messages.
    #[must_use]
    pub fn check(&self, payload: &Value) -> Vec<Problem> {
        let whole = Part(payload);
        let fits = Budget { looks: self.looks, bytes: None, error: 0, whole: None };
        match within(fits, || self.validator.is_valid(whole)) {
            Ok(true) => return Vec::new(),
            Ok(false) => {}
            Err(_) => {
                return vec![problem(
                    "the check takes too much work; make the payload smaller, or `params` simpler".to_owned(),
                    String::new(),
                )];
            }
        }
        let shown = |error: ValidationError<'_>| {
            problem(error.masked_with("the value").to_string(), error.instance_path().to_string())
        };
        let budget = self.budget_for_problems(payload);
        let all =
            within(budget, || self.validator.iter_errors(whole).take(MAX_PROBLEMS).map(shown).collect::<Vec<_>>());
        let first = || within(budget, || self.validator.validate(whole).err().map(shown));
        match all.or_else(|_| first().map(|first| first.into_iter().collect())) {
            Ok(problems) if !problems.is_empty() => problems,
            _ => vec![problem("the payload is too large to say where".to_owned(), String::new())],
        }
    }
}

/// Holds a large schema against the schema of schemas. Whoever builds it does so as well, but copies what is wrong for each
/// alternative that it lies in.
fn check_large(schema: &Value) -> Result<(), String> {
    if weight(schema) <= SMALL_SCHEMA || Draft::default().detect(schema) == Draft::Unknown {
        return Ok(());
    }
    let fits = Budget { looks: u64::MAX, bytes: None, error: 0, whole: None };
    if let Ok(Ok(true) | Err(_)) = within(fits, || meta::is_valid_for::<Metered>(Part(schema))) {
        return Ok(());
    }
    let error = (PROBLEM_BYTES + longest_path(schema)) as u64;
    let budget = Budget { looks: MAX_LOOKS, bytes: Some(PROBLEMS_BYTES), error, whole: None };
    let shown = |error: ValidationError<'_>| format!("{}: {}", error.instance_path(), error.masked_with("the value"));
    let first = within(budget, || meta::validate_for::<Metered>(Part(schema)).err().map(shown));
    let reason = first.ok().flatten().unwrap_or_else(|| "it is too large to say where".to_owned());
    Err(text::clean(reason, MAX_TEXT))
}

/// Lists and maps inside each other.
fn levels(value: &Value) -> usize {
    let (mut deepest, mut open) = (0, vec![(value, 0)]);
    while let Some((value, depth)) = open.pop() {
        deepest = deepest.max(depth);
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => open.extend(entries.values().map(|item| (item, depth + 1))),
            _ => {}
        }
    }
    deepest
}

fn problem(message: String, path: String) -> Problem {
    Problem {
        code: "payload_invalid",
        message: text::clean(message, MAX_TEXT),
        path: text::clean(path, MAX_TEXT),
        line: None,
        column: None,
        suggestion: None,
    }
}

#[cfg(test)]
mod tests;
