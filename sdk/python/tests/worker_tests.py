"""Workers against a real server: what becomes of tasks, of results, and of those who carry them out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support import Server, eventually

from milepost import (
    Client,
    Context,
    LogHandler,
    MilepostError,
    Skill,
    SkillError,
    Started,
    Worker,
    item,
    skill,
    step,
    workflow,
)


@skill
def double(n: int) -> dict[str, int]:
    return {"n": n * 2}


@skill
async def add(a: int, b: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"sum": a + b}


@workflow(name="python.numbers")
def numbers(payload: Any) -> None:
    each = double.options(foreach=payload.numbers)(n=item)
    first = double.options(id="first")(payload.numbers[0])
    add(first.output.n, each.output[0].n)


def _one(skill: str, /, input: Any = None, **settings: Any) -> dict[str, Any]:
    """A workflow of one step."""
    return {"name": f"one.{skill}", "steps": {"a": {"skill": skill, "input": input or {}, **settings}}}


def _step_status(client: Client, run: Started, status: str) -> None:
    eventually(f"step a to be {status}", lambda: client.get(run).step("a").status == status)


def steps_are_carried_out(client: Client) -> None:
    with Worker(client.url, skills=[double, add], concurrency=8):
        run = client.wait(client.start(numbers, {"numbers": list(range(1, 50))}), check=True)
    assert run.output == {"add": {"sum": 4}}
    assert client.step(run, "double[48]").output == {"n": 98}


def a_wrong_input_is_not_tried_again(client: Client) -> None:
    with Worker(client.url, skills=double):
        run = client.wait(client.start(_one("double", {"n": "one"}, retry={"max_attempts": 5})))
    error = run.step("a").error
    assert error and (error.code, error.retryable) == ("bad_input", False)
    assert error.message == "input.n is a whole number, not a text"
    assert run.step("a").logical_attempt == 1


def an_exception_is_a_failure_that_is_tried_again(client: Client) -> None:
    @skill
    def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ConnectionError("upstream is busy")
        return f"attempt {ctx.attempt}"

    retry = {"max_attempts": 3, "backoff_ms": 1}
    with Worker(client.url, skills=flaky):
        run = client.wait(client.start(_one("flaky", retry=retry)), check=True)
        failed = [event.data["error"] for event in client.events(run) if event.event_type == "StepFailed"]
        assert run.output == {"a": "attempt 3"}
    assert [(error["code"], error["retryable"]) for error in failed] == [("ConnectionError", True)] * 2
    assert (
        "upstream is busy" in failed[0]["message"]
        and 'raise ConnectionError("upstream is busy")' in failed[0]["message"]
    )


def a_failure_says_what_it_wants_to(client: Client) -> None:
    @skill
    async def refuses() -> None:
        raise SkillError("no_credit", "top up", retryable=False)

    @skill
    def odd() -> object:
        return object()

    with Worker(client.url, skills=[refuses, odd]):
        refused = client.wait(client.start(_one("refuses", retry={"max_attempts": 5}))).step("a")
        unfit = client.wait(client.start(_one("odd"))).step("a")
    assert refused.error and (refused.error.code, refused.error.message) == ("no_credit", "top up")
    assert unfit.error and (unfit.error.code, unfit.error.retryable) == ("bad_output", False)


def a_worker_takes_only_what_it_is_for(client: Client) -> None:
    took: list[tuple[str, str]] = []

    def make(name: str, worker: str) -> Any:
        return skill(name)(lambda: took.append((worker, name)))

    audio = Worker(client.url, skills=[make("s.audio", "audio")], queues=["audio"])
    others = Worker(client.url, skills=[make("s.video", "others"), make("s.audio", "others")])
    document = {
        "name": "queues",
        "steps": {"a": {"skill": "s.audio", "queue": "audio"}, "b": {"skill": "s.video"}, "c": {"skill": "s.audio"}},
    }
    with audio, others:
        client.wait(client.start(document), check=True)
    assert sorted(took) == [("audio", "s.audio"), ("others", "s.audio"), ("others", "s.video")]


def no_more_runs_at_once_than_asked_for(client: Client) -> None:
    now, most, lock = 0, 0, threading.Lock()

    @skill
    def counted() -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.005)
        with lock:
            now -= 1

    document = {"name": "counted", "steps": {"a": {"skill": "counted", "foreach": list(range(60))}}}
    with Worker(client.url, skills=counted, concurrency=4):
        client.wait(client.start(document), check=True)
    assert most == 4


def a_slow_step_keeps_its_lease(client: Client) -> None:
    @skill
    def slow() -> str:
        time.sleep(2.5)
        return "done"

    @skill
    async def slow_async() -> str:
        await asyncio.sleep(2.5)
        return "done"

    with Worker(client.url, skills=[slow, slow_async], concurrency=2):
        started = [client.start(_one(name, heartbeat_timeout_ms=1000)) for name in ("slow", "slow_async")]
        runs = [client.wait(run, check=True) for run in started]
    assert [(run.output, run.step("a").engine_attempt) for run in runs] == [({"a": "done"}, 1)] * 2


def what_a_skill_says_is_in_its_log(client: Client) -> None:
    go = threading.Event()
    logger = logging.getLogger("tests.worker")
    logger.addHandler(handler := LogHandler())

    @skill
    def talks(ctx: Context) -> None:
        ctx.log("one\ntwo")
        ctx.progress(40, "nearly there")
        print("printed", end="")
        print("!")
        logger.error("an error")
        go.wait()
        print("the last line", end="", file=sys.stderr)

    with Worker(client.url, skills=talks, capture_print=True):
        started = client.start(_one("talks"))
        eventually("lines before the end", lambda: len(list(client.logs(started))) == 4)
        go.set()
        client.wait(started, check=True)
        eventually("all lines", lambda: len(list(client.logs(started))) == 5)
        lines = list(client.logs(started))
    logger.removeHandler(handler)
    assert [(line.stream, line.text) for line in lines] == [
        ("log", "one"),
        ("log", "two"),
        ("stdout", "printed!"),
        ("log", "an error"),
        ("stderr", "the last line"),
    ]


def cancelling_a_run_stops_its_skills(client: Client) -> None:
    stopped: list[str] = []

    @skill
    def obedient(ctx: Context) -> None:
        while True:
            time.sleep(0.01)
            if ctx.cancelled:
                stopped.append("obedient")
            ctx.raise_if_cancelled()

    @skill
    async def asynchronous() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append("asynchronous")

    # All hands are full, so nothing but a word from the server can reach the worker.
    with Worker(client.url, skills=[obedient, asynchronous], concurrency=2):
        started = [client.start(_one(name)) for name in ("obedient", "asynchronous")]
        for run in started:
            _step_status(client, run, "running")
        for run in started:
            client.cancel(run)
        assert [client.wait(run).status for run in started] == ["cancelled", "cancelled"]
        eventually("both to stop", lambda: sorted(stopped) == ["asynchronous", "obedient"])


def a_step_knows_that_its_run_is_paused(client: Client) -> None:
    seen: list[bool] = []

    @skill
    def watches(ctx: Context) -> None:
        for expected in (True, False):
            while ctx.paused is not expected:
                time.sleep(0.01)
            seen.append(expected)

    with Worker(client.url, skills=watches):
        started = client.start(_one("watches", heartbeat_timeout_ms=600))
        _step_status(client, started, "running")
        client.pause(started)
        eventually("the pause to be seen", lambda: seen == [True])
        client.resume(started)
        client.wait(started, check=True)


def an_attempt_runs_out_of_time(client: Client) -> None:
    @skill
    async def forever() -> None:
        await asyncio.sleep(3600)

    with Worker(client.url, skills=forever):
        run = client.wait(client.start(_one("forever", timeout_ms=200)))
    assert run.error and run.error.code == "timeout"


def an_output_that_is_too_large_fails_its_step_alone(client: Client) -> None:
    @skill
    def large(n: int) -> str:
        return "x" * n

    with Worker(client.url, skills=[large, double]):
        started = [client.start(_one("large", {"n": n})) for n in (300_000, 68_000_000, 1000)]
        runs = [client.wait(run) for run in started]
        assert client.wait(client.start(_one("double", {"n": 1}))).status == "completed"
    codes = [run.error and run.error.code for run in runs]
    assert codes == [None, "output_too_large", None]


def a_worker_that_stops_lets_its_steps_end(client: Client) -> None:
    begun, go = threading.Event(), threading.Event()

    @skill
    def held_up() -> str:
        begun.set()
        go.wait()
        return "in time"

    worker = Worker(client.url, skills=held_up).start()
    started = client.start(_one("held_up"))
    begun.wait()
    after = client.start(_one("held_up"))
    stopping = threading.Thread(target=worker.stop)
    worker.ask_to_stop()
    stopping.start()
    go.set()
    stopping.join()
    assert client.get(started).output == {"a": "in time"}
    client.terminate(after)


def what_does_not_end_in_time_is_handed_to_another(client: Client) -> None:
    go = threading.Event()

    @skill
    def stuck(ctx: Context) -> int:
        if ctx.engine_attempt == 1:
            go.wait()
        return ctx.engine_attempt

    worker = Worker(client.url, skills=stuck).start()
    started = client.start(_one("stuck", heartbeat_timeout_ms=500))
    _step_status(client, started, "running")
    worker.stop(grace=0)
    with Worker(client.url, skills=stuck):
        assert client.wait(started, check=True).output == {"a": 2}
    go.set()


def a_worker_without_a_token_says_why(tmp_path: Path) -> None:
    server = Server(tmp_path, "--token-hash", "sha256:" + "0" * 64, command="serve")
    try:
        worker = Worker(server.url, skills=double)
        with pytest.raises(MilepostError) as refused:
            worker.run()
        assert refused.value.status == 401
    finally:
        server.stop()


def a_server_that_dies_loses_no_result(own_server: Server) -> None:
    client = Client(own_server.url)
    calls: list[tuple[str, str]] = []

    @skill
    def counted(ctx: Context, n: int) -> dict[str, int]:
        calls.append((ctx.run_id, ctx.step_id))
        time.sleep(0.005)
        return {"n": n + 1}

    # A task whose answer was lost with the server comes again when its lease is over.
    settings = {"heartbeat_timeout_ms": 1000}
    document = {"name": "durable", "defaults": settings, "steps": {"s0": {"skill": "counted", "input": {"n": 0}}}}
    for i in range(1, 10):
        document["steps"][f"s{i}"] = {"skill": "counted", "input": {"n": f"${{{{ steps.s{i - 1}.output.n }}}}"}}  # type: ignore[index]
    with Worker(own_server.url, skills=counted, concurrency=8):
        started = [client.start(document) for _ in range(30)]
        for _ in range(3):
            calls.clear()
            eventually("some steps", lambda: len(calls) > 20)
            own_server.kill()
            own_server.start()
        runs = [client.wait(run, check=True) for run in started]
    assert [run.output for run in runs] == [{"s9": {"n": 10}}] * 30


SKILLS = """
import os, time
from milepost import Context, skill

@skill
def slow(ctx: Context, folder: str) -> dict[str, int]:
    open(f"{folder}/{ctx.engine_attempt}-{os.getpid()}", "w").close()
    while not os.path.exists(f"{folder}/go-{ctx.engine_attempt}"):
        time.sleep(0.01)
    return {"engine_attempt": ctx.engine_attempt}
"""


@contextmanager
def _worker_process(client: Client, folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "skills_of_test.py").write_text(SKILLS)
    command = [sys.executable, "-m", "milepost", "worker", "skills_of_test", "--url", client.url, *arguments]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr
        process.stderr.close()


def _said(process: subprocess.Popen[str], text: str) -> None:
    """Reads what a process says until this comes."""
    assert process.stderr
    assert any(text in line for line in process.stderr), f"it never said {text}"


def _attempt_began(folder: Path, attempt: int) -> Path:
    return eventually(f"attempt {attempt}", lambda: next(folder.glob(f"{attempt}-*"), None))


def a_worker_that_is_killed_is_replaced(client: Client, tmp_path: Path) -> None:
    started = client.start(_one("slow", {"folder": str(tmp_path)}, heartbeat_timeout_ms=600))
    with _worker_process(client, tmp_path) as first:
        _attempt_began(tmp_path, 1)
        first.kill()
    (tmp_path / "go-2").touch()
    with _worker_process(client, tmp_path):
        run = client.wait(started, check=True)
    assert run.output == {"a": {"engine_attempt": 2}}
    assert (run.step("a").logical_attempt, run.step("a").engine_attempt) == (1, 2)


def a_worker_that_comes_back_from_the_dead_changes_nothing(client: Client, tmp_path: Path) -> None:
    started = client.start(_one("slow", {"folder": str(tmp_path)}, heartbeat_timeout_ms=600))
    # With one hand only, it has no offer open that the step could come back to.
    with _worker_process(client, tmp_path, "--concurrency", "1") as first:
        _attempt_began(tmp_path, 1)
        os.kill(first.pid, signal.SIGSTOP)
        with _worker_process(client, tmp_path):
            _attempt_began(tmp_path, 2)
            os.kill(first.pid, signal.SIGCONT)
            _said(first, "stale_attempt")
            # Both end now; only the second has the lease.
            (tmp_path / "go-1").touch()
            (tmp_path / "go-2").touch()
            run = client.wait(started, check=True)
    assert run.output == {"a": {"engine_attempt": 2}}


def a_worker_process_ends_in_good_order(client: Client, tmp_path: Path) -> None:
    started = client.start(_one("slow", {"folder": str(tmp_path)}, queue="in-good-order"))
    with _worker_process(client, tmp_path, "--queue", "in-good-order", "--concurrency", "1") as process:
        _attempt_began(tmp_path, 1)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go-1").touch()
        assert process.wait(30) == 0
    assert client.get(started).output == {"a": {"engine_attempt": 1}}


def a_worker_process_that_is_asked_twice_gives_up(client: Client, tmp_path: Path) -> None:
    started = client.start(_one("slow", {"folder": str(tmp_path)}, queue="asked-twice"))
    with _worker_process(client, tmp_path, "--queue", "asked-twice", "--grace", "3600") as process:
        _attempt_began(tmp_path, 1)
        process.send_signal(signal.SIGINT)
        _said(process, "asked to stop")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
    client.terminate(started)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["no_such_module"], "No module named"),
        (["os"], "a worker needs skills"),
        (["skills_of_test:nothing"], "nothing"),
    ],
)
def a_worker_process_says_what_is_wrong_with_its_skills(tmp_path: Path, arguments: list[str], told: str) -> None:
    (tmp_path / "skills_of_test.py").write_text(SKILLS)
    command = [sys.executable, "-m", "milepost", "worker", *arguments]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, told in ran.stderr) == (2, True)


def many_short_runs_go_through_one_worker(client: Client) -> None:
    @workflow(name="python.chain")
    def chain(payload: Any) -> None:
        last = payload
        for _ in range(10):
            last = double(n=last.n).output

    client.deploy(chain)
    with Worker(client.url, skills=double, concurrency=64):
        started = [client.start("python.chain", {"n": n}) for n in range(200)]
        outputs = [client.wait(run, check=True).output["double_10"]["n"] for run in started]
    assert outputs == [n * 1024 for n in range(200)]


def a_step_gets_the_environment_it_asks_for(client: Client) -> None:
    @skill
    def looks(ctx: Context) -> dict[str, Any]:
        about = [ctx.details["workflow"], ctx.details["queue"], (ctx.traceparent or "")[:3]]
        return {"secrets": dict(ctx.secrets), "env": dict(ctx.env), "about": about}

    with Worker(client.url, skills=looks):
        run = client.wait(client.start(_one("looks", env=["PATH", "TZ"])), check=True)
    env = {name: os.environ[name] for name in ("PATH", "TZ") if name in os.environ}
    expected = {"secrets": {}, "env": env, "about": ["one.looks", "default", "00-"]}
    assert run.output == {"a": expected}


def a_worker_is_told_early_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="needs skills"):
        Worker(skills=[])
    with pytest.raises(ValueError, match="two skills `double`"):
        Worker(skills=[double, Skill(len, "double")])
    with pytest.raises(TypeError, match="put @skill before"):
        Worker(skills=[len])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="queues is a list"):
        Worker(skills=double, queues="default")
    with pytest.raises(ValueError, match="concurrency"):
        Worker(skills=double, concurrency=0)


def every_worker_has_an_id_of_its_own() -> None:
    ids = {Worker(skills=double).worker_id for _ in range(3)}
    assert len(ids) == 3
    assert all(len(id) <= 255 and f"-{os.getpid()}-" in id for id in ids)


def steps_of_other_programs_are_declared_by_name(client: Client) -> None:
    @workflow(name="python.mixed")
    def mixed(payload: Any) -> None:
        doubled = double(n=payload.n)
        step("echo", text=f"n = {doubled.output.n}").options(id="told")

    with Worker(client.url, skills=mixed.skills.values()):
        assert client.wait(client.start(mixed, {"n": 4}), check=True).output == {"told": {"text": "n = 8"}}
