"""HTTP and server-sent events, byte by byte."""

from __future__ import annotations

import pytest

from milepost._http import Answer, BrokenAnswer, Server, request
from milepost._sse import Lost, Message, Parser, Reading


def _fed(data: bytes, size: int) -> Answer:
    answer = Answer()
    for at in range(0, len(data), size):
        answer.feed(data[at : at + size])
    return answer


CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\nc;x=y\r\n, \r\nmilepost\r\n0\r\nTrailer: x\r\n\r\n"
)
COUNTED = b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def an_answer_may_come_in_any_pieces(size: int) -> None:
    answer = _fed(COUNTED, size)
    assert (answer.status, answer.take(), answer.complete, answer.keep_alive) == (404, b"hello", True, True)
    answer = _fed(CHUNKED, size)
    assert (answer.status, answer.take(), answer.complete) == (200, b"hello, \r\nmilepost", True)


def an_answer_without_a_length_ends_with_the_connection() -> None:
    answer = _fed(b"HTTP/1.1 200 OK\r\n\r\nhello", 4)
    assert not answer.complete
    answer.end()
    assert (answer.complete, answer.keep_alive, answer.take()) == (True, False, b"hello")


def an_answer_without_a_body_is_complete() -> None:
    answer = _fed(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n", 5)
    assert (answer.complete, answer.keep_alive) == (True, False)


@pytest.mark.parametrize(
    "data", [COUNTED[:-1], b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe", b"HTTP", b""]
)
def half_an_answer_is_broken(data: bytes) -> None:
    answer = _fed(data, 100)
    with pytest.raises(BrokenAnswer):
        answer.end()


@pytest.mark.parametrize("data", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"])
def what_is_no_answer_is_broken(data: bytes) -> None:
    with pytest.raises(BrokenAnswer):
        _fed(data, 100)


def a_request_names_the_server_as_its_url_does() -> None:
    server = Server.of("http://[::1]:7400/behind/a/proxy/")
    sent = request(server, "POST", "/api/v1/runs", {"authorization": "Bearer x"}, b"{}")
    assert sent == (
        b"POST /behind/a/proxy/api/v1/runs HTTP/1.1\r\nhost: [::1]:7400\r\nauthorization: Bearer x\r\n"
        b"content-length: 2\r\n\r\n{}"
    )
    assert Server.of("https://milepost.example").authority == "milepost.example"
    with pytest.raises(ValueError, match="line break"):
        request(server, "GET", "/", {"authorization": "a\r\nb: c"}, None)


STREAM = b": keep-alive\n\nretry: 1000\n\nid: 1\ndata: {}\n\nevent: end\r\ndata: a\r\ndata:b\r\n\r\n"


@pytest.mark.parametrize("size", [1, 3, 1000])
def messages_are_found_in_any_pieces(size: int) -> None:
    parser = Parser()
    found = [message for at in range(0, len(STREAM), size) for message in parser.take(STREAM[at : at + size])]
    assert found == [Message("", "1", "{}"), Message("end", "", "a\nb")]


def _event(seq: int) -> Message:
    data = f'{{"run_id":"r","run_seq":{seq},"event_type":"StepStarted","data":{{}},"emitted_at":"t"}}'
    return Message("", str(seq), data)


def what_comes_twice_is_dropped_and_a_gap_ends_the_connection() -> None:
    reading = Reading(2, patience=60)
    seen = [event.run_seq for event in reading.take(iter([_event(1), _event(2), _event(3), _event(3), _event(4)]))]
    assert (seen, reading.last_seq) == ([3, 4], 4)
    with pytest.raises(Lost, match="event 5 is missing"):
        list(reading.take(iter([_event(6)])))
    with pytest.raises(Lost, match="shutdown"):
        list(reading.take(iter([Message("shutdown", "", "{}")])))
    assert list(reading.take(iter([Message("something.new", "", "{}"), Message("end", "", "{}"), _event(5)]))) == []
    assert reading.ended
