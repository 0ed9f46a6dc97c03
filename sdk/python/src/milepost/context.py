"""What a skill knows of the attempt that it carries out, and what it can say meanwhile.

A context is written by the thread that runs the skill and read by the one that speaks to the server. They share only
deques and values that are replaced whole, so there are no locks.
"""

from __future__ import annotations

import asyncio
import datetime
import mimetypes
import os
import time
from collections import deque
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from ._files import Files, Source
from ._json import encode, readable
from ._redact import Redactor
from .errors import Cancelled, SkillError
from .models import Artifact, Blob

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
        "_files",
        "_artifacts",
    )

    def __init__(self, task: Mapping[str, Any], listener: Listener, files: Files | None = None) -> None:
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
        self._files = files
        # What goes with the outcome, if the attempt completes.
        self._artifacts: list[dict[str, Any]] = []

    def upload(
        self,
        source: Source,
        kind: str = "custom",
        *,
        filename: str | None = None,
        media_type: str | None = None,
        training_step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        now: bool = False,
    ) -> Artifact:
        """Uploads a file and attaches it to the step: it is recorded with the outcome, if the attempt completes.

        `source` is a path, bytes, or a file that was opened for reading bytes; what the server has already is not sent.
        With `now` it is recorded at once, and stays if the attempt fails: for checkpoints. Blocks; in an async function,
        `await asyncio.to_thread(context.upload, path)`.
        """
        stored = self._transfer().put(source)
        name = filename or _name_of(source)
        guessed = media_type or (mimetypes.guess_type(name)[0] if name else None)
        told = {
            "kind": kind,
            "sha256": stored.sha256,
            "size_bytes": stored.size_bytes,
            "filename": name,
            "media_type": guessed,
            "training_step": training_step,
            "metadata": dict(metadata) if metadata else None,
        }
        return self._attached({field: value for field, value in told.items() if value is not None}, now)

    def attach(self, uri: str, kind: str = "custom", *, now: bool = False, **more: Any) -> Artifact:
        """Attaches a file that is somewhere else, by its address; `more` as `upload` has it."""
        return self._attached({"kind": kind, "uri": uri, **more}, now)

    def download(self, artifact: Artifact | str, to: str | os.PathLike[str]) -> int:
        """Downloads a file of this server by its artifact, its uri or its hash. Answers how many bytes it has. Blocks."""
        return self._transfer().get(hash_of(artifact), to)

    def _attached(self, artifact: dict[str, Any], now: bool) -> Artifact:
        if now:
            self._transfer().record(self.run_id, {**artifact, "step_id": self.step_id})
        else:
            self._artifacts.append(artifact)
        uri = artifact.get("uri") or f"{BLOBS}{artifact['sha256']}"
        return Artifact.of({"run_id": self.run_id, "step_id": self.step_id, "uri": uri, **artifact})

    def _transfer(self) -> Files:
        if self._files is None:
            raise SkillError("no_files", "there is no place for files here", retryable=False)
        return self._files

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

    def _artifacts_text(self) -> str:
        """What is said of them with the outcome."""
        return f',"artifacts":{encode(self._artifacts)}' if self._artifacts else ""

    def __repr__(self) -> str:
        return f"<attempt {self.attempt} of step {self.step_id} of run {self.run_id}>"


BLOBS = "milepost://blobs/sha256/"


def hash_of(artifact: Artifact | Blob | str) -> str:
    """The hash of content that this server has."""
    if not isinstance(artifact, str):
        if not artifact.uri.startswith(BLOBS):
            raise ValueError(f"the content of this artifact is not here but at {artifact.uri}")
        artifact = artifact.uri
    return artifact.removeprefix(BLOBS).removeprefix("sha256:")


def _name_of(source: Source) -> str | None:
    if isinstance(source, (str, os.PathLike)):
        return os.path.basename(os.fspath(source)) or None
    name = getattr(source, "name", None)
    return os.path.basename(name) if isinstance(name, str) else None
