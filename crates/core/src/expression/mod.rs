//! Expressions: what stands inside `${{ }}`, compiled once and evaluated against a run's values.
//!
//! ```text
//! text ─▶ lex ─▶ names (known? which steps?) ─▶ a plain path ─▶ walked over the JSON
//!                                            └▶ anything else: paths become variables, minijinja does the rest
//! ```
//!
//! **Invariant:** evaluation is a function of the scope alone: no clock, no randomness, no includes, no templates.
//! **Invariant:** evaluation is bounded: bytes and work are paid for before they are taken (`budget.rs`, `meter.rs`).

mod budget;
mod jinja;
mod lex;
mod meter;
mod names;
mod operators;
mod paid;
mod path;
mod template;
mod view;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::limits::Limits;
use crate::plan::StepIndex;

pub use budget::Budget;
use jinja::Jinja;
use path::{Found, Path};
pub use template::Template;
pub(crate) use template::{Part, Piece, Raw, has_expression, split};

/// Deeper nesting is refused whatever the limit says: parsers and compilers recurse on it.
const MAX_DEPTH: usize = 100;
/// Chains such as `a + b + c …` make trees as deep as they are long.
const MAX_TOKENS: usize = 2048;

/// The values an expression may see.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    pub payload: &'a Arc<Value>,
    pub run: &'a Arc<Value>,
    pub steps: &'a dyn StepOutputs,
    pub item: Option<&'a Arc<Value>>,
    pub index: Option<u64>,
    /// Pays for all that is evaluated here.
    pub budget: &'a Budget,
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("item", &self.item).field("index", &self.index).finish_non_exhaustive()
    }
}

/// The outputs of a run's steps.
pub trait StepOutputs {
    /// `None`: the step has no output yet, and an expression that needs it is an error.
    fn output(&self, step: StepIndex) -> Option<&Arc<Value>>;

    /// By kind and name; of a `foreach` step a list of that.
    fn artifacts(&self, _step: StepIndex) -> Option<&Arc<Value>> {
        None
    }
}

/// What an expression needs of which steps; each sorted, without repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub outputs: Vec<StepIndex>,
    pub artifacts: Vec<StepIndex>,
}

impl Needs {
    fn of(paths: &[names::Found]) -> Needs {
        let of = |wanted: fn(path::Root) -> Option<StepIndex>| {
            let steps: BTreeSet<StepIndex> = paths.iter().filter_map(|found| wanted(found.path.root)).collect();
            steps.into_iter().collect()
        };
        let output = |root| if let path::Root::Step(step) = root { Some(step) } else { None };
        let artifacts = |root| if let path::Root::Artifacts(step) = root { Some(step) } else { None };
        Needs { outputs: of(output), artifacts: of(artifacts) }
    }

    /// The needs of all of several.
    fn add(&mut self, other: &Needs) {
        self.outputs = union(&self.outputs, &other.outputs);
        self.artifacts = union(&self.artifacts, &other.artifacts);
    }

    /// The steps that something is needed of.
    fn steps(&self) -> Vec<StepIndex> {
        union(&self.outputs, &self.artifacts)
    }
}

fn union(a: &[StepIndex], b: &[StepIndex]) -> Vec<StepIndex> {
    let all: BTreeSet<StepIndex> = a.iter().chain(b).copied().collect();
    all.into_iter().collect()
}

/// An expression could not be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EvalError {
    pub message: String,
    /// What is rendered has more bytes than its budget.
    pub too_large: bool,
}

impl EvalError {
    fn new(message: impl Into<String>) -> EvalError {
        EvalError { message: message.into(), too_large: false }
    }

    fn more_work() -> EvalError {
        EvalError::new("it does more work than an expression may")
    }
}

/// An expression could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompileError {
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) suggestion: Option<String>,
}

impl CompileError {
    pub(crate) fn new(code: &'static str, message: String) -> CompileError {
        CompileError { code, message, suggestion: None }
    }

    fn name(message: String) -> CompileError {
        CompileError::new("unknown_name", message)
    }
}

/// Finds a step by the id an expression names.
pub(crate) type FindStep<'a> = dyn Fn(&str) -> Result<StepIndex, CompileError> + 'a;

/// Which names an expression may use, and how large it may be.
pub(crate) struct Bindings<'a> {
    pub(crate) step: &'a FindStep<'a>,
    /// Whether `item` and `index` are known.
    pub(crate) item: bool,
    pub(crate) max_chars: usize,
    pub(crate) max_depth: usize,
}

impl<'a> Bindings<'a> {
    pub(crate) fn new(limits: &Limits, step: &'a FindStep<'a>, item: bool) -> Bindings<'a> {
        Bindings { step, item, max_chars: limits.expression_chars, max_depth: limits.expression_depth.min(MAX_DEPTH) }
    }
}

/// One compiled `${{ … }}`.
pub struct Expression {
    source: String,
    steps: Vec<StepIndex>,
    needs: Needs,
    sees_run: bool,
    code: Code,
}

enum Code {
    Constant(Value),
    Path(Path),
    Jinja(Box<Jinja>),
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${{{{ {} }}}}", self.source)
    }
}

/// The same text about the same steps.
impl PartialEq for Expression {
    fn eq(&self, other: &Expression) -> bool {
        (&self.source, &self.steps) == (&other.source, &other.steps)
    }
}

impl Expression {
    /// Compiles what stands between `${{` and `}}`.
    pub(crate) fn compile(source: &str, bindings: &Bindings<'_>) -> Result<Expression, CompileError> {
        let source = source.trim();
        check_length(source, bindings)?;
        let bad = |reason: String| CompileError::new("bad_expression", format!("`{}`: {reason}", short(source)));
        let tokens = lex::tokens(source).map_err(|_| bad("a text is not closed".into()))?;
        check_depth(&tokens, source, bindings)?;
        let mut found = names::paths(source, &tokens, bindings)?;
        let needs = Needs::of(&found);
        let steps = needs.steps();
        let sees_run = found.iter().any(|found| found.path.root == path::Root::Run);
        let whole = found.len() == 1 && found[0].span == (0..source.len());
        let code = match found.pop_if(|_| whole) {
            Some(only) => Code::Path(only.path),
            None => Code::Jinja(Box::new(Jinja::compile(source, found).map_err(bad)?)),
        };
        Ok(Expression { source: source.to_owned(), steps, needs, sees_run, code })
    }

    /// An expression that always yields the same.
    pub(crate) fn constant(value: Value) -> Expression {
        let (steps, needs) = Default::default();
        Expression { source: value.to_string(), steps, needs, sees_run: false, code: Code::Constant(value) }
    }

    /// # Errors
    /// Something it needs is undefined, an operation does not fit its values, or it is more than the budget pays for.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        self.value(scope).map(Cow::into_owned)
    }

    /// The value, copied only if it has to be; the copy is paid for in any case.
    fn value<'a>(&'a self, scope: &Scope<'a>) -> Result<Cow<'a, Value>, EvalError> {
        let value = self.look(scope)?;
        scope.budget.pay_value(&value)?;
        Ok(value)
    }

    /// The value as a piece of a text, which has no quotes of its own.
    fn piece<'a>(&'a self, scope: &Scope<'a>) -> Result<Cow<'a, Value>, EvalError> {
        let value = self.look(scope)?;
        match &*value {
            Value::String(text) => scope.budget.pay_bytes(text.len())?,
            other => scope.budget.pay_value(other)?,
        }
        Ok(value)
    }

    fn look<'a>(&'a self, scope: &Scope<'a>) -> Result<Cow<'a, Value>, EvalError> {
        let result = match &self.code {
            Code::Constant(value) => Ok(Cow::Borrowed(value)),
            Code::Path(path) => match path.walk(scope) {
                Found::Value(value) => Ok(value),
                Found::Undefined => Err(path.undefined()),
                Found::Broken(error) => Err(error),
            },
            Code::Jinja(jinja) => jinja.evaluate(scope).map(Cow::Owned),
        };
        result.map_err(|error| self.explain(error))
    }

    /// Whether the value counts as true: not `null`, `false`, 0, nor an empty text, list or map.
    ///
    /// # Errors
    /// As [`Expression::evaluate`].
    pub fn truthy(&self, scope: &Scope<'_>) -> Result<bool, EvalError> {
        Ok(match &*self.look(scope)? {
            Value::Null => false,
            Value::Bool(value) => *value,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(map) => !map.is_empty(),
        })
    }

    /// The steps it refers to; sorted, without repeats.
    #[must_use]
    pub fn steps(&self) -> &[StepIndex] {
        &self.steps
    }

    #[must_use]
    pub fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Whether it looks at the run itself, which no two runs have in common.
    #[must_use]
    pub fn sees_run(&self) -> bool {
        self.sees_run
    }

    fn explain(&self, error: EvalError) -> EvalError {
        EvalError::new(format!("cannot evaluate `${{{{ {} }}}}`: {}", short(&self.source), error.message))
    }
}

fn check_length(source: &str, bindings: &Bindings<'_>) -> Result<(), CompileError> {
    let message = || format!("an expression may have {} characters: `{}`", bindings.max_chars, short(source));
    if source.is_empty() {
        return Err(CompileError::new("bad_expression", "the expression is empty".into()));
    }
    if source.len() > bindings.max_chars && source.chars().count() > bindings.max_chars {
        return Err(CompileError::new("expression_too_long", message()));
    }
    Ok(())
}

fn check_depth(tokens: &[lex::Token<'_>], source: &str, bindings: &Bindings<'_>) -> Result<(), CompileError> {
    let message = match lex::depth(tokens) {
        depth if depth > bindings.max_depth => {
            format!("`{}` is nested {depth} levels deep; {} are allowed", short(source), bindings.max_depth)
        }
        _ if tokens.len() > MAX_TOKENS => format!("`{}` has too many parts; {MAX_TOKENS} are allowed", short(source)),
        _ => return Ok(()),
    };
    Err(CompileError::new("expression_too_deep", message))
}

/// The source as messages show it.
fn short(source: &str) -> String {
    const SHOWN: usize = 80;
    match source.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &source[..end]),
        None => source.to_owned(),
    }
}

#[cfg(test)]
mod tests;
