//! JSON values with `${{ }}` inside their texts.
//!
//! A text that is exactly one `${{ … }}` yields the value with its type; any other text yields text. `$${{` stands for
//! `${{` itself.

use serde_json::{Map, Value};

use super::{EvalError, Expression, Needs, Scope};
use crate::plan::StepIndex;
use crate::secret::{Placeholders, placeholder, push_segment};

/// A JSON value with expressions inside, compiled.
#[derive(Debug, PartialEq)]
pub struct Template {
    root: Part,
    steps: Vec<StepIndex>,
    needs: Needs,
    sees_run: bool,
    has_placeholders: bool,
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
        let (mut needs, mut sees_run) = (Needs::default(), false);
        root.visit(&mut |expression| {
            needs.add(expression.needs());
            sees_run |= expression.sees_run();
        });
        let steps = needs.steps();
        let has_placeholders = root.has_placeholders();
        Template { root, steps, needs, sees_run, has_placeholders }
    }

    /// # Errors
    /// One of its expressions could not be evaluated, or it is more than the budget pays for.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, EvalError> {
        self.root.render(scope)
    }

    /// Whether secrets are to be put into literal parts of it.
    #[must_use]
    pub fn has_placeholders(&self) -> bool {
        self.has_placeholders
    }

    /// Where literal parts say that secrets are to be put, in the value that it renders to.
    ///
    /// # Errors
    /// As [`Template::render`].
    pub fn placeholders(&self, scope: &Scope<'_>) -> Result<Placeholders, EvalError> {
        let mut found = Placeholders::default();
        if self.has_placeholders {
            self.root.note_placeholders(scope, &mut String::new(), &mut found)?;
        }
        Ok(found)
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

    /// The value, when there is no expression in it.
    #[must_use]
    pub fn constant(&self) -> Option<&Value> {
        match &self.root {
            Part::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// What stands under a key of a mapping, when there is no expression in it.
    #[must_use]
    pub fn constant_under(&self, key: &str) -> Option<&Value> {
        match &self.root {
            Part::Constant(value) => value.get(key),
            Part::Map(entries) => entries.iter().find_map(|(name, part)| match part {
                Part::Constant(value) if name == key => Some(value),
                _ => None,
            }),
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
            Part::Constant(value) => {
                scope.budget.pay_value(value)?;
                Ok(value.clone())
            }
            Part::Value(expression) => expression.evaluate(scope),
            Part::Text(pieces) => render_text(pieces, scope).map(Value::String),
            Part::List(items) => items.iter().map(|item| item.render(scope)).collect(),
            Part::Map(entries) => {
                let rendered = entries.iter().map(|(key, item)| {
                    scope.budget.pay_bytes(key.len() + 3)?;
                    Ok((key.clone(), item.render(scope)?))
                });
                rendered.collect::<Result<Map<_, _>, _>>().map(Value::Object)
            }
        }
    }

    fn has_placeholders(&self) -> bool {
        match self {
            Part::Constant(value) => !Placeholders::of(value).is_empty(),
            Part::Value(_) => false,
            Part::Text(pieces) => pieces.iter().any(Piece::has_placeholder),
            Part::List(items) => items.iter().any(Part::has_placeholders),
            Part::Map(entries) => entries.iter().any(|(_, item)| item.has_placeholders()),
        }
    }

    fn note_placeholders(
        &self,
        scope: &Scope<'_>,
        pointer: &mut String,
        found: &mut Placeholders,
    ) -> Result<(), EvalError> {
        let length = pointer.len();
        let mut inside = |segment: &str, item: &Part| {
            push_segment(pointer, segment);
            let noted = item.note_placeholders(scope, pointer, found);
            pointer.truncate(length);
            noted
        };
        match self {
            Part::Constant(value) => found.note_all(pointer, value),
            Part::Value(_) => {}
            Part::Text(pieces) => note_in_text(pieces, scope, pointer, found)?,
            Part::List(items) => items.iter().enumerate().try_for_each(|(i, item)| inside(&i.to_string(), item))?,
            Part::Map(entries) => entries.iter().try_for_each(|(key, item)| inside(key, item))?,
        }
        Ok(())
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
            Piece::Literal(text) => {
                scope.budget.pay_bytes(text.len())?;
                out.push_str(text);
            }
            Piece::Value(expression) => match &*expression.piece(scope)? {
                Value::String(text) => out.push_str(text),
                other => out.push_str(&other.to_string()),
            },
        }
    }
    Ok(out)
}

impl Piece {
    fn has_placeholder(&self) -> bool {
        matches!(self, Piece::Literal(text) if placeholder(text).is_some())
    }
}

/// Where a literal stands in the text depends on how long the values before it are; nothing else of them counts.
fn note_in_text(pieces: &[Piece], scope: &Scope<'_>, pointer: &str, found: &mut Placeholders) -> Result<(), EvalError> {
    let Some(last) = pieces.iter().rposition(Piece::has_placeholder) else { return Ok(()) };
    let mut offset = 0;
    for piece in &pieces[..=last] {
        match piece {
            Piece::Literal(text) => {
                found.note(pointer, text, offset);
                offset += text.len();
            }
            value @ Piece::Value(_) => offset += render_text(std::slice::from_ref(value), scope)?.len(),
        }
    }
    Ok(())
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
