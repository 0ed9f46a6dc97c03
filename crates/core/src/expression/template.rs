//! JSON values with `${{ }}` inside their texts.
//!
//! A text that is exactly one `${{ … }}` yields the value with its type; any other text yields text. `$${{` stands for
//! `${{` itself.

use serde_json::{Map, Value};

use super::{EvalError, Expression, Scope};
use crate::plan::StepIndex;

/// A JSON value with expressions inside, compiled.
#[derive(Debug, PartialEq)]
pub struct Template {
    root: Part,
    steps: Vec<StepIndex>,
    sees_run: bool,
}

/// One value of a template. Subtrees without expressions are one constant.
#[derive(Debug, PartialEq)]
pub(crate) enum Part {
    Constant(Value),
    Value(Expression),
    Text(Vec<Piece>),
    List(Vec<Part>),
    Map(Vec<(String, Part)>),
}

#[derive(Debug, PartialEq)]
pub(crate) enum Piece {
    Literal(String),
    Value(Expression),
}

impl Template {
    pub(crate) fn new(root: Part) -> Template {
        let (mut steps, mut sees_run) = (Vec::new(), false);
        root.visit(&mut |expression| {
            steps.extend_from_slice(expression.steps());
            sees_run |= expression.sees_run();
        });
        steps.sort_unstable();
        steps.dedup();
        Template { root, steps, sees_run }
    }

    /// # Errors
    /// One of its expressions could not be evaluated.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        self.root.render(scope)
    }

    /// The steps it refers to; sorted, without repeats.
    #[must_use]
    pub fn steps(&self) -> &[StepIndex] {
        &self.steps
    }

    /// Whether it looks at the run itself, which no two runs have in common.
    #[must_use]
    pub fn sees_run(&self) -> bool {
        self.sees_run
    }

    /// The value, when there is no expression in it.
    #[must_use]
    pub fn constant(&self) -> Option<&Value> {
        match &self.root {
            Part::Constant(value) => Some(value),
            _ => None,
        }
    }
}

impl Part {
    pub(crate) fn list(items: Vec<Part>) -> Part {
        if !items.iter().all(|item| matches!(item, Part::Constant(_))) {
            return Part::List(items);
        }
        Part::Constant(items.into_iter().filter_map(Part::into_constant).collect())
    }

    pub(crate) fn map(entries: Vec<(String, Part)>) -> Part {
        if !entries.iter().all(|(_, item)| matches!(item, Part::Constant(_))) {
            return Part::Map(entries);
        }
        let constants = entries.into_iter().filter_map(|(key, item)| Some((key, item.into_constant()?)));
        Part::Constant(Value::Object(constants.collect()))
    }

    fn into_constant(self) -> Option<Value> {
        match self {
            Part::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn render(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        match self {
            Part::Constant(value) => Ok(value.clone()),
            Part::Value(expression) => expression.evaluate(scope),
            Part::Text(pieces) => render_text(pieces, scope).map(Value::String),
            Part::List(items) => items.iter().map(|item| item.render(scope)).collect(),
            Part::Map(entries) => {
                let rendered = entries.iter().map(|(key, item)| Ok((key.clone(), item.render(scope)?)));
                rendered.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
        }
    }

    /// Shows every expression in it.
    fn visit(&self, see: &mut dyn FnMut(&Expression)) {
        match self {
            Part::Constant(_) => {}
            Part::Value(expression) => see(expression),
            Part::Text(pieces) => pieces.iter().for_each(|piece| {
                if let Piece::Value(expression) = piece {
                    see(expression);
                }
            }),
            Part::List(items) => items.iter().for_each(|item| item.visit(see)),
            Part::Map(entries) => entries.iter().for_each(|(_, item)| item.visit(see)),
        }
    }
}

fn render_text(pieces: &[Piece], scope: &Scope<'_>) -> Result<String, EvalError> {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal(text) => out.push_str(text),
            Piece::Value(expression) => match expression.evaluate(scope)? {
                Value::String(text) => out.push_str(&text),
                other => out.push_str(&other.to_string()),
            },
        }
    }
    Ok(out)
}

/// A piece of a text, before its expression is compiled.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Raw<'a> {
    Literal(String),
    Expression(&'a str),
}

/// Whether there is anything to evaluate in a text.
pub(crate) fn has_expression(text: &str) -> bool {
    text.contains("${{") && !matches!(split(text).as_deref(), Ok([] | [Raw::Literal(_)]))
}

/// `${{` without `}}`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unclosed;

/// Splits a text at its expressions. Neighbouring literals are one.
pub(crate) fn split(text: &str) -> Result<Vec<Raw<'_>>, Unclosed> {
    let mut pieces = Vec::new();
    let mut before = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${{") {
        let inside = &rest[at + 3..];
        if rest[..at].ends_with('$') {
            before.push_str(&rest[..at - 1]);
            before.push_str("${{");
            rest = inside;
            continue;
        }
        before.push_str(&rest[..at]);
        let end = super::lex::end_of_expression(inside).ok_or(Unclosed)?;
        flush(&mut before, &mut pieces);
        pieces.push(Raw::Expression(&inside[..end]));
        rest = &inside[end + 2..];
    }
    before.push_str(rest);
    flush(&mut before, &mut pieces);
    Ok(pieces)
}

fn flush(before: &mut String, pieces: &mut Vec<Raw<'_>>) {
    if !before.is_empty() {
        pieces.push(Raw::Literal(std::mem::take(before)));
    }
}
