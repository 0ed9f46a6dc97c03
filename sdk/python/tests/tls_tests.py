"""A server behind a proxy that speaks TLS, as it is run where others reach it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_tests import HELLO
from support import Server
from worker_tests import double

from milepost import AsyncClient, Client, NoServer, Worker


@pytest.fixture
def https(shared_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of the proxy, whose certificate is trusted."""
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=_serve, args=(listener, context, shared_server), daemon=True).start()
    yield f"https://localhost:{listener.getsockname()[1]}"
    listener.close()


def _serve(listener: socket.socket, context: ssl.SSLContext, server: Server) -> None:
    port = int(server.url.rpartition(":")[2])
    while True:
        try:
            accepted, _ = listener.accept()
            outside = context.wrap_socket(accepted, server_side=True)
        except ssl.SSLError:
            continue
        except OSError:
            return
        inside = socket.create_connection(("127.0.0.1", port))
        for pair in ((outside, inside), (inside, outside)):
            threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    """One direction. Who hangs up on one side is gone on the other side, too."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def clients_and_workers_speak_tls(https: str) -> None:
    document = {"name": "over.tls", "steps": {"a": {"skill": "double", "input": {"n": "${{ payload.n }}"}}}}
    client = Client(https)
    with Worker(https, skills=double):
        assert client.wait(client.start(document, {"n": 2}), check=True).output == {"a": {"n": 4}}

    async def check() -> None:
        async with AsyncClient(https) as client:
            started = await client.start(HELLO, {"name": "Ada"})
            assert (await client.wait(started)).output == {"greet": {"text": "hello, Ada"}}

    asyncio.run(check())


def a_certificate_that_is_not_trusted_is_refused(https: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(NoServer, match="certificate"):
        Client(https).validate(HELLO)
