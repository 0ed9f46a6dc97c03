"""The client against a real server."""

from __future__ import annotations

import inspect
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from support import BINARY, Server, eventually

from milepost import (
    AsyncClient,
    Client,
    Conflict,
    NoServer,
    NotFound,
    PreconditionFailed,
    Refused,
    RunFailed,
    RunSummary,
    Unauthorized,
    WaitTimeout,
)
from milepost._sse import Parser, Reading

HELLO: dict[str, Any] = {
    "name": "hello",
    "steps": {"greet": {"skill": "echo", "input": {"text": "hello, ${{ payload.name }}"}}},
}
GATE: dict[str, Any] = {
    "name": "gate",
    "steps": {
        "before": {"skill": "noop"},
        "gate": {"skill": "wait", "depends_on": ["before"], "input": {"signal": "open"}},
    },
}
FAILS: dict[str, Any] = {
    "name": "fails",
    "steps": {"bad": {"skill": "fail", "input": {"times": 1, "code": "broken", "retryable": False}}},
}


def a_document_is_deployed_once(client: Client) -> None:
    first = client.deploy(HELLO)
    again = client.deploy(
        '{"steps": {"greet": {"input": {"text": "hello, ${{ payload.name }}"}, "skill": "echo"}}, "name": "hello"}'
    )
    assert (first.version_hash, first.tag) == (again.version_hash, "hello")
    assert not again.created
    assert client.workflow("hello")["document"] == HELLO
    assert "hello" in [tag["tag"] for tag in client.workflows()]


def a_file_is_deployed(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "hello.yaml"
    file.write_text("name: from.file\nsteps: {a: {skill: noop}}\n")
    assert client.deploy(file, tag="from/file").tag == "from/file"


def problems_of_a_document_are_told_at_once(client: Client) -> None:
    bad = {"name": "bad", "steps": {"a": {"skil": "echo"}}}
    assert {problem.code for problem in client.validate(bad)} == {"unknown_key", "missing_key"}
    assert client.validate(HELLO) == []
    with pytest.raises(Refused) as refused:
        client.deploy(bad)
    assert refused.value.status == 422
    assert {problem.code for problem in refused.value.problems} == {"unknown_key", "missing_key"}
    assert "did you mean `skill`?" in str(refused.value)


def a_run_is_started_and_waited_for(client: Client) -> None:
    run = client.wait(client.start(HELLO, {"name": "Ada"}, priority=3), check=True)
    assert (run.status, run.priority) == ("completed", 3)
    assert run.output == {"greet": {"text": "hello, Ada"}}
    assert run.step("greet").status == "completed"
    assert client.step(run, "greet").raw["input"] == {"text": "hello, Ada"}
    assert client.at(run, 1).status == "queued"


def a_request_id_starts_one_run(client: Client) -> None:
    client.deploy(HELLO)
    first = client.start("hello", {"name": "Ada"}, request_id="one-run")
    again = client.start("hello", {"name": "Ada"}, request_id="one-run")
    assert (first.run_id, first.created, again.created) == (again.run_id, True, False)


def an_update_run_goes_back_to_another(client: Client) -> None:
    document = {**HELLO, "name": "updated", "changes": {"rename": {"replace": "/name"}}}
    base = client.wait(client.start(document, {"name": "Ada"}))
    changes = [{"type": "rename", "payload": "Grace"}]
    assert client.plan(base_run_id=base, changes=changes).counts["run"] == 1
    run = client.wait(client.start(base_run_id=base, changes=changes))
    assert run.output == {"greet": {"text": "hello, Grace"}}
    assert (run.trigger_type, run.base_run_id) == ("update", base.run_id)


def a_step_says_why_it_ran(client: Client) -> None:
    document = {**HELLO, "name": "explained", "defaults": {"cache": {"enabled": True}}}
    document["changes"] = {"rename": {"replace": "/name"}}
    base = client.wait(client.start(document, {"name": "Ada"}))
    changes = [{"type": "rename", "payload": "Grace"}]
    assert client.plan(base_run_id=base).counts["reuse"] == 1
    assert client.plan(base_run_id=base, rebuild=["greet"]).steps[0].reason == "rebuild"
    run = client.wait(client.start(base_run_id=base, changes=changes))
    told = client.explain(run, "greet")
    assert (told.decision, told.message) == ("ran", "ran because `text` of its input changed")
    assert [(difference["part"], difference["path"]) for difference in told.differences] == [("input", "/text")]
    again = client.wait(client.start(base_run_id=run, rebuild="all"))
    assert client.explain(again, "greet").reason == "rebuild"


def a_plan_stores_nothing(client: Client) -> None:
    plan = client.plan({**HELLO, "name": "only.planned"}, {"name": "Ada"})
    assert [(step.step_id, step.decision) for step in plan.steps] == [("greet", "run")]
    with pytest.raises(NotFound) as missing:
        client.workflow("only.planned")
    assert missing.value.code == "unknown_workflow"


def a_failed_run_raises_when_asked_to(client: Client) -> None:
    started = client.start(FAILS)
    run = client.wait(started)
    assert (run.status, run.error and run.error.code) == ("failed", "broken")
    with pytest.raises(RunFailed, match="broken") as failed:
        client.wait(started, check=True)
    assert failed.value.run.run_id == started.run_id
    client.retry(run)
    assert client.wait(run, check=True).step("bad").logical_attempt == 2


def lists_go_over_all_pages(client: Client) -> None:
    document = {**HELLO, "name": "listed"}
    started = [client.wait(client.start(document, {"name": str(n)})).run_id for n in range(5)]

    def all_listed() -> list[str] | None:
        found = [run.run_id for run in client.list(workflow="listed", status=["completed", "failed"], limit=2)]
        return found if len(found) == 5 else None

    assert eventually("the runs in the list", all_listed) == started[::-1]


def events_are_read_from_any_place(client: Client) -> None:
    run = client.wait(client.start(HELLO, {"name": "Ada"}))
    events = list(client.events(run))
    assert [event.run_seq for event in events] == list(range(1, run.last_event_seq + 1))
    assert events[-1].event_type == "RunCompleted"
    assert list(client.events(run, after_seq=2)) == events[2:]
    assert list(client.watch(run)) == events


def events_are_watched_as_they_happen(client: Client) -> None:
    started = client.start(GATE)
    seen = []
    for event in client.watch(started):
        seen.append(event)
        if event.event_type == "StepStarted" and event.step_id == "gate":
            client.signal(started, "open", {"by": "Ada"})
    assert seen == list(client.events(started))
    assert client.get(started).output == {"gate": {"by": "Ada"}}


def a_watch_goes_on_where_the_server_died(own_server: Server) -> None:
    client = Client(own_server.url)
    started = client.start(GATE)
    seen = []
    for event in client.watch(started):
        seen.append(event)
        if event.event_type == "StepStarted" and event.step_id == "gate" and len(seen) < 100:
            own_server.kill()
            own_server.start()
            client.signal(started, "open")
    assert seen == list(client.events(started))
    assert seen[-1].event_type == "RunCompleted"


def waiting_survives_a_restart(own_server: Server) -> None:
    client = Client(own_server.url)
    started = client.start(GATE)

    def restart() -> None:
        own_server.stop()
        own_server.start()
        Client(own_server.url).signal(started, "open")

    thread = threading.Thread(target=restart)
    thread.start()
    assert client.wait(started).status == "completed"
    thread.join()


def waiting_may_take_too_long(client: Client) -> None:
    started = client.start(GATE)
    with pytest.raises(WaitTimeout):
        client.wait(started, timeout=0.3)
    client.terminate(started, "enough")
    assert client.wait(started).status == "terminated"


def a_run_is_paused_and_goes_on(client: Client) -> None:
    started = client.start(GATE)
    client.pause(started)
    assert client.get(started).status == "paused"
    with pytest.raises(Conflict):
        client.pause(started)
    client.resume(started)
    client.cancel(started, "changed my mind")
    assert client.wait(started).status == "cancelled"


def a_signal_may_depend_on_what_was_seen(client: Client) -> None:
    started = client.start(GATE)
    seen = eventually("the gate", lambda: _at_the_gate(client, started.run_id))
    with pytest.raises(PreconditionFailed):
        client.pause(started, if_seq=seen - 1)
    client.pause(started, if_seq=seen)
    client.terminate(started)


def _at_the_gate(client: Client, run: str) -> int | None:
    found = client.get(run)
    return found.last_event_seq if found.step("gate").status == "running" else None


def a_signal_with_a_key_counts_once(client: Client) -> None:
    started = client.start(GATE)
    client.signal(started, "open", {"n": 1}, key="same")
    client.signal(started, "open", {"n": 1}, key="same")
    client.wait(started)
    accepted = [event for event in client.events(started) if event.event_type == "SignalAccepted"]
    assert len(accepted) == 1


def what_steps_write_is_read_and_followed(client: Client) -> None:
    command = "echo one; echo two >&2; sleep 0.7; echo three"
    document = {"name": "talks", "steps": {"talk": {"skill": "shell", "input": {"command": command}}}}
    started = client.start(document)
    followed = list(client.logs(started, follow=True))
    assert {(line.stream, line.text) for line in followed} == {
        ("stdout", "one"),
        ("stderr", "two"),
        ("stdout", "three"),
    }
    assert list(client.logs(started)) == list(client.logs(started, "talk")) == followed


def what_is_not_there_is_an_error_with_a_code(client: Client) -> None:
    with pytest.raises(NotFound) as missing:
        client.get("01a1df4c-5f67-7f8c-8f0e-3f6c1f2b9c11")
    assert (missing.value.status, missing.value.code) == (404, "unknown_run")
    with pytest.raises(NoServer):
        Client("http://127.0.0.1:1").get("x")
    with pytest.raises(ValueError, match="not the URL of a server"):
        Client("127.0.0.1:7400")


def a_token_opens_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = json.loads(subprocess.check_output([BINARY, "token", "-o", "json"]))
    server = Server(tmp_path, "--token-hash", made["hash"], command="serve")
    try:
        with pytest.raises(Unauthorized):
            Client(server.url).deploy(HELLO)
        assert Client(server.url, made["token"]).deploy(HELLO).created
        monkeypatch.setenv("MILEPOST_URL", server.url)
        monkeypatch.setenv("MILEPOST_TOKEN", made["token"])
        assert not Client().deploy(HELLO).created
    finally:
        server.stop()


def both_clients_have_the_same_calls() -> None:
    calls = [
        {name: _signature(getattr(kind, name)) for name in vars(kind) if not name.startswith("_")}
        for kind in (Client, AsyncClient)
    ]
    assert calls[0] == calls[1]


def _signature(call: Any) -> list[str]:
    return [str(parameter) for parameter in inspect.signature(call).parameters.values()]


def moves_and_revisions_say_what_is_known_of_them(client: Client) -> None:
    one = client.deploy({**HELLO, "name": "noted"}, meta={"ticket": 7})
    client.deploy({**GATE, "name": "noted"})
    revision = client.revision(one.revision_id)
    assert (revision["name"], revision["meta"]) == ("noted", {"ticket": 7})
    moves = list(client.moves("noted"))
    assert [move["move_id"] for move in moves] == [2, 1]
    assert (moves[0]["from_kind"], "from_kind" in moves[1]) == ("dag_version", False)


def a_workflow_may_be_named_like_a_call(client: Client) -> None:
    client.deploy({**HELLO, "name": "validate"})
    assert client.workflow("validate")["name"] == "validate"


def a_gap_is_said_and_what_comes_after_it_is_given(caplog: pytest.LogCaptureFixture) -> None:
    event = '{"run_id": "r", "run_seq": %d, "event_type": "StepCompleted", "emitted_at": "2026-11-15T11:12:25Z"}'
    stale = b'event: stale\ndata: {"run_id": "r", "from_seq": 2, "message": "the log lacks event 2"}\n\n'
    text = b"".join([b"id: 1\ndata: %s\n\n" % (event % 1).encode(), stale, b"id: 2\ndata: %s\n\n" % (event % 2).encode()])
    seen = list(Reading(0, 1.0).take(Parser().take(text)))
    assert [one.run_seq for one in seen] == [1, 2]
    assert "the log lacks event 2" in caplog.text
    shown = {
        "run_id": "r", "workflow": "w", "workflow_version": "", "status": "running", "trigger_type": "initial",
        "priority": 0, "last_event_seq": 1, "steps_total": 1, "steps_done": 0, "steps_failed": 0,
        "created_at": "2026-11-15T11:12:25Z", "stale": {"from_seq": 2},
    }
    assert RunSummary.of(shown).stale_from == 2
