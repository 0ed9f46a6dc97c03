"""What skills get: JSON converted to the types of their parameters, and checked."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict

import pytest

from milepost import Context, SkillError, skill
from milepost.skill import Skill


class Mood(Enum):
    CALM = "calm"
    LOUD = "loud"


@dataclass
class Shot:
    name: str
    seconds: float = 1.5
    tags: list[str] = field(default_factory=list)
    next: Optional[Shot] = None


class Audio(TypedDict):
    prompt: str
    volume: NotRequired[int]


Kelvin = NewType("Kelvin", float)


class _Silent:
    def has_news(self) -> None: ...


CONTEXT = Context({"task_id": "t", "run_id": "r", "step_id": "s", "skill": "k"}, _Silent())


def _bound(one: Skill[..., Any], **value: Any) -> dict[str, Any]:
    return one.bind(value, CONTEXT)


def _refused(one: Skill[..., Any], value: Any) -> str:
    with pytest.raises(SkillError) as refused:
        one.bind(value, CONTEXT)
    assert (refused.value.code, refused.value.retryable) == ("bad_input", False)
    return refused.value.message


@skill
def plain(text: str, n: int, x: float, yes: bool, anything: Any, maybe: str | None = None) -> None: ...


@skill("film.cut")
def cut(shots: list[Shot], mood: Mood, audio: Audio, pace: Literal["slow", "fast"] = "slow") -> None: ...


@skill
def wide(
    by_name: Mapping[str, Sequence[int]],
    by_number: dict[int, str],
    pair: tuple[int, str],
    some: set[str],
    either: int | str | list[int],
    number: int | float,
    at: datetime.datetime,
    id: uuid.UUID,
    path: Path,
    warm: Annotated[Kelvin, "K"],
) -> None: ...


def builtin_types_are_checked_and_kept() -> None:
    value = {"text": "a", "n": 3.0, "x": 2, "yes": True, "anything": [1, None]}
    bound = _bound(plain, **value)
    assert bound == {"text": "a", "n": 3, "x": 2.0, "yes": True, "anything": [1, None]}
    assert (type(bound["n"]), type(bound["x"])) == (int, float)
    assert _bound(plain, **value, maybe=None)["maybe"] is None


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"text": 1}, "input.text is a text, not a number"),
        ({"n": "3"}, "input.n is a whole number, not a text"),
        ({"n": 3.5}, "input.n is a whole number, not 3.5"),
        ({"n": True}, "input.n is a whole number, not a flag"),
        ({"x": None}, "input.x is a number, not null"),
        ({"yes": 1}, "input.yes is true or false, not a number"),
        ({"maybe": []}, "input.maybe is a text, not a list"),
        ({"more": 1}, "input.more is not known; known are text, n, x, yes, anything, maybe"),
    ],
)
def a_wrong_value_is_told_by_its_field(changed: dict[str, Any], told: str) -> None:
    right = {"text": "a", "n": 3, "x": 2, "yes": True, "anything": None}
    assert _refused(plain, {**right, **changed}) == told


def a_missing_value_is_told() -> None:
    assert _refused(plain, {"n": 1, "x": 1, "yes": True, "anything": 1}) == "input.text is missing"
    assert _refused(plain, [1]) == "input is an object, not a list"


def structures_become_objects() -> None:
    shots = [{"name": "a"}, {"name": "b", "seconds": 2, "tags": ["x"], "next": {"name": "c"}}]
    bound = _bound(cut, shots=shots, mood="loud", audio={"prompt": "p"}, pace="fast")
    assert bound["shots"] == [Shot("a"), Shot("b", 2.0, ["x"], Shot("c"))]
    assert (bound["mood"], bound["audio"], bound["pace"]) == (Mood.LOUD, {"prompt": "p"}, "fast")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"shots": [{"name": "a"}, {"name": 2}]}, "input.shots[1].name is a text, not a number"),
        ({"shots": [{"name": "a", "next": {}}]}, "input.shots[0].next.name is missing"),
        ({"shots": {"name": "a"}}, "input.shots is a list, not an object"),
        ({"mood": "odd"}, "input.mood is one of 'calm', 'loud', not 'odd'"),
        ({"audio": {"prompt": "p", "volume": "3"}}, "input.audio.volume is a whole number, not a text"),
        ({"audio": {}}, "input.audio.prompt is missing"),
        ({"audio": {"prompt": "p", "pitch": 1}}, "input.audio.pitch is not known; known are prompt, volume"),
        ({"pace": "odd"}, "input.pace is one of 'slow', 'fast', not 'odd'"),
    ],
)
def a_wrong_value_inside_is_told_by_its_place(changed: dict[str, Any], told: str) -> None:
    right = {"shots": [], "mood": "calm", "audio": {"prompt": "p"}}
    assert _refused(cut, {**right, **changed}) == told


def other_types_with_a_json_form_are_known() -> None:
    value = {
        "by_name": {"a": [1]},
        "by_number": {"7": "x"},
        "pair": [1, "b"],
        "some": ["a", "a"],
        "either": "x",
        "number": 3,
        "at": "2026-01-31T10:00:00Z",
        "id": "01a1df4c-5f67-7f8c-8f0e-3f6c1f2b9c11",
        "path": "a/b",
        "warm": 280,
    }
    bound = _bound(wide, **value)
    assert bound["by_number"] == {7: "x"}
    assert (bound["pair"], bound["some"], bound["either"]) == ((1, "b"), {"a"}, "x")
    assert bound["at"] == datetime.datetime(2026, 1, 31, 10, tzinfo=datetime.UTC)
    assert (bound["id"], bound["path"]) == (uuid.UUID(str(value["id"])), Path("a/b"))
    assert type(bound["number"]) is int
    assert "is none of int | str | list[int]" in _refused(wide, {**value, "either": None})
    assert "a time like" in _refused(wide, {**value, "at": "yesterday"})


def the_context_may_stand_anywhere() -> None:
    @skill
    def first(ctx: Context, a: int) -> None: ...

    @skill
    def last(a: int, *, me: Context | None = None) -> None: ...

    assert _bound(first, a=1) == {"ctx": CONTEXT, "a": 1}
    assert _bound(last, a=1) == {"me": CONTEXT, "a": 1}


def a_skill_with_the_context_alone_takes_anything() -> None:
    @skill
    def raw(ctx: Context) -> None: ...

    assert raw.bind([1, 2], CONTEXT) == {"ctx": CONTEXT}


def further_fields_go_where_there_is_room() -> None:
    @skill
    def open_ended(a: int, **rest: str) -> None: ...

    assert _bound(open_ended, a=1, b="x") == {"a": 1, "b": "x"}
    assert _refused(open_ended, {"a": 1, "b": 2}) == "input.b is a text, not a number"


def functions_that_cannot_be_skills_are_told_early() -> None:
    @skill
    def file(handle: Skill[..., Any]) -> None: ...

    @skill
    def positional(a: int, /) -> None: ...

    with pytest.raises(TypeError, match="skill `file`, parameter `handle`: .*has no JSON form"):
        _ = file.bind
    with pytest.raises(TypeError, match="inputs have names"):
        _ = positional.bind


def a_skill_is_still_its_function() -> None:
    @skill("sum.up")
    def add(a: int, b: int = 2) -> int:
        """Adds."""
        return a + b

    assert (add(1), add.function(1, b=5), add.name, add.__doc__) == (3, 6, "sum.up", "Adds.")
