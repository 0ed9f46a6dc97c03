"""Lines of a run's log, each given once, however often the log is read."""

from __future__ import annotations

from .models import LogLine

PAGE = 10_000
# A server has lines half a second after they were written.
SHORTEST_WAIT = 0.5


class Heard:
    """Which lines of which attempts were given."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, int, int], int] = {}

    def is_new(self, line: LogLine) -> bool:
        attempt = (line.step_id, line.logical_attempt, line.engine_attempt)
        if line.line < self._next.get(attempt, 0):
            return False
        self._next[attempt] = line.line + 1
        return True


def wait_after(took: float) -> float:
    """A log that takes long to read is read less often."""
    return max(SHORTEST_WAIT, 4 * took)
