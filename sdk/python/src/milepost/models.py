"""What a server answers, as Python sees it.

Fields that a later server adds are in `raw`; fields that are not there are None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

ENDED = frozenset({"completed", "failed", "cancelled", "terminated"})


class HasRunId(Protocol):
    """Anything that says which run it is about."""

    @property
    def run_id(self) -> str: ...


RunRef = str | HasRunId


def run_id_of(run: RunRef) -> str:
    return run if isinstance(run, str) else run.run_id


def _raw() -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    code: str
    message: str
    retryable: bool

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> ErrorInfo | None:
        return cls(data["code"], data["message"], data.get("retryable", False)) if data else None


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is wrong with a document."""

    code: str
    message: str
    path: str
    line: int | None = None
    column: int | None = None
    suggestion: str | None = None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Problem:
        get = data.get
        return cls(data["code"], data["message"], get("path", ""), get("line"), get("column"), get("suggestion"))

    def __str__(self) -> str:
        place = f"{self.line}:{self.column}: " if self.line else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{place}{self.code}: {self.message} [{self.path}]{hint}"


@dataclass(frozen=True, slots=True)
class Deployed:
    revision_id: str
    version_hash: str
    tag: str
    tag_version: int
    # False when this content was deployed before.
    created: bool


@dataclass(frozen=True, slots=True)
class Started:
    run_id: str
    status: str
    # False when the request id was known: this is the run that it began.
    created: bool


@dataclass(frozen=True, slots=True)
class Blob:
    """Content that a server has."""

    sha256: str
    size_bytes: int

    @property
    def uri(self) -> str:
        return f"milepost://blobs/sha256/{self.sha256}"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file that a run left. One that was only attached has no `artifact_id` yet."""

    artifact_id: str | None
    run_id: str
    step_id: str | None
    kind: str
    uri: str
    sha256: str | None
    size_bytes: int | None
    media_type: str | None
    filename: str | None
    training_step: int | None
    metadata: Mapping[str, Any]
    raw: Mapping[str, Any] = field(default_factory=_raw, repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Artifact:
        get = data.get
        return cls(
            artifact_id=get("artifact_id"),
            run_id=data["run_id"],
            step_id=get("step_id"),
            kind=data["kind"],
            uri=data["uri"],
            sha256=get("sha256"),
            size_bytes=get("size_bytes"),
            media_type=get("media_type"),
            filename=get("filename"),
            training_step=get("training_step"),
            metadata=get("metadata") or {},
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class Step:
    step_id: str
    skill: str
    status: str
    skip_reason: str | None
    logical_attempt: int
    engine_attempt: int
    output: Any
    error: ErrorInfo | None
    artifacts: Sequence[Artifact] = ()
    raw: Mapping[str, Any] = field(default_factory=_raw, repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Step:
        return cls(
            step_id=data["step_id"],
            skill=data["skill"],
            status=data["status"],
            skip_reason=data.get("skip_reason"),
            logical_attempt=data["logical_attempt"],
            engine_attempt=data["engine_attempt"],
            output=data.get("output"),
            error=ErrorInfo.of(data.get("error")),
            artifacts=[Artifact.of(artifact) for artifact in data.get("artifacts") or ()],
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a run is parked: it took its server down, and waits for `RESUME` or `TERMINATE`."""

    reason: str
    since: str
    crashes: int

    @classmethod
    def of(cls, data: Mapping[str, Any] | None) -> Stuck | None:
        return cls(data["reason"], data["since"], data["crashes"]) if data else None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run as lists have it: without payload, output and steps."""

    run_id: str
    workflow: str
    workflow_version: str
    status: str
    trigger_type: str
    priority: int
    last_event_seq: int
    steps_total: int
    steps_done: int
    steps_failed: int
    created_at: str
    started_at: str | None
    completed_at: str | None
    updated_at: str | None
    total_duration_ms: int | None
    submitted_by: str | None
    request_id: str | None
    base_run_id: str | None
    parent_run_id: str | None
    error: ErrorInfo | None
    stale_from: int | None = None
    """The first event that the run's log lacks, if it has a gap: what is shown is as it was before that."""
    stuck: Stuck | None = None
    raw: Mapping[str, Any] = field(default_factory=_raw, repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> RunSummary:
        return cls(**_summary(data))

    @property
    def ended(self) -> bool:
        return self.status in ENDED


@dataclass(frozen=True, slots=True)
class Run(RunSummary):
    """One run, with its steps."""

    payload: Any = None
    output: Any = None
    steps: Sequence[Step] = ()

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Run:
        steps = tuple(Step.of(step) for step in data["steps"])
        return cls(**_summary(data), payload=data.get("payload"), output=data.get("output"), steps=steps)

    def step(self, step_id: str) -> Step:
        """One of its steps."""
        for step in self.steps:
            if step.step_id == step_id:
                return step
        raise KeyError(f"run {self.run_id} has no step `{step_id}`")


def _summary(data: Mapping[str, Any]) -> dict[str, Any]:
    get = data.get
    return {
        "run_id": data["run_id"],
        "workflow": data["workflow"],
        "workflow_version": data["workflow_version"],
        "status": data["status"],
        "trigger_type": data["trigger_type"],
        "priority": data["priority"],
        "last_event_seq": data["last_event_seq"],
        "steps_total": data["steps_total"],
        "steps_done": data["steps_done"],
        "steps_failed": data["steps_failed"],
        "created_at": data["created_at"],
        "started_at": get("started_at"),
        "completed_at": get("completed_at"),
        "updated_at": get("updated_at"),
        "total_duration_ms": get("total_duration_ms"),
        "submitted_by": get("submitted_by"),
        "request_id": get("request_id"),
        "base_run_id": get("base_run_id"),
        "parent_run_id": get("parent_run_id"),
        "error": ErrorInfo.of(get("error")),
        "stale_from": (get("stale") or {}).get("from_seq"),
        "stuck": Stuck.of(get("stuck")),
        "raw": data,
    }


@dataclass(frozen=True, slots=True)
class Event:
    run_id: str
    run_seq: int
    event_type: str
    step_id: str | None
    logical_attempt: int | None
    engine_attempt: int | None
    data: Any
    emitted_at: str
    raw: Mapping[str, Any] = field(default_factory=_raw, repr=False, compare=False)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Event:
        get = data.get
        return cls(
            run_id=data["run_id"],
            run_seq=data["run_seq"],
            event_type=data["event_type"],
            step_id=get("step_id"),
            logical_attempt=get("logical_attempt"),
            engine_attempt=get("engine_attempt"),
            data=get("data"),
            emitted_at=data["emitted_at"],
            raw=data,
        )


@dataclass(frozen=True, slots=True)
class LogLine:
    step_id: str
    logical_attempt: int
    engine_attempt: int
    line: int
    at: str
    stream: str
    text: str

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> LogLine:
        return cls(
            step_id=data["step_id"],
            logical_attempt=data["logical_attempt"],
            engine_attempt=data["engine_attempt"],
            line=data["line"],
            at=data["at"],
            stream=data["stream"],
            text=data["text"],
        )


@dataclass(frozen=True, slots=True)
class PlannedStep:
    step_id: str
    skill: str
    decision: str
    reason: str
    message: str
    input_hash: str | None
    cache_key: str | None
    predicted_ms: int | None
    saved_ms: int | None
    upstream: Sequence[str]
    """Steps whose outputs decide."""
    items: Mapping[str, int] | None
    """Of a `foreach` step: `total`, `run`, `reuse`, `unknown`."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a start would do."""

    workflow: str
    workflow_version: str
    counts: Mapping[str, int]
    steps: Sequence[PlannedStep]
    predicted_ms: int | None
    """The longest way through what runs, by how long it took the last time."""
    work_ms: int
    saved_ms: int

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Plan:
        steps = tuple(
            PlannedStep(
                step_id=step["step_id"],
                skill=step["skill"],
                decision=step["decision"],
                reason=step["reason"],
                message=step.get("message", ""),
                input_hash=step.get("input_hash"),
                cache_key=step.get("cache_key"),
                predicted_ms=step.get("predicted_ms"),
                saved_ms=step.get("saved_ms"),
                upstream=tuple(step.get("upstream", ())),
                items=step.get("items"),
            )
            for step in data["steps"]
        )
        return cls(
            workflow=data["workflow"],
            workflow_version=data["workflow_version"],
            counts=data["counts"],
            steps=steps,
            predicted_ms=data.get("predicted_ms"),
            work_ms=data["work_ms"],
            saved_ms=data["saved_ms"],
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a step ran, whose result it has, or what it waits for."""

    step_id: str
    status: str
    decision: str
    """`ran`, `running`, `reused`, `skipped` or `waiting`."""
    reason: str
    message: str
    cache_key: str | None
    differences: Sequence[Mapping[str, Any]]
    """What differs from the nearest earlier key: `part`, `path`, `before`, `after`."""
    waits: Sequence[Mapping[str, Any]]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Explanation:
        return cls(
            step_id=data["step_id"],
            status=data["status"],
            decision=data["decision"],
            reason=data["reason"],
            message=data["message"],
            cache_key=data.get("cache_key"),
            differences=tuple(data["differences"]),
            waits=tuple(data["waits"]),
            raw=data,
        )
