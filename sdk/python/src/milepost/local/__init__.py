"""Runs in this process, without a server: for tests of workflows and skills."""

from .operations import UnsupportedExpression
from .run import LocalRun, LocalStep, run_local

__all__ = ["LocalRun", "LocalStep", "UnsupportedExpression", "run_local"]
