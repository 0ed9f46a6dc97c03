"""One run of a document in this process.

Steps whose turn has come begin together, one after the other here, and the next ones when all of them have ended.
Retries follow at once. Nothing is stored.
"""

from __future__ import annotations

import datetime
import itertools
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .._attempt import Failure
from .._calls import HasDocument
from .._convert import kind
from .._json import decode, normal
from ..context import BLOBS
from ..models import ErrorInfo, LogLine
from ..skill import Skill
from ..worker import SkillSource, skills_by_name
from .attempts import Attempts
from .operations import EvalError, is_true
from .plan import LocalPlan, PlannedStep
from .skills import BUILT_IN


@dataclass(slots=True)
class LocalStep:
    step_id: str
    skill: str
    status: str = "pending"
    skip_reason: str | None = None
    attempts: int = 0
    input: Any = None
    output: Any = None
    error: ErrorInfo | None = None
    progress: list[Any] = field(default_factory=list)
    logs: list[LogLine] = field(default_factory=list)
    # What it attached, as a server would be told.
    artifacts: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True)
class LocalRun:
    """How the run ended: `completed` or `failed`."""

    run_id: str
    status: str
    output: Any
    error: ErrorInfo | None
    # Steps by id, and items as `shots[0]`.
    steps: dict[str, LocalStep]


def run_local(
    workflow: HasDocument | Mapping[str, Any] | str,
    payload: Any = None,
    *,
    skills: SkillSource | Mapping[str, Callable[..., Any]] = (),
    secrets: Mapping[str, str] | None = None,
    env: Mapping[str, str] | None = None,
) -> LocalRun:
    """Runs a workflow, a document or its JSON text here.

    Skills that a Python workflow calls are known; others are given in `skills`, or as functions by name. `secrets` and
    `env` are what steps get of those that they ask for; `env` is this process's if it is not given.
    """
    known = {**BUILT_IN, **getattr(workflow, "skills", {}), **_given(skills)}
    if isinstance(workflow, str):
        document = decode(workflow)
    else:
        document = workflow.document() if isinstance(workflow, HasDocument) else workflow
    plan = LocalPlan(document, known)
    with Attempts(secrets or {}, os.environ if env is None else env) as attempts:
        return _Running(plan, normal({} if payload is None else payload), attempts).to_its_end()


def _given(skills: Any) -> dict[str, Skill[..., Any]]:
    if not isinstance(skills, Mapping):
        return skills_by_name(skills)
    return {name: one if isinstance(one, Skill) else Skill(one, name) for name, one in skills.items()}


class _Running:
    def __init__(self, plan: LocalPlan, payload: Any, attempts: Attempts) -> None:
        self._plan = plan
        self._attempts = attempts
        self._run_id = str(uuid.uuid4())
        self._steps = {id: LocalStep(id, step.skill.name) for id, step in plan.steps.items()}
        self._items: dict[str, LocalStep] = {}
        self._first_failure: tuple[str, ErrorInfo] | None = None
        now = datetime.datetime.now(datetime.UTC).isoformat().replace("+00:00", "Z")
        run = {"id": self._run_id, "workflow": plan.name, "version": plan.version, "priority": 0, "created_at": now}
        run["org"] = "default"
        self._outputs: dict[str, Any] = {}
        self._scope = {"payload": payload, "run": run, "steps": self._outputs}

    def to_its_end(self) -> LocalRun:
        while ready := [step for step in self._plan.steps.values() if self._is_ready(step)]:
            # Conditions are looked at first, as a server does when the turn of these steps comes.
            for step, items in [(step, self._look_at(step)) for step in ready]:
                if self._steps[step.id].status == "pending":
                    self._carry_out(step, items)
            if self._first_failure and self._plan.on_failure == "stop":
                self._skip_after_failures()
                break
        error = self._error()
        output = None if error else {id: self._steps[id].output for id in self._plan.last}
        status = "failed" if error else "completed"
        return LocalRun(self._run_id, status, output, error, {**self._steps, **self._items})

    def _is_ready(self, step: PlannedStep) -> bool:
        state = self._steps[step.id]
        if state.status != "pending":
            return False
        before = [self._steps[id] for id in step.depends_on]
        if any(_blocks(one) for one in before):
            state.status, state.skip_reason = "skipped", "upstream_failed"
        return state.status == "pending" and all(one.status != "pending" for one in before)

    def _skip_after_failures(self) -> None:
        # A step that is skipped skips those after it.
        for _ in self._plan.steps:
            for step in self._plan.steps.values():
                self._is_ready(step)
        for state in self._steps.values():
            if state.status == "pending":
                state.status, state.skip_reason = "skipped", "run_stopped"

    def _look_at(self, step: PlannedStep) -> list[Any] | None:
        """Ends the step if there is nothing to carry out. Answers the items of a `foreach`."""
        state = self._steps[step.id]
        try:
            if not is_true(step.when.render(self._scope)):
                state.status, state.skip_reason = "skipped", "condition"
                self._outputs[step.id] = {"output": None, "artifacts": [] if step.foreach else {}}
                return None
            items = step.foreach.render(self._scope) if step.foreach else None
        except EvalError as error:
            self._end(step, state, Failure("expression_failed", str(error), False))
            return None
        if step.foreach and not isinstance(items, list):
            self._end(step, state, Failure("not_a_list", f"foreach must yield a list, this is {kind(items)}", False))
            return None
        return items

    def _carry_out(self, step: PlannedStep, items: list[Any] | None) -> None:
        state = self._steps[step.id]
        if items is None:
            self._end(step, state, self._try(step, state, self._scope))
        else:
            self._each(step, state, items)

    def _each(self, step: PlannedStep, state: LocalStep, items: list[Any]) -> None:
        state.attempts = 1
        outputs, failed = [], []
        for index, item in enumerate(items):
            sub = self._items[f"{step.id}[{index}]"] = LocalStep(f"{step.id}[{index}]", step.skill.name)
            outcome = self._try(step, sub, {**self._scope, "item": item, "index": index})
            self._settle(sub, outcome)
            outputs.append(sub.output)
            if sub.error:
                failed.append(sub)
                self._first_failure = self._first_failure or (sub.step_id, sub.error)
        if failed:
            told = f"{len(failed)} of {len(items)} items failed, the first is `{failed[0].step_id}`"
            self._end(step, state, Failure("items_failed", told, False))
        else:
            self._end(step, state, outputs)

    def _try(self, step: PlannedStep, state: LocalStep, scope: Mapping[str, Any]) -> Any:
        """The output of a step or item, or its last failure."""
        try:
            state.input = step.input.render(scope)
        except EvalError as error:
            return Failure("expression_failed", str(error), False)
        return self._attempts.until_done(self._run_id, self._plan, step, state)

    def _end(self, step: PlannedStep, state: LocalStep, outcome: Any) -> None:
        self._settle(state, outcome)
        if state.error:
            self._first_failure = self._first_failure or (step.id, state.error)
        else:
            self._outputs[step.id] = {"output": state.output, "artifacts": self._left_by(step)}

    def _left_by(self, step: PlannedStep) -> Any:
        """What the step left, as the steps after it see it; of a `foreach` step a list of that."""
        if not step.foreach:
            return self._artifacts_of(self._steps[step.id])
        items = (self._items.get(f"{step.id}[{index}]") for index in itertools.count())
        return [self._artifacts_of(item) for item in itertools.takewhile(lambda item: item is not None, items)]

    def _artifacts_of(self, state: LocalStep | None) -> dict[str, dict[str, Any]]:
        assert state is not None
        kinds: dict[str, dict[str, Any]] = {}
        left = self._attempts.recorded(state.step_id) + state.artifacts
        # Of those with one name the last one counts.
        for one in sorted(left, key=lambda one: one.get("training_step", float("-inf"))):
            step, kind = one.get("training_step"), one.get("kind", "custom")
            name = one.get("filename") or (str(step) if step is not None else kind)
            uri = one.get("uri") or f"{BLOBS}{one['sha256']}"
            seen = {"uri": uri, "sha256": one.get("sha256"), "size": one.get("size_bytes")}
            kinds.setdefault(kind, {})[name] = seen
        return kinds

    def _settle(self, state: LocalStep, outcome: Any) -> None:
        if self._plan.self_patch and isinstance(outcome, dict) and "patch" in outcome:
            raise ValueError(f"step `{state.step_id}` returns a patch for its run, which run_local cannot; a server can")
        if isinstance(outcome, Failure):
            state.status = "failed"
            state.error = ErrorInfo(outcome.code, outcome.message, outcome.retryable)
        else:
            state.status, state.output = "completed", outcome

    def _error(self) -> ErrorInfo | None:
        if self._first_failure is None:
            return None
        step, error = self._first_failure
        return ErrorInfo(error.code, f"step `{step}` failed: {error.message}", error.retryable)


def _blocks(step: LocalStep) -> bool:
    return step.status == "failed" or (step.status == "skipped" and step.skip_reason != "condition")
