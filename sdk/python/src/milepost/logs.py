"""What skills say through `logging` and `print`, in the logs of their steps."""

from __future__ import annotations

import logging
import sys
from types import TracebackType
from typing import TextIO

from .context import Context, current


class LogHandler(logging.Handler):
    """Sends records to the log of the step that is being carried out; others are left alone.

    `logging.getLogger().addHandler(LogHandler())` is all there is to do.
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = current.get()
        if context is not None:
            try:
                context.log(self.format(record))
            except Exception:
                self.handleError(record)


class _Router:
    """Standard output or error; what a skill writes goes to the log of its step instead."""

    def __init__(self, name: str, inner: TextIO) -> None:
        self._name = name
        self._inner = inner
        # Half lines, by attempt. A key goes when the attempt has ended.
        self._begun: dict[Context, str] = {}

    def write(self, text: str) -> int:
        context = current.get()
        if context is None:
            return self._inner.write(text)
        whole, _, rest = (self._begun.pop(context, "") + text).rpartition("\n")
        if whole or "\n" in text:
            context.log(whole, self._name)
        if rest:
            self._begun[context] = rest
        return len(text)

    def finish(self, context: Context) -> None:
        rest = self._begun.pop(context, "")
        if rest:
            context.log(rest, self._name)

    def flush(self) -> None:
        self._inner.flush()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


class CapturedPrint:
    """While it is entered, what skills print goes to the logs of their steps instead of this program's output."""

    def __init__(self) -> None:
        self._routers: tuple[_Router, _Router] | None = None
        self._before: tuple[TextIO, TextIO] | None = None

    def __enter__(self) -> CapturedPrint:
        self._before = (sys.stdout, sys.stderr)
        self._routers = (_Router("stdout", sys.stdout), _Router("stderr", sys.stderr))
        sys.stdout, sys.stderr = self._routers
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before:
            sys.stdout, sys.stderr = self._before

    def finish(self, context: Context) -> None:
        """The attempt has ended: its last line need not end."""
        for router in self._routers or ():
            router.finish(context)
