//! Expressions that are more than a path, by minijinja.
//!
//! Each path in the source becomes a variable that holds only what the path leads to, so a large payload is not converted
//! for the sake of one number. Filters, tests and functions are a fixed list (`operators.rs`), and all that is done with
//! values is paid for (`paid.rs`, `meter.rs`), so that a short expression cannot do much work.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::machinery::{self, CodeGenerator, Instructions};
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Error, ErrorKind};
use serde_json::Value as Json;

use super::meter::{COST_OF_ITEM, MAX_DEPTH, metered, pay, pay_copy, pay_map};
use super::operators::ENVIRONMENT;
use super::path::{Found, Path};
use super::view::{View, converted, value_at};
use super::{EvalError, Scope, names, paid};

/// What one part of an expression costs, whatever it does.
const COST_OF_PART: usize = 160;

static NO_BLOCKS: LazyLock<BTreeMap<&'static str, Instructions<'static>>> = LazyLock::new(BTreeMap::new);

/// A compiled expression and the paths that are its variables.
pub(super) struct Jinja {
    variables: Vec<Path>,
    instructions: Instructions<'static>,
    parts: usize,
}

impl Jinja {
    pub(super) fn compile(source: &str, found: Vec<names::Found>) -> Result<Jinja, String> {
        let mut rewritten = String::with_capacity(source.len());
        let mut variables: Vec<Path> = Vec::with_capacity(found.len());
        let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
        let mut end = 0;
        for names::Found { path, span } in found {
            let number = *numbers.entry(path.text.clone()).or_insert(variables.len());
            if number == variables.len() {
                variables.push(path);
            }
            rewritten.push_str(&source[end..span.start]);
            rewritten.push_str(paid::variable(number));
            end = span.end;
        }
        rewritten.push_str(&source[end..]);
        let (expr, parts) = paid::parse(&rewritten).map_err(|error| describe(&error))?;
        let mut generator = CodeGenerator::new("", "");
        generator.compile_expr(&expr);
        Ok(Jinja { variables, instructions: generator.finish().0, parts })
    }

    pub(super) fn evaluate(&self, scope: &Scope<'_>) -> Result<Json, EvalError> {
        let (result, work) = metered(scope.budget.work_of_expression(), || {
            pay(self.parts.saturating_mul(COST_OF_PART))?;
            let mut context = Vec::with_capacity(self.variables.len());
            for (number, path) in self.variables.iter().enumerate() {
                context.push((paid::variable(number), lookup(path, scope)?));
            }
            to_json(&run(&self.instructions, Value::from_pairs(context))?, 0)
        });
        scope.budget.pay_work(work);
        result.map_err(|error| self.explain(&error, scope))
    }

    /// minijinja does not say what was undefined; the paths do.
    fn explain(&self, error: &Error, scope: &Scope<'_>) -> EvalError {
        let undefined = |path: &&Path| matches!(path.walk(scope), Found::Undefined);
        let about_undefined = error.kind() == ErrorKind::UndefinedError || describe(error).contains("undefined");
        match (error.kind(), self.variables.iter().find(undefined)) {
            (ErrorKind::OutOfFuel, _) => EvalError::more_work(),
            (_, Some(path)) if about_undefined => path.undefined(),
            (ErrorKind::UndefinedError, None) => EvalError::new("a part of it is undefined"),
            _ => EvalError::new(describe(error)),
        }
    }
}

fn run(instructions: &Instructions<'static>, context: Value) -> Result<Value, Error> {
    let mut nothing = String::new();
    let mut output = machinery::make_string_output(&mut nothing);
    let result = machinery::eval(&ENVIRONMENT, instructions, context, &NO_BLOCKS, &mut output, AutoEscape::None)?.0;
    Ok(result.unwrap_or_default())
}

fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

/// The value of a variable. A broken path is a value that fails when it is looked at, so `a.b if a is defined else 0` holds.
fn lookup(path: &Path, scope: &Scope<'_>) -> Result<Value, Error> {
    Ok(match (path.walk(scope), path.root(scope)) {
        (Found::Value(Cow::Borrowed(value)), Some(root)) => value_at(value, root, || path.segments.clone())?,
        (Found::Value(value), _) => converted(&value),
        (Found::Undefined, _) => Value::UNDEFINED,
        (Found::Broken(error), _) => Value::from(Error::new(ErrorKind::InvalidOperation, error.message)),
    })
}

fn to_json(value: &Value, depth: usize) -> Result<Json, Error> {
    let unfit = |what: &str| Err(Error::new(ErrorKind::BadSerialization, format!("{what} is not a JSON value")));
    if depth > MAX_DEPTH {
        return unfit("such a deep result");
    }
    if let Some(view) = value.downcast_object_ref::<View>() {
        pay_copy(view.json())?;
        return Ok(view.json().clone());
    }
    pay(COST_OF_ITEM)?;
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number => number(value).map_or_else(|| unfit("the number"), Ok),
        ValueKind::String => text(value).map(Json::String),
        ValueKind::Seq | ValueKind::Iterable => {
            value.try_iter()?.checked().map(|item| to_json(&item?, depth + 1)).collect()
        }
        ValueKind::Map => {
            pay_map()?;
            value.try_iter()?.checked().map(|key| entry(value, &key?, depth)).collect()
        }
        kind => unfit(&format!("a value of kind {kind}")),
    }
}

fn entry(map: &Value, key: &Value, depth: usize) -> Result<(String, Json), Error> {
    let name = match key.as_str() {
        Some(key) => {
            pay(key.len())?;
            key.to_owned()
        }
        None => super::meter::paid_text(key)?,
    };
    Ok((name, to_json(&map.get_item(key)?, depth + 1)?))
}

fn text(value: &Value) -> Result<String, Error> {
    let text = value.as_str().unwrap_or_default();
    pay(text.len())?;
    Ok(text.to_owned())
}

fn number(value: &Value) -> Option<Json> {
    if value.is_integer() {
        let signed = value.as_i64().map(Json::from);
        return signed.or_else(|| u64::try_from(value.clone()).ok().map(Json::from));
    }
    f64::try_from(value.clone()).ok().and_then(serde_json::Number::from_f64).map(Json::Number)
}

/// The filter `tojson`.
pub(super) fn compact_json(value: &Value) -> Result<String, Error> {
    to_json(value, 0).map(|json| json.to_string())
}

/// What minijinja alone makes of an expression over `payload`; `None` for an error.
#[cfg(test)]
pub(super) fn reference(source: &str, payload: &Json) -> Option<Json> {
    let context = Value::from_pairs([("payload", converted(payload))]);
    let (result, _) = metered(u64::MAX, || {
        let value = ENVIRONMENT.compile_expression_owned(source.to_owned())?.eval(context)?;
        to_json(&value, 0)
    });
    result.ok()
}
