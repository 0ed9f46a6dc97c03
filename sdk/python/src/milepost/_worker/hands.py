"""Carries tasks out: functions on threads, async functions on an event loop of their own.

Threads share one queue. One that finds the next task waiting takes it without going to sleep, so short functions run
one after the other on one thread, and as many threads join in as there are functions that wait for something.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Sequence
from contextvars import Context as Variables
from queue import SimpleQueue

from .._attempt import Outcome, carry_out, carry_out_async, failure
from ..context import current
from ..logs import CapturedPrint
from .held import Held

# Called in the thread that carried the task out.
Done = Callable[[Held, Outcome], None]


class Hands:
    def __init__(self, done: Done, captured: CapturedPrint | None) -> None:
        self._done = done
        self._captured = captured
        self._queue: SimpleQueue[Held | None] = SimpleQueue()
        self._threads = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, batch: Sequence[Held], functions: int) -> None:
        """Begins tasks. `functions`: how many plain functions are under way then; they may need as many threads."""
        for _ in range(self._threads, functions):
            self._threads += 1
            threading.Thread(target=self._work, name=f"milepost-skill-{self._threads}", daemon=True).start()
        waiting = []
        for held in batch:
            if held.skill.is_async:
                waiting.append(held)
            else:
                self._queue.put(held)
        if waiting:
            self._loop = self._loop or _loop_on_a_thread()
            self._loop.call_soon_threadsafe(self._spawn, waiting)

    def cancel(self, held: Held) -> None:
        """Wakes an async function with a cancellation. Others look at `Context.cancelled`."""
        if held.skill.is_async and self._loop:
            self._loop.call_soon_threadsafe(self._cancel, held)

    def close(self) -> None:
        """Nothing more comes. What still runs is left to itself."""
        for _ in range(self._threads):
            self._queue.put(None)
        if self._loop:
            self._loop.call_soon_threadsafe(self._end_loop)

    def _work(self) -> None:
        get, done, captured = self._queue.get, self._done, self._captured
        while (held := get()) is not None:
            context = held.context
            current.set(context)
            outcome = carry_out(held.skill, context)
            if captured:
                captured.finish(context)
            current.set(None)
            done(held, outcome)
            # An idle thread keeps nothing alive.
            del held, context, outcome

    def _spawn(self, batch: Sequence[Held]) -> None:
        for held in batch:
            task = asyncio.get_running_loop().create_task(self._carry_out(held), context=Variables())
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._ended, held))
            held.context._running = task
            if held.context._cancelled:
                task.cancel()

    async def _carry_out(self, held: Held) -> None:
        context = held.context
        current.set(context)
        deadline = None
        if context._deadline is not None:
            left = context._deadline - asyncio.get_running_loop().time()
            deadline = asyncio.get_running_loop().call_later(left, self._cancel, held)
        outcome = await carry_out_async(held.skill, context)
        if deadline:
            deadline.cancel()
        if self._captured:
            self._captured.finish(context)
        context._running = None
        self._done(held, outcome)

    def _ended(self, held: Held, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        # A task that is cancelled before it ran at all never comes to say so itself.
        if task.cancelled():
            self._done(held, failure(asyncio.CancelledError(), held.context))

    @staticmethod
    def _cancel(held: Held) -> None:
        if held.context._running:
            held.context._running.cancel()

    def _end_loop(self) -> None:
        for task in self._tasks:
            task.cancel()
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.stop)


def _loop_on_a_thread() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()

    def serve() -> None:
        asyncio.set_event_loop(loop)
        loop.run_forever()
        loop.close()

    threading.Thread(target=serve, name="milepost-async-skills", daemon=True).start()
    return loop
