"""JSON as the engine takes it: compact, without NaN, and with a few Python types that have an obvious JSON form.

**Invariant:** what `encode` gives back can be put into a larger JSON text as it is.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from typing import Any


def plain(value: Any) -> Any:
    """The JSON form of a value that `json` does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, decimal.Decimal, pathlib.PurePath)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain)

# Calling the methods is faster than `json.dumps` with arguments, which makes an encoder each time.
encode = _ENCODER.encode
decode = json.JSONDecoder().decode


def told(value: Any) -> str:
    """JSON for what is said about something, which must not fail for an odd character."""
    text = encode(value)
    return text if text.isascii() else readable(text)


def readable(text: str) -> str:
    """A text that is UTF-8: halves of surrogate pairs are replaced."""
    return text.encode("utf-8", "replace").decode()


def normal(value: Any) -> Any:
    """A value as it is after a way through JSON."""
    return decode(encode(value))
