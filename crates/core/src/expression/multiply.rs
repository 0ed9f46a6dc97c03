//! `a * b` becomes a call, so that repeating a list or a text is paid for: minijinja would do it for nothing, even while
//! it compiles.

use minijinja::machinery::ast::{BinOpKind, CallArg, Expr};
use minijinja::machinery::{Span, parse_expr};
use minijinja::{Error, ErrorKind};

/// The function that stands in for `*`. No expression can name it.
pub(super) const FUNCTION: &str = "_multiply";

/// The source with every `a * b` as `_multiply(a , b)`.
pub(super) fn as_calls(source: &str) -> Result<String, Error> {
    if !source.contains('*') {
        return Ok(source.to_owned());
    }
    let mut found = Found::default();
    find(&parse_expr(source)?, &mut found);
    if found.named_not {
        // Behind a sign it is read as a name, and between commas it would not be.
        return Err(Error::new(
            ErrorKind::SyntaxError,
            "`not` stands behind a sign; put it in brackets with what it is about",
        ));
    }
    let mut edits: Vec<(usize, usize, String)> = Vec::with_capacity(found.products.len() * 3);
    for Product { whole, left, right } in found.products {
        let between = left.end_offset as usize..right.start_offset as usize;
        let sign = source.get(between.clone()).and_then(|text| text.find('*'));
        // Better refused than done for nothing.
        let unplaced = || Error::new(ErrorKind::SyntaxError, "a `*` of it cannot be placed; put it in brackets");
        let sign = between.start + sign.ok_or_else(unplaced)?;
        edits.push((whole.start_offset as usize, 0, format!("{FUNCTION}(")));
        edits.push((sign, 1, ",".to_owned()));
        edits.push((whole.end_offset as usize, 0, ")".to_owned()));
    }
    edits.sort_unstable_by_key(|(at, ..)| *at);
    let mut rewritten = String::with_capacity(source.len() + edits.len() * FUNCTION.len());
    let mut done = 0;
    for (at, length, text) in edits {
        rewritten.push_str(&source[done..at]);
        rewritten.push_str(&text);
        done = at + length;
    }
    rewritten.push_str(&source[done..]);
    Ok(rewritten)
}

#[derive(Default)]
struct Found {
    products: Vec<Product>,
    /// Something is called `not`.
    named_not: bool,
}

struct Product {
    whole: Span,
    left: Span,
    right: Span,
}

fn find(expr: &Expr<'_>, found: &mut Found) {
    let mut all = |parts: &[&Expr<'_>]| parts.iter().for_each(|part| find(part, found));
    match expr {
        Expr::Const(_) => {}
        Expr::Var(name) => found.named_not |= name.id == "not",
        Expr::Slice(slice) => {
            all(&[&slice.expr]);
            [&slice.start, &slice.stop, &slice.step].into_iter().flatten().for_each(|part| find(part, found));
        }
        Expr::UnaryOp(unary) => all(&[&unary.expr]),
        Expr::BinOp(binary) => {
            all(&[&binary.left, &binary.right]);
            if matches!(binary.op, BinOpKind::Mul) {
                found.products.push(Product {
                    whole: expr.span(),
                    left: binary.left.span(),
                    right: binary.right.span(),
                });
            }
        }
        Expr::Compare(compare) => {
            all(&[&compare.expr]);
            compare.ops.iter().for_each(|op| find(&op.expr, found));
        }
        Expr::IfExpr(choice) => {
            all(&[&choice.test_expr, &choice.true_expr]);
            choice.false_expr.iter().for_each(|part| find(part, found));
        }
        Expr::Filter(filter) => {
            filter.expr.iter().for_each(|part| find(part, found));
            find_in_arguments(&filter.args, found);
        }
        Expr::Test(test) => {
            all(&[&test.expr]);
            find_in_arguments(&test.args, found);
        }
        Expr::GetAttr(get) => all(&[&get.expr]),
        Expr::GetItem(get) => all(&[&get.expr, &get.subscript_expr]),
        Expr::Call(call) => {
            all(&[&call.expr]);
            find_in_arguments(&call.args, found);
        }
        Expr::List(list) => list.items.iter().for_each(|part| find(part, found)),
        Expr::Tuple(tuple) => tuple.items.iter().for_each(|part| find(part, found)),
        Expr::Map(map) => map.keys.iter().chain(&map.values).for_each(|part| find(part, found)),
    }
}

fn find_in_arguments(arguments: &[CallArg<'_>], found: &mut Found) {
    for argument in arguments {
        match argument {
            CallArg::Pos(part) | CallArg::Kwarg(_, part) | CallArg::PosSplat(part) | CallArg::KwargSplat(part) => {
                find(part, found);
            }
        }
    }
}
