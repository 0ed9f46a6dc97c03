"""Workflows written in Python. What comes out is the document that YAML would have been."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _build, _yaml
from ._build import Builder, Step
from .expressions import Expr

_KNOWN = {"payload": Expr("payload"), "run": Expr("run")}


class Workflow:
    """A workflow. Give it to `Client.deploy`, `Client.start` or `run_local`."""

    def __init__(self, function: Callable[..., Any], head: Mapping[str, Any], tail: Mapping[str, Any]) -> None:
        self.name: str = head["name"]
        self._function = function
        self._head = head
        self._tail = tail
        self._document: dict[str, Any] | None = None
        self._skills: dict[str, Any] = {}

    def document(self) -> dict[str, Any]:
        """The document. The function runs once, the first time it is needed."""
        if self._document is None:
            steps = {id: step.written() for id, step in self._declare().items()}
            self._document = {**_written(self._head), "steps": steps, **_written(self._tail)}
        return self._document

    @property
    def skills(self) -> dict[str, Any]:
        """The skills of this program that it calls, by name: `Worker(skills=campaign.skills.values())`."""
        self.document()
        return self._skills

    def to_json(self) -> str:
        return json.dumps(self.document(), indent=2, ensure_ascii=False)

    def to_yaml(self) -> str:
        return _yaml.dump(self.document())

    def __repr__(self) -> str:
        return f"<workflow {self.name}>"

    def _declare(self) -> dict[str, Step]:
        names = list(inspect.signature(self._function).parameters)
        unknown = [name for name in names if name not in _KNOWN]
        if unknown:
            raise TypeError(
                f"workflow `{self.name}`: a workflow's parameters are `payload` and `run`, not `{unknown[0]}`"
            )
        builder, outer = Builder(), _build.current()
        _build.building(builder)
        try:
            self._function(**{name: _KNOWN[name] for name in names})
        finally:
            _build.building(outer)
        if not builder.steps:
            raise ValueError(f"workflow `{self.name}` declares no step; call skills in it")
        self._skills = builder.skills
        return builder.steps


def workflow(
    *,
    name: str | None = None,
    version: str | None = None,
    kind: str | None = None,
    description: str | None = None,
    params: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
    on_failure: str | None = None,
    approval: bool | None = None,
    concurrency: Mapping[str, Any] | None = None,
    changes: Mapping[str, Any] | None = None,
    tunables: Sequence[Mapping[str, Any]] | None = None,
    self_patch: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Workflow]:
    """Makes a function that declares steps a workflow. All settings are named as in a document."""

    def decorate(function: Callable[..., Any]) -> Workflow:
        head = {"kind": kind, "name": name or function.__name__, "version": version, "description": description}
        more = {"params": params, "defaults": defaults, "on_failure": on_failure, "approval": approval}
        tail = {"changes": changes, "tunables": tunables, "self_patch": self_patch}
        return Workflow(function, {**head, **more, "concurrency": concurrency}, tail)

    return decorate


def step(skill: str, input: Mapping[str, Any] | None = None, /, **fields: Any) -> Step:
    """Declares a step of a skill by its name: a built-in one, or one that another program has."""
    return _build.required().declare(skill, skill, {**(input or {}), **fields}, {})


def _written(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _build.rendered(value) for name, value in settings.items() if value is not None}
