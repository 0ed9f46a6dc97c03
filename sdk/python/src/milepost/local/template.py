"""JSON values with `${{ }}` inside their texts.

A text that is exactly one `${{ … }}` yields the value with its type; any other text yields text. `$${{` stands for
`${{` itself.
"""

from __future__ import annotations

import re
from typing import Any

from .._json import encode
from .expression import Expression
from .operations import EvalError, Scope

# Texts in an expression may have `}}` in them.
_EXPRESSION = re.compile(r"\$\{\{((?:'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\{[^{}]*\}|[^'\"{}])*?)\}\}")


class Template:
    """A value, ready to be rendered. `steps` are those that its expressions refer to."""

    def __init__(self, value: Any) -> None:
        self.steps: set[str] = set()
        self._root = self._compile(value)

    def render(self, scope: Scope) -> Any:
        return _render(self._root, scope)

    def _compile(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._compile(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._compile(item) for item in value]
        if not isinstance(value, str) or "${{" not in value:
            return value
        return self._text(value)

    def _text(self, text: str) -> _Text:
        pieces: list[str | Expression] = []
        at = literal = 0
        before = ""
        while (at := text.find("${{", at)) >= 0:
            if at > literal and text[at - 1] == "$":
                before += text[literal : at - 1] + "${{"
                at = literal = at + 3
                continue
            match = _EXPRESSION.match(text, at)
            if match is None:
                raise EvalError(f"`${{{{` is never closed in {text!r}")
            expression = Expression(match[1])
            self.steps |= expression.steps
            pieces += [before + text[literal:at], expression]
            before, at = "", match.end()
            literal = at
        pieces.append(before + text[literal:])
        return _Text([piece for piece in pieces if piece != ""])


class _Text:
    def __init__(self, pieces: list[str | Expression]) -> None:
        self.pieces = pieces


def _render(part: Any, scope: Scope) -> Any:
    if isinstance(part, dict):
        return {key: _render(item, scope) for key, item in part.items()}
    if isinstance(part, list):
        return [_render(item, scope) for item in part]
    if not isinstance(part, _Text):
        return part
    values = [piece if isinstance(piece, str) else piece.evaluate(scope) for piece in part.pieces]
    if len(values) == 1:
        return values[0]
    return "".join(value if isinstance(value, str) else encode(value) for value in values)
