"""JSON to the types that a function's hints name, checked on the way.

A converter is made once per hint and then only called. It is given the value and where it stands, and raises `BadValue`
with that place. Nothing is converted that would surprise: a text is never taken for a number.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import pathlib
import types
import typing
import uuid
from collections.abc import Callable
from typing import Any, Literal, Union

Converter = Callable[[Any, str], Any]


class BadValue(Exception):
    """A value that does not fit, and where it stands."""

    def __init__(self, place: str, message: str) -> None:
        super().__init__(f"{place} {message}")


def converter(hint: Any) -> Converter:
    """What turns JSON into this type. Raises TypeError for a type that has no JSON form."""
    if hint is Any or hint is object:
        return _anything
    simple = _SIMPLE.get(hint) if isinstance(hint, collections.abc.Hashable) else None
    if simple is not None:
        return simple
    if hint is None or hint is type(None):
        return _null
    if isinstance(hint, typing.NewType):
        return converter(hint.__supertype__)
    if hasattr(hint, "__value__") and type(hint).__name__ == "TypeAliasType":
        return converter(hint.__value__)
    origin = typing.get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, typing.get_args(hint))
    if isinstance(hint, type):
        return _class(hint)
    raise TypeError(f"{hint!r} has no JSON form")


def kind(value: Any) -> str:
    """What a JSON value is, in words."""
    names = {bool: "a flag", str: "a text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def _anything(value: Any, place: str) -> Any:
    return value


def _null(value: Any, place: str) -> None:
    if value is not None:
        raise BadValue(place, f"is null, not {kind(value)}")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        raise BadValue(place, f"is a text, not {kind(value)}")
    return value


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise BadValue(place, f"is true or false, not {kind(value)}")
    return value


def _integer(value: Any, place: str) -> int:
    if type(value) is int:
        return value
    # JSON has one kind of number: 3.0 is 3.
    if isinstance(value, float) and value.is_integer():
        return int(value)
    said = value if isinstance(value, float) else kind(value)
    raise BadValue(place, f"is a whole number, not {said}")


def _number(value: Any, place: str) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise BadValue(place, f"is a number, not {kind(value)}")


def _parsed(parse: Callable[[str], Any], what: str) -> Converter:
    def convert(value: Any, place: str) -> Any:
        try:
            return parse(_text(value, place))
        except (ValueError, ArithmeticError):
            raise BadValue(place, f"is {what}, not {value!r}") from None

    return convert


def _decimal(value: Any, place: str) -> decimal.Decimal:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return decimal.Decimal(str(value))
    convert = _parsed(decimal.Decimal, "a number")
    return typing.cast(decimal.Decimal, convert(value, place))


def _list_of(item: Converter, make: Callable[[list[Any]], Any] | None) -> Converter:
    def convert(value: Any, place: str) -> Any:
        if not isinstance(value, list):
            raise BadValue(place, f"is a list, not {kind(value)}")
        items = [item(one, f"{place}[{i}]") for i, one in enumerate(value)]
        return make(items) if make else items

    return convert


def _tuple_of(items: list[Converter]) -> Converter:
    def convert(value: Any, place: str) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(items):
            raise BadValue(place, f"is a list of {len(items)}, not {kind(value)}")
        return tuple(item(one, f"{place}[{i}]") for i, (item, one) in enumerate(zip(items, value, strict=True)))

    return convert


def _map_of(key: Converter, item: Converter) -> Converter:
    def convert(value: Any, place: str) -> dict[Any, Any]:
        if not isinstance(value, dict):
            raise BadValue(place, f"is an object, not {kind(value)}")
        return {key(name, f"a key of {place}"): item(one, f"{place}.{name}") for name, one in value.items()}

    return convert


def _one_of(hint: Any, choices: list[Converter]) -> Converter:
    def convert(value: Any, place: str) -> Any:
        for choice in choices:
            try:
                return choice(value, place)
            except BadValue:
                continue
        raise BadValue(place, f"is none of {_name(hint)}: it is {kind(value)}")

    return convert


def _optional(inner: Converter) -> Converter:
    def convert(value: Any, place: str) -> Any:
        return None if value is None else inner(value, place)

    return convert


def _literal(values: tuple[Any, ...]) -> Converter:
    def convert(value: Any, place: str) -> Any:
        for known in values:
            if known == value and type(known) is type(value):
                return known
        raise BadValue(place, f"is one of {', '.join(map(repr, values))}, not {value!r}")

    return convert


def _member(cls: type[enum.Enum]) -> Converter:
    by_value = {member.value: member for member in cls}

    def convert(value: Any, place: str) -> Any:
        found = by_value.get(value) if isinstance(value, (str, int, float, bool)) else None
        if found is None:
            raise BadValue(place, f"is one of {', '.join(map(repr, by_value))}, not {value!r}")
        return found

    return convert


@dataclasses.dataclass(slots=True)
class Field:
    """A named value: of a dataclass, a TypedDict or a function."""

    name: str
    convert: Converter
    required: bool


def fields_of(fields: list[Field], make: Callable[..., Any], rest: Converter | None = None) -> Converter:
    """An object with these fields; others are errors, unless `rest` takes them."""
    known = {field.name: field.convert for field in fields}
    required = [field.name for field in fields if field.required]

    def convert(value: Any, place: str) -> Any:
        if not isinstance(value, dict):
            raise BadValue(place, f"is an object, not {kind(value)}")
        found = {}
        for name, one in value.items():
            to = known.get(name, rest)
            if to is None:
                names = f"known are {', '.join(known)}" if known else "none is known"
                raise BadValue(f"{place}.{name}", f"is not known; {names}")
            found[name] = to(one, f"{place}.{name}")
        for name in required:
            if name not in found:
                raise BadValue(f"{place}.{name}", "is missing")
        return make(**found)

    return convert


def _class(cls: type) -> Converter:
    if issubclass(cls, enum.Enum):
        return _member(cls)
    if typing.is_typeddict(cls):
        return _once(cls, _typed_dict)
    if dataclasses.is_dataclass(cls):
        return _once(cls, _dataclass)
    bare = _BARE.get(cls)
    if bare is not None:
        return bare
    raise TypeError(f"{cls.__name__} has no JSON form; use a dataclass, a TypedDict, an Enum or a builtin type")


def _once(cls: type, make: Callable[[Any], Converter]) -> Converter:
    """Made once per type. A type with fields of its own kind finds itself while it is being made."""
    if cls not in _MADE:
        made: list[Converter] = []
        _MADE[cls] = lambda value, place: made[0](value, place)
        try:
            made.append(make(cls))
        except BaseException:
            del _MADE[cls]
            raise
        _MADE[cls] = made[0]
    return _MADE[cls]


def _dataclass(cls: type) -> Converter:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = []
    for field in dataclasses.fields(cls):
        if field.init:
            no_default = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            fields.append(Field(field.name, converter(hints[field.name]), no_default))
    return fields_of(fields, cls)


def _typed_dict(cls: Any) -> Converter:
    fields = []
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        # `__required_keys__` does not see these two where annotations are texts.
        said = typing.get_origin(hint)
        required = said is typing.Required or (said is not typing.NotRequired and name in cls.__required_keys__)
        fields.append(Field(name, converter(hint), required))
    return fields_of(fields, dict)


def _generic(hint: Any, origin: Any, args: tuple[Any, ...]) -> Converter:
    if origin is typing.Annotated or origin in (typing.Required, typing.NotRequired):
        return converter(args[0])
    if origin is Literal:
        return _literal(args)
    if origin in (Union, types.UnionType):
        return _union(hint, args)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return _list_of(converter(args[0]), tuple)
        return _tuple_of([converter(arg) for arg in args])
    if origin in _LISTS:
        return _list_of(converter(args[0]), _LISTS[origin])
    if origin in _MAPS:
        return _map_of(_key(args[0]), converter(args[1]))
    raise TypeError(f"{hint!r} has no JSON form")


def _union(hint: Any, args: tuple[Any, ...]) -> Converter:
    # 3 is an int before it is a float, whatever the order of the hint.
    narrow_first = sorted(args, key=lambda arg: arg is float)
    choices = [converter(arg) for arg in narrow_first if arg is not type(None)]
    one = choices[0] if len(choices) == 1 else _one_of(hint, choices)
    return _optional(one) if type(None) in args else one


def _key(hint: Any) -> Converter:
    """Keys of JSON objects are texts; whole numbers are read from them."""
    if hint is int:
        return _parsed(int, "a whole number")
    return converter(hint)


def _name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint).replace("typing.", "")


_MADE: dict[type, Converter] = {}
_SIMPLE: dict[Any, Converter] = {
    str: _text,
    bool: _flag,
    int: _integer,
    float: _number,
    datetime.datetime: _parsed(datetime.datetime.fromisoformat, "a time like 2026-01-31T10:00:00Z"),
    datetime.date: _parsed(datetime.date.fromisoformat, "a date like 2026-01-31"),
    uuid.UUID: _parsed(uuid.UUID, "a UUID"),
    pathlib.Path: _parsed(pathlib.Path, "a path"),
    decimal.Decimal: _decimal,
}
_LISTS: dict[Any, Callable[[list[Any]], Any] | None] = {
    list: None,
    collections.abc.Sequence: None,
    collections.abc.Iterable: None,
    collections.abc.Collection: None,
    set: set,
    frozenset: frozenset,
}
_MAPS = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
_BARE: dict[Any, Converter] = {
    list: _list_of(_anything, None),
    tuple: _list_of(_anything, tuple),
    set: _list_of(_anything, set),
    frozenset: _list_of(_anything, frozenset),
    dict: _map_of(_text, _anything),
}
