//! All that expressions can do: operators, filters, tests and functions, each of which pays for what it looks at before it
//! does so. What minijinja would do lazily, and so again and again, is done once.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use minijinja::value::{Kwargs, Rest, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Expression, State, UndefinedBehavior, filters, functions, tests};

use super::meter::{COST_OF_ITEM, paid_text, pay, pay_comparison, pay_deep, set_compared, shallow, take_compared};
use super::view::Items;

pub(super) static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(environment);

/// What minijinja does for `a OP b`.
struct Native(Expression<'static, 'static>);

impl Native {
    fn new(source: &'static str) -> Native {
        Native(ENVIRONMENT.compile_expression(source).expect("this is an expression"))
    }

    fn of(&self, a: &Value, b: &Value) -> Result<Value, Error> {
        self.0.eval(Value::from_pairs([("a", a.clone()), ("b", b.clone())]))
    }
}

macro_rules! native {
    ($($name:ident = $source:literal;)+) => {
        $(static $name: LazyLock<Native> = LazyLock::new(|| Native::new($source));)+
    };
}

native! {
    PRODUCT = "a * b";
    EQ = "a == b";
    NE = "a != b";
    LT = "a < b";
    LE = "a <= b";
    GT = "a > b";
    GE = "a >= b";
    IN = "a in b";
    SLICE = "a[b[0]:b[1]:b[2]]";
}

/// `a * b`, paying for a list or a text before it is repeated.
fn product(a: &Value, b: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (small_integer(a), small_integer(b)) {
        return Ok(Value::from(a * b));
    }
    let repeats = |value: &Value| !matches!(value.kind(), ValueKind::Number | ValueKind::Bool);
    for (repeated, times) in [(a, b), (b, a)] {
        if repeats(repeated) {
            pay(shallow(repeated).saturating_mul(times.as_usize().unwrap_or(1)))?;
        }
    }
    PRODUCT.of(a, b)
}

fn small_integer(value: &Value) -> Option<i64> {
    value.as_i64().filter(|number| value.is_integer() && number.unsigned_abs() < 1 << 31)
}

/// A part of a sum, of which so many copies are made.
fn part(value: Value, copies: usize) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => pay(shallow(&value).saturating_mul(copies))?,
        // Lists are put together lazily, and copied only when there are many.
        ValueKind::Seq | ValueKind::Iterable => pay(shallow(&value).saturating_mul(1 + copies / 16))?,
        _ => {}
    }
    Ok(value)
}

/// A part of a text, of which so many copies are made.
fn text(value: Value, copies: usize) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => {
            pay(shallow(&value).saturating_mul(copies))?;
            Ok(value)
        }
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => {
            let text = paid_text(&value)?;
            pay(text.len().saturating_mul(copies))?;
            Ok(Value::from(text))
        }
        _ => Ok(value),
    }
}

/// A value that is gone over, if somebody looks at a part of it.
fn sized(value: Value) -> Result<Value, Error> {
    if matches!(value.kind(), ValueKind::String | ValueKind::Iterable) {
        pay(shallow(&value))?;
    }
    Ok(value)
}

/// A value whose items are handed on.
fn items(value: Value) -> Result<Value, Error> {
    pay(shallow(&value).saturating_mul(COST_OF_ITEM))?;
    Ok(value)
}

fn looked_at(value: Value) -> Result<Value, Error> {
    pay_deep(&value)?;
    Ok(value)
}

fn comparison(
    native: &'static LazyLock<Native>,
    holds: fn(&Value, &Value) -> bool,
) -> impl Fn(&Value, &Value) -> Result<Value, Error> {
    move |a, b| {
        let result = if a.is_undefined() || b.is_undefined() {
            native.of(a, b)?
        } else {
            pay_comparison(a, b)?;
            Value::from(holds(a, b))
        };
        set_compared(b);
        Ok(result)
    }
}

/// `value in container`.
fn contains(value: &Value, container: &Value) -> Result<Value, Error> {
    let result = match container.kind() {
        _ if value.is_undefined() => IN.of(value, container),
        ValueKind::Seq | ValueKind::Iterable => among(value, container).map(Value::from),
        ValueKind::String => {
            let needle = text(value.clone(), 1)?;
            pay(shallow(container))?;
            IN.of(&needle, container)
        }
        _ => {
            pay_deep(value)?;
            IN.of(value, container)
        }
    };
    set_compared(container);
    result
}

fn among(value: &Value, items: &Value) -> Result<bool, Error> {
    for item in items.try_iter()?.checked() {
        let item = item?;
        pay_comparison(&item, value)?;
        if item == *value {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `value[start:stop:step]`.
fn slice(value: Value, start: Value, stop: Value, step: Value) -> Result<Value, Error> {
    if !matches!(value.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable) {
        return SLICE.of(&value, &Value::from(vec![start, stop, step]));
    }
    let bound = |value: &Value| if value.is_none() { Ok(None) } else { i64::try_from(value.clone()).map(Some) };
    let (first, last, by) = (bound(&start)?, bound(&stop)?, bound(&step)?);
    pay(shallow(&value).saturating_mul(2))?;
    let Some(by) = by.filter(|by| *by < 0) else {
        let sliced = SLICE.of(&value, &Value::from(vec![start, stop, step]))?;
        return made(sliced);
    };
    let items: Vec<Value> = match value.as_str() {
        Some(text) => {
            let chars: Vec<char> = text.chars().collect();
            let taken = backwards(first, last, by, chars.len()).map(|i| chars[i]);
            return Ok(Value::from(taken.collect::<String>()));
        }
        None => value.try_iter()?.checked().collect::<Result<_, _>>()?,
    };
    let taken = backwards(first, last, by, items.len()).map(|i| items[i].clone());
    let taken: Vec<Value> = taken.collect();
    Ok(if value.is_tuple() { Value::from(Tuple::from(taken)) } else { Value::from_object(Items(taken)) })
}

/// The places that a slice with a negative step takes, as minijinja has them: a `stop` of 0 is within.
fn backwards(start: Option<i64>, stop: Option<i64>, step: i64, length: usize) -> impl Iterator<Item = usize> {
    let step = usize::try_from(step.unsigned_abs()).unwrap_or(usize::MAX);
    let end = i64::try_from(length).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { end.saturating_add(at).max(0) } else { at };
    let start = start.map_or(end - 1, |start| place(start).min(end - 1));
    let stop = stop.map_or(0, place);
    let taken = match usize::try_from(start.saturating_sub(stop)) {
        Ok(between) if length > 0 && stop == 0 => between / step + 1,
        Ok(between) if length > 0 => between.div_ceil(step),
        _ => 0,
    };
    let start = usize::try_from(start).unwrap_or(0);
    (0..taken).map(move |i| start - i * step)
}

/// What a filter made, worked out to its end.
fn made(value: Value) -> Result<Value, Error> {
    if value.kind() != ValueKind::Iterable || value.downcast_object_ref::<Items>().is_some() {
        return Ok(value);
    }
    Ok(Value::from_object(Items(collected(&value)?)))
}

fn collected(value: &Value) -> Result<Vec<Value>, Error> {
    let mut items = Vec::new();
    for item in value.try_iter()?.checked() {
        pay(COST_OF_ITEM)?;
        items.push(item?);
    }
    Ok(items)
}

type Price = fn(&Value) -> Result<(), Error>;

/// For what is done with a text as a whole. Anything else is made a text first.
fn as_text(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => pay(shallow(value)),
        _ => pay_deep(value),
    }
}

/// For what goes over items: a text has one for each character.
fn by_item(value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::String => pay(shallow(value).saturating_mul(COST_OF_ITEM)),
        _ => pay(shallow(value)),
    }
}

/// For what compares items with each other.
fn sorting(value: &Value) -> Result<(), Error> {
    by_item(value)?;
    let length = value.len().unwrap_or(1).max(1);
    (0..=length.ilog2()).try_for_each(|_| pay_deep(value))
}

/// A filter or function that pays for what it takes and gives.
fn paid(price: Price, function: Value) -> impl Fn(&mut State<'_, '_>, Rest<Value>, Kwargs) -> Result<Value, Error> {
    move |state, Rest(mut arguments), named| {
        pay(1)?;
        arguments.iter().try_for_each(price)?;
        if named.args().next().is_some() {
            arguments.push(named.into());
        }
        let result = made(function.call(state, &arguments)?)?;
        pay(shallow(&result))?;
        Ok(result)
    }
}

/// A test that pays for what it takes.
fn paid_test(price: Price, test: Value) -> impl Fn(&mut State<'_, '_>, Rest<Value>) -> Result<bool, Error> {
    move |state, Rest(arguments)| {
        pay(1)?;
        arguments.iter().try_for_each(price)?;
        Ok(test.call(state, &arguments)?.is_true())
    }
}

/// For what looks at no item.
fn at_once(_: &Value) -> Result<(), Error> {
    Ok(())
}

/// `length`, which for anything but a text is known.
fn length(value: &Value) -> Result<usize, Error> {
    pay(if value.kind() == ValueKind::String { shallow(value) } else { 1 })?;
    filters::length(value)
}

fn string(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => paid_text(value).map(Value::from),
        _ => filters::string(state, value),
    }
}

/// `join`, paying before it copies.
fn join(items: &Value, separator: Option<&str>) -> Result<String, Error> {
    let separator = separator.unwrap_or_default();
    let mut out = String::new();
    for (i, item) in items.try_iter()?.checked().enumerate() {
        let item = item?;
        if item.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        pay(separator.len() + 1)?;
        if i > 0 {
            out.push_str(separator);
        }
        match item.as_str() {
            Some(text) => {
                pay(text.len())?;
                out.push_str(text);
            }
            None => out.push_str(&paid_text(&item)?),
        }
    }
    Ok(out)
}

/// `replace`, paying for the worst case before it copies.
fn replace(text: &str, from: &str, to: &str) -> Result<String, Error> {
    pay(text.len() + (text.matches(from).count() + 1).saturating_mul(to.len()))?;
    Ok(text.replace(from, to))
}

/// `sum`, which adds texts and lists up if it starts with one.
fn sum(state: &mut State<'_, '_>, Rest(arguments): Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let from = named.peek::<Value>("start").ok().or_else(|| arguments.get(2).cloned());
    let items = arguments.first().cloned().unwrap_or_default();
    if from.is_none_or(|from| from.is_number()) {
        by_item(&items)?;
    } else {
        // Each that comes is added to a copy of those before.
        let length = items.len().unwrap_or(1);
        (0..=length).try_for_each(|_| pay_deep(&items))?;
    }
    let mut arguments = arguments;
    if named.args().next().is_some() {
        arguments.push(named.into());
    }
    made(SUM.call(state, &arguments)?)
}

static SUM: LazyLock<Value> = LazyLock::new(|| Value::from_function(filters::sum));

/// `chain`, put together at once: a list of lists of lists would be gone over again and again.
fn chain(state: &State<'_, '_>, value: Value, others: Rest<Value>) -> Result<Value, Error> {
    std::iter::once(&value).chain(others.iter()).try_for_each(by_item)?;
    let chained = filters::chain(state, value, others)?;
    match chained.kind() {
        ValueKind::Seq => collected(&chained).map(Value::from),
        ValueKind::Map => {
            let mut map = BTreeMap::new();
            for key in collected(&chained)? {
                pay_deep(&key)?;
                let item = chained.get_item(&key)?;
                map.insert(key, item);
            }
            Ok(Value::from_pairs(map))
        }
        _ => made(chained),
    }
}

/// Nothing divides by zero here.
fn is_divisible_by(value: &Value, by: &Value) -> bool {
    if by.as_i64() == Some(0) {
        return false;
    }
    match (value.as_i64(), by.as_i64()) {
        (Some(value), Some(by)) if by != -1 => value % by == 0,
        (Some(_), Some(_)) => true,
        _ => match (f64::try_from(value.clone()), f64::try_from(by.clone())) {
            (Ok(value), Ok(by)) => value % by == 0.0,
            _ => false,
        },
    }
}

macro_rules! filters {
    ($($price:ident: $($name:ident)+;)+) => {
        fn add_filters(env: &mut Environment<'static>) {
            $($(env.add_filter(stringify!($name), paid($price, Value::from_function(filters::$name)));)+)+
        }

        /// Every filter there is.
        pub(super) const FILTERS: &[&str] = &[
            $($(stringify!($name),)+)+
            "chain", "count", "d", "default", "join", "length", "replace", "string", "sum", "tojson",
        ];
    };
}

macro_rules! tests {
    ($($price:ident: $($name:literal => $test:expr,)+;)+) => {
        fn add_tests(env: &mut Environment<'static>) {
            $($(env.add_test($name, paid_test($price, Value::from_function($test)));)+)+
        }

        /// Every test there is.
        pub(super) const TESTS: &[&str] = &[
            $($($name,)+)+
            "eq", "equalto", "==", "ne", "!=", "lt", "lessthan", "<", "le", "<=", "gt", "greaterthan", ">", "ge", ">=", "in",
        ];
    };
}

filters! {
    as_text: lower upper title capitalize trim round abs int float;
    by_item: items reverse split list lines attr first last select reject selectattr rejectattr map zip bool;
    sorting: dictsort min max sort groupby unique;
}

tests! {
    at_once: "undefined" => tests::is_undefined, "defined" => tests::is_defined, "none" => tests::is_none,
        "boolean" => tests::is_boolean, "odd" => tests::is_odd, "even" => tests::is_even,
        "divisibleby" => is_divisible_by, "number" => tests::is_number, "integer" => tests::is_integer,
        "float" => tests::is_float, "string" => tests::is_string, "sequence" => tests::is_sequence,
        "mapping" => tests::is_mapping, "true" => tests::is_true, "false" => tests::is_false,;
    by_item: "iterable" => tests::is_iterable, "lower" => tests::is_lower, "upper" => tests::is_upper,;
    as_text: "startingwith" => tests::is_startingwith, "endingwith" => tests::is_endingwith,;
}

fn environment() -> Environment<'static> {
    let mut env = Environment::empty();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_recursion_limit(50);
    add_filters(&mut env);
    env.add_filter("length", length);
    env.add_filter("count", length);
    env.add_filter("string", string);
    env.add_filter("sum", sum);
    env.add_filter("chain", chain);
    env.add_filter("default", filters::default);
    env.add_filter("d", filters::default);
    env.add_filter("join", join);
    env.add_filter("replace", replace);
    env.add_filter("tojson", super::jinja::compact_json);
    add_tests(&mut env);
    add_comparisons(&mut env);
    env.add_function("_multiply", product);
    env.add_function("_part", part);
    env.add_function("_text", text);
    env.add_function("_sized", sized);
    env.add_function("_items", items);
    env.add_function("_looked_at", looked_at);
    env.add_function("_slice", slice);
    env.add_function("_compared", take_compared);
    env.add_function("range", paid(by_item, Value::from_function(functions::range)));
    env.add_function("dict", paid(by_item, Value::from_function(functions::dict)));
    env
}

fn add_comparisons(env: &mut Environment<'static>) {
    macro_rules! comparisons {
        ($($function:literal $($test:literal)+ => $native:ident, $holds:expr;)+) => {
            $(
                env.add_function($function, comparison(&$native, $holds));
                $(env.add_test($test, comparison(&$native, $holds));)+
            )+
        };
    }
    comparisons! {
        "_eq" "eq" "equalto" "==" => EQ, |a, b| a == b;
        "_ne" "ne" "!=" => NE, |a, b| a != b;
        "_lt" "lt" "lessthan" "<" => LT, |a, b| a < b;
        "_le" "le" "<=" => LE, |a, b| a <= b;
        "_gt" "gt" "greaterthan" ">" => GT, |a, b| a > b;
        "_ge" "ge" ">=" => GE, |a, b| a >= b;
    }
    env.add_function("_in", contains);
    env.add_test("in", |value: &Value, container: &Value| match contains(value, container) {
        Err(error) if error.kind() != ErrorKind::UndefinedError && error.kind() != ErrorKind::OutOfFuel => {
            Ok(Value::from(false))
        }
        result => result,
    });
}
