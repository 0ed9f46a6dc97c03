"""Milepost in Python: skills and workers, workflows, a client, and a test mode that needs no server."""

from ._build import Options
from ._build import Step as DeclaredStep
from .async_client import AsyncClient
from .client import Client
from .context import Context
from .errors import (
    BadRequest,
    Cancelled,
    Conflict,
    Forbidden,
    MilepostError,
    NoServer,
    NotFound,
    PreconditionFailed,
    Refused,
    RunFailed,
    ServerError,
    SkillError,
    TooLarge,
    TooMany,
    Unauthorized,
    Unavailable,
    WaitTimeout,
)
from .expressions import Expr, apply, contains, default, either, expr, index, item, length
from .local import LocalRun, LocalStep, UnsupportedExpression, run_local
from .logs import LogHandler
from .models import (
    Deployed,
    ErrorInfo,
    Event,
    Explanation,
    LogLine,
    Plan,
    PlannedStep,
    Problem,
    Run,
    RunSummary,
    Started,
    Step,
)
from .skill import Skill, skill
from .worker import Worker
from .workflow import Workflow, step, workflow

__all__ = [
    "AsyncClient",
    "BadRequest",
    "Cancelled",
    "Client",
    "Conflict",
    "Context",
    "DeclaredStep",
    "Deployed",
    "ErrorInfo",
    "Event",
    "Explanation",
    "Expr",
    "Forbidden",
    "LocalRun",
    "LocalStep",
    "LogHandler",
    "LogLine",
    "MilepostError",
    "NoServer",
    "NotFound",
    "Options",
    "Plan",
    "PlannedStep",
    "PreconditionFailed",
    "Problem",
    "Refused",
    "Run",
    "RunFailed",
    "RunSummary",
    "ServerError",
    "Skill",
    "SkillError",
    "Started",
    "Step",
    "TooLarge",
    "TooMany",
    "Unauthorized",
    "Unavailable",
    "UnsupportedExpression",
    "WaitTimeout",
    "Worker",
    "Workflow",
    "apply",
    "contains",
    "default",
    "either",
    "expr",
    "index",
    "item",
    "length",
    "run_local",
    "skill",
    "step",
    "workflow",
]
