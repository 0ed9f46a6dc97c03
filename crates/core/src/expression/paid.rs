//! Expressions as minijinja compiles them, rewritten so that whatever copies, compares or goes over a value pays for it:
//! minijinja does all that for nothing, even while it compiles.
//!
//! ```text
//!   a * b       _multiply(a, b)               a == b      _eq(a, b)
//!   a ~ b ~ c   _text(a, 2) ~ _text(b, 2) ~ …  a < b < c   _lt(a, b) and _lt(_compared(), c)
//!   a + b + c   _part(a, 2) + _part(b, 2) + …  a[x:y]      _slice(a, x, y, none)
//! ```
//!
//! No expression can name one of these functions. Nothing is left that minijinja works out while it compiles, beyond what
//! is written there.

use std::sync::LazyLock;

use minijinja::machinery::ast::{
    BinOp, BinOpKind, Call, CallArg, Compare, CompareOpKind, Const, Expr, Filter, GetItem, IfExpr, List, Map, Slice,
    Spanned, Test, Tuple, UnaryOp, UnaryOpKind, Var,
};
use minijinja::machinery::parse_expr;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

use super::operators::{FILTERS, TESTS};

type Paid = Expr<'static>;

/// Functions that expressions may call by name.
pub(super) const FUNCTIONS: [&str; 2] = ["range", "dict"];
/// Arguments that filters take by name and many expressions use.
const ARGUMENTS: [&str; 5] = ["attribute", "default", "reverse", "case_sensitive", "start"];
/// Stands for a name that nothing has: it is undefined, and no function, filter or test.
const NOTHING: &str = "_";

/// `_0`, `_1`, …: as many as there may be names in an expression.
static VARIABLES: LazyLock<Vec<&'static str>> =
    LazyLock::new(|| (0..super::MAX_TOKENS).map(|n| &*Box::leak(format!("_{n}").into_boxed_str())).collect());

/// The name of a variable.
pub(super) fn variable(number: usize) -> &'static str {
    VARIABLES.get(number).copied().unwrap_or(NOTHING)
}

/// The expression, and how many parts it has.
pub(super) fn parse(source: &str) -> Result<(Paid, usize), Error> {
    let mut rewriting = Rewriting { parts: 0, named_not: false };
    let expr = rewriting.expr(&parse_expr(source)?);
    if rewriting.named_not && source.contains('*') {
        // Behind a sign it is read as a name, which would bind in another way than it looks.
        let message = "`not` stands behind a sign; put it in brackets with what it is about";
        return Err(Error::new(ErrorKind::SyntaxError, message));
    }
    Ok((expr, rewriting.parts))
}

struct Rewriting {
    parts: usize,
    /// Something is called `not`.
    named_not: bool,
}

impl Rewriting {
    fn expr(&mut self, expr: &Expr<'_>) -> Paid {
        self.parts += 1;
        match expr {
            Expr::Const(constant) => Expr::Const(spanned(Const { value: constant.value.clone() })),
            Expr::Var(var) => {
                self.named_not |= var.id == "not";
                name(known_variable(var.id))
            }
            Expr::Slice(slice) => self.slice(slice),
            Expr::UnaryOp(unary) => self.unary(unary),
            Expr::BinOp(binary) => self.binary(binary),
            Expr::Compare(compare) => self.compare(compare),
            Expr::IfExpr(choice) => Expr::IfExpr(spanned(IfExpr {
                test_expr: self.expr(&choice.test_expr),
                true_expr: self.expr(&choice.true_expr),
                false_expr: choice.false_expr.as_ref().map(|part| self.expr(part)),
            })),
            Expr::Filter(filter) => Expr::Filter(spanned(Filter {
                name: known(FILTERS, filter.name),
                expr: filter.expr.as_ref().map(|part| self.expr(part)),
                args: self.arguments(&filter.args),
            })),
            Expr::Test(test) => Expr::Test(spanned(Test {
                name: known(TESTS, test.name),
                expr: self.expr(&test.expr),
                args: self.arguments(&test.args),
            })),
            Expr::GetAttr(get) => Expr::GetItem(spanned(GetItem {
                expr: self.expr(&get.expr),
                subscript_expr: constant(Value::from(get.name)),
            })),
            Expr::GetItem(get) => Expr::GetItem(spanned(GetItem {
                expr: call("_sized", vec![self.expr(&get.expr)]),
                subscript_expr: self.key(&get.subscript_expr),
            })),
            Expr::Call(called) => {
                let function = match &called.expr {
                    Expr::Var(var) => {
                        self.named_not |= var.id == "not";
                        name(known(&FUNCTIONS, var.id))
                    }
                    other => self.expr(other),
                };
                Expr::Call(spanned(Call { expr: function, args: self.arguments(&called.args) }))
            }
            Expr::List(list) => Expr::List(spanned(List { items: self.all(&list.items) })),
            Expr::Tuple(tuple) => Expr::Tuple(spanned(Tuple { items: self.all(&tuple.items) })),
            Expr::Map(map) => Expr::Map(spanned(Map {
                keys: map.keys.iter().map(|key| self.key(key)).collect(),
                values: self.all(&map.values),
            })),
        }
    }

    fn all(&mut self, parts: &[Expr<'_>]) -> Vec<Paid> {
        parts.iter().map(|part| self.expr(part)).collect()
    }

    /// Keys are compared with each other.
    fn key(&mut self, key: &Expr<'_>) -> Paid {
        match key {
            Expr::Const(_) => self.expr(key),
            _ => call("_looked_at", vec![self.expr(key)]),
        }
    }

    fn slice(&mut self, slice: &Slice<'_>) -> Paid {
        let mut bound = |part: &Option<Expr<'_>>| match part {
            Some(part) => self.expr(part),
            None => constant(Value::from(())),
        };
        let (start, stop, step) = (bound(&slice.start), bound(&slice.stop), bound(&slice.step));
        call("_slice", vec![self.expr(&slice.expr), start, stop, step])
    }

    fn unary(&mut self, unary: &UnaryOp<'_>) -> Paid {
        let op = if matches!(unary.op, UnaryOpKind::Not) { UnaryOpKind::Not } else { UnaryOpKind::Neg };
        Expr::UnaryOp(spanned(UnaryOp { op, expr: self.expr(&unary.expr) }))
    }

    fn binary(&mut self, binary: &BinOp<'_>) -> Paid {
        use BinOpKind as Kind;
        let compared = match binary.op {
            Kind::Add => return self.chain(binary, "_part", |op| matches!(op, Kind::Add), || Kind::Add),
            Kind::Concat => return self.chain(binary, "_text", |op| matches!(op, Kind::Concat), || Kind::Concat),
            Kind::Sub => return self.plain(binary, Kind::Sub),
            Kind::Div => return self.plain(binary, Kind::Div),
            Kind::FloorDiv => return self.plain(binary, Kind::FloorDiv),
            Kind::Rem => return self.plain(binary, Kind::Rem),
            Kind::Pow => return self.plain(binary, Kind::Pow),
            Kind::ScAnd => return self.plain(binary, Kind::ScAnd),
            Kind::ScOr => return self.plain(binary, Kind::ScOr),
            Kind::Mul => "_multiply",
            Kind::Eq => "_eq",
            Kind::Ne => "_ne",
            Kind::Lt => "_lt",
            Kind::Lte => "_le",
            Kind::Gt => "_gt",
            Kind::Gte => "_ge",
            Kind::In => "_in",
        };
        let left = self.expr(&binary.left);
        let right = self.expr(&binary.right);
        call(compared, vec![left, right])
    }

    /// What costs nothing worth counting, whatever it is given.
    fn plain(&mut self, binary: &BinOp<'_>, op: BinOpKind) -> Paid {
        let left = self.expr(&binary.left);
        Expr::BinOp(spanned(BinOp { op, left, right: self.expr(&binary.right) }))
    }

    /// `a + b + c`: each part pays for all the copies that are made of it on the way to the end.
    fn chain(
        &mut self,
        last: &BinOp<'_>,
        paying: &'static str,
        same: fn(&BinOpKind) -> bool,
        op: fn() -> BinOpKind,
    ) -> Paid {
        let mut parts = vec![&last.right];
        let mut first = &last.left;
        while let Expr::BinOp(binary) = first {
            if !same(&binary.op) {
                break;
            }
            self.parts += 1;
            parts.push(&binary.right);
            first = &binary.left;
        }
        let copies = parts.len();
        let mut paid = |part: &Expr<'_>, copies: usize| match part {
            Expr::Const(constant) if constant.value.is_number() => self.expr(part),
            _ => call(paying, vec![self.expr(part), constant_number(copies)]),
        };
        let mut made = paid(first, copies);
        for (i, part) in parts.into_iter().rev().enumerate() {
            let right = paid(part, copies - i);
            made = Expr::BinOp(spanned(BinOp { op: op(), left: made, right }));
        }
        made
    }

    fn compare(&mut self, compare: &Compare<'_>) -> Paid {
        let mut left = self.expr(&compare.expr);
        let mut made: Option<Paid> = None;
        for op in &compare.ops {
            let right = self.expr(&op.expr);
            let (function, negated) = match op.op {
                CompareOpKind::Eq => ("_eq", false),
                CompareOpKind::Ne => ("_ne", false),
                CompareOpKind::Lt => ("_lt", false),
                CompareOpKind::Lte => ("_le", false),
                CompareOpKind::Gt => ("_gt", false),
                CompareOpKind::Gte => ("_ge", false),
                CompareOpKind::In => ("_in", false),
                CompareOpKind::NotIn => ("_in", true),
            };
            let mut holds = call(function, vec![left, right]);
            if negated {
                holds = Expr::UnaryOp(spanned(UnaryOp { op: UnaryOpKind::Not, expr: holds }));
            }
            made = Some(match made {
                None => holds,
                Some(before) => Expr::BinOp(spanned(BinOp { op: BinOpKind::ScAnd, left: before, right: holds })),
            });
            left = call("_compared", Vec::new());
        }
        made.unwrap_or(left)
    }

    fn arguments(&mut self, arguments: &[CallArg<'_>]) -> Vec<CallArg<'static>> {
        let one = |argument: &CallArg<'_>| match argument {
            CallArg::Pos(part) => CallArg::Pos(self.expr(part)),
            CallArg::PosSplat(part) => CallArg::PosSplat(call("_items", vec![self.expr(part)])),
            CallArg::KwargSplat(part) => CallArg::KwargSplat(call("_items", vec![self.expr(part)])),
            CallArg::Kwarg(name, part) => match ARGUMENTS.into_iter().find(|known| known == name) {
                Some(name) => CallArg::Kwarg(name, self.expr(part)),
                None => CallArg::KwargSplat(Expr::Map(spanned(Map {
                    keys: vec![constant(Value::from(*name))],
                    values: vec![self.expr(part)],
                }))),
            },
        };
        arguments.iter().map(one).collect()
    }
}

fn known(names: &[&'static str], name: &str) -> &'static str {
    names.iter().copied().find(|known| *known == name).unwrap_or(NOTHING)
}

fn known_variable(id: &str) -> &'static str {
    let number = id.strip_prefix('_').and_then(|digits| digits.parse().ok());
    number.map_or(NOTHING, variable)
}

/// Errors name the expression as a whole, so places in it are of no use.
fn spanned<T>(node: T) -> Spanned<T> {
    Spanned::new(node, Default::default())
}

fn name(id: &'static str) -> Paid {
    Expr::Var(spanned(Var { id }))
}

fn constant(value: Value) -> Paid {
    Expr::Const(spanned(Const { value }))
}

fn constant_number(number: usize) -> Paid {
    constant(Value::from(number))
}

fn call(function: &'static str, arguments: Vec<Paid>) -> Paid {
    let args = arguments.into_iter().map(CallArg::Pos).collect();
    Expr::Call(spanned(Call { expr: name(function), args }))
}
