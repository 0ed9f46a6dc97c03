"""Workflows in Python are the documents that YAML would have been."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from milepost import (
    Client,
    Context,
    Options,
    Workflow,
    apply,
    contains,
    default,
    either,
    expr,
    index,
    item,
    length,
    skill,
    step,
    workflow,
)
from milepost.expressions import Expr, source_of


@skill("text.brief")
def brief(topic: str) -> dict[str, Any]:
    return {"mood": "calm", "shots": [topic]}


@skill("audio.generate")
def bgm(ctx: Context, prompt: str, mood: str, volume: int = 3) -> None: ...


@skill("image.render")
def shots(shot: str, n: int) -> None: ...


@skill
def publish(**parts: Any) -> None: ...


@workflow(
    name="campaign.build",
    version="1.0.0",
    params={"type": "object", "required": ["topic"]},
    defaults={"retry": {"max_attempts": 3, "backoff_ms": 500}, "timeout_ms": 300000},
    on_failure="continue",
    concurrency={"key": expr("payload.customer | default('none')"), "limit": 2},
    changes={"audio.update": {"merge": "/audio"}},
    tunables=[{"path": "optimizer.lr", "type": "number", "min": 1.0e-6, "max": 0.1}],
)
def campaign(payload: Any, run: Any) -> None:
    a = brief(topic=payload.topic)
    b = bgm(payload.audio.prompt, mood=a.output.mood).options(
        cache={"enabled": True}, queue="audio", secrets={"API_KEY": "secret://audio/api-key"}, env=["REGION"]
    )
    cut = step("noop").options(id="cut", depends_on=[b], when=payload.video)
    s = shots.options(foreach=a.output.shots)(item, n=index)
    publish(title=f"All about {payload.topic}", images=length(s), first=s.output[0]["odd-key"], run=run.id).options(
        depends_on=[cut, "bgm"], retry={"max_attempts": 1}
    )


CAMPAIGN = """
name: campaign.build
version: 1.0.0
params: {type: object, required: [topic]}
defaults:
  retry: {max_attempts: 3, backoff_ms: 500}
  timeout_ms: 300000
on_failure: continue
concurrency: {key: "${{ payload.customer | default('none') }}", limit: 2}
steps:
  brief:
    skill: text.brief
    input: {topic: "${{ payload.topic }}"}
  bgm:
    skill: audio.generate
    input: {prompt: "${{ payload.audio.prompt }}", mood: "${{ steps.brief.output.mood }}"}
    cache: {enabled: true}
    queue: audio
    secrets: {API_KEY: "secret://audio/api-key"}
    env: [REGION]
  cut:
    skill: noop
    depends_on: [bgm]
    when: "${{ payload.video }}"
  shots:
    skill: image.render
    foreach: "${{ steps.brief.output.shots }}"
    input: {shot: "${{ item }}", n: "${{ index }}"}
  publish:
    skill: publish
    depends_on: [cut, bgm]
    input:
      title: "All about ${{ payload.topic }}"
      images: "${{ steps.shots.output | length }}"
      first: "${{ steps.shots.output[0]['odd-key'] }}"
      run: "${{ run.id }}"
    retry: {max_attempts: 1}
changes:
  audio.update: {merge: /audio}
tunables:
  - {path: optimizer.lr, type: number, min: 1.0e-6, max: 0.1}
"""


def a_workflow_has_the_hash_of_its_yaml(client: Client) -> None:
    assert client.validate(campaign) == []
    by_hand = client.deploy(CAMPAIGN)
    assert client.deploy(campaign).version_hash == by_hand.version_hash
    assert client.deploy(campaign.to_json()).version_hash == by_hand.version_hash
    assert client.deploy(campaign.to_yaml()).version_hash == by_hand.version_hash
    assert client.workflow("campaign.build")["document"] == campaign.document()


def yaml_of_any_value_is_read_back(client: Client) -> None:
    values: list[Any] = ["yes", "No", "1", "1.0", "0x1f", "null", "~", "", " a ", "a: b", "# a", "- a", "'", '"', "\\"]
    values += ["line\nline\n", "tab\t", "ü ∑ 🎬", "${{ payload.x }}", "&a", "*a", "!a", "%a", "@a", "2026-01-31", "1e3"]
    values += [0, -1, 1.5, 1e-7, 2**53 - 1, True, None, [], {}, [[]], [[1], [2]], [{}], [{"a": [1, {"b": []}]}]]
    values += [{"odd key": {"deep": {"deeper": ["x" * 150, {"y": 1}]}}}]

    @workflow(name="odd.values")
    def odd(payload: Any) -> None:
        step("echo", {"values": values, "on": 1, "": 2})

    read = yaml.safe_load(odd.to_yaml())
    # This reader takes 1e-07 for a text; the server reads numbers as JSON does.
    assert read["steps"]["echo"]["input"]["values"][:26] == values[:26]
    assert client.deploy(odd.to_yaml()).version_hash == client.deploy(odd).version_hash


def yaml_is_for_people() -> None:
    assert campaign.to_yaml().startswith(
        """name: campaign.build
version: "1.0.0"
params:
  type: object
  required: [topic]
defaults:
  retry: {max_attempts: 3, backoff_ms: 500}
  timeout_ms: 300000
on_failure: continue
concurrency: {key: "${{ payload.customer | default('none') }}", limit: 2}
steps:
  brief:
    skill: text.brief
    input: {topic: "${{ payload.topic }}"}
  bgm:
    skill: audio.generate
"""
    )


P = Expr("payload")


@pytest.mark.parametrize(
    ("made", "source"),
    [
        (P.a.b[0]["c"]["odd-name"], "payload.a.b[0].c['odd-name']"),
        (P["in"][-1], "payload['in'][-1]"),
        (P["it's"], "payload['it\\'s']"),
        (P.items.keys.options, "payload.items.keys.options"),
        (P.n + 1 - 2, "payload.n + 1 - 2"),
        (P.n - (P.m - 1), "payload.n - (payload.m - 1)"),
        ((P.n + 1) * 2, "(payload.n + 1) * 2"),
        (2 * P.n / (3 * P.m), "2 * payload.n / (3 * payload.m)"),
        (-P.n + -1, "-payload.n + (-1)"),
        (10 - P.n * -2, "10 - payload.n * (-2)"),
        ((P.a > 1) & ~(P.b == "x") | P.c, "payload.a > 1 and not payload.b == 'x' or payload.c"),
        ((P.a | P.b) & P.c, "(payload.a or payload.b) and payload.c"),
        ((P.a == P.b) == P.c, "(payload.a == payload.b) == payload.c"),
        (~(P.a & P.b), "not (payload.a and payload.b)"),
        (default(P.a, 3) + 1, "payload.a | default(3) + 1"),
        (length(P.a + P.b), "(payload.a + payload.b) | length"),
        (apply("join", apply("sort", P.a, reverse=True), ", "), "payload.a | sort(reverse=true) | join(', ')"),
        (contains(P.all, P.one), "payload.one in payload.all"),
        (either(P.a > 1, "x", None), "'x' if payload.a > 1 else none"),
        (either(P.a, 1, 2) + 1, "(1 if payload.a else 2) + 1"),
        (default(P.a, {"k": [1, True, P.b]}), "payload.a | default({'k': [1, true, payload.b]})"),
        (expr("payload.a or payload.b") & P.c, "(payload.a or payload.b) and payload.c"),
    ],
)
def expressions_say_what_python_meant(client: Client, made: Expr, source: str) -> None:
    assert source_of(made) == source
    assert str(made) == "${{ " + source + " }}"
    assert client.validate({"name": "x", "steps": {"a": {"skill": "echo", "input": str(made)}}}) == []


def expressions_have_the_values_that_python_gives_them(client: Client) -> None:
    def calculate(p: Any) -> dict[str, Any]:
        return {
            "a": (p.n + 1) * 2 - p.m / 4,
            "b": p.n - (p.m - 1),
            "c": -p.n * -2,
            "d": ((p.n > 1) & (p.m != 8)) | (p.n <= 3),
            "e": 2 * p.n / (p.m * p.m),
            "f": p.n // 2 + p.m % 3,
        }

    class Numbers:
        n, m = 3, 8

    @workflow(name="calculated")
    def calculated(payload: Any) -> None:
        step("echo", calculate(payload))

    run = client.wait(client.start(calculated, {"n": 3, "m": 8}), check=True)
    assert run.output["echo"] == calculate(Numbers)


def an_expression_is_no_value_yet() -> None:
    with pytest.raises(TypeError, match="`&`, `|` and `~`"):
        bool(P.a and P.b)
    with pytest.raises(TypeError, match="foreach"):
        list(P.a)
    with pytest.raises(TypeError, match="cannot be formatted"):
        f"{P.a:.2f}"


def steps_get_ids_of_their_own() -> None:
    @workflow()
    def repeated(payload: Any) -> None:
        first = brief("a")
        second = brief("b")
        step("3d.render")
        brief.options(id="my-id")("c")
        publish(x=first, y=second.output, z=step("echo").options(id="with-dash"))

    steps = repeated.document()["steps"]
    assert repeated.name == "repeated"
    assert list(steps) == ["brief", "brief_2", "_3d_render", "my-id", "with-dash", "publish"]
    given = {
        "x": "${{ steps.brief.output }}",
        "y": "${{ steps.brief_2.output }}",
        "z": "${{ steps['with-dash'].output }}",
    }
    assert steps["publish"]["input"] == given


def mistakes_are_told_where_they_are_made() -> None:
    def declares(build: Any) -> Workflow:
        return workflow(name="wrong")(build)

    def unknown_argument(payload: Any) -> None:
        brief(subject="x")

    def unknown_option(payload: Any) -> None:
        brief("x").options(queu="x")

    def late_id(payload: Any) -> None:
        a = brief("x")
        publish(a=a.output.x)
        a.options(id="b")

    def same_id(payload: Any) -> None:
        brief.options(id="a")("x")
        brief.options(id="a")("y")

    def nothing(payload: Any) -> None: ...

    def unknown_parameter(customer: Any) -> None: ...

    wrong = [
        (unknown_argument, TypeError, "skill `text.brief`: .*topic"),
        (unknown_option, TypeError, "no option `queu`; known are"),
        (late_id, ValueError, "was referred to already"),
        (same_id, ValueError, "two steps `a`"),
        (nothing, ValueError, "declares no step"),
        (unknown_parameter, TypeError, "`payload` and `run`, not `customer`"),
    ]
    for build, error, told in wrong:
        with pytest.raises(error, match=told):
            declares(build).document()
    with pytest.raises(RuntimeError, match="inside a function with @workflow"):
        step("noop")


def every_setting_that_a_server_knows_can_be_given(client: Client) -> None:
    """And no other: the server itself says which there are."""
    problems = client.validate({"name": "x", "odd": 1, "steps": {"a": {"skill": "noop", "odd": 1}}})
    known = [re.search(r"known are ([a-z_, ]+)", problem.message) for problem in problems]
    of_a_document, of_a_step = [set(found[1].split(", ")) for found in known if found]
    assert of_a_step == Options.__annotations__.keys() - {"id"} | {"skill", "input"}
    assert of_a_document == inspect.signature(workflow).parameters.keys() | {"steps"}


def a_workflow_is_started_as_it_is(client: Client) -> None:
    @workflow(name="python.hello")
    def hello(payload: Any) -> None:
        step("echo", text=f"hello, {payload.name}").options(id="greet")

    run = client.wait(client.start(hello, {"name": "Ada"}), check=True)
    assert run.output == {"greet": {"text": "hello, Ada"}}
