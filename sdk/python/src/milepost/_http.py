"""HTTP/1.1 messages as bytes, without any I/O: what both kinds of connections speak.

**Invariant:** an `Answer` that is `complete` has taken exactly its own bytes, so the connection can serve another call.
"""

from __future__ import annotations

import dataclasses
import ssl
import urllib.parse
from collections.abc import Mapping

_MAX_HEAD = 64 * 1024


class BrokenAnswer(Exception):
    """What came is no HTTP answer, or it ended too early."""


@dataclasses.dataclass(frozen=True)
class Server:
    """Where a server is, as its URL says."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str

    @classmethod
    def of(cls, url: str) -> Server:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"`{url}` is not the URL of a server; it looks like http://127.0.0.1:7400")
        tls = ssl.create_default_context() if parts.scheme == "https" else None
        port = parts.port or (443 if tls else 80)
        return cls(parts.hostname, port, tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


def request(server: Server, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> bytes:
    """The bytes of a request."""
    return request_head(server, method, target, headers, None if body is None else len(body)) + (body or b"")


def request_head(server: Server, method: str, target: str, headers: Mapping[str, str], length: int | None) -> bytes:
    """The bytes of a request before its body, which has so many."""
    lines = [f"{method} {server.prefix}{target} HTTP/1.1", f"host: {server.authority}"]
    for name, value in headers.items():
        if "\r" in value or "\n" in value:
            raise ValueError(f"the header `{name}` has a line break in it")
        lines.append(f"{name}: {value}")
    if length is not None:
        lines.append(f"content-length: {length}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Answer:
    """An answer as it comes in. One to `HEAD` has no body, whatever it says."""

    def __init__(self, *, bodiless: bool = False) -> None:
        self._bodiless = bodiless
        self.status = 0
        self.headers: dict[str, str] = {}
        self.complete = False
        self.keep_alive = True
        self._in = bytearray()
        self._body = bytearray()
        # How the body ends: a number of bytes that are to come, chunks, or the end of the connection.
        self._left: int | None = None
        self._chunked = False
        self._in_trailer = False

    def feed(self, data: bytes) -> None:
        """Takes what was received."""
        self._in += data
        if not self.status and not self._read_head():
            return
        if self._chunked:
            self._read_chunks()
        elif self._left is not None:
            self._read_counted()
        else:
            self._body += self._in
            self._in.clear()

    def end(self) -> None:
        """The connection was closed by the server."""
        self.keep_alive = False
        if not self.status or self._chunked or self._left:
            raise BrokenAnswer("the connection was closed in the middle of an answer")
        self.complete = True

    def take(self) -> bytes:
        """What there is of the body, once."""
        body = bytes(self._body)
        self._body.clear()
        return body

    def _read_head(self) -> bool:
        while True:
            end = self._in.find(b"\r\n\r\n")
            if end < 0:
                if len(self._in) > _MAX_HEAD:
                    raise BrokenAnswer("the head of the answer is too long")
                return False
            lines = bytes(self._in[:end]).decode("latin-1").split("\r\n")
            del self._in[: end + 4]
            status = _status(lines[0])
            # 1xx answers come before the real one.
            if status >= 200:
                break
        self.status = status
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.strip().lower()] = value.strip()
        self.keep_alive = self.headers.get("connection", "").lower() != "close" and lines[0].startswith("HTTP/1.1")
        self._chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        if self._bodiless:
            self._chunked, self._left, self.complete = False, 0, True
        elif status in (204, 304):
            self._chunked, self._left = False, 0
        elif not self._chunked and "content-length" in self.headers:
            self._left = int(self.headers["content-length"])
        return True

    def _read_counted(self) -> None:
        left = self._left or 0
        taken = self._in[:left]
        del self._in[:left]
        self._body += taken
        self._left = left - len(taken)
        self.complete = self._left == 0

    def _read_chunks(self) -> None:
        while not self.complete:
            if self._left:
                taken = self._in[: self._left]
                del self._in[: self._left]
                self._left -= len(taken)
                self._body += taken
                if self._left:
                    return
            line = self._line()
            if line is None:
                return
            if self._in_trailer:
                self.complete = not line
            # After the bytes of a chunk comes a line end, which looks like an empty line.
            elif line:
                self._left = _chunk_size(line)
                self._in_trailer = self._left == 0

    def _line(self) -> bytes | None:
        end = self._in.find(b"\r\n")
        if end < 0:
            return None
        line = bytes(self._in[:end])
        del self._in[: end + 2]
        return line


def _status(line: str) -> int:
    parts = line.split(" ", 2)
    if len(parts) < 2 or not parts[0].startswith("HTTP/1.") or not parts[1].isdigit():
        raise BrokenAnswer(f"this is no HTTP answer: {line[:80]!r}")
    return int(parts[1])


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.split(b";", 1)[0], 16)
    except ValueError:
        raise BrokenAnswer(f"this is no size of a chunk: {line[:40]!r}") from None
