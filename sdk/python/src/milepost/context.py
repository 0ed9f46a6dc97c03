"""What a skill knows of the attempt that it carries out, and what it can say meanwhile.

A context is written by the thread that runs the skill and read by the one that speaks to the server. They share only
deques and values that are replaced whole, so there are no locks.
"""

from __future__ import annotations

import asyncio
import datetime
import time
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from ._json import readable
from ._redact import Redactor
from .errors import Cancelled

# What runs in this thread or task at the moment; for `print` and `logging`.
current: ContextVar[Context | None] = ContextVar("milepost_context", default=None)

# Characters and lines that may wait to be sent, for one attempt. What is beyond that is left out, and counted.
_MAX_WAITING = 256 * 1024
_MAX_LINES = 5000
_MAX_LINE = 16 * 1024
_STREAMS = ("log", "stdout", "stderr")


class Listener(Protocol):
    """Who is told that a context has something new to say. Called from any thread."""

    def has_news(self) -> None: ...


class Context:
    """The attempt at hand. A parameter with this annotation gets it."""

    __slots__ = (
        "task_id",
        "run_id",
        "step_id",
        "skill",
        "input",
        "attempt",
        "engine_attempt",
        "env",
        "secrets",
        "details",
        "_listener",
        "_deadline",
        "_cancelled",
        "_paused",
        "_tuned",
        "_progress",
        "_lines",
        "_waiting",
        "_left_out",
        "_redactor",
        "_running",
    )

    def __init__(self, task: Mapping[str, Any], listener: Listener) -> None:
        self.task_id: str = task["task_id"]
        self.run_id: str = task["run_id"]
        self.step_id: str = task["step_id"]
        self.skill: str = task["skill"]
        self.input: Any = task.get("input")
        #: The logical attempt: 1, 2, … as the retry policy counts.
        self.attempt: int = task.get("logical_attempt", 1)
        #: How often this attempt was handed out; more than 1 after a worker was lost.
        self.engine_attempt: int = task.get("engine_attempt", 1)
        self.env: Mapping[str, str] = task.get("env") or {}
        #: Values by name. Redacted in messages and logs; never put them into an output.
        self.secrets: Mapping[str, str] = task.get("secrets") or {}
        #: Workflow, version, queue, priority and the like, as the server sent them.
        self.details: Mapping[str, Any] = task.get("context") or {}
        self._listener = listener
        timeout_ms = task.get("timeout_ms")
        self._deadline: float | None = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000
        self._cancelled = False
        self._paused = False
        self._tuned: dict[str, Any] = dict(self.details.get("tuned") or ())
        self._progress: Any = None
        self._lines: deque[dict[str, str]] = deque()
        self._waiting = 0
        self._left_out = 0
        self._redactor = Redactor(self.secrets.values()) if self.secrets else None
        self._running: asyncio.Task[None] | None = None

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context of this attempt."""
        return self.details.get("traceparent")

    @property
    def cancelled(self) -> bool:
        """Nobody wants the result any more: the run was cancelled, the time is up, or another worker has the step."""
        return self._cancelled or self._timed_out()

    def raise_if_cancelled(self) -> None:
        """Ends a skill that goes on for long; call it now and then."""
        if self._cancelled:
            raise Cancelled()
        if self._timed_out():
            raise Cancelled("timeout", "the attempt ran out of time")

    @property
    def paused(self) -> bool:
        """The run is paused: the step may go on, or wait until it is not."""
        return self._paused

    def tuned(self, path: str, default: Any = None) -> Any:
        """The value that a running run was tuned to, or the default."""
        return self._tuned.get(path, default)

    def heartbeat(self, progress: Any = None) -> None:
        """Says how far the attempt is, in any JSON. That it lives is said without this."""
        if progress is not None:
            self._progress = progress
            self._listener.has_news()

    def progress(self, value: Any, message: str | None = None) -> None:
        """How far the attempt is: a number is a percentage, anything else is sent as `value`."""
        percentage = isinstance(value, (int, float)) and not isinstance(value, bool)
        told: dict[str, Any] = {"percent" if percentage else "value": value}
        if message is not None:
            told["message"] = self._redacted(message)
        self.heartbeat(told)

    def log(self, text: str, stream: str = "log") -> None:
        """Lines for the step's log; `stream` is log, stdout or stderr."""
        if stream not in _STREAMS:
            raise ValueError(f"a stream is one of {', '.join(_STREAMS)}, not `{stream}`")
        at = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        for line in readable(self._redacted(str(text))).splitlines() or [""]:
            if self._waiting >= _MAX_WAITING or len(self._lines) >= _MAX_LINES:
                self._left_out += 1
                continue
            self._waiting += len(line) + 1
            self._lines.append({"stream": stream, "text": line[:_MAX_LINE], "at": at})
        self._listener.has_news()

    def _redacted(self, text: str) -> str:
        return self._redactor.redact(text) if self._redactor else text

    def _timed_out(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _take_lines(self) -> list[dict[str, str]]:
        """The lines that wait. Only who speaks to the server takes them."""
        lines = [self._lines.popleft() for _ in range(len(self._lines))]
        self._waiting = 0
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            lines.append({"stream": "log", "text": f"{left_out} lines were left out here: they came too fast"})
        return lines

    def _give_back(self, lines: list[dict[str, str]]) -> None:
        """Puts lines back that did not reach the server."""
        self._lines.extendleft(reversed(lines))

    def __repr__(self) -> str:
        return f"<attempt {self.attempt} of step {self.step_id} of run {self.run_id}>"
