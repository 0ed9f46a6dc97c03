"""The built-in skills that `run_local` has. Nothing waits: `sleep` is over at once."""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..errors import SkillError
from ..skill import Skill


def _noop(context: Context) -> dict[str, Any]:
    return {}


def _echo(context: Context) -> Any:
    return context.input


def _fail(context: Context) -> Any:
    asked = context.input if isinstance(context.input, dict) else {}
    times = asked.get("times")
    if times is None or context.attempt <= times:
        message = f"attempt {context.attempt} failed, as it was asked to"
        raise SkillError(asked.get("code", "failed"), message, retryable=asked.get("retryable", True))
    return context.input


BUILT_IN: dict[str, Skill[..., Any]] = {
    "noop": Skill(_noop, "noop"),
    "echo": Skill(_echo, "echo"),
    "fail": Skill(_fail, "fail"),
    "sleep": Skill(_noop, "sleep"),
}
