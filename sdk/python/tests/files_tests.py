"""Files that skills leave, against a real server: streamed, compared, attached, and found again."""

from __future__ import annotations

import asyncio
import hashlib
import io
from pathlib import Path
from typing import Any

import pytest
from support import Server, eventually

from milepost import AsyncClient, Client, Conflict, Context, MilepostError, NotFound, SkillError, Worker, run_local, skill, workflow

LARGE = bytes(range(256)) * 40_000  # 10 MB


@skill
def train(context: Context, steps: int, folder: str, fail: bool = False) -> dict[str, Any]:
    for step in range(1, steps + 1):
        path = Path(folder, f"model-{step}.bin")
        path.write_bytes(LARGE + bytes([step]))
        context.upload(path, kind="checkpoint", training_step=step, metadata={"loss": 1 / step}, now=fail)
    if fail:
        raise SkillError("diverged", "the loss is not a number", retryable=False)
    report = context.upload(b"<p>done</p>", kind="evaluation", filename="report.html")
    context.attach("s3://bucket/elsewhere", kind="replay")
    return {"report": report.sha256}


@skill
async def look(context: Context, report: str, folder: str) -> str:
    path = Path(folder, "report.html")
    await asyncio.to_thread(context.download, report, path)
    return path.read_text()


@workflow(name="python.training")
def training(payload: Any) -> None:
    made = train(steps=payload.steps, folder=payload.folder)
    look(report=made.output.report, folder=payload.folder)


def files_of_a_skill_are_attached_to_its_step(client: Client, tmp_path: Path) -> None:
    with Worker(client.url, skills=[train, look]):
        started = client.start(training, {"steps": 2, "folder": str(tmp_path)})
        run = client.wait(started, check=True)
    assert run.output == {"look": "<p>done</p>"}
    artifacts = list(client.artifacts(run))
    assert [(one.kind, one.training_step, one.filename) for one in artifacts] == [
        ("checkpoint", 1, "model-1.bin"),
        ("checkpoint", 2, "model-2.bin"),
        ("evaluation", None, "report.html"),
        ("replay", None, None),
    ]
    assert [one.sha256 for one in run.step("train").artifacts] == [one.sha256 for one in artifacts]
    assert artifacts[2].media_type == "text/html" and artifacts[1].metadata == {"loss": 0.5}
    assert [one.kind for one in client.artifacts(run, step_id="train", kind="replay")] == ["replay"]
    size = client.download(artifacts[1], tmp_path / "again.bin")
    assert size == len(LARGE) + 1 and (tmp_path / "again.bin").read_bytes() == LARGE + b"\x02"
    with pytest.raises(ValueError, match="is not here but at s3://bucket/elsewhere"):
        client.download(artifacts[3], tmp_path / "nothing")


def checkpoints_stay_when_the_attempt_fails(client: Client, tmp_path: Path) -> None:
    document = {"name": "fails", "steps": {"a": {"skill": "train", "input": {"steps": 2, "folder": str(tmp_path), "fail": True}}}}
    with Worker(client.url, skills=train):
        run = client.wait(client.start(document))
    error = run.step("a").error
    assert run.status == "failed" and error and error.code == "diverged"
    assert [one.training_step for one in client.artifacts(run, kind="checkpoint")] == [1, 2]


def content_is_sent_once_and_compared(client: Client, tmp_path: Path) -> None:
    class Once(io.BytesIO):
        """Cannot be read twice."""

        def seekable(self) -> bool:
            return False

        def seek(self, *_: int) -> int:
            raise OSError("no")

    stored = client.upload(LARGE)
    assert stored.sha256 == hashlib.sha256(LARGE).hexdigest() and stored.size_bytes == len(LARGE)
    assert client.upload(Once(LARGE)) == client.upload(io.BytesIO(LARGE)) == stored
    assert client.upload(b"").size_bytes == 0
    client.download(stored, tmp_path / "large")
    assert (tmp_path / "large").read_bytes() == LARGE
    with pytest.raises(NotFound):
        client.download("0" * 64, tmp_path / "nothing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["large"], "what was not whole left nothing"


def files_are_recorded_on_their_own(client: Client) -> None:
    run = client.start({"name": "waits", "steps": {"w": {"skill": "wait", "input": {"signal": "go"}}}})
    stored = client.upload(b"a policy")
    first = client.record_artifact(run, stored, "policy", training_step=7, step_id="w", filename="p.bin")
    again = client.record_artifact(run, stored, "policy", training_step=7)
    assert first.artifact_id == again.artifact_id and first.size_bytes == 8
    with pytest.raises(Conflict) as refused:
        client.record_artifact(run, "s3://bucket/other", "policy", training_step=7)
    assert refused.value.code == "artifact_exists"
    assert client.record_artifact(run, "https://example.org/x", key="k") == client.record_artifact(
        run, "https://example.org/x", key="k"
    )
    client.cancel(run)


def the_async_client_has_files_too(client: Client, tmp_path: Path) -> None:
    async def go() -> list[str]:
        async with AsyncClient(client.url) as server:
            run = await server.start({"name": "one", "steps": {"a": {"skill": "noop"}}})
            await server.wait(run)
            stored = await server.upload(b"hello")
            await server.record_artifact(run, stored, filename="hello.txt")
            await server.download(stored, tmp_path / "hello.txt")
            return [one.filename or "" async for one in server.artifacts(run)]

    assert asyncio.run(go()) == ["hello.txt"]
    assert (tmp_path / "hello.txt").read_text() == "hello"


@skill
def names_nothing(context: Context) -> None:
    context._artifacts.append({"sha256": "0" * 64})


def a_file_that_the_server_does_not_have_fails_the_attempt(client: Client) -> None:
    with Worker(client.url, skills=names_nothing):
        document = {"name": "missing", "steps": {"a": {"skill": "names_nothing"}}}
        run = client.wait(client.start(document), timeout=60)
    error = run.step("a").error
    assert error and (error.code, error.retryable) == ("artifact_missing", True)


@skill
def uploads_and_waits(context: Context, flag: str) -> str:
    context.upload(b"what was uploaded before the server died", filename="kept.txt")
    Path(flag).with_suffix(".uploaded").touch()
    eventually("the test to go on", Path(flag).exists)
    return "done"


def a_server_that_is_killed_between_upload_and_outcome_loses_neither(own_server: Server, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    document = {"name": "killed", "steps": {"a": {"skill": "uploads_and_waits", "input": {"flag": str(flag)}}}}
    with Client(own_server.url) as client, Worker(client.url, skills=uploads_and_waits):
        run = client.start(document)
        eventually("the upload", flag.with_suffix(".uploaded").exists)
        own_server.kill()
        own_server.start()
        flag.touch()
        done = client.wait(run, timeout=60, check=True)
        assert [one.filename for one in done.step("a").artifacts] == ["kept.txt"]
        client.download(done.step("a").artifacts[0], tmp_path / "kept.txt")
    assert (tmp_path / "kept.txt").read_text() == "what was uploaded before the server died"


@skill
def makes_much(n: int) -> dict[str, Any]:
    return {"n": n, "pad": "x" * 10_000_000}


def an_output_may_be_large(client: Client) -> None:
    document = {
        "name": "large",
        "steps": {
            "a": {"skill": "makes_much", "input": {"n": 7}},
            "b": {"skill": "echo", "input": "${{ steps.a.output.n }}"},
        },
    }
    with Worker(client.url, skills=makes_much):
        run = client.wait(client.start(document), timeout=60, check=True)
    assert run.output == {"b": 7} and run.step("a").output is None
    assert run.step("a").raw["output_blob"]["size_bytes"] > 10_000_000
    assert [one.kind for one in run.step("a").artifacts] == ["output"]


def a_run_without_a_server_has_files_as_well(tmp_path: Path) -> None:
    run = run_local(training, {"steps": 1, "folder": str(tmp_path)})
    assert run.output == {"look": "<p>done</p>"}
    assert [one["kind"] for one in run.steps["train"].artifacts] == ["checkpoint", "evaluation", "replay"]


def what_is_no_hash_is_not_asked_for(client: Client, tmp_path: Path) -> None:
    with pytest.raises(MilepostError) as refused:
        client.download("nothing", tmp_path / "x")
    assert refused.value.code == "unknown_blob"
