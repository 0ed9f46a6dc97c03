"""Connections of the blocking client: kept open, used by one thread at a time, any number of them."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator

from ._http import Answer, BrokenAnswer, Server
from .errors import NoServer

_CHUNK = 64 * 1024


class Connection:
    """One connection to a server."""

    def __init__(self, server: Server, timeout: float) -> None:
        try:
            plain = socket.create_connection((server.host, server.port), timeout)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = server.tls.wrap_socket(plain, server_hostname=server.host) if server.tls else plain
        except OSError as error:
            raise no_server(server, error) from error
        self._server = server

    def send(self, message: bytes, timeout: float, answer: Answer | None = None) -> Answer:
        """Sends a request and reads the head of its answer."""
        answer = answer or Answer()
        try:
            self._socket.settimeout(timeout)
            self._socket.sendall(message)
            while not answer.status:
                self._more(answer)
        except (OSError, BrokenAnswer) as error:
            self.close()
            raise no_server(self._server, error) from error
        return answer

    def send_pieces(self, head: bytes, pieces: Iterator[bytes], timeout: float) -> Answer:
        """Sends a request whose body comes in pieces. A server may refuse it before it has read them all."""
        answer = Answer()
        self._socket.settimeout(timeout)
        try:
            self._socket.sendall(head)
            for piece in pieces:
                self._socket.sendall(piece)
        except (BrokenPipeError, ConnectionResetError) as error:
            broken: OSError | None = error
        else:
            broken = None
        try:
            while not answer.status:
                self._more(answer)
        except (OSError, BrokenAnswer) as error:
            self.close()
            raise no_server(self._server, broken or error) from error
        return answer

    def read(self, answer: Answer) -> bytes:
        """Reads the rest of an answer."""
        try:
            while not answer.complete:
                self._more(answer)
        except (OSError, BrokenAnswer) as error:
            self.close()
            raise no_server(self._server, error) from error
        return answer.take()

    def parts(self, answer: Answer, silence: Callable[[], float]) -> Iterator[bytes]:
        """The body of an answer as it comes; nothing for that long is an error."""
        try:
            yield answer.take()
            while not answer.complete:
                self._socket.settimeout(silence())
                self._more(answer)
                yield answer.take()
        except (OSError, BrokenAnswer) as error:
            raise no_server(self._server, error) from error

    def is_stale(self) -> bool:
        """Whether an idle connection was closed by the server, or says something that nobody asked for."""
        if hasattr(select, "poll"):
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])

    def close(self) -> None:
        self._socket.close()

    def _more(self, answer: Answer) -> None:
        data = self._socket.recv(_CHUNK)
        if data:
            answer.feed(data)
        else:
            answer.end()


class Pool:
    """Idle connections to one server."""

    def __init__(self, server: Server, timeout: float) -> None:
        self.server = server
        self._timeout = timeout
        # Appending to a list and popping from it are atomic: threads need no lock here.
        self._idle: list[Connection] = []

    def take(self) -> Connection:
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:
                break
            if not connection.is_stale():
                return connection
            connection.close()
        return Connection(self.server, self._timeout)

    def give_back(self, connection: Connection, answer: Answer) -> None:
        if answer.complete and answer.keep_alive:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()


def no_server(server: Server, error: Exception) -> NoServer:
    why = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    return NoServer(f"no answer from the server at {server.authority}: {why}", code="no_server")
