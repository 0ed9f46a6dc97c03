"""A task in the hands of this worker, from the answer that gave it to the answer that took its result.

Owned by the pump's thread. Others only call `has_news`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .._files import Files
from .._json import encode, told
from ..context import Context
from ..skill import Skill

# Tasks by id and lease: a task that was lost may come back under another lease.
Key = tuple[str, str]


class Held:
    __slots__ = ("context", "skill", "key", "lost", "next_beat", "_head", "_every", "_news", "_tell", "_flying")

    def __init__(
        self,
        task: Mapping[str, Any],
        skill: Skill[..., Any],
        now: float,
        tell: Callable[[Held], None],
        files: Files | None = None,
    ) -> None:
        self.context = Context(task, self, files)
        self.skill = skill
        self.key: Key = (task["task_id"], task["lease_token"])
        # Somebody else has it, or nobody wants it: what comes of it is not sent.
        self.lost = False
        # A little more often than asked for.
        self._every = task.get("heartbeat_ms", 10_000) * 0.8 / 1000
        self.next_beat = now + self._every
        self._head = f'{{"task_id":{encode(self.key[0])},"lease_token":{encode(self.key[1])}'
        self._news = False
        self._tell = tell
        self._flying: list[dict[str, str]] = []

    def has_news(self) -> None:
        """There are lines or a progress to send. Called by the skill, in its thread."""
        if not self._news:
            self._news = True
            self._tell(self)

    def result(self, outcome: str) -> str:
        """The result to send, with the lines that were not sent yet."""
        return f"{self._head},{outcome}{self._lines()}}}"

    def heartbeat(self, now: float) -> str:
        """The heartbeat to send."""
        self._news = False
        self.next_beat = now + self._every
        progress = self.context._progress
        said = "" if progress is None else f',"progress":{_progress(progress)}'
        self._flying = self.context._take_lines()
        lines = f',"lines":{encode(self._flying)}' if self._flying else ""
        return f"{self._head}{said}{lines}}}"

    @property
    def has_lines_under_way(self) -> bool:
        """A heartbeat with lines is being sent: a result must not overtake it."""
        return bool(self._flying)

    def landed(self) -> None:
        """The heartbeat was answered."""
        self._flying = []

    def unfit(self) -> None:
        """The heartbeat was refused: what it said is not said again."""
        self._flying = []
        self.context._progress = None

    def crashed(self) -> None:
        """The heartbeat was not answered: its lines are sent again."""
        self.context._give_back(self._flying)
        self._flying = []

    def _lines(self) -> str:
        lines = self.context._take_lines()
        return f',"lines":{encode(lines)}' if lines else ""


def _progress(progress: Any) -> str:
    try:
        return told(progress)
    except (TypeError, ValueError, RecursionError) as error:
        return encode({"message": f"the progress is not JSON: {error}"})
