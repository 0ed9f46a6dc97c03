//! Compiles the expressions of a document, each with its place.

use serde_json::Value;

use super::node::{Data, Node};
use super::problem::{Problems, Trail};
use crate::expression::{Bindings, CompileError, Expression, Part, Piece, Raw, Template, has_expression, split};
use crate::patience;

/// Compiles a value with expressions inside. What cannot be compiled is a problem and becomes null.
pub(super) fn template(node: &Node, trail: &Trail<'_>, bindings: &Bindings<'_>, problems: &mut Problems) -> Template {
    Template::new(part(node, trail, bindings, problems))
}

fn part(node: &Node, trail: &Trail<'_>, bindings: &Bindings<'_>, problems: &mut Problems) -> Part {
    patience::look();
    match &node.data {
        Data::Text(text) if text.contains("${{") => text_part(node, text, trail, bindings, problems),
        Data::List(items) => {
            let parts = items.iter().enumerate().map(|(i, item)| part(item, &trail.index(i), bindings, problems));
            Part::list(parts.collect())
        }
        Data::Map(entries) => {
            let one = |key: &String, node| (key.clone(), part(node, &trail.key(key), bindings, problems));
            let mut one = one;
            Part::map(entries.iter().map(|entry| one(&entry.key, &entry.node)).collect())
        }
        _ => Part::Constant(node.to_value()),
    }
}

fn text_part(node: &Node, text: &str, trail: &Trail<'_>, bindings: &Bindings<'_>, problems: &mut Problems) -> Part {
    let Ok(pieces) = split(text) else {
        problems.add("bad_expression", node.at, trail, "`${{` is not closed by `}}`");
        return Part::Constant(Value::Null);
    };
    let mut compile = |source| match Expression::compile(source, bindings) {
        Ok(expression) => Some(expression),
        Err(error) => {
            refuse(error, node, trail, problems);
            None
        }
    };
    let mut compiled = Vec::with_capacity(pieces.len());
    for piece in pieces {
        match piece {
            Raw::Literal(text) => compiled.push(Piece::Literal(text)),
            Raw::Expression(source) => compiled.extend(compile(source).map(Piece::Value)),
        }
    }
    whole(compiled)
}

/// One expression alone keeps its type, one literal alone is a constant.
fn whole(mut pieces: Vec<Piece>) -> Part {
    if pieces.len() > 1 {
        return Part::Text(pieces);
    }
    match pieces.pop() {
        Some(Piece::Value(expression)) => Part::Value(expression),
        Some(Piece::Literal(text)) => Part::Constant(Value::String(text)),
        None => Part::Constant(Value::Null),
    }
}

fn refuse(error: CompileError, node: &Node, trail: &Trail<'_>, problems: &mut Problems) {
    problems.add_with(error.code, node.at, trail, error.message, error.suggestion);
}

/// Compiles a value that is one expression, or a constant that `fits`.
pub(super) fn expression(
    node: &Node,
    trail: &Trail<'_>,
    bindings: &Bindings<'_>,
    fits: fn(&Data) -> bool,
    problems: &mut Problems,
) -> Option<Expression> {
    if fits(&node.data) && !holds_expression(node) {
        return Some(Expression::constant(node.to_value()));
    }
    let Some(text) = node.as_text() else {
        problems.add(
            "wrong_type",
            node.at,
            trail,
            format!("an expression `${{{{ … }}}}` is needed here, not {}", node.kind()),
        );
        return None;
    };
    let pieces = split(text).unwrap_or_default();
    let [Raw::Expression(source)] = pieces[..] else {
        let suggestion = (!text.contains("${{")).then(|| format!("write `${{{{ {text} }}}}`"));
        let message = "exactly one `${{ … }}` is needed here, with nothing around it";
        problems.add_with("bad_expression", node.at, trail, message, suggestion);
        return None;
    };
    Expression::compile(source, bindings).map_err(|error| refuse(error, node, trail, problems)).ok()
}

/// Whether there is an expression anywhere in a value.
pub(super) fn holds_expression(node: &Node) -> bool {
    match &node.data {
        Data::Text(text) => has_expression(text),
        Data::List(items) => items.iter().any(holds_expression),
        Data::Map(entries) => entries.iter().any(|entry| holds_expression(&entry.node)),
        _ => false,
    }
}
