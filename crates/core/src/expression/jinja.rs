//! Expressions that are more than a path, by minijinja.
//!
//! Each path in the source becomes a variable that holds only what the path leads to, so a large payload is not converted
//! for the sake of one number. Filters, tests and functions are a fixed list, and each call pays for the size of what it
//! is given, so that a short expression cannot do much work.

use std::cell::Cell;
use std::sync::LazyLock;

use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Expression, State, UndefinedBehavior, filters, functions, tests};
use serde_json::Value as Json;

use super::path::{Found, Path};
use super::{EvalError, Scope, multiply, names};
use crate::limits::Limits;

/// Bytes of text and items of lists that one unit of fuel pays for.
const SIZE_PER_FUEL: u64 = 160;
/// Going over one item of a list takes as long as going over so many bytes of text, or more.
const COST_OF_ITEM: usize = 8;
/// Results are refused beyond this depth; no document or payload has it.
const MAX_RESULT_DEPTH: usize = 200;

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| environment(Limits::default().expression_fuel));

thread_local! {
    /// What the evaluation that runs on this thread may still handle, in bytes and items.
    static BUDGET: Cell<u64> = const { Cell::new(0) };
}

/// A compiled expression and the paths that are its variables.
pub(super) struct Jinja {
    /// The source with `_0`, `_1`, … in place of paths.
    source: String,
    variables: Vec<(String, Path)>,
    /// Compiled for the default fuel.
    compiled: Expression<'static, 'static>,
}

impl Jinja {
    pub(super) fn compile(source: &str, found: Vec<names::Found>) -> Result<Jinja, String> {
        let mut rewritten = String::with_capacity(source.len());
        let mut variables = Vec::with_capacity(found.len());
        let mut end = 0;
        for names::Found { path, span } in found {
            let name = format!("_{}", variables.len());
            rewritten.push_str(&source[end..span.start]);
            rewritten.push_str(&name);
            variables.push((name, path));
            end = span.end;
        }
        rewritten.push_str(&source[end..]);
        let rewritten = multiply::as_calls(&rewritten).map_err(|error| describe(&error))?;
        let compiled = ENVIRONMENT.compile_expression_owned(rewritten.clone()).map_err(|error| describe(&error))?;
        Ok(Jinja { source: rewritten, variables, compiled })
    }

    pub(super) fn evaluate(&self, scope: &Scope<'_>) -> Result<Json, EvalError> {
        BUDGET.set(scope.fuel.saturating_mul(SIZE_PER_FUEL));
        let context = Value::from_pairs(self.variables.iter().map(|(name, path)| (name.as_str(), lookup(path, scope))));
        let result = self.run(scope.fuel, context).and_then(|value| to_json(&value, 0));
        result.map_err(|error| self.explain(&error, scope))
    }

    fn run(&self, fuel: u64, context: Value) -> Result<Value, Error> {
        if ENVIRONMENT.fuel() == Some(fuel) {
            return self.compiled.eval(context);
        }
        let mut environment = ENVIRONMENT.clone();
        environment.set_fuel(Some(fuel));
        environment.compile_expression(&self.source)?.eval(context)
    }

    /// minijinja does not say what was undefined; the paths do.
    fn explain(&self, error: &Error, scope: &Scope<'_>) -> EvalError {
        let undefined = |(_, path): &&(String, Path)| matches!(path.walk(scope), Found::Undefined);
        let about_undefined = error.kind() == ErrorKind::UndefinedError || describe(error).contains("undefined");
        match (error.kind(), self.variables.iter().find(undefined)) {
            (_, Some((_, path))) if about_undefined => path.undefined(),
            (ErrorKind::UndefinedError, None) => EvalError { message: "a part of it is undefined".into() },
            (ErrorKind::OutOfFuel, _) => EvalError { message: "it does more work than an expression may".into() },
            _ => EvalError { message: describe(error) },
        }
    }
}

fn describe(error: &Error) -> String {
    match error.detail() {
        Some(detail) => detail.to_owned(),
        None => error.kind().to_string(),
    }
}

/// The value of a variable. A broken path is a value that fails when it is looked at, so `a.b if a is defined else 0` holds.
fn lookup(path: &Path, scope: &Scope<'_>) -> Value {
    match path.walk(scope) {
        Found::Value(value) => from_json(&value),
        Found::Undefined => Value::UNDEFINED,
        Found::Broken(error) => Value::from(Error::new(ErrorKind::InvalidOperation, error.message)),
    }
}

fn from_json(json: &Json) -> Value {
    match json {
        Json::Null => Value::from(()),
        Json::Bool(value) => Value::from(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => Value::from(number),
            (None, Some(number)) => Value::from(number),
            (None, None) => Value::from(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::from(items.iter().map(from_json).collect::<Vec<_>>()),
        Json::Object(map) => Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), from_json(value)))),
    }
}

fn to_json(value: &Value, depth: usize) -> Result<Json, Error> {
    pay(1)?;
    let unfit = |what: &str| Err(Error::new(ErrorKind::BadSerialization, format!("{what} is not a JSON value")));
    if depth > MAX_RESULT_DEPTH {
        return unfit("such a deep result");
    }
    match value.kind() {
        ValueKind::Undefined => Err(Error::from(ErrorKind::UndefinedError)),
        ValueKind::None => Ok(Json::Null),
        ValueKind::Bool => Ok(Json::Bool(value.is_true())),
        ValueKind::Number => number(value).map_or_else(|| unfit("the number"), Ok),
        ValueKind::String => text(value).map(Json::String),
        ValueKind::Seq | ValueKind::Iterable => value.try_iter()?.map(|item| to_json(&item, depth + 1)).collect(),
        ValueKind::Map => value.try_iter()?.map(|key| entry(value, &key, depth)).collect(),
        kind => unfit(&format!("a value of kind {kind}")),
    }
}

fn entry(map: &Value, key: &Value, depth: usize) -> Result<(String, Json), Error> {
    let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
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

fn pay(size: usize) -> Result<(), Error> {
    let left = BUDGET.get().checked_sub(size as u64).ok_or_else(|| Error::from(ErrorKind::OutOfFuel))?;
    BUDGET.set(left);
    Ok(())
}

/// What looking at all of a value costs.
fn size(value: &Value) -> usize {
    match value.kind() {
        ValueKind::String => value.as_str().map_or(0, str::len),
        _ => value.len().unwrap_or(1).saturating_mul(COST_OF_ITEM),
    }
}

/// A filter or function that pays for what it takes and gives.
fn paid(function: Value) -> impl Fn(&mut State<'_, '_>, Rest<Value>, Kwargs) -> Result<Value, Error> {
    move |state, Rest(mut arguments), named| {
        arguments.iter().try_for_each(|argument| pay(size(argument) + 1))?;
        if named.args().next().is_some() {
            arguments.push(named.into());
        }
        let result = function.call(state, &arguments)?;
        pay(size(&result))?;
        Ok(result)
    }
}

static PRODUCT: LazyLock<Expression<'static, 'static>> =
    LazyLock::new(|| ENVIRONMENT.compile_expression_owned("a * b").expect("this is an expression"));

/// `a * b`, paying for a list or a text before it is repeated.
fn product(a: &Value, b: &Value) -> Result<Value, Error> {
    let repeats = |value: &Value| !matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    for (repeated, times) in [(a, b), (b, a)] {
        if repeats(repeated) {
            pay(size(repeated).saturating_mul(times.as_usize().unwrap_or(1)))?;
        }
    }
    PRODUCT.eval(Value::from_pairs([("a", a.clone()), ("b", b.clone())]))
}

/// `join`, paying before it copies.
fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    let separator = separator.unwrap_or_default();
    let mut out = String::new();
    for (i, item) in items.try_iter()?.enumerate() {
        let text = if item.is_undefined() { return Err(ErrorKind::UndefinedError.into()) } else { item.to_string() };
        pay(text.len() + separator.len() + 1)?;
        if i > 0 {
            out.push_str(separator);
        }
        out.push_str(&text);
    }
    Ok(out)
}

/// `replace`, paying for the worst case before it copies.
fn replace(text: &str, from: &str, to: &str) -> Result<String, Error> {
    pay(text.len() + (text.matches(from).count() + 1).saturating_mul(to.len()))?;
    Ok(text.replace(from, to))
}

fn compact_json(value: &Value) -> Result<String, Error> {
    to_json(value, 0).map(|json| json.to_string())
}

macro_rules! paid_filters {
    ($($name:ident)+) => {
        fn add_paid_filters(env: &mut Environment<'static>) {
            $(env.add_filter(stringify!($name), paid(Value::from_function(filters::$name)));)+
        }

        /// Every filter there is.
        pub(super) const FILTERS: &[&str] =
            &[$(stringify!($name),)+ "count", "default", "d", "join", "replace", "tojson"];
    };
}

macro_rules! plain_tests {
    ($($name:literal => $test:ident,)+) => {
        fn add_tests(env: &mut Environment<'static>) {
            $(env.add_test($name, tests::$test);)+
        }

        /// Every test there is.
        pub(super) const TESTS: &[&str] = &[$($name),+];
    };
}

paid_filters! {
    lower upper title capitalize length dictsort items reverse trim split lines round abs int float attr first last min max
    sort list string bool sum select reject selectattr rejectattr map groupby unique chain zip
}

plain_tests! {
    "undefined" => is_undefined, "defined" => is_defined, "none" => is_none, "boolean" => is_boolean, "odd" => is_odd,
    "even" => is_even, "divisibleby" => is_divisibleby, "number" => is_number, "integer" => is_integer,
    "float" => is_float, "string" => is_string, "sequence" => is_sequence, "iterable" => is_iterable,
    "mapping" => is_mapping, "startingwith" => is_startingwith, "endingwith" => is_endingwith, "lower" => is_lower,
    "upper" => is_upper, "eq" => is_eq, "equalto" => is_eq, "==" => is_eq, "ne" => is_ne, "!=" => is_ne,
    "lt" => is_lt, "lessthan" => is_lt, "<" => is_lt, "le" => is_le, "<=" => is_le, "gt" => is_gt,
    "greaterthan" => is_gt, ">" => is_gt, "ge" => is_ge, ">=" => is_ge, "in" => is_in, "true" => is_true,
    "false" => is_false,
}

fn environment(fuel: u64) -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_fuel(Some(fuel));
    env.set_recursion_limit(50);
    add_paid_filters(&mut env);
    add_tests(&mut env);
    env.add_filter("count", paid(Value::from_function(filters::length)));
    env.add_filter("default", filters::default);
    env.add_filter("d", filters::default);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("tojson", compact_json);
    env.add_function(multiply::FUNCTION, product);
    env.add_function("range", paid(Value::from_function(functions::range)));
    env.add_function("dict", functions::dict);
    env
}

/// What minijinja alone makes of an expression over `payload`; `None` for an error.
#[cfg(test)]
pub(super) fn reference(source: &str, payload: &Json) -> Option<Json> {
    BUDGET.set(u64::MAX);
    let context = Value::from_pairs([("payload", from_json(payload))]);
    let value = ENVIRONMENT.compile_expression_owned(source.to_owned()).ok()?.eval(context).ok()?;
    to_json(&value, 0).ok()
}
