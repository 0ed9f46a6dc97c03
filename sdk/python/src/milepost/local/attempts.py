"""The attempts of a step, one after the other, without waiting in between."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._attempt import Outcome, carry_out, carry_out_async
from .._files import LocalFiles
from .._json import decode
from ..context import Context, current
from ..models import LogLine
from .plan import LocalPlan, PlannedStep

if TYPE_CHECKING:
    from .run import LocalStep


class Attempts:
    """Carries attempts out: functions here, async functions on one event loop, which a thread of its own has."""

    def __init__(self, secrets: Mapping[str, str], env: Mapping[str, str]) -> None:
        self._secrets = secrets
        self._env = env
        self._thread = ThreadPoolExecutor(1, "milepost-async-skills")
        self._runner: asyncio.Runner | None = None
        self._files = LocalFiles()

    def __enter__(self) -> Attempts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner:
            self._thread.submit(self._runner.close).result()
        self._thread.shutdown()
        self._files.close()

    def until_done(self, run_id: str, plan: LocalPlan, step: PlannedStep, state: LocalStep) -> Any:
        """The output, or the failure that no attempt follows."""
        while True:
            state.attempts += 1
            outcome = self._attempt(self._task(run_id, plan, step, state), step, state)
            if isinstance(outcome, str):
                return decode(outcome)
            final = not outcome.retryable or outcome.code in step.non_retryable
            if final or state.attempts >= step.max_attempts:
                return outcome

    def _task(self, run_id: str, plan: LocalPlan, step: PlannedStep, state: LocalStep) -> dict[str, Any]:
        missing = step.secrets.keys() - self._secrets.keys()
        if missing:
            raise ValueError(f"step `{step.id}` asks for the secret `{min(missing)}`; give it in `secrets`")
        return {
            "task_id": state.step_id,
            "run_id": run_id,
            "step_id": state.step_id,
            "skill": step.skill.name,
            "input": state.input,
            "logical_attempt": state.attempts,
            "timeout_ms": step.timeout_ms,
            "secrets": {name: self._secrets[name] for name in step.secrets},
            "env": {name: self._env[name] for name in step.env if name in self._env},
            "context": {"workflow": plan.name, "workflow_version": plan.version, "queue": step.queue, "priority": 0},
        }

    def recorded(self, step_id: str) -> list[dict[str, Any]]:
        """What a step recorded at once."""
        return self._files.recorded.get(step_id, [])

    def _attempt(self, task: dict[str, Any], step: PlannedStep, state: LocalStep) -> Outcome:
        listener = _Listener(state)
        context = listener.context = Context(task, listener, self._files)
        if step.skill.is_async:
            outcome = self._on_the_loop(step, context)
        else:
            token = current.set(context)
            outcome = carry_out(step.skill, context)
            current.reset(token)
        listener.has_news()
        if isinstance(outcome, str):
            state.artifacts += context._artifacts
        return outcome

    def _on_the_loop(self, step: PlannedStep, context: Context) -> Outcome:
        async def run() -> Outcome:
            current.set(context)
            return await carry_out_async(step.skill, context)

        self._runner = self._runner or asyncio.Runner()
        return self._thread.submit(self._runner.run, run()).result()


class _Listener:
    """Keeps what an attempt says."""

    def __init__(self, state: LocalStep) -> None:
        self._state = state
        self.context: Context | None = None

    def has_news(self) -> None:
        if self.context is None:
            return
        if self.context._progress is not None:
            self._state.progress.append(self.context._progress)
            self.context._progress = None
        for line in self.context._take_lines():
            number = sum(one.logical_attempt == self.context.attempt for one in self._state.logs)
            said = LogLine(
                self._state.step_id, self.context.attempt, 1, number, line.get("at", ""), line["stream"], line["text"]
            )
            self._state.logs.append(said)
