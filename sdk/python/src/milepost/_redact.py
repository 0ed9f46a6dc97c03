"""Secrets out of texts."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MASK = "***"
# A line of a secret of several lines is a secret too, unless it is so short that it says nothing.
_SHORTEST_LINE = 8


class Redactor:
    """Replaces values in texts, also as `repr` shows them and line by line."""

    def __init__(self, values: Iterable[str]) -> None:
        forms: set[str] = set()
        for value in map(str, values):
            forms |= {value, repr(value)[1:-1]}
            if "\n" in value:
                forms |= {line.strip() for line in value.splitlines() if len(line.strip()) >= _SHORTEST_LINE}
        forms.discard("")
        # The longest first: one value may be the beginning of another.
        found = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
        self._pattern = re.compile(found) if found else None

    def redact(self, text: str) -> str:
        return self._pattern.sub(_MASK, text) if self._pattern else text
