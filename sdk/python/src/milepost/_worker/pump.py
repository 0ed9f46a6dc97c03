"""Brings tasks in and results out.

At most one call offers hands and waits for work. Results that come meanwhile go out on a second call, which gathers
what comes while it is under way; so do heartbeats, whose answer must not be long in coming. When all hands are full,
one call waits for directives. After tasks came in, the next offer waits a moment for the first result, so that short
tasks share a call with the next offer.

**Invariant:** a result is kept until a call that carried it was answered.
**Invariant:** everything here runs on one event loop, but for `done` and `tell`, which only append and wake.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Any

from .._attempt import Failure, Outcome
from .._files import Files
from .._json import told
from .._patience import Patience
from ..context import Context
from ..errors import BadRequest, Conflict, MilepostError, NoServer, Refused, ServerError, SkillError, TooLarge, TooMany
from ..logs import CapturedPrint
from ..skill import Skill
from .exchange import MAX_CHARS, Batch, Exchange, Result
from .hands import Hands
from .heartbeats import Heartbeats
from .held import Held, Key

log = logging.getLogger("milepost.worker")

_PARK_MS = 20_000
_MOMENT = 0.001
# Errors after which the same call may be answered.
_PASSING = (NoServer, ServerError, TooMany, Conflict)
# Why a server does not take the files of a result.
_FILES = ("artifact_missing", "artifact_exists", "bad_artifact", "too_many_artifacts", "no_blob_store")
# What a heartbeat may be refused with that keeps its lease.
_UNSAID = ("progress_too_large", "bad_progress", "secret_unavailable")
# Errors that something in the call may be the reason of.
_UNFIT = (BadRequest, Refused, TooLarge)


class Stage(Enum):
    """What becomes of an outcome that comes now."""

    # The next offer takes it along.
    READY = 1
    # An offer is under way: a call of its own takes it.
    OFFERED = 2
    # There is no hand to offer until it comes.
    FULL = 3


class Pump:
    def __init__(
        self,
        exchange: Exchange,
        skills: Mapping[str, Skill[..., Any]],
        concurrency: int,
        captured: CapturedPrint | None = None,
        files: Files | None = None,
    ) -> None:
        self._exchange = exchange
        self._files = files
        self._skills = skills
        self._concurrency = concurrency
        self._hands = Hands(self.done, captured)
        self._held: dict[Key, Held] = {}
        # How many of them are plain functions.
        self._functions = 0
        # Appended by other threads.
        self._outcomes: deque[tuple[Held, Outcome]] = deque()
        self._news: deque[Held] = deque()
        self._woken = False
        # To be sent; and how many are under way.
        self._results: deque[Result] = deque()
        self._unanswered = 0
        # Outcomes behind a heartbeat with lines that is under way.
        self._behind: dict[Key, tuple[Held, Outcome]] = {}
        self._stage = Stage.READY
        # So many of those that wait go one by one: one of them is what the server does not take.
        self._singly = 0
        self._directives: asyncio.Task[None] | None = None
        self._away = False
        self._error: BaseException | None = None
        self._deadline = math.inf

    async def run(self) -> None:
        """Until it is stopped. Raises what the server refused for good."""
        self._loop = asyncio.get_running_loop()
        self._came, self._sendable, self._sent = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._stopping = asyncio.Event()
        self._beats = Heartbeats(self._held, self._sendable.set)
        offering = asyncio.create_task(self._offer())
        sending = asyncio.create_task(self._send())
        for task in (offering, sending):
            task.add_done_callback(self._fell)
        try:
            await self._stopping.wait()
            await _end(offering)
            # No offer takes anything along now.
            self._stage = Stage.OFFERED
            self._sendable.set()
            await self._finish()
        finally:
            for ended in (offering, sending, self._directives):
                if ended:
                    await _end(ended)
            self._hands.close()
            self._exchange.close()
        if self._error:
            raise self._error

    def stop(self, grace: float) -> None:
        """Takes no more. What runs may end, for so many seconds; asked again, the shorter grace counts."""
        self._deadline = min(self._deadline, self._loop.time() + grace)
        self._stopping.set()
        self._sent.set()

    def _fell(self, task: asyncio.Task[None]) -> None:
        """A loop ended that never ends: a fault in here, which must not leave a worker behind that does nothing."""
        if not task.cancelled() and task.exception():
            self._error = task.exception()
            self.stop(0)

    # From other threads

    def done(self, held: Held, outcome: Outcome) -> None:
        self._outcomes.append((held, outcome))
        self._wake()

    def tell(self, held: Held) -> None:
        self._news.append(held)
        self._wake()

    def _wake(self) -> None:
        # Appended first, woken then; the loop lowers the flag first and looks then. So nothing is missed.
        if not self._woken:
            self._woken = True
            try:
                self._loop.call_soon_threadsafe(self._drain)
            except RuntimeError:
                # The worker has ended; nobody listens any more.
                pass

    # What comes from the skills

    def _drain(self) -> None:
        self._woken = False
        while self._outcomes:
            self._ended(*self._outcomes.popleft())
        while self._news:
            self._beats.has_news(self._news.popleft())

    def _ended(self, held: Held, outcome: Outcome) -> None:
        self._held.pop(held.key, None)
        self._functions -= not held.skill.is_async
        self._beats.ended(held)
        if held.has_lines_under_way:
            self._behind[held.key] = (held, outcome)
        else:
            self._has_result(held, outcome)
        if self._stage is Stage.FULL:
            self._stage = Stage.READY
        self._came.set()
        self._sendable.set()

    def _has_result(self, held: Held, outcome: Outcome) -> None:
        if not held.lost:
            self._results.append(Result(held, held.result(_told(outcome, held.context))))

    # The calls

    async def _offer(self) -> None:
        """Offers free hands, one call after the other."""
        patience = Patience(math.inf)
        while True:
            free = self._concurrency - len(self._held)
            if free <= 0:
                await self._until_a_hand_is_free()
                continue
            self._stage = Stage.OFFERED
            began = await self._call(self._batch(), free, _PARK_MS, patience)
            self._stage = Stage.READY
            if began and not self._results:
                await self._moment()

    async def _until_a_hand_is_free(self) -> None:
        self._stage = Stage.FULL
        if self._directives is None or self._directives.done():
            self._directives = asyncio.create_task(self._listen())
        self._came.clear()
        await self._came.wait()

    async def _moment(self) -> None:
        self._came.clear()
        timer = self._loop.call_later(_MOMENT, self._came.set)
        await self._came.wait()
        timer.cancel()

    async def _send(self) -> None:
        """Sends what no offer takes along."""
        patience = Patience(math.inf)
        while True:
            await self._sendable.wait()
            self._sendable.clear()
            while self._beats or (self._results and self._stage is not Stage.READY):
                await self._call(self._batch(beats=True), 0, 0, patience)
            self._sent.set()

    async def _listen(self) -> None:
        """Waits for directives while all hands are full."""
        patience = Patience(math.inf)
        while self._stage is Stage.FULL:
            await self._call(Batch(), 0, _PARK_MS, patience)

    async def _call(self, batch: Batch, capacity: int, wait_ms: int, patience: Patience) -> bool:
        """One call, and the wait after it if it failed. Answers whether tasks came."""
        self._unanswered += len(batch.results)
        try:
            answer = await self._exchange.call(capacity, wait_ms, batch)
        except _PASSING as error:
            self._give_back(batch)
            if not self._away:
                log.warning("the server does not answer, trying again: %s", error)
            self._away = True
            await asyncio.sleep(patience.next_wait() or 0)
            return False
        except MilepostError as error:
            if isinstance(error, _UNFIT) and self._separate(batch, error):
                return False
            self._give_back(batch)
            self._error = error
            self.stop(0)
            # Whoever called is ended with the rest.
            await asyncio.Event().wait()
        except BaseException:
            self._give_back(batch)
            raise
        finally:
            self._unanswered -= len(batch.results)
        patience.restore()
        if self._away:
            log.warning("the server is back")
            self._away = False
        return self._take(batch, answer)

    def _batch(self, *, beats: bool = False) -> Batch:
        """What waits to be sent, as far as one call may carry it."""
        batch = Batch(0 if self._singly else MAX_CHARS)
        while self._results and batch.has_room(len(self._results[0].text)):
            batch.add_result(self._results.popleft())
        if beats:
            self._beats.add_to(batch)
        self._singly = max(0, self._singly - len(batch))
        return batch

    def _give_back(self, batch: Batch) -> None:
        self._results.extendleft(reversed(batch.results))
        for held in batch.beats:
            held.crashed()
            self._beats.again(held)
        self._release(batch)

    def _separate(self, batch: Batch, error: MilepostError) -> bool:
        """Finds what the server does not take, and fails that alone. Answers whether there is such a thing."""
        if len(batch) > 1:
            self._singly = len(batch)
            self._give_back(batch)
            return True
        for result in batch.results:
            if result.replaced:
                return False
            code = "output_too_large" if isinstance(error, TooLarge) else "bad_output"
            failed = Failure(code, f"the server does not take the output: {error.detail}", False)
            self._replace(result, failed)
        for held in batch.beats:
            held.unfit()
        self._release(batch)
        return len(batch) == 1

    def _replace(self, result: Result, failed: Failure) -> None:
        text = result.held.result(_told(failed, result.held.context))
        self._results.append(Result(result.held, text, replaced=True))

    def _release(self, batch: Batch) -> None:
        """Outcomes that waited for these heartbeats go on."""
        for held in batch.beats:
            if held.key in self._behind:
                self._has_result(*self._behind.pop(held.key))
                self._sendable.set()

    # What comes from the server

    def _take(self, batch: Batch, answer: Mapping[str, Any]) -> bool:
        paused = {one.get("task_id") for one in answer.get("directives") or () if one.get("kind") == "pause"}
        for held in batch.beats:
            held.landed()
            # There is no word for going on: a heartbeat simply no longer has the pause.
            held.context._paused = held.key[0] in paused
        for directive in answer.get("directives") or ():
            self._obey(directive)
        for refused in answer.get("rejected") or ():
            if not self._without_files(batch, refused):
                self._lose(refused)
        self._release(batch)
        tasks = answer.get("tasks")
        if tasks:
            self._begin(tasks)
        return bool(tasks)

    def _without_files(self, batch: Batch, refused: Mapping[str, Any]) -> bool:
        """A result whose files the server does not take: the attempt has failed, and that is said in its place."""
        code = str(refused.get("code"))
        if code not in _FILES:
            return False
        for result in batch.results:
            if result.held.key == _key(refused) and not result.replaced:
                failed = Failure(code, str(refused.get("message")), code == "artifact_missing")
                self._replace(result, failed)
                self._sendable.set()
                return True
        return False

    def _obey(self, directive: Mapping[str, Any]) -> None:
        # One that was lost and came back is there twice, and the later one counts.
        of_task = (held for held in reversed(self._held.values()) if held.key[0] == directive.get("task_id"))
        held = next(of_task, None)
        if held is None:
            return
        match directive.get("kind"):
            case "cancel":
                held.context._cancelled = True
                self._hands.cancel(held)
            case "pause":
                held.context._paused = True
            case "tune" if "path" in directive:
                held.context._tuned = {**held.context._tuned, directive["path"]: directive.get("value")}

    def _lose(self, refused: Mapping[str, Any]) -> None:
        """Somebody else has it, or nobody wants it."""
        key = _key(refused)
        log.info("task %s: %s: %s", key[0], refused.get("code"), refused.get("message"))
        held = self._held.get(key)
        if held and refused.get("code") in _UNSAID:
            # The lease goes on; only what the attempt says of itself is not taken.
            log.warning("task %s: %s", key[0], refused.get("message"))
            held.context._progress = None
        elif held:
            held.lost = True
            held.context._cancelled = True
            self._beats.ended(held)
            self._hands.cancel(held)
        elif key in self._behind:
            self._behind[key][0].lost = True

    def _begin(self, tasks: list[Mapping[str, Any]]) -> None:
        now = self._loop.time()
        batch = []
        for task in tasks:
            held = Held(task, self._skills.get(task["skill"], _UNKNOWN), now, self.tell, self._files)
            self._held[held.key] = held
            self._functions += not held.skill.is_async
            self._beats.watch(held)
            batch.append(held)
        self._hands.begin(batch, min(self._functions, self._concurrency))

    async def _finish(self) -> None:
        """Lets what runs end, and its results be taken."""
        while self._held or self._results or self._behind or self._unanswered:
            self._sent.clear()
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._sent.wait()
            except TimeoutError:
                if self._held:
                    log.warning("%d tasks were under way when the grace was over", len(self._held))
                return


def _told(outcome: Outcome, context: Context) -> str:
    if isinstance(outcome, Failure):
        return f'"outcome":"failed","error":{told(outcome.to_json())}'
    return f'"outcome":"completed","output":{outcome}{context._artifacts_text()}'


def _key(item: Mapping[str, Any]) -> Key:
    return (item.get("task_id", ""), item.get("lease_token", ""))


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def _no_such_skill(context: Context) -> None:
    raise SkillError("unknown_skill", "this worker has no such skill", retryable=False)


_UNKNOWN: Skill[..., Any] = Skill(_no_such_skill, "unknown")
