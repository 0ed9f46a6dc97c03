"""A client of the HTTP API that blocks. May be used by several threads at once."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TypeVar

from . import _calls, _logs
from ._blocking import Connection, Pool
from ._calls import Call, Document, Page
from ._files import RemoteFiles, Source
from ._http import Answer, Server, request
from ._patience import Patience
from ._sse import SILENCE, Lost, Parser, Reading
from .context import hash_of
from .errors import NoServer, RunFailed, TooMany, Unavailable, WaitTimeout
from .models import (
    Artifact,
    Blob,
    Deployed,
    Event,
    Explanation,
    LogLine,
    Plan,
    Problem,
    Run,
    RunRef,
    RunSummary,
    Started,
    Step,
)

T = TypeVar("T")
# Inside the class `list` is a method.
Problems = list[Problem]

DEFAULT_URL = "http://127.0.0.1:7400"


def server_url(url: str | None) -> str:
    return url or os.environ.get("MILEPOST_URL") or DEFAULT_URL


def bearer(token: str | None) -> dict[str, str]:
    token = token or os.environ.get("MILEPOST_TOKEN")
    return {"authorization": f"Bearer {token}"} if token else {}


class Client:
    """Calls a server.

    `url` and `token` default to MILEPOST_URL and MILEPOST_TOKEN. `timeout` is for one answer; `patience` is how long
    `watch`, `wait` and `logs(follow=True)` try to come back to a server that is away. Both in seconds.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, timeout: float = 30.0, patience: float = 60.0
    ) -> None:
        self.url = server_url(url)
        self._pool = Pool(Server.of(self.url), timeout)
        self._headers = bearer(token)
        self._files = RemoteFiles(self._pool.server, self._headers)
        self._timeout = timeout
        self._patience = patience

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that are idle."""
        self._pool.close()

    # Definitions

    def deploy(
        self,
        document: Document,
        *,
        tag: str | None = None,
        message: str | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> Deployed:
        """Stores a document and points its name (or `tag`) at it. A text is YAML or JSON; a path is a file.

        `meta` is kept with the revision: an object of your own.
        """
        return self._send(_calls.deploy(document, tag, message, meta))

    def revision(self, revision_id: str) -> dict[str, Any]:
        """What a revision is and where it came from; nothing is put together."""
        return self._send(_calls.revision(revision_id))

    def moves(self, tag: str) -> Iterator[dict[str, Any]]:
        """Where a name has been, the newest move first."""
        return self._pages(lambda cursor: _calls.moves(tag, cursor))

    def validate(self, document: Document) -> Problems:
        """What is wrong with a document; nothing is stored."""
        return self._send(_calls.validate(document))

    def workflow(self, ref: str) -> dict[str, Any]:
        """The document behind a name or a hash, with its `version_hash`."""
        return self._send(_calls.workflow(ref))

    def workflows(self) -> Iterator[dict[str, Any]]:
        """The names there are, and what they point at."""
        return self._pages(_calls.workflows)

    # Runs

    def start(
        self,
        workflow: str | Document | None = None,
        payload: Any = None,
        *,
        request_id: str | None = None,
        priority: int | None = None,
        start_at: datetime | str | None = None,
        patch: Sequence[Mapping[str, Any]] | None = None,
        base_run_id: RunRef | None = None,
        changes: Sequence[Mapping[str, Any]] | None = None,
        rebuild: Literal["all"] | Sequence[str] | None = None,
        traceparent: str | None = None,
    ) -> Started:
        """Starts a run of a workflow by its name, or of a document; with `base_run_id`, an update of another run.

        `rebuild` names steps that run whatever is kept of earlier runs, or is `"all"`.
        """
        fields = {"payload": payload, "request_id": request_id, "priority": priority, "start_at": start_at}
        more = {"patch": patch, "base_run_id": base_run_id, "changes": changes, "rebuild": rebuild}
        return self._send(_calls.start(workflow, traceparent, **fields, **more))

    def plan(
        self,
        workflow: str | Document | None = None,
        payload: Any = None,
        *,
        patch: Sequence[Mapping[str, Any]] | None = None,
        base_run_id: RunRef | None = None,
        changes: Sequence[Mapping[str, Any]] | None = None,
        rebuild: Literal["all"] | Sequence[str] | None = None,
    ) -> Plan:
        """What such a start would do; nothing is stored."""
        fields = {"payload": payload, "patch": patch, "base_run_id": base_run_id, "changes": changes}
        return self._send(_calls.plan(workflow, **fields, rebuild=rebuild))

    def get(self, run: RunRef) -> Run:
        """A run as it is now."""
        return self._send(_calls.get(run))

    def at(self, run: RunRef, seq: int) -> Run:
        """A run as it was after one of its events."""
        return self._send(_calls.at(run, seq))

    def step(self, run: RunRef, step_id: str) -> Step:
        """One step or item (`shots[3]`); attempts and input are in `raw`."""
        return self._send(_calls.step(run, step_id))

    def steps(
        self, run: RunRef, *, status: str | Sequence[str] | None = None, limit: int | None = None
    ) -> Iterator[Step]:
        """The steps of a run, in any of some statuses, page by page; `limit` is the size of a page."""
        return self._pages(lambda cursor: _calls.steps(run, cursor, status=status, limit=limit))

    def explain(self, run: RunRef, step_id: str) -> Explanation:
        """Why a step ran, whose result it has, or what it waits for."""
        return self._send(_calls.explain(run, step_id))

    def list(
        self,
        *,
        status: str | Sequence[str] | None = None,
        workflow: str | None = None,
        created_after: datetime | str | None = None,
        created_before: datetime | str | None = None,
        request_id: str | None = None,
        base_run_id: str | None = None,
        parent_run_id: str | None = None,
        submitted_by: str | None = None,
        stuck: bool = False,
        limit: int | None = None,
    ) -> Iterator[RunSummary]:
        """Runs, newest first, page by page; `limit` is the size of a page, `stuck` leaves those that are parked."""
        query: dict[str, Any] = {"status": status, "workflow": workflow, "request_id": request_id, "limit": limit}
        query |= {"created_after": created_after, "created_before": created_before}
        query |= {"base_run_id": base_run_id, "parent_run_id": parent_run_id}
        query |= {"submitted_by": submitted_by, "stuck": stuck or None}
        return self._pages(lambda cursor: _calls.runs(cursor, **query))

    def events(self, run: RunRef, after_seq: int = 0) -> Iterator[Event]:
        """The events that are there, after a number."""
        return self._pages(lambda cursor: _calls.events(run, int(cursor or after_seq), 1000))

    # Following

    def watch(self, run: RunRef, after_seq: int = 0) -> Iterator[Event]:
        """Events as they happen, until the run ends; none twice, none missing, whatever becomes of the connection."""
        reading = Reading(after_seq, self._patience)
        return self._watch(run, reading, None)

    def wait(self, run: RunRef, timeout: float | None = None, *, check: bool = False) -> Run:
        """Waits for a run's end. With `check`, a run that did not complete raises `RunFailed`.

        Raises `WaitTimeout` when `timeout` seconds have passed.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        found = self._get_patiently(run)
        while not found.ended:
            reading = Reading(found.last_event_seq, self._patience)
            for _ in self._watch(run, reading, deadline):
                pass
            found = self._get_patiently(run)
        if check and found.status != "completed":
            raise RunFailed(found)
        return found

    def logs(self, run: RunRef, step_id: str | None = None, *, follow: bool = False) -> Iterator[LogLine]:
        """What steps wrote; with `follow`, until the run ends."""
        heard = _logs.Heard()
        while True:
            begun = time.monotonic()
            ended = not follow or self._get_patiently(run).ended
            pages = self._pages(lambda cursor: _calls.logs(run, step_id, cursor, _logs.PAGE))
            yield from filter(heard.is_new, pages)
            if ended:
                return
            time.sleep(_logs.wait_after(time.monotonic() - begun))

    # Files

    def artifacts(self, run: RunRef, *, step_id: str | None = None, kind: str | None = None) -> Iterator[Artifact]:
        """The files that a run left, in the order in which they were recorded."""
        return self._pages(lambda cursor: _calls.artifacts(run, step_id, kind, cursor))

    def record_artifact(
        self,
        run: RunRef,
        artifact: Blob | str,
        kind: str = "custom",
        *,
        step_id: str | None = None,
        filename: str | None = None,
        media_type: str | None = None,
        training_step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        key: str | None = None,
    ) -> Artifact:
        """Records a file of a run, open or ended: what `upload` answered, or an address. The same `key` twice is one."""
        place = {"uri": artifact} if isinstance(artifact, str) else {"sha256": artifact.sha256}
        told = {"step_id": step_id, "filename": filename, "media_type": media_type, "training_step": training_step}
        given = {name: value for name, value in told.items() if value is not None}
        body = {"kind": kind, **place, **given, **({"metadata": dict(metadata)} if metadata else {})}
        return self._send(_calls.record_artifact(run, body, key))

    def upload(self, source: Source) -> Blob:
        """Uploads a file piece by piece; what the server has already is not sent."""
        return self._files.put(source)

    def download(self, artifact: Artifact | Blob | str, to: str | os.PathLike[str]) -> int:
        """Downloads a file by its artifact, its uri or its hash, and compares. Answers how many bytes it has."""
        return self._files.get(hash_of(artifact), to)

    # Words to a run

    def signal(
        self,
        run: RunRef,
        type: str,
        payload: Any = None,
        *,
        step_id: str | None = None,
        key: str | None = None,
        if_seq: int | None = None,
    ) -> None:
        """Sends a signal. The same `key` twice is one signal; with `if_seq` only if that is still the last event."""
        self._send(_calls.signal(run, type, payload, step_id, key, if_seq))

    def pause(self, run: RunRef, *, if_seq: int | None = None) -> None:
        """No new steps begin; those under way end."""
        self._send(_calls.verb(run, "pause", None, None, None, if_seq))

    def resume(self, run: RunRef, *, if_seq: int | None = None) -> None:
        self._send(_calls.verb(run, "resume", None, None, None, if_seq))

    def cancel(self, run: RunRef, reason: str | None = None, *, if_seq: int | None = None) -> None:
        """What is under way is told to stop."""
        self._send(_calls.verb(run, "cancel", reason and {"reason": reason}, None, None, if_seq))

    def terminate(self, run: RunRef, reason: str | None = None, *, if_seq: int | None = None) -> None:
        """Ends a run at once."""
        self._send(_calls.verb(run, "terminate", reason and {"reason": reason}, None, None, if_seq))

    def approve(self, run: RunRef) -> None:
        self._send(_calls.verb(run, "approve", None, None, None, None))

    def reject(self, run: RunRef, reason: str | None = None) -> None:
        self._send(_calls.verb(run, "reject", reason and {"reason": reason}, None, None, None))

    def retry(self, run: RunRef, step_id: str | None = None) -> None:
        """Another attempt of a failed step, or of every failed step."""
        self._send(_calls.verb(run, "retry", None, step_id, None, None))

    def skip(self, run: RunRef, step_id: str) -> None:
        """This step will not run, nor what depends on it."""
        self._send(_calls.verb(run, "skip", None, step_id, None, None))

    # How

    def _message(self, call: Call[Any]) -> bytes:
        return request(self._pool.server, call.method, call.target, {**self._headers, **call.headers}, call.body)

    def _send(self, call: Call[T]) -> T:
        message = self._message(call)
        try:
            status, body = self._exchange(message)
        except NoServer as error:
            if not call.repeatable or isinstance(error.__cause__, TimeoutError):
                raise
            # A server that was restarted closes connections that looked well a moment ago.
            self._pool.close()
            status, body = self._exchange(message)
        return call.read(_calls.reply(status, body))

    def _exchange(self, message: bytes) -> tuple[int, bytes]:
        connection = self._pool.take()
        answer = connection.send(message, self._timeout)
        body = connection.read(answer)
        self._pool.give_back(connection, answer)
        return answer.status, body

    def _pages(self, call: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        cursor = None
        while True:
            page = self._send(call(cursor))
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _get_patiently(self, run: RunRef) -> Run:
        patience = Patience(self._patience)
        while True:
            try:
                return self.get(run)
            except (NoServer, Unavailable, TooMany):
                wait = patience.next_wait()
                if wait is None:
                    raise
                time.sleep(wait)

    def _watch(self, run: RunRef, reading: Reading, deadline: float | None) -> Iterator[Event]:
        while not reading.ended:
            try:
                yield from self._listen(run, reading, deadline)
            except (Lost, NoServer, Unavailable, TooMany) as error:
                _check(deadline)
                wait = reading.patience.next_wait()
                if wait is None:
                    raise stream_lost(error) from error
                time.sleep(wait)

    def _listen(self, run: RunRef, reading: Reading, deadline: float | None) -> Iterator[Event]:
        """One connection, from the last event on."""
        connection = Connection(self._pool.server, self._timeout)
        try:
            answer = connection.send(self._message(_calls.stream(run, reading.last_seq)), _left(deadline))
            if answer.status == 204:
                reading.ended = True
                return
            if answer.status != 200:
                _calls.reply(answer.status, connection.read(answer))
            parser = Parser()
            for part in self._parts(connection, answer, deadline):
                yield from reading.take(parser.take(part))
                if reading.ended:
                    return
            raise Lost("the server ended the stream")
        finally:
            connection.close()

    def _parts(self, connection: Connection, answer: Answer, deadline: float | None) -> Iterator[bytes]:
        for part in connection.parts(answer, lambda: _left(deadline)):
            yield part
            _check(deadline)


def _left(deadline: float | None) -> float:
    """How long a stream may be silent, in seconds."""
    if deadline is None:
        return SILENCE
    return min(SILENCE, max(0.001, deadline - time.monotonic()))


def _check(deadline: float | None) -> None:
    if deadline is not None and time.monotonic() >= deadline:
        raise WaitTimeout("the run had not ended when the time was up")


def stream_lost(error: Exception) -> Exception:
    return error if isinstance(error, (NoServer, Unavailable, TooMany)) else NoServer(str(error), code="no_server")
