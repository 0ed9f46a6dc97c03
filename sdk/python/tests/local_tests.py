"""Runs without a server: what they do, and that a server does the same."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import Any

import pytest
from support import ROOT

from milepost import Client, Context, SkillError, UnsupportedExpression, run_local, skill, step, workflow
from milepost.local.expression import Expression
from milepost.local.operations import EvalError
from milepost.models import ENDED


@skill
def double(n: int) -> dict[str, int]:
    return {"n": n * 2}


@skill
async def add(a: int, b: int) -> dict[str, int]:
    await asyncio.sleep(0)
    return {"sum": a + b}


@workflow(name="numbers")
def numbers(payload: Any) -> None:
    each = double.options(foreach=payload.numbers)(n=1)
    first = double(payload.numbers[0]).options(id="first")
    add(first.output.n, b=each.output[0].n).options(when=payload.numbers)


def a_workflow_runs_with_its_own_skills() -> None:
    run = run_local(numbers, {"numbers": [4, 5]})
    assert (run.status, run.output) == ("completed", {"add": {"sum": 10}})
    assert run.steps["double[1]"].output == {"n": 2}
    assert run.steps["first"].input == {"n": 4}


def a_failed_step_fails_the_run_and_skips_what_follows() -> None:
    document = {
        "name": "x",
        "steps": {
            "bad": {"skill": "double", "input": {"n": "one"}},
            "beside": {"skill": "echo", "input": {"a": 1}},
            "after": {"skill": "echo", "depends_on": ["bad"]},
            "later": {"skill": "echo", "depends_on": ["after"]},
            "other": {"skill": "echo", "depends_on": ["beside"]},
        },
    }
    run = run_local(document, skills=[double])
    assert run.error and run.error.code == "bad_input"
    assert run.error.message == "step `bad` failed: input.n is a whole number, not a text"
    found = {id: (one.status, one.skip_reason) for id, one in run.steps.items()}
    assert found["beside"] == ("completed", None)
    assert found["after"] == found["later"] == ("skipped", "upstream_failed")
    assert found["other"] == ("skipped", "run_stopped")
    run = run_local({**document, "on_failure": "continue"}, skills=[double])
    assert (run.status, run.steps["other"].status) == ("failed", "completed")


def attempts_follow_each_other_without_waiting() -> None:
    tries: list[int] = []

    @skill
    def flaky(ctx: Context) -> str:
        tries.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("busy")
        return "done"

    settings = {"retry": {"max_attempts": 5, "backoff_ms": 60_000}}
    run = run_local({"name": "x", "defaults": settings, "steps": {"a": {"skill": "flaky"}}}, skills=flaky)
    assert (run.output, tries) == ({"a": "done"}, [1, 2, 3])
    settings["retry"]["non_retryable"] = ["ConnectionError"]  # type: ignore[assignment]
    run = run_local({"name": "x", "defaults": settings, "steps": {"a": {"skill": "flaky"}}}, skills=flaky)
    assert run.error and run.error.code == "ConnectionError"
    assert "busy" in run.error.message and "raise ConnectionError" in run.error.message


def what_a_skill_says_is_kept_and_secrets_are_not() -> None:
    @skill
    def talks(ctx: Context) -> None:
        ctx.log(f"the key is {ctx.secrets['KEY']}\nand the region {ctx.env['REGION']}", "stdout")
        ctx.progress(40, "nearly")
        raise ValueError(f"no use: {ctx.secrets['KEY']!r}")

    settings = {"secrets": {"KEY": "secret://a/b"}, "env": ["REGION"]}
    document = {"name": "x", "steps": {"a": {"skill": "talks", **settings}}}
    run = run_local(document, skills=talks, secrets={"KEY": "s3cr\net"}, env={"REGION": "eu", "OTHER": "x"})
    told = run.steps["a"]
    assert [(line.stream, line.text) for line in told.logs] == [
        ("stdout", "the key is ***"),
        ("stdout", "and the region eu"),
    ]
    assert told.progress == [{"percent": 40, "message": "nearly"}]
    assert told.error and "no use: '***'" in told.error.message
    assert "s3cr" not in json.dumps(told.error.message)


def skills_of_others_are_replaced_by_functions() -> None:
    document = {"name": "x", "steps": {"a": {"skill": "image.render", "input": {"n": 1}}}}
    assert run_local(document, skills={"image.render": lambda n: n + 1}).output == {"a": 2}
    with pytest.raises(ValueError, match="no skill `image.render`"):
        run_local(document)


def a_failure_says_what_it_wants_to() -> None:
    @skill
    def refuses() -> None:
        raise SkillError("no_credit", "top up", retryable=False)

    run = run_local({"name": "x", "steps": {"a": {"skill": "refuses", "retry": {"max_attempts": 9}}}}, skills=refuses)
    assert run.steps["a"].attempts == 1
    assert run.error and (run.error.code, run.error.message) == ("no_credit", "step `a` failed: top up")


def an_output_must_be_json() -> None:
    document = {"name": "x", "steps": {"a": {"skill": "odd"}}}
    for output in (object(), float("nan"), b"bytes"):
        run = run_local(document, skills={"odd": lambda output=output: output})
        assert run.error and (run.error.code, run.error.retryable) == ("bad_output", False)


def a_document_that_cannot_run_is_refused() -> None:
    cycle = {
        "name": "x",
        "steps": {"a": {"skill": "noop", "depends_on": ["b"]}, "b": {"skill": "noop", "depends_on": ["a"]}},
    }
    with pytest.raises(ValueError, match="wait for each other: a, b"):
        run_local(cycle)
    with pytest.raises(ValueError, match="no step `c`"):
        run_local({"name": "x", "steps": {"a": {"skill": "echo", "input": "${{ steps.c.output }}"}}})


SCOPE: dict[str, Any] = {
    "payload": {
        "n": 3,
        "x": 2.5,
        "list": [1, [2, 3], {"k": "v"}],
        "text": "ab",
        "empty": "",
        "none": None,
        "odd-name": 7,
        "yes": True,
    },
}


@pytest.mark.parametrize(
    "source",
    [
        "payload",
        "payload.n + 1",
        "payload.list[1][-1]",
        "payload['odd-name'] - 1",
        "payload.list[2].k",
        "payload.text[0]",
        "payload.n * 2 - 1 / 4",
        "-payload.n + 1",
        "payload.n - -1",
        "(payload.n + 1) * 2",
        "payload.text + 'c\\n\\'d'",
        "payload.list + [1]",
        "payload.n > 2 and payload.x <= 2.5",
        "payload.n == 3.0",
        "payload.text != 'x' or payload.nothing",
        "payload.none or payload.n",
        "payload.empty and payload.nothing",
        "not payload.empty",
        "not payload.n == 3",
        "payload.nothing | default(5)",
        "payload.none | default(5)",
        "payload.none | default(5, true)",
        "payload.nothing | default('a') + 'b'",
        "payload.list | length",
        "payload.text | length + 1",
        "[1, payload.n, 'x']",
        "{'a': payload.n, 'b': [true, false, none]}",
        "'a' in payload.text",
        "9 not in payload.list",
        "'k' in payload.list[2]",
        "1 if payload.yes else 2",
        "1 if payload.none else 2 if payload.empty else 3",
        "payload.nothing is defined",
        "payload.n is not defined",
        "payload.none is none",
        "'a' < 'b'",
        # These have no value.
        "payload.nothing",
        "payload.nothing + 1",
        "payload.nothing.more | default(1)",
        "payload.n + 'a'",
        "payload.n / 0",
        "payload.n | length",
        "payload.list[9]",
        "1 in 5",
    ],
)
def an_expression_has_the_value_that_a_server_gives_it(client: Client, source: str) -> None:
    document = {"name": "compared", "steps": {"a": {"skill": "echo", "input": {"v": "${{ " + source + " }}"}}}}
    run = client.wait(client.start(document, SCOPE["payload"]))
    try:
        value = Expression(source).evaluate(SCOPE)
    except EvalError as error:
        assert run.error and run.error.code == "expression_failed", (
            f"{source} is {run.output} there, and not here: {error}"
        )
    else:
        assert run.output == {"a": {"v": value}}, run.error


@pytest.mark.parametrize(
    "source",
    [
        "payload.list | sum",
        "range(3)",
        "payload.n // 2",
        "payload.n ** 2",
        "payload.n is odd",
        "payload.list[1:]",
        "a ~ b",
        "1 +",
        "(1",
        "?",
    ],
)
def an_expression_beyond_the_known_is_a_clear_error(source: str) -> None:
    with pytest.raises(UnsupportedExpression, match="run_local does not know"):
        Expression(source)


def texts_around_expressions_are_put_together(client: Client) -> None:
    texts = [
        "n = ${{ payload.n }}!",
        "${{ payload.n }}${{ payload.x }}",
        "a $${{ b }} ${{ '}}' }}",
        "$${{ x }}",
        "${{ {'a': 1}['a'] }}",
    ]
    texts += ["${{ payload.list }} and ${{ payload.none }} and ${{ payload.yes }}"]
    document = {"name": "texts", "steps": {"a": {"skill": "echo", "input": {"texts": texts}}}}
    there = client.wait(client.start(document, SCOPE["payload"]), check=True)
    assert run_local(document, SCOPE["payload"]).output == there.output


@pytest.mark.parametrize("example", ["chain", "continue", "retries", "when"])
def an_example_ends_as_it_does_on_a_server(client: Client, example: str) -> None:
    text = (ROOT / f"examples/{example}.yaml").read_text()
    client.deploy(text, tag=f"example/{example}")
    there = client.wait(client.start(f"example/{example}"))
    here = run_local(client.workflow(f"example/{example}")["document"])
    assert there.status in ENDED
    assert (here.status, here.output) == (there.status, there.output)
    assert here.error == there.error
    steps = {one.step_id: (one.status, one.skip_reason, one.output, one.error) for one in there.steps}
    assert {id: (one.status, one.skip_reason, one.output, one.error) for id, one in here.steps.items()} == steps


def steps_see_what_those_before_them_left() -> None:
    @skill
    def train(context: Context) -> int:
        context.upload(b"early", kind="checkpoint", training_step=1, now=True)
        context.upload(b"weights", kind="checkpoint", filename="model.bin")
        return 1

    seen = "${{ steps.train.artifacts.checkpoint['model.bin'] }}"
    first = "${{ steps.train.artifacts.checkpoint['1'].size }}"
    document = {
        "name": "left",
        "steps": {
            "train": {"skill": "train"},
            "use": {"skill": "echo", "input": {"model": seen, "first": first, "none": "${{ steps.no.artifacts }}"}},
            "no": {"skill": "echo", "when": False},
        },
    }
    sha256 = hashlib.sha256(b"weights").hexdigest()
    model = {"uri": f"milepost://blobs/sha256/{sha256}", "sha256": sha256, "size": 7}
    assert run_local(document, skills=[train]).output["use"] == {"model": model, "first": 5, "none": {}}


def items_end_as_they_do_on_a_server(client: Client) -> None:
    document = {
        "name": "items",
        "on_failure": "continue",
        "steps": {
            "all": {"skill": "echo", "foreach": "${{ payload.n }}", "input": {"i": "${{ item }}", "n": "${{ index }}"}},
            "some": {"skill": "fail", "foreach": [0, 5], "input": {"times": "${{ item }}", "code": "broken"}},
            "none": {"skill": "echo", "foreach": [], "when": True},
            "wrong": {"skill": "echo", "foreach": "${{ payload }}"},
            "after": {"skill": "echo", "input": "${{ steps.all.output[1] }}"},
        },
    }
    there = client.wait(client.start(document, {"n": ["a", "b"]}))
    here = run_local(document, {"n": ["a", "b"]})
    assert here.error == there.error
    for one in there.steps:
        found = here.steps[one.step_id]
        assert (found.status, found.output, found.error and found.error.code) == (
            one.status,
            one.output,
            one.error and one.error.code,
        )


def async_skills_run_inside_a_running_loop() -> None:
    async def inside() -> Any:
        return run_local(numbers, {"numbers": [1]}).output

    assert asyncio.run(inside()) == {"add": {"sum": 4}}


def built_in_skills_do_not_wait() -> None:
    @workflow(name="built.in")
    def built_in(payload: Any) -> None:
        slept = step("sleep", ms=3_600_000)
        step("noop").options(depends_on=[slept])

    assert run_local(built_in).output == {"noop": {}}


def a_patch_for_its_own_run_needs_a_server() -> None:
    document = {"name": "grows", "steps": {"plan": {"skill": "echo", "input": {"patch": []}}}}
    assert run_local(document).output == {"plan": {"patch": []}}, "plain data where the document does not allow it"
    with pytest.raises(ValueError, match="`plan` returns a patch"):
        run_local({**document, "self_patch": {"max_patches": 1, "max_steps": 5}})
