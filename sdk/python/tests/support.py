"""A server of the real program, and waiting without sleeping for a fixed time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[3]
BINARY = Path(os.environ.get("MILEPOST_BINARY", ROOT / "target/debug/milepost"))


class Server:
    """`milepost dev` on a free port, which it keeps when it is started again."""

    def __init__(self, data: Path, *arguments: str, command: str = "dev") -> None:
        self.data = data
        self._arguments = arguments
        self._command = command
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "server.json").unlink(missing_ok=True)
        command: list[str | Path] = [
            BINARY,
            self._command,
            "--listen",
            self._listen,
            "--data",
            self.data,
            *self._arguments,
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILEPOST_")}
        self._log = (self.data / "log").open("ab")
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self._log, env=environment)
        self.url = eventually("the server to start", self._announced)
        self._listen = self.url.removeprefix("http://")

    def _announced(self) -> str | None:
        assert self._process and self._process.poll() is None, (self.data / "log").read_text()
        try:
            return str(json.loads((self.data / "server.json").read_text())["url"])
        except (FileNotFoundError, ValueError):
            return None

    def send(self, number: int) -> None:
        assert self._process
        self._process.send_signal(number)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)
            self._process.wait(30)
            self._process = None
            self._log.close()


def eventually(what: str, look: Callable[[], T | None]) -> T:
    """Waits until something is so; the tests do not depend on how long it takes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError(f"waited in vain for {what}")
