"""What can go wrong, cut by what the caller does next.

`MilepostError` and its subclasses are about calls to a server; `SkillError` and `Cancelled` are raised inside skills;
`RunFailed` and `WaitTimeout` are about a run that was waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Problem, Run


class MilepostError(Exception):
    """A call that was refused, or not answered. `code` is stable; `detail` says what to do."""

    def __init__(self, detail: str, *, code: str, status: int | None = None, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        self.status = status
        self.problems = tuple(problems)

    def __str__(self) -> str:
        told = f"{self.code}: {self.detail}"
        return "\n".join([told, *(f"  {problem}" for problem in self.problems)])


class NoServer(MilepostError):
    """Nobody answered: no connection, or it broke."""


class BadRequest(MilepostError):
    """400: the request cannot be read."""


class Unauthorized(MilepostError):
    """401: this server wants a token."""


class Forbidden(MilepostError):
    """403."""


class NotFound(MilepostError):
    """404: there is no such run, step or workflow."""


class Conflict(MilepostError):
    """409: it does not fit the run as it stands."""


class PreconditionFailed(MilepostError):
    """412: the run went on since it was looked at."""


class TooLarge(MilepostError):
    """413: the body is too large."""


class Refused(MilepostError):
    """422: a bad document (see `problems`), a payload that does not fit, a key that was used for something else."""


class TooMany(MilepostError):
    """429: too much at once; later it may fit."""


class ServerError(MilepostError):
    """5xx: a fault of the server's."""


class Unavailable(ServerError):
    """503, 507: the server cannot do it now; the same request may be sent again."""


_BY_STATUS: Mapping[int, type[MilepostError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: TooLarge,
    422: Refused,
    429: TooMany,
    503: Unavailable,
    507: Unavailable,
}


def refusal(status: int, body: Any) -> MilepostError:
    """The error for an answer with this status; `body` is its JSON, or its text where it has none."""
    from .models import Problem

    kind = _BY_STATUS.get(status, ServerError if status >= 500 else MilepostError)
    if not isinstance(body, dict):
        return kind(f"the server answered {status}: {str(body)[:500]}", code=f"http_{status}", status=status)
    detail = body.get("detail") or body.get("title") or f"the server answered {status}"
    problems = [Problem.of(problem) for problem in body.get("problems") or ()]
    return kind(str(detail), code=str(body.get("code") or f"http_{status}"), status=status, problems=problems)


class SkillError(Exception):
    """Raise it in a skill to fail the attempt with a code of your own."""

    def __init__(self, code: str, message: str = "", *, retryable: bool = True) -> None:
        super().__init__(message or code)
        self.code = code
        self.message = message or code
        self.retryable = retryable


class Cancelled(SkillError):
    """Raised by `Context.raise_if_cancelled`: nobody wants the result of this attempt any more."""

    def __init__(self, code: str = "cancelled", message: str = "the attempt was cancelled") -> None:
        super().__init__(code, message, retryable=code == "timeout")


class RunFailed(Exception):
    """A run that was waited for did not complete."""

    def __init__(self, run: Run) -> None:
        said = f": {run.error.code}: {run.error.message}" if run.error else ""
        super().__init__(f"run {run.run_id} {run.status}{said}")
        self.run = run


class WaitTimeout(Exception):
    """A run had not ended when the time was up. It goes on."""
