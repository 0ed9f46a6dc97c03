"""The async client against a real server. What it has in common with the blocking one is tested there."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from client_tests import FAILS, GATE, HELLO
from support import Server

from milepost import AsyncClient, NotFound, RunFailed, WaitTimeout


def runs_are_started_listed_and_waited_for(shared_server: Server) -> None:
    async def check() -> None:
        async with AsyncClient(shared_server.url) as client:
            await client.deploy({**HELLO, "name": "async.hello"})
            started = await asyncio.gather(*(client.start("async.hello", {"name": str(n)}) for n in range(20)))
            runs = await asyncio.gather(*(client.wait(one, check=True) for one in started))
            assert [run.output["greet"]["text"] for run in runs] == [f"hello, {n}" for n in range(20)]
            assert "async.hello" in [tag["tag"] async for tag in client.workflows()]
            listed: set[str] = set()
            while listed != {run.run_id for run in runs}:
                listed = {run.run_id async for run in client.list(workflow="async.hello", limit=7)}
            assert await client.validate(HELLO) == []

    asyncio.run(check())


def events_and_lines_are_followed(shared_server: Server) -> None:
    document: dict[str, Any] = {"name": "async.talks", "steps": {**GATE["steps"]}}
    document["steps"]["talk"] = {"skill": "shell", "depends_on": ["gate"], "input": {"command": "echo one"}}

    async def check() -> None:
        async with AsyncClient(shared_server.url) as client:
            started = await client.start(document)
            lines = asyncio.create_task(_all(client.logs(started, follow=True)))
            seen = []
            async for event in client.watch(started):
                seen.append(event)
                if event.event_type == "StepStarted" and event.step_id == "gate":
                    await client.signal(started, "open")
            assert seen == await _all(client.events(started))
            assert [line.text for line in await lines] == ["one"]

    asyncio.run(check())


async def _all(items: Any) -> list[Any]:
    return [item async for item in items]


def many_wait_at_once_and_some_give_up(shared_server: Server) -> None:
    async def check() -> None:
        async with AsyncClient(shared_server.url) as client:
            started = await asyncio.gather(*(client.start(GATE) for _ in range(50)))
            waits = [asyncio.create_task(client.wait(one)) for one in started]
            with pytest.raises(WaitTimeout):
                await client.wait(started[0], timeout=0.2)
            waits[0].cancel()
            await asyncio.gather(*(client.terminate(one) for one in started))
            assert {run.status for run in await asyncio.gather(*waits[1:])} == {"terminated"}
            assert waits[0].cancelled()

    asyncio.run(check())


def a_watch_survives_a_restart(own_server: Server) -> None:
    async def check() -> None:
        async with AsyncClient(own_server.url) as client:
            started = await client.start(GATE)
            seen = []
            async for event in client.watch(started):
                seen.append(event.run_seq)
                if event.event_type == "StepStarted" and event.step_id == "gate":
                    own_server.kill()
                    own_server.start()
                    await client.signal(started, "open")
            assert seen == list(range(1, (await client.get(started)).last_event_seq + 1))

    asyncio.run(check())


def a_client_may_go_from_one_loop_to_the_next(shared_server: Server) -> None:
    client = AsyncClient(shared_server.url)
    assert [asyncio.run(client.validate(HELLO)) for _ in range(2)] == [[], []]


def errors_have_the_same_classes(shared_server: Server) -> None:
    async def check() -> None:
        async with AsyncClient(shared_server.url) as client:
            with pytest.raises(NotFound):
                await client.get("01a1df4c-5f67-7f8c-8f0e-3f6c1f2b9c11")
            with pytest.raises(RunFailed):
                await client.wait(await client.start(FAILS), check=True)

    asyncio.run(check())
