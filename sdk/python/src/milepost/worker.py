"""A worker: a program that carries steps out for a server."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType, ModuleType, TracebackType
from typing import Any

from ._files import RemoteFiles
from ._http import Server
from ._worker.exchange import Exchange
from ._worker.pump import Pump
from .client import bearer, server_url
from .logs import CapturedPrint
from .skill import Skill

log = logging.getLogger("milepost.worker")

# A skill, a module with skills, a list of either, or the name of one: `module` or `module:attribute`.
SkillSource = Skill[..., Any] | ModuleType | str | Iterable["SkillSource"]


class Worker:
    """Takes tasks of its skills from queues, at most `concurrency` at once.

    `run()` blocks until SIGINT or SIGTERM; `start()` and `stop()` are for programs that do something else as well. What
    runs when it stops may end within `grace` seconds; what does not is handed to another worker when its lease is over.
    `url` and `token` default to MILEPOST_URL and MILEPOST_TOKEN. With `capture_print`, what skills print is in the logs
    of their steps.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        skills: SkillSource,
        queues: Sequence[str] = ("default",),
        concurrency: int = 16,
        token: str | None = None,
        grace: float = 30.0,
        capture_print: bool = False,
    ) -> None:
        if not 1 <= concurrency <= 1000:
            raise ValueError("concurrency is a number from 1 to 1000")
        if isinstance(queues, str):
            raise TypeError(f"queues is a list: [{queues!r}]")
        self.url = server_url(url)
        self.skills = skills_by_name(skills)
        if not self.skills:
            raise ValueError("a worker needs skills: functions with @skill, or modules that have some")
        # A restarted process must not be taken for the one before it, so there is something new in it each time.
        self.worker_id = f"{socket.gethostname()[:200]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.error: BaseException | None = None
        self._captured = CapturedPrint() if capture_print else None
        self._grace = grace
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._asked = False
        server, headers = Server.of(self.url), bearer(token)
        exchange = Exchange(server, headers, self.worker_id, queues, list(self.skills))
        self._pump = Pump(exchange, self.skills, concurrency, self._captured, RemoteFiles(server, headers))

    def run(self) -> None:
        """Works until SIGINT or SIGTERM. The second of them ends it at once.

        Raises `MilepostError` when the server refuses the worker.
        """
        with _signals(self.ask_to_stop):
            self.start()
            # Waiting in short pieces lets Python see signals on every platform.
            while not self._ended.wait(0.5):
                pass
        if self.error:
            raise self.error

    def start(self) -> Worker:
        """Works in the background."""
        if self._thread:
            raise RuntimeError("a worker starts once; make another one")
        ready = threading.Event()
        self._thread = threading.Thread(target=self._work, args=(ready,), name="milepost-worker", daemon=True)
        self._thread.start()
        ready.wait()
        return self

    def stop(self, grace: float | None = None) -> None:
        """Takes no more, lets what runs end within the grace, and returns when it is over.

        Raises `MilepostError` when the server had refused the worker.
        """
        if self._thread is None:
            return
        self._ask(self._grace if grace is None else grace)
        self._thread.join()
        if self.error:
            raise self.error

    def ask_to_stop(self) -> None:
        """Takes no more and returns at once. Asked twice, it gives up what runs."""
        self._ask(0.0 if self._asked else self._grace)

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _ask(self, grace: float) -> None:
        self._asked = True
        if self._loop and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._pump.stop, grace)

    def _work(self, ready: threading.Event) -> None:
        try:
            with self._captured or contextlib.nullcontext():
                asyncio.run(self._pumping(ready))
        except BaseException as error:
            self.error = error
            log.error("the worker ended: %s", error)
        finally:
            ready.set()
            self._ended.set()

    async def _pumping(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        log.info("worker %s works for %s: %s", self.worker_id, self.url, ", ".join(self.skills))
        ready.set()
        await self._pump.run()


def skills_by_name(source: SkillSource) -> dict[str, Skill[..., Any]]:
    found: dict[str, Skill[..., Any]] = {}
    for skill in _found(source):
        if found.setdefault(skill.name, skill) is not skill:
            raise ValueError(f"there are two skills `{skill.name}`")
        # Making the binding now tells of functions that cannot be skills before anything runs.
        _ = skill.bind
    return found


def _found(source: Any) -> Iterator[Skill[..., Any]]:
    if isinstance(source, Skill):
        yield source
    elif isinstance(source, ModuleType):
        yield from (value for value in vars(source).values() if isinstance(value, Skill))
    elif isinstance(source, str):
        yield from _found(_loaded(source))
    elif isinstance(source, Iterable):
        for one in source:
            yield from _found(one)
    else:
        raise TypeError(f"{source!r} is neither a skill nor a module; put @skill before the function")


def _loaded(name: str) -> Any:
    module, _, attribute = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split(".") if attribute else ():
        found = getattr(found, part)
    return found


@contextlib.contextmanager
def _signals(stop: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM mean stop, while this lasts. Only the main thread may see to signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: FrameType | None) -> None:
        log.info("asked to stop; what runs may end. Once more gives it up")
        stop()

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
