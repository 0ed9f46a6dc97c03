"""A document, ready to run here. What is wrong with one is better told by `Client.validate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..skill import Skill
from .template import Template


class PlannedStep:
    def __init__(
        self, id: str, written: Mapping[str, Any], defaults: Mapping[str, Any], skill: Skill[..., Any]
    ) -> None:
        settings = {**defaults, **written}
        self.id = id
        self.skill = skill
        self.input = Template(written.get("input", {}))
        self.when = Template(written.get("when", True))
        self.foreach = Template(written["foreach"]) if "foreach" in written else None
        named = set(written.get("depends_on", ()))
        self.depends_on = named | self.input.steps | self.when.steps | (self.foreach.steps if self.foreach else set())
        retry = {**defaults.get("retry", {}), **written.get("retry", {})}
        self.max_attempts: int = retry.get("max_attempts", 1)
        self.non_retryable = frozenset(retry.get("non_retryable", ()))
        self.timeout_ms: int | None = settings.get("timeout_ms")
        self.secrets: Mapping[str, str] = settings.get("secrets", {})
        self.env: list[str] = settings.get("env", [])
        self.queue: str = settings.get("queue", "default")


class LocalPlan:
    def __init__(self, document: Mapping[str, Any], skills: Mapping[str, Skill[..., Any]]) -> None:
        self.name: str = document["name"]
        self.version: str = document.get("version", "0.0.0")
        self.on_failure: str = document.get("on_failure", "stop")
        self.self_patch: bool = "self_patch" in document
        self.steps: dict[str, PlannedStep] = {}
        for id, written in sorted(_by_id(document["steps"]).items()):
            name = written["skill"]
            if name not in skills:
                raise ValueError(f"step `{id}`: there is no skill `{name}` here; give it in `skills`")
            self.steps[id] = PlannedStep(id, written, document.get("defaults", {}), skills[name])
        self._check()
        needed = set().union(*(step.depends_on for step in self.steps.values()))
        # The run's output is theirs.
        self.last = [id for id in self.steps if id not in needed]

    def _check(self) -> None:
        """Every step has its turn."""
        done: set[str] = set()
        while len(done) < len(self.steps):
            ready = {id for id, step in self.steps.items() if id not in done and step.depends_on <= done}
            if not ready:
                break
            done |= ready
        for step in self.steps.values():
            for other in sorted(step.depends_on - self.steps.keys()):
                raise ValueError(f"step `{step.id}`: there is no step `{other}`")
        if len(done) < len(self.steps):
            raise ValueError(f"steps wait for each other: {', '.join(sorted(self.steps.keys() - done))}")


def _by_id(steps: Any) -> dict[str, Any]:
    if isinstance(steps, Mapping):
        return dict(steps)
    return {step["id"]: step for step in steps}
