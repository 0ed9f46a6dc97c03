"""A run's events over as many connections as it takes.

**Invariant:** every event is given once and in order. What comes twice is dropped; where something is missing the
connection is made anew, from the last event that was given.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from ._json import decode
from ._patience import Patience
from .models import Event

log = logging.getLogger("milepost.client")

# A server says something at least every 15 s, be it only a comment.
SILENCE = 60.0


@dataclass(slots=True)
class Message:
    event: str = ""
    id: str = ""
    data: str = ""


class Parser:
    """Server-sent events from bytes."""

    def __init__(self) -> None:
        self._in = b""
        self._message = Message()

    def take(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now."""
        *lines, self._in = (self._in + data).split(b"\n")
        for line in lines:
            text = line.decode().removesuffix("\r")
            if not text:
                message, self._message = self._message, Message()
                if message.data:
                    yield message
                continue
            name, _, value = text.partition(":")
            value = value.removeprefix(" ")
            if name == "data":
                self._message.data += f"\n{value}" if self._message.data else value
            elif name == "event":
                self._message.event = value
            elif name == "id":
                self._message.id = value


class Lost(Exception):
    """This connection is over; the next one goes on."""


class Reading:
    """How far a reader of a run is, and what each message means to it."""

    def __init__(self, after_seq: int, patience: float) -> None:
        self.last_seq = after_seq
        self.ended = False
        self.patience = Patience(patience)

    def take(self, messages: Iterator[Message]) -> Iterator[Event]:
        """The events among these messages that are new. Raises `Lost` when the connection has to be made anew."""
        for message in messages:
            if message.event == "end":
                self.ended = True
                return
            if message.event in ("dropped", "shutdown", "failed"):
                raise Lost(message.event)
            if message.event == "stale":
                log.warning("%s", decode(message.data).get("message", "the log of the run has a gap"))
                continue
            if not message.id:
                # Something that a later server says.
                continue
            event = Event.of(decode(message.data))
            if event.run_seq > self.last_seq + 1:
                raise Lost(f"event {self.last_seq + 1} is missing")
            if event.run_seq == self.last_seq + 1:
                self.last_seq = event.run_seq
                self.patience.restore()
                yield event
