"""The real server for tests. A test is a function whose name is a sentence; helpers begin with `_`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from support import Server

from milepost import Client


def pytest_pycollect_makeitem(collector: Any, name: str, obj: Any) -> list[Any] | None:
    """Leaves out what a module only imports, and what is no function: skills, fixtures."""
    own = isinstance(obj, FunctionType) and obj.__module__ == collector.module.__name__
    return None if own and not hasattr(obj, "_pytestfixturefunction") else []


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.stop()


@pytest.fixture
def client(shared_server: Server) -> Iterator[Client]:
    """A client of a server that all tests share."""
    with Client(shared_server.url) as client:
        yield client


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may stop, kill and start again."""
    server = Server(tmp_path / "data")
    yield server
    server.stop()
