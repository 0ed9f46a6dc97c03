"""References and expressions of a workflow that is written in Python.

An `Expr` is text that will stand in `${{ }}`. Attributes and items go on with its path, operators make larger
expressions, and in an f-string it becomes `${{ … }}`. So that fields never collide with methods, all else is a function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from ._json import encode

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Words that are no names in an expression; they are written as texts in brackets.
_RESERVED = frozenset({"and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None"})

# How tightly the outermost operator binds. A path or a call binds tightest.
_IF, _OR, _AND, _NOT, _COMPARE, _SUM, _PRODUCT, _FILTER, _ATOM = range(9)


class Expr:
    """An expression; its value is known when the run is there."""

    __slots__ = ("_source", "_binds")

    def __init__(self, source: str, binds: int = _ATOM) -> None:
        self._source = source
        self._binds = binds

    def __getattr__(self, name: str) -> Expr:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, key: str | int | Expr) -> Expr:
        path = _within(self, _ATOM)
        if isinstance(key, str) and _NAME.match(key) and key not in _RESERVED:
            return Expr(f"{path}.{key}")
        return Expr(f"{path}[{source_of(key)}]")

    def __str__(self) -> str:
        return "${{ " + self._source + " }}"

    def __format__(self, how: str) -> str:
        if how:
            raise TypeError(f"an expression has no value yet, so it cannot be formatted with `:{how}`")
        return str(self)

    def __repr__(self) -> str:
        return f"Expr({self._source!r})"

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "an expression has no value yet; write `&`, `|` and `~` for and, or and not, and `when=` instead of `if`"
        )

    def __iter__(self) -> NoReturn:
        raise TypeError("an expression has no value yet; use `foreach=` to go over its items")

    def __contains__(self, item: object) -> NoReturn:
        raise TypeError("an expression has no value yet; write `contains(list, item)`")

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "==", other, _COMPARE)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary(self, "!=", other, _COMPARE)

    def __lt__(self, other: object) -> Expr:
        return _binary(self, "<", other, _COMPARE)

    def __le__(self, other: object) -> Expr:
        return _binary(self, "<=", other, _COMPARE)

    def __gt__(self, other: object) -> Expr:
        return _binary(self, ">", other, _COMPARE)

    def __ge__(self, other: object) -> Expr:
        return _binary(self, ">=", other, _COMPARE)

    def __add__(self, other: object) -> Expr:
        return _binary(self, "+", other, _SUM)

    def __radd__(self, other: object) -> Expr:
        return _binary(other, "+", self, _SUM)

    def __sub__(self, other: object) -> Expr:
        return _binary(self, "-", other, _SUM)

    def __rsub__(self, other: object) -> Expr:
        return _binary(other, "-", self, _SUM)

    def __mul__(self, other: object) -> Expr:
        return _binary(self, "*", other, _PRODUCT)

    def __rmul__(self, other: object) -> Expr:
        return _binary(other, "*", self, _PRODUCT)

    def __truediv__(self, other: object) -> Expr:
        return _binary(self, "/", other, _PRODUCT)

    def __rtruediv__(self, other: object) -> Expr:
        return _binary(other, "/", self, _PRODUCT)

    def __floordiv__(self, other: object) -> Expr:
        return _binary(self, "//", other, _PRODUCT)

    def __mod__(self, other: object) -> Expr:
        return _binary(self, "%", other, _PRODUCT)

    def __neg__(self) -> Expr:
        return Expr(f"-{_within(self, _ATOM)}", _PRODUCT)

    def __and__(self, other: object) -> Expr:
        return _binary(self, "and", other, _AND)

    def __rand__(self, other: object) -> Expr:
        return _binary(other, "and", self, _AND)

    def __or__(self, other: object) -> Expr:
        return _binary(self, "or", other, _OR)

    def __ror__(self, other: object) -> Expr:
        return _binary(other, "or", self, _OR)

    def __invert__(self) -> Expr:
        return Expr(f"not {_within(self, _COMPARE)}", _NOT)


def source_of(value: object) -> str:
    """A value as it stands inside an expression."""
    expression = getattr(value, "__expr__", None)
    if isinstance(value, Expr):
        return value._source
    if expression is not None:
        return source_of(expression())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"
    if isinstance(value, (int, float)):
        return encode(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(source_of(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{source_of(key)}: {source_of(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"{type(value).__name__} cannot stand in an expression")


def _within(value: object, binds: int) -> str:
    """A value as a part of an expression that binds that tightly."""
    expression = getattr(value, "__expr__", None)
    if not isinstance(value, Expr) and expression is not None:
        return _within(expression(), binds)
    source = source_of(value)
    loose = isinstance(value, Expr) and value._binds < binds
    negative = isinstance(value, (int, float)) and not isinstance(value, bool) and value < 0
    return f"({source})" if loose or (negative and binds > _SUM) else source


def _binary(left: object, sign: str, right: object, binds: int) -> Expr:
    # Comparisons do not chain here, and what stands on the right binds tighter than what stands on the left.
    lower = binds + 1 if binds == _COMPARE else binds
    return Expr(f"{_within(left, lower)} {sign} {_within(right, binds + 1)}", binds)


def expr(source: str) -> Expr:
    """An expression as it is written in YAML, without `${{ }}`: `expr("payload.names | sort | first")`."""
    return Expr(source, _IF)


def apply(name: str, value: object, *arguments: object, **named: object) -> Expr:
    """A filter: `apply("join", payload.names, ", ")` is `payload.names | join(', ')`."""
    given = [source_of(argument) for argument in arguments]
    given += [f"{key}={source_of(argument)}" for key, argument in named.items()]
    call = f"({', '.join(given)})" if given else ""
    return Expr(f"{_within(value, _FILTER)} | {name}{call}", _FILTER)


def default(value: object, otherwise: object) -> Expr:
    """`value`, or `otherwise` where it is not there."""
    return apply("default", value, otherwise)


def length(value: object) -> Expr:
    return apply("length", value)


def contains(container: object, item: object) -> Expr:
    return _binary(item, "in", container, _COMPARE)


def either(condition: object, then: object, otherwise: object) -> Expr:
    """`then if condition else otherwise`."""
    parts = (_within(then, _OR), _within(condition, _OR), _within(otherwise, _OR))
    return Expr(f"{parts[0]} if {parts[1]} else {parts[2]}", _IF)


# In the input of a step with `foreach`: the item, and its number from 0.
item = Expr("item")
index = Expr("index")
