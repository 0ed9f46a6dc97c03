"""Connections of the async client and of the worker: kept open, on the event loop they were made on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ._blocking import no_server
from ._http import Answer, BrokenAnswer, Server

_CHUNK = 64 * 1024


class Connection:
    """One connection to a server. Whatever interrupts a call closes it: half an answer is of no use to the next one."""

    def __init__(self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, server: Server, timeout: float) -> Connection:
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(server.host, server.port, ssl=server.tls)
        except OSError as error:
            raise no_server(server, error) from error
        return cls(server, reader, writer)

    async def send(self, message: bytes, timeout: float) -> Answer:
        """Sends a request and reads the head of its answer."""
        answer = Answer()
        try:
            async with asyncio.timeout(timeout):
                self._writer.write(message)
                await self._writer.drain()
                while not answer.status:
                    await self._more(answer)
        except (OSError, BrokenAnswer) as error:
            self.close()
            raise no_server(self._server, error) from error
        except BaseException:
            self.close()
            raise
        return answer

    async def read(self, answer: Answer, timeout: float) -> bytes:
        """Reads the rest of an answer."""
        if not answer.complete:
            try:
                async with asyncio.timeout(timeout):
                    while not answer.complete:
                        await self._more(answer)
            except (OSError, BrokenAnswer) as error:
                self.close()
                raise no_server(self._server, error) from error
            except BaseException:
                self.close()
                raise
        return answer.take()

    async def parts(self, answer: Answer, silence: float) -> AsyncIterator[bytes]:
        """The body of an answer as it comes; nothing for that long is an error."""
        try:
            yield answer.take()
            while not answer.complete:
                async with asyncio.timeout(silence):
                    await self._more(answer)
                yield answer.take()
        except (OSError, BrokenAnswer) as error:
            raise no_server(self._server, error) from error

    def is_stale(self) -> bool:
        """Whether an idle connection was closed by the server, or belongs to another event loop."""
        return self._reader.at_eof() or self._writer.is_closing() or self._loop is not asyncio.get_running_loop()

    def close(self) -> None:
        if not self._loop.is_closed():
            self._writer.close()

    async def _more(self, answer: Answer) -> None:
        data = await self._reader.read(_CHUNK)
        if data:
            answer.feed(data)
        else:
            answer.end()


class Pool:
    """Idle connections to one server."""

    def __init__(self, server: Server, timeout: float) -> None:
        self.server = server
        self._timeout = timeout
        self._idle: list[Connection] = []

    async def take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return await Connection.open(self.server, self._timeout)

    def give_back(self, connection: Connection, answer: Answer) -> None:
        if answer.complete and answer.keep_alive:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
