"""Documents as YAML that people like to read. Only what a document has: maps, lists, texts, numbers, flags, null.

**Invariant:** any YAML reader gives back the value that was written, with every text a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ._json import encode

# Texts that need no quotes: no reader takes them for anything else.
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*\Z")
_WORDS = frozenset("null true false yes no on off y n none nan inf".split())
_WIDTH = 100


def dump(value: Mapping[str, Any]) -> str:
    return "\n".join(_map(value, "")) + "\n"


def _map(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for key, item in value.items():
        yield from _entry(f"{indent}{_scalar(key)}:", item, indent + "  ")


def _list(value: list[Any], indent: str) -> Iterator[str]:
    for item in value:
        if isinstance(item, Mapping) and item:
            lines = list(_map(item, indent + "  "))
            yield f"{indent}- {lines[0].removeprefix(indent + '  ')}"
            yield from lines[1:]
        else:
            yield from _entry(f"{indent}-", item, indent + "  ")


def _entry(label: str, item: Any, indent: str) -> Iterator[str]:
    short = _flow(item)
    if short is not None and len(label) + len(short) < _WIDTH:
        yield f"{label} {short}"
    elif isinstance(item, Mapping):
        yield label
        yield from _map(item, indent)
    elif isinstance(item, list):
        yield label
        yield from _list(item, indent)
    else:
        yield f"{label} {_scalar(item)}"


def _flow(item: Any) -> str | None:
    """A value on one line, where it is simple enough."""
    if isinstance(item, Mapping):
        if not item:
            return "{}"
        if any(isinstance(inner, (Mapping, list)) and inner for inner in item.values()):
            return None
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(inner)}" for key, inner in item.items()) + "}"
    if isinstance(item, list):
        if any(isinstance(inner, (Mapping, list)) and inner for inner in item):
            return None
        return "[" + ", ".join(_flow(inner) or "" for inner in item) + "]"
    return _scalar(item)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.match(value) and value.lower() not in _WORDS:
        return value
    return encode(value)
