"""One attempt: a skill is called with an input, and what comes of it is an outcome.

**Invariant:** whatever a skill does, there is an outcome, and no secret's value is in its message.
"""

from __future__ import annotations

import asyncio
import traceback
from dataclasses import dataclass
from typing import Any

from ._json import encode
from .context import Context
from .errors import Cancelled, SkillError
from .skill import Skill

_MAX_MESSAGE = 8 * 1024
_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Failure:
    code: str
    message: str
    retryable: bool

    def to_json(self) -> dict[str, Any]:
        return {"code": self.code, "message": self.message, "retryable": self.retryable}


# The output as JSON text, or why there is none.
Outcome = str | Failure


def carry_out(skill: Skill[..., Any], context: Context) -> Outcome:
    """Calls a plain function."""
    try:
        output = skill.function(**skill.bind(context.input, context))
    except BaseException as error:
        return failure(error, context)
    return completed(output, context)


async def carry_out_async(skill: Skill[..., Any], context: Context) -> Outcome:
    """Calls an async function. Cancelling the task that runs this is how the attempt is cancelled."""
    try:
        output = await skill.function(**skill.bind(context.input, context))
    except BaseException as error:
        return failure(error, context)
    return completed(output, context)


def completed(output: Any, context: Context) -> Outcome:
    try:
        text = encode(output)
        if not text.isascii():
            # Half a surrogate pair is no text.
            text.encode()
        return text
    except (TypeError, ValueError, RecursionError) as error:
        return Failure("bad_output", context._redacted(f"the output is not JSON: {error}"), False)


def failure(error: BaseException, context: Context) -> Failure:
    if isinstance(error, asyncio.CancelledError) and context.cancelled:
        error = Cancelled() if context._cancelled else Cancelled("timeout", "the attempt ran out of time")
    if isinstance(error, SkillError):
        code, message, retryable = error.code, error.message, error.retryable
    else:
        code, message, retryable = type(error).__name__, _described(error), True
    return Failure(code, context._redacted(message)[:_MAX_MESSAGE], retryable)


def _described(error: BaseException) -> str:
    """What was said, and the last lines of where."""
    said = "".join(traceback.format_exception_only(error)).strip()
    # The first frame is the one above, that called the skill.
    frames = traceback.extract_tb(error.__traceback__)[1:][-_FRAMES:]
    return "\n".join([said, *(line.rstrip() for line in traceback.format_list(frames))])
