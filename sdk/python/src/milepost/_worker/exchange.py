"""The one call of a worker: what it says, and over which connection.

**Invariant:** a batch that was not answered is given back whole, in order, to be sent again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from .._calls import API, JSON_BODY, reply
from .._http import Server, request
from .._json import encode
from .._streams import Pool
from ..errors import MilepostError
from .held import Held

# A server takes bodies of 8 MiB; a character has up to four bytes.
MAX_CHARS = 1_500_000
# What an answer may take beyond the time that the server was asked to wait, in seconds.
_SLACK = 15.0


class Batch:
    """Results and heartbeats that one call carries."""

    __slots__ = ("results", "beats", "texts", "_chars", "_limit")

    def __init__(self, limit: int = MAX_CHARS) -> None:
        self._limit = limit
        self.results: list[Result] = []
        self.beats: list[Held] = []
        # The heartbeats as they are sent.
        self.texts: list[str] = []
        self._chars = 0

    def __len__(self) -> int:
        return len(self.results) + len(self.beats)

    def has_room(self, chars: int = 0) -> bool:
        """Whether so much more fits. The first one always does."""
        return not self._chars or self._chars + chars <= self._limit

    def add_result(self, result: Result) -> None:
        self.results.append(result)
        self._chars += len(result.text)

    def add_beat(self, held: Held, now: float) -> None:
        text = held.heartbeat(now)
        self.beats.append(held)
        self.texts.append(text)
        self._chars += len(text)


class Result:
    """A result that waits to be taken."""

    __slots__ = ("held", "text", "replaced")

    def __init__(self, held: Held, text: str, replaced: bool = False) -> None:
        self.held = held
        self.text = text
        # It stands for a result that the server did not take.
        self.replaced = replaced


class Exchange:
    """Speaks to the server. Several calls may be under way at once, each on a connection of its own."""

    def __init__(
        self, server: Server, headers: Mapping[str, str], worker_id: str, queues: Sequence[str], skills: Sequence[str]
    ) -> None:
        self._pool = Pool(server, _SLACK)
        self._headers = {**headers, **JSON_BODY}
        # Others know the name of a worker; who says the secret as well is the worker itself.
        who = encode({
            "worker_id": worker_id,
            "worker_secret": secrets.token_hex(32),
            "queues": list(queues),
            "skills": list(skills),
        })
        self._who = who.removesuffix("}")

    async def call(self, capacity: int, wait_ms: int, batch: Batch) -> dict[str, Any]:
        """Raises `MilepostError` when it was refused or not answered."""
        results = ",".join([result.text for result in batch.results])
        beats = ",".join(batch.texts)
        body = (
            f'{self._who},"capacity":{capacity},"wait_ms":{wait_ms},"results":[{results}],"heartbeats":[{beats}]}}'
        ).encode()
        message = request(self._pool.server, "POST", f"{API}/worker/exchange", self._headers, body)
        connection = await self._pool.take()
        timeout = wait_ms / 1000 + _SLACK
        answer = await connection.send(message, timeout)
        text = await connection.read(answer, timeout)
        self._pool.give_back(connection, answer)
        said = reply(answer.status, text).body
        if not isinstance(said, dict):
            raise MilepostError("the answer of the server is no exchange", code="bad_answer", status=answer.status)
        return said

    def close(self) -> None:
        self._pool.close()
