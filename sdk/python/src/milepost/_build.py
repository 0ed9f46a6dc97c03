"""Steps as they are declared, while a `@workflow` function runs.

**Invariant:** a document says what was written and nothing more: settings that were not given are not there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, TypedDict

from ._json import normal
from .expressions import Expr

_building: ContextVar[Builder | None] = ContextVar("milepost_building", default=None)

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


class Options(TypedDict, total=False):
    """Settings of a step, named as in a document; `id` is the step's own."""

    id: str
    description: str
    depends_on: Sequence[Step | str]
    when: Expr | bool
    foreach: Expr | Step | Sequence[Any]
    concurrency: Mapping[str, Any]
    push: Mapping[str, Any]
    retry: Mapping[str, Any]
    timeout_ms: int
    heartbeat_timeout_ms: int
    cache: Mapping[str, Any]
    runtime: str
    queue: str
    secrets: Mapping[str, str]
    env: Sequence[str]


class Step:
    """A step that was declared. `output` refers to what it will yield, `artifacts` to the files it will leave."""

    def __init__(self, builder: Builder, skill: str, id: str, input: Mapping[str, Any]) -> None:
        self._builder = builder
        self._skill = skill
        self._id = id
        self._input = input
        self._options: dict[str, Any] = {}
        self._referred_to = False

    @property
    def id(self) -> str:
        return self._id

    @property
    def output(self) -> Expr:
        self._referred_to = True
        return Expr("steps")[self._id]["output"]

    @property
    def artifacts(self) -> Expr:
        """By kind and name: `train.artifacts.checkpoint["model.bin"].sha256`. Of a step with `foreach`, a list of that."""
        self._referred_to = True
        return Expr("steps")[self._id]["artifacts"]

    def __expr__(self) -> Expr:
        return self.output

    def __str__(self) -> str:
        return str(self.output)

    def __repr__(self) -> str:
        return f"<step {self._id}>"

    def options(self, **options: Any) -> Step:
        """Sets what is given, as `Options` names it, and gives the step back."""
        unknown = options.keys() - Options.__annotations__.keys()
        if unknown:
            names = ", ".join(Options.__annotations__)
            raise TypeError(f"a step has no option `{min(unknown)}`; known are {names}")
        if "id" in options:
            self._rename(options.pop("id"))
        self._options.update(options)
        return self

    def _rename(self, id: str) -> None:
        if self._referred_to:
            raise ValueError(f"step `{self._id}` was referred to already; give it its id first")
        self._builder.rename(self, id)
        self._id = id

    def written(self) -> dict[str, Any]:
        """The step as it stands in the document."""
        options = {name: rendered(value) for name, value in self._options.items() if value is not None}
        if "depends_on" in options:
            needed = self._options["depends_on"]
            options["depends_on"] = [step.id if isinstance(step, Step) else step for step in needed]
        step = {"skill": self._skill}
        step |= {
            name: options.pop(name) for name in ("description", "depends_on", "when", "foreach") if name in options
        }
        if self._input:
            step["input"] = rendered(self._input)
        return step | options


class Builder:
    """The steps of one workflow, by id."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        # The skills of this program that were called.
        self.skills: dict[str, Any] = {}

    def declare(self, skill: str, name: str, input: Mapping[str, Any], options: Mapping[str, Any]) -> Step:
        step = Step(self, skill, self._free_id(name), input)
        self.steps[step.id] = step
        return step.options(**options)

    def rename(self, step: Step, id: str) -> None:
        if id in self.steps and self.steps[id] is not step:
            raise ValueError(f"there are two steps `{id}`")
        self.steps = {id if one is step else one.id: one for one in self.steps.values()}

    def _free_id(self, name: str) -> str:
        id = _UNFIT.sub("_", name)
        id = f"_{id}" if id[:1].isdigit() else id
        n, free = 1, id
        while free in self.steps:
            n += 1
            free = f"{id}_{n}"
        return free


def current() -> Builder | None:
    return _building.get()


def required() -> Builder:
    builder = _building.get()
    if builder is None:
        raise RuntimeError("steps are declared inside a function with @workflow")
    return builder


def building(builder: Builder | None) -> None:
    _building.set(builder)


def rendered(value: Any) -> Any:
    """A value as it stands in a document: references become `${{ … }}`."""
    if isinstance(value, (Expr, Step)):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): rendered(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [rendered(item) for item in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else rendered(normal(value))
