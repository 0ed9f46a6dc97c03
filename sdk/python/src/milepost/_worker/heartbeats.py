"""Which tasks have to say something: that they live, how far they are, what they wrote.

**Invariant:** of one task at most one heartbeat with lines is under way, so lines arrive in order.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping

from .exchange import Batch
from .held import Held, Key

# Lines and progress are gathered this long, in seconds.
_GATHER = 0.25
# So long after a heartbeat was due it is looked whether it was made, in seconds.
_LOOK_AGAIN = 1.0


class Heartbeats:
    """`tell` is called when there is something to send. Belongs to one event loop."""

    def __init__(self, held: Mapping[Key, Held], tell: Callable[[], None]) -> None:
        self._held = held
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._due: dict[Key, Held] = {}
        self._gathering: dict[Key, Held] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = math.inf
        self._gather_timer: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        """Whether there is something to send."""
        return bool(self._due)

    def watch(self, held: Held) -> None:
        """Rings when its next heartbeat is due. Tasks come and go without touching a timer that rings in time."""
        if held.next_beat < self._rings_at:
            self._ring_at(held.next_beat)

    def ended(self, held: Held) -> None:
        self._due.pop(held.key, None)
        self._gathering.pop(held.key, None)

    def has_news(self, held: Held) -> None:
        """There are lines or progress to send, with others that come in the next moment."""
        if held.key in self._held:
            self._gathering[held.key] = held
            if self._gather_timer is None:
                self._gather_timer = self._loop.call_later(_GATHER, self._gathered)

    def add_to(self, batch: Batch) -> None:
        """Puts what is due into a batch, as far as it has room."""
        now = self._loop.time()
        while self._due and batch.has_room():
            _, held = self._due.popitem()
            batch.add_beat(held, now)
            self.watch(held)

    def again(self, held: Held) -> None:
        """A heartbeat did not get through."""
        if held.key in self._held and not held.lost:
            self._due[held.key] = held

    def _ring_at(self, when: float) -> None:
        if self._timer:
            self._timer.cancel()
        self._rings_at = when
        self._timer = self._loop.call_at(when, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at = None, math.inf
        now, following = self._loop.time(), math.inf
        for held in self._held.values():
            if held.lost:
                continue
            if held.next_beat > now:
                following = min(following, held.next_beat)
                continue
            if not held.has_lines_under_way:
                self._due[held.key] = held
            following = min(following, now + _LOOK_AGAIN)
        if following < math.inf:
            self._ring_at(following)
        if self._due:
            self._tell()

    def _gathered(self) -> None:
        self._gather_timer = None
        ready = {key: held for key, held in self._gathering.items() if not held.has_lines_under_way}
        self._due.update(ready)
        self._gathering = {key: held for key, held in self._gathering.items() if key not in ready}
        if self._gathering:
            self._gather_timer = self._loop.call_later(_GATHER, self._gathered)
        if self._due:
            self._tell()
