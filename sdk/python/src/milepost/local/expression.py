"""A small part of the expression language, for runs without a server.

Known are paths, literals, `+ - * /`, comparisons, `in`, `and`, `or`, `not`, `a if c else b`, `is defined`,
`| default(x)` and `| length`. Anything else is `UnsupportedExpression`.

**Invariant:** what is evaluated here has the value that it has on a server, or raises.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from .operations import (
    COMPARISONS,
    Node,
    Scope,
    Undefined,
    UnsupportedExpression,
    arithmetic,
    both,
    comparison,
    constant,
    contained,
    default,
    defined,
    either,
    is_true,
    length,
    negated,
    root,
    step_into,
    unquoted,
)

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d+|\d+)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>//|\*\*|==|!=|<=|>=|[-+*/%~<>()\[\]{}.,:|]))""",
    re.VERBOSE,
)
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


class Token(NamedTuple):
    kind: str
    text: str


class Expression:
    """An expression, ready to be evaluated. `steps` are those that it refers to."""

    def __init__(self, source: str) -> None:
        parser = _Parser(source)
        self._node = parser.whole()
        self.steps = frozenset(parser.steps)

    def evaluate(self, scope: Scope) -> Any:
        return defined(self._node(scope))


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._tokens = self._split(source)
        self._at = 0
        self.steps: set[str] = set()

    def whole(self) -> Node:
        node = self._conditional()
        if self._at < len(self._tokens):
            raise self._unsupported(f"`{self._tokens[self._at].text}`")
        return node

    def _split(self, source: str) -> list[Token]:
        tokens, at = [], 0
        while source[at:].strip():
            match = _TOKEN.match(source, at)
            if match is None:
                raise self._unsupported(f"`{source[at:].strip()[:20]}`")
            tokens.append(Token(match.lastgroup or "", match.group(match.lastgroup or 0)))
            at = match.end()
        return tokens

    def _unsupported(self, what: str) -> UnsupportedExpression:
        return UnsupportedExpression(f"run_local does not know {what} in `{self._source.strip()}`; a server may")

    def _peek(self, *texts: str) -> bool:
        token = self._tokens[self._at] if self._at < len(self._tokens) else Token("end", "")
        return token.kind in ("sign", "name") and token.text in texts

    def _take(self, *texts: str) -> str | None:
        if not self._peek(*texts):
            return None
        self._at += 1
        return self._tokens[self._at - 1].text

    def _need(self, text: str) -> None:
        if not self._take(text):
            raise self._unsupported(f"a missing `{text}`")

    def _conditional(self) -> Node:
        then = self._either()
        if not self._take("if"):
            return then
        condition = self._either()
        self._need("else")
        otherwise = self._conditional()
        return lambda scope: then(scope) if is_true(defined(condition(scope))) else otherwise(scope)

    def _either(self) -> Node:
        left = self._both()
        while self._take("or"):
            left = either(left, self._both())
        return left

    def _both(self) -> Node:
        left = self._negated()
        while self._take("and"):
            left = both(left, self._negated())
        return left

    def _negated(self) -> Node:
        if self._take("not"):
            return negated(self._negated())
        return self._compared()

    def _compared(self) -> Node:
        left = self._sum()
        while True:
            if sign := self._take(*COMPARISONS):
                left = comparison(left, sign, self._sum())
            elif self._take("in"):
                left = contained(left, self._sum())
            elif self._peek("not") and self._tokens[self._at + 1 : self._at + 2] == [Token("name", "in")]:
                self._at += 2
                left = negated(contained(left, self._sum()))
            else:
                return left

    def _sum(self) -> Node:
        left = self._product()
        while sign := self._take("+", "-"):
            left = arithmetic(left, sign, self._product())
        return left

    def _product(self) -> Node:
        left = self._unary()
        while sign := self._take("*", "/"):
            left = arithmetic(left, sign, self._unary())
        return left

    def _unary(self) -> Node:
        if self._take("-"):
            return arithmetic(lambda scope: 0, "-", self._unary())
        return self._filtered(self._postfix(self._primary()))

    def _filtered(self, node: Node) -> Node:
        while True:
            if self._take("|"):
                node = self._filter(node)
            elif self._take("is"):
                node = self._test(node)
            else:
                return node

    def _filter(self, node: Node) -> Node:
        name = self._word()
        arguments = self._arguments() if self._take("(") else []
        if name in ("length", "count") and not arguments:
            return lambda scope: length(defined(node(scope)))
        if name in ("default", "d") and len(arguments) <= 2:
            return default(node, *arguments)
        raise self._unsupported(f"the filter `{name}`")

    def _test(self, node: Node) -> Node:
        wanted = not self._take("not")
        name = self._word()
        if name not in ("defined", "undefined", "none"):
            raise self._unsupported(f"the test `{name}`")
        if name == "none":
            return lambda scope: (defined(node(scope)) is None) == wanted
        return lambda scope: (isinstance(node(scope), Undefined) == (name == "undefined")) == wanted

    def _arguments(self) -> list[Node]:
        arguments: list[Node] = []
        while not self._take(")"):
            arguments.append(self._conditional())
            if not self._peek(")"):
                self._need(",")
        return arguments

    def _word(self) -> str:
        token = self._tokens[self._at] if self._at < len(self._tokens) else Token("end", "its end")
        self._at += 1
        if token.kind != "name":
            raise self._unsupported(f"`{token.text}`")
        return token.text

    def _postfix(self, node: tuple[Node, str]) -> Node:
        at, path = node
        while True:
            if self._take("."):
                name: Any = self._word()
                key = constant(name)
                told = f"{path}.{name}"
            elif self._take("["):
                begin = self._at
                key = self._conditional()
                inside = "".join(token.text for token in self._tokens[begin : self._at])
                self._need("]")
                told = f"{path}[{inside}]"
                name = unquoted(inside) if inside[:1] in ("'", '"') else None
            else:
                return at
            if path == "steps" and isinstance(name, str):
                self.steps.add(name)
            at, path = step_into(at, key, told), told

    def _primary(self) -> tuple[Node, str]:
        if self._at >= len(self._tokens):
            raise self._unsupported("an expression that ends so early")
        kind, text = self._tokens[self._at]
        self._at += 1
        if kind == "number":
            number: float = float(text) if "." in text else int(text)
            return (lambda scope: number), text
        if kind == "text":
            value = unquoted(text)
            return (lambda scope: value), text
        if kind == "name":
            if text in _CONSTANTS:
                return (lambda scope: _CONSTANTS[text]), text
            if self._peek("("):
                raise self._unsupported(f"the function `{text}`")
            return (lambda scope: root(scope, text)), text
        if text == "(":
            inner = self._conditional()
            self._need(")")
            return inner, "(…)"
        if text == "[":
            return self._list(), "[…]"
        if text == "{":
            return self._map(), "{…}"
        raise self._unsupported(f"`{text}`")

    def _list(self) -> Node:
        items: list[Node] = []
        while not self._take("]"):
            items.append(self._conditional())
            if not self._peek("]"):
                self._need(",")
        return lambda scope: [defined(item(scope)) for item in items]

    def _map(self) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._take("}"):
            key = self._conditional()
            self._need(":")
            entries.append((key, self._conditional()))
            if not self._peek("}"):
                self._need(",")
        return lambda scope: {str(defined(key(scope))): defined(item(scope)) for key, item in entries}
