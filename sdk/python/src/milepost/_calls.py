"""The calls of the HTTP API: what is sent, and what is made of the answer. Both clients send these.

**Invariant:** a call that says `repeatable` may be sent twice without harm.
"""

from __future__ import annotations

import datetime
import os
import urllib.parse
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

from ._json import decode, encode
from .errors import refusal
from .models import (
    Artifact,
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
    run_id_of,
)

T = TypeVar("T")

API = "/api/v1"
JSON_BODY = {"content-type": "application/json"}


@runtime_checkable
class HasDocument(Protocol):
    """A workflow that was written in Python."""

    def document(self) -> dict[str, Any]: ...


# A document: written in Python, as a mapping, as text (YAML or JSON), or a file.
Document = HasDocument | Mapping[str, Any] | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    body: Any


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    method: str
    target: str
    read: Callable[[Reply], T]
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    repeatable: bool = True


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    items: Sequence[T]
    next_cursor: str | None


def reply(status: int, text: bytes) -> Reply:
    """What an answer says. An error becomes an exception."""
    try:
        body = decode(text.decode()) if text else None
    except ValueError:
        body = text.decode(errors="replace")
    if status >= 400:
        raise refusal(status, body)
    return Reply(status, body)


def target(*path: str, **query: object) -> str:
    """A path under the API, with what is given of a query."""
    known = {name: _text(value) for name, value in query.items() if value is not None}
    parts = "/".join(urllib.parse.quote(part, safe="") for part in path)
    return f"{API}/{parts}" + (f"?{urllib.parse.urlencode(known)}" if known else "")


def _text(value: object) -> str:
    if isinstance(value, datetime.datetime):
        return _time(value)
    if isinstance(value, (list, tuple, set, frozenset)):
        return ",".join(str(one) for one in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(value: str | datetime.datetime) -> str:
    if isinstance(value, str):
        return value
    if value.tzinfo is None:
        raise ValueError("a time needs its time zone: datetime.now(timezone.utc)")
    return value.astimezone(datetime.UTC).isoformat().replace("+00:00", "Z")


def _post(path: str, body: Mapping[str, Any], read: Callable[[Reply], T], **more: Any) -> Call[T]:
    headers = {**JSON_BODY, **more.pop("headers", {})}
    return Call("POST", path, read, encode(body).encode(), headers, **more)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def document_of(document: Document) -> dict[str, Any] | str:
    """A document as the API takes it."""
    if isinstance(document, HasDocument):
        return document.document()
    if isinstance(document, Mapping):
        return dict(document)
    if isinstance(document, str):
        return document
    with open(document, encoding="utf-8") as file:
        return file.read()


def deploy(
    document: Document, tag: str | None, message: str | None, meta: Mapping[str, Any] | None = None
) -> Call[Deployed]:
    def read(reply: Reply) -> Deployed:
        said = reply.body
        created = reply.status == 201
        return Deployed(said["revision_id"], said["version_hash"], said["tag"], said["tag_version"], created)

    return _post(target("workflows"), _given(document=document_of(document), tag=tag, message=message, meta=meta), read)


def validate(document: Document) -> Call[list[Problem]]:
    def read(reply: Reply) -> list[Problem]:
        return [Problem.of(problem) for problem in reply.body["problems"]]

    return _post(target("workflows", "validate"), {"document": document_of(document)}, read)


def workflow(ref: str) -> Call[dict[str, Any]]:
    return Call("GET", target("workflows", ref), lambda reply: dict(reply.body))


def revision(revision_id: str) -> Call[dict[str, Any]]:
    return Call("GET", target("revisions", revision_id), lambda reply: dict(reply.body))


def moves(tag: str, cursor: str | None) -> Call[Page[dict[str, Any]]]:
    def read(reply: Reply) -> Page[dict[str, Any]]:
        return Page([dict(item) for item in reply.body["items"]], reply.body["next_cursor"])

    return Call("GET", target("tags", tag, "history", cursor=cursor), read)


def _what(workflow: str | Document | None, fields: dict[str, Any]) -> dict[str, Any]:
    """The body of a start or a plan. A text is a workflow's name; a document is anything else."""
    if isinstance(workflow, str):
        fields["workflow"] = workflow
    elif workflow is not None:
        fields["document"] = document_of(workflow)
    if isinstance(fields.get("start_at"), datetime.datetime):
        fields["start_at"] = _time(fields["start_at"])
    if "base_run_id" in fields:
        fields["base_run_id"] = run_id_of(fields["base_run_id"])
    return fields


def start(workflow: str | Document | None, traceparent: str | None, **fields: Any) -> Call[Started]:
    def read(reply: Reply) -> Started:
        return Started(reply.body["run_id"], reply.body["status"], reply.status == 201)

    body = _what(workflow, _given(**fields))
    headers = _given(traceparent=traceparent)
    return _post(target("runs"), body, read, headers=headers, repeatable="request_id" in body)


def plan(workflow: str | Document | None, **fields: Any) -> Call[Plan]:
    return _post(target("runs", "plan"), _what(workflow, _given(**fields)), lambda reply: Plan.of(reply.body))


def get(run: RunRef) -> Call[Run]:
    return Call("GET", target("runs", run_id_of(run)), lambda reply: Run.of(reply.body))


def at(run: RunRef, seq: int) -> Call[Run]:
    return Call("GET", target("runs", run_id_of(run), "at", str(seq)), lambda reply: Run.of(reply.body))


def step(run: RunRef, step_id: str) -> Call[Step]:
    return Call("GET", target("runs", run_id_of(run), "steps", step_id), lambda reply: Step.of(reply.body))


def steps(run: RunRef, cursor: str | None, **query: Any) -> Call[Page[Step]]:
    return page(target("runs", run_id_of(run), "steps", **query, cursor=cursor), Step.of)


def explain(run: RunRef, step_id: str) -> Call[Explanation]:
    path = target("runs", run_id_of(run), "steps", step_id, "explain")
    return Call("GET", path, lambda reply: Explanation.of(reply.body))


def page(path: str, make: Callable[[Mapping[str, Any]], T]) -> Call[Page[T]]:
    def read(reply: Reply) -> Page[T]:
        return Page([make(item) for item in reply.body["items"]], reply.body.get("next_cursor"))

    return Call("GET", path, read)


def runs(cursor: str | None, **query: Any) -> Call[Page[RunSummary]]:
    return page(target("runs", **query, cursor=cursor), RunSummary.of)


def events(run: RunRef, after_seq: int, limit: int) -> Call[Page[Event]]:
    return page(target("runs", run_id_of(run), "events", after_seq=after_seq, limit=limit), Event.of)


def logs(run: RunRef, step_id: str | None, cursor: str | None, limit: int) -> Call[Page[LogLine]]:
    path = ("runs", run_id_of(run), *(("steps", step_id) if step_id else ()), "logs")
    return page(target(*path, cursor=cursor, limit=limit), LogLine.of)


def artifacts(run: RunRef, step: str | None, kind: str | None, cursor: str | None) -> Call[Page[Artifact]]:
    return page(target("runs", run_id_of(run), "artifacts", step=step, kind=kind, cursor=cursor), Artifact.of)


def record_artifact(run: RunRef, artifact: Mapping[str, Any], key: str | None) -> Call[Artifact]:
    headers = {"idempotency-key": key or str(uuid.uuid4())}
    path = target("runs", run_id_of(run), "artifacts")
    return _post(path, artifact, lambda reply: Artifact.of(reply.body), headers=headers)


def workflows(cursor: str | None) -> Call[Page[dict[str, Any]]]:
    return page(target("workflows", cursor=cursor), dict)


def signal(
    run: RunRef, kind: str, payload: Any, step_id: str | None, key: str | None, if_seq: int | None
) -> Call[None]:
    body = _given(type=kind, payload=payload, step_id=step_id)
    return _word(target("runs", run_id_of(run), "signals"), body, key, if_seq)


def verb(run: RunRef, name: str, payload: Any, step_id: str | None, key: str | None, if_seq: int | None) -> Call[None]:
    body = _given(payload=payload, step_id=step_id)
    return _word(target("runs", run_id_of(run), name), body, key, if_seq)


def _word(path: str, body: dict[str, Any], key: str | None, if_seq: int | None) -> Call[None]:
    """A word to a run has a key, be it made here: sent twice it is one signal."""
    headers = {"idempotency-key": key or str(uuid.uuid4())}
    if if_seq is not None:
        headers["if-match"] = f'"{if_seq}"'
    return _post(path, body, lambda reply: None, headers=headers)


def stream(run: RunRef, last_seq: int) -> Call[None]:
    headers = {"accept": "text/event-stream", "last-event-id": str(last_seq)}
    return Call("GET", target("runs", run_id_of(run), "stream"), lambda reply: None, None, headers)
