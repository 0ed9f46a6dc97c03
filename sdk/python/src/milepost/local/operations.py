"""What the parts of an expression do with their values. Each makes a node: a function of the scope.

**Invariant:** only `default` and `is defined` look at something undefined; for all else it is an error.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

Scope = Mapping[str, Any]
Node = Callable[[Scope], Any]

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class UnsupportedExpression(Exception):
    """An expression that `run_local` does not know. On a server it may be right."""


class EvalError(Exception):
    """An expression has no value: the step fails with `expression_failed`."""


class Undefined:
    """The end of a path that leads nowhere. `default` and `is defined` may look at it, nothing else."""

    def __init__(self, path: str) -> None:
        self.path = path


def is_true(value: Any) -> bool:
    """False are null, false, 0 and what is empty."""
    return bool(value)


def defined(value: Any) -> Any:
    if isinstance(value, Undefined):
        raise EvalError(f"`{value.path}` is undefined")
    return value


def unquoted(quoted: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), quoted[1:-1])


def root(scope: Scope, name: str) -> Any:
    if name not in scope:
        raise EvalError(f"`{name}` is not available here")
    return scope[name]


def step_into(at: Node, key: Node, told: str) -> Node:
    def look(scope: Scope) -> Any:
        value, name = at(scope), defined(key(scope))
        if isinstance(value, Undefined):
            raise EvalError(f"`{told}` is undefined: there is no `{value.path.rpartition('.')[2]}`")
        if isinstance(value, dict) and isinstance(name, str) and name in value:
            return value[name]
        whole = isinstance(name, int) and not isinstance(name, bool)
        if isinstance(value, (list, str)) and whole and -len(value) <= name < len(value):
            return value[name]
        return Undefined(told)

    return look


def constant(value: Any) -> Node:
    return lambda scope: value


def negated(inner: Node) -> Node:
    return lambda scope: not is_true(defined(inner(scope)))


def either(left: Node, right: Node) -> Node:
    def decide(scope: Scope) -> Any:
        value = defined(left(scope))
        return value if is_true(value) else right(scope)

    return decide


def both(left: Node, right: Node) -> Node:
    def decide(scope: Scope) -> Any:
        value = defined(left(scope))
        return right(scope) if is_true(value) else value

    return decide


def comparison(left: Node, sign: str, right: Node) -> Node:
    def compare(scope: Scope) -> bool:
        a, b = defined(left(scope)), defined(right(scope))
        alike = (_is_number(a) and _is_number(b)) or (isinstance(a, str) and isinstance(b, str))
        if sign not in ("==", "!=") and not alike:
            raise UnsupportedExpression(
                f"run_local compares numbers with numbers and texts with texts, not {a!r} {sign} {b!r}"
            )
        return bool(COMPARISONS[sign](a, b))

    return compare


def contained(left: Node, right: Node) -> Node:
    def look(scope: Scope) -> bool:
        item, container = defined(left(scope)), defined(right(scope))
        if isinstance(container, str) and not isinstance(item, str):
            raise EvalError(f"{item!r} cannot be in a text")
        if not isinstance(container, (list, dict, str)):
            raise EvalError(f"nothing can be in {container!r}")
        return item in container

    return look


def arithmetic(left: Node, sign: str, right: Node) -> Node:
    def work(scope: Scope) -> Any:
        a, b = defined(left(scope)), defined(right(scope))
        texts = isinstance(a, str) and isinstance(b, str)
        lists = isinstance(a, list) and isinstance(b, list)
        if sign == "+" and (texts or lists):
            return a + b
        if not (_is_number(a) and _is_number(b)):
            raise EvalError(f"`{sign}` does not fit {a!r} and {b!r}")
        match sign:
            case "+":
                return a + b
            case "-":
                return a - b
            case "*":
                return a * b
        if b == 0:
            raise EvalError("division by zero")
        return a / b

    return work


def default(node: Node, otherwise: Node | None = None, also_false: Node | None = None) -> Node:
    def choose(scope: Scope) -> Any:
        value = node(scope)
        missing = isinstance(value, Undefined)
        if not missing and also_false and is_true(also_false(scope)):
            missing = not is_true(value)
        return value if not missing else otherwise(scope) if otherwise else ""

    return choose


def length(value: Any) -> int:
    if not isinstance(value, (str, list, dict)):
        raise EvalError(f"{value!r} has no length")
    return len(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
