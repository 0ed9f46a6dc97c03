"""How long to wait before the next try, and when to give up."""

from __future__ import annotations

import random
import time

_FIRST = 0.1
_LONGEST = 5.0


class Patience:
    """Waits that double and differ at random, so that those who lost a server together do not come back together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._next = _FIRST
        self._since: float | None = None

    def restore(self) -> None:
        """It works again."""
        self._next = _FIRST
        self._since = None

    def next_wait(self) -> float | None:
        """Seconds until the next try; None when the patience is at its end."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds:
            return None
        wait, self._next = self._next, min(self._next * 2, _LONGEST)
        return wait * random.uniform(0.5, 1.0)
