"""Content of files, to and from a server: piece by piece, compared with its hash on both sides.

Used by any thread: each transfer has a connection of its own.

**Invariant:** a file that is downloaded has its name only when it is whole and has its hash.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, Protocol, cast

from . import _calls
from ._blocking import Connection, no_server
from ._http import Answer, BrokenAnswer, Server, request_head
from .errors import MilepostError
from .models import Blob

_PIECE = 256 * 1024
# For one piece, in seconds.
_TIMEOUT = 60.0

# A path, bytes, or a file that was opened for reading bytes.
Source = str | os.PathLike[str] | bytes | IO[bytes]


class Files(Protocol):
    """Where content is kept."""

    def put(self, source: Source) -> Blob: ...

    def get(self, sha256: str, to: str | os.PathLike[str]) -> int: ...

    def record(self, run_id: str, artifact: Mapping[str, Any]) -> None: ...


class RemoteFiles:
    """The files of a server."""

    def __init__(self, server: Server, headers: Mapping[str, str]) -> None:
        self._server = server
        self._headers = dict(headers)

    def put(self, source: Source) -> Blob:
        """Uploads content; what the server has already is not sent."""
        with _opened(source) as file:
            sha256, size = _measured(file)
            target = _calls.target("blobs", f"sha256:{sha256}")
            if self._size(target) == size:
                return Blob(sha256, size)
            file.seek(0)
            status, body = self._send("PUT", target, size, _pieces(file))
        _calls.reply(status, body)
        return Blob(sha256, size)

    def get(self, sha256: str, to: str | os.PathLike[str]) -> int:
        """Downloads content into a file. Answers how many bytes it has."""
        return self.fetch(_calls.target("blobs", f"sha256:{sha256}"), sha256, to)

    def fetch(self, target: str, sha256: str | None, to: str | os.PathLike[str]) -> int:
        connection = Connection(self._server, _TIMEOUT)
        try:
            head = request_head(self._server, "GET", target, self._headers, None)
            answer = connection.send(head, _TIMEOUT)
            if answer.status != 200:
                _calls.reply(answer.status, connection.read(answer))
            return _saved(connection.parts(answer, lambda: _TIMEOUT), sha256, Path(to))
        finally:
            connection.close()

    def record(self, run_id: str, artifact: Mapping[str, Any]) -> None:
        call = _calls.record_artifact(run_id, artifact, None)
        body = call.body or b""
        headers = {**call.headers, "content-type": "application/json"}
        status, said = self._send(call.method, call.target, len(body), iter([body]), headers)
        _calls.reply(status, said)

    def _size(self, target: str) -> int | None:
        connection = Connection(self._server, _TIMEOUT)
        try:
            head = request_head(self._server, "HEAD", target, self._headers, None)
            answer = connection.send(head, _TIMEOUT, Answer(bodiless=True))
            if answer.status == 200:
                return int(answer.headers.get("content-length", "-1"))
            if answer.status == 404:
                return None
            raise MilepostError(f"the server answered {answer.status}", code=f"http_{answer.status}")
        finally:
            connection.close()

    def _send(
        self,
        method: str,
        target: str,
        size: int,
        pieces: Iterator[bytes],
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        connection = Connection(self._server, _TIMEOUT)
        try:
            head = request_head(self._server, method, target, {**self._headers, **(headers or {})}, size)
            answer = connection.send_pieces(head, pieces, _TIMEOUT)
            return answer.status, connection.read(answer)
        except (OSError, BrokenAnswer) as error:
            raise no_server(self._server, error) from error
        finally:
            connection.close()


class LocalFiles:
    """The files of a run without a server: in a folder that goes with it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="milepost-files-")
        # By step, what was recorded at once.
        self.recorded: dict[str, list[dict[str, Any]]] = {}

    def put(self, source: Source) -> Blob:
        with _opened(source) as file:
            sha256, size = _measured(file)
            file.seek(0)
            with open(Path(self._folder.name, sha256), "wb") as kept:
                shutil.copyfileobj(file, kept)
        return Blob(sha256, size)

    def get(self, sha256: str, to: str | os.PathLike[str]) -> int:
        kept = Path(self._folder.name, sha256)
        if not kept.exists():
            raise MilepostError(f"there is no file sha256:{sha256} in this run", code="unknown_blob", status=404)
        shutil.copyfile(kept, to)
        return kept.stat().st_size

    def record(self, run_id: str, artifact: Mapping[str, Any]) -> None:
        """A run without a server has no list of its own; steps that follow see it all the same."""
        self.recorded.setdefault(artifact.get("step_id", ""), []).append(dict(artifact))

    def close(self) -> None:
        self._folder.cleanup()


@contextlib.contextmanager
def _opened(source: Source) -> Iterator[IO[bytes]]:
    """Something that can be read twice."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        yield io.BytesIO(source)
    elif isinstance(source, (str, os.PathLike)):
        with open(source, "rb") as file:
            yield file
    elif source.seekable():
        yield source
    else:
        with tempfile.TemporaryFile() as spooled:
            shutil.copyfileobj(source, cast("IO[bytes]", spooled))
            yield cast("IO[bytes]", spooled)


def _measured(file: IO[bytes]) -> tuple[str, int]:
    file.seek(0)
    hashed, size = hashlib.sha256(), 0
    for piece in _pieces(file):
        hashed.update(piece)
        size += len(piece)
    return hashed.hexdigest(), size


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _saved(pieces: Iterator[bytes], sha256: str | None, to: Path) -> int:
    hashed, size = hashlib.sha256(), 0
    part, name = tempfile.mkstemp(prefix=f".{to.name}.", suffix=".part", dir=to.parent)
    try:
        with os.fdopen(part, "wb") as file:
            for piece in pieces:
                hashed.update(piece)
                size += len(piece)
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if sha256 is not None and hashed.hexdigest() != sha256:
            raise MilepostError(f"what came has the hash {hashed.hexdigest()}, not {sha256}", code="hash_mismatch")
        _readable(name)
        os.replace(name, to)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    return size


def _readable(name: str) -> None:
    """As a file that the caller makes himself would be."""
    mask = os.umask(0)
    os.umask(mask)
    os.chmod(name, 0o666 & ~mask)
