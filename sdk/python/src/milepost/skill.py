"""Skills: functions that carry steps out.

A skill called inside a `@workflow` function declares a step; called anywhere else it is the function itself.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar, Unpack, overload

from . import _build
from ._build import Builder, Options, Step
from ._convert import BadValue, Converter, Field, converter, fields_of
from .context import Context
from .errors import SkillError

P = ParamSpec("P")
R = TypeVar("R")

# An input and a context to what the function is called with.
Binder = Callable[[Any, Context], dict[str, Any]]


class Skill(Generic[P, R]):
    """A function that carries steps out. `function` is the function as it was written."""

    def __init__(self, function: Callable[P, R], name: str | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.name = name or function.__name__
        self.is_async = inspect.iscoroutinefunction(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = _build.current()
        return self._declare(builder, args, kwargs, {}) if builder else self.function(*args, **kwargs)

    def options(self, **options: Unpack[Options]) -> Callable[..., Any]:
        """The skill with settings for the step that it is called for: `render.options(queue="gpu")(shot=item)`."""

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._declare(_build.required(), args, kwargs, options)

        return call

    def _declare(self, builder: Builder, args: tuple[Any, ...], kwargs: dict[str, Any], options: Options) -> Step:
        builder.skills[self.name] = self
        return builder.declare(self.name, self.function.__name__, self._input(args, kwargs), options)

    def __repr__(self) -> str:
        return f"<skill {self.name}>"

    @functools.cached_property
    def bind(self) -> Binder:
        """Checks an input and gives the arguments. Making it raises TypeError when the function cannot be a skill."""
        fields, context, rest = self._parameters()
        if not fields and rest is None and context is not None:
            return lambda value, ctx: {context: ctx}
        convert = fields_of(fields, dict, rest)
        if context is None:
            return _reporting(lambda value, ctx: convert(value, "input"))

        def with_context(value: Any, ctx: Context) -> dict[str, Any]:
            arguments: dict[str, Any] = convert(value, "input")
            arguments[context] = ctx
            return arguments

        return _reporting(with_context)

    def _parameters(self) -> tuple[list[Field], str | None, Converter | None]:
        hints = typing.get_type_hints(self.function, include_extras=True)
        fields, context, rest = [], None, None
        for parameter in inspect.signature(self.function).parameters.values():
            hint = hints.get(parameter.name, Any)
            if _is_context(hint):
                context = parameter.name
            elif parameter.kind is parameter.VAR_KEYWORD:
                rest = self._converter(parameter.name, hint)
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
                raise TypeError(f"skill `{self.name}`: inputs have names, so `{parameter.name}` cannot be positional")
            else:
                required = parameter.default is parameter.empty
                fields.append(Field(parameter.name, self._converter(parameter.name, hint), required))
        return fields, context, rest

    def _converter(self, name: str, hint: Any) -> Converter:
        try:
            return converter(hint)
        except TypeError as error:
            raise TypeError(f"skill `{self.name}`, parameter `{name}`: {error}") from None

    def _input(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """What a call inside a workflow says, by name. The context comes later."""
        signature = inspect.signature(self.function)
        hints = typing.get_type_hints(self.function)
        kept = [p for p in signature.parameters.values() if not _is_context(hints.get(p.name))]
        try:
            bound = signature.replace(parameters=kept).bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"skill `{self.name}`: {error}") from None
        extra = next((p.name for p in kept if p.kind is p.VAR_KEYWORD), None)
        given = dict(bound.arguments)
        more = given.pop(extra, {}) if extra else {}
        return {**given, **more}


def _is_context(hint: Any) -> bool:
    return hint is Context or (typing.get_origin(hint) is not None and Context in typing.get_args(hint))


def _reporting(bind: Binder) -> Binder:
    def checked(value: Any, ctx: Context) -> dict[str, Any]:
        try:
            return bind(value, ctx)
        except BadValue as error:
            raise SkillError("bad_input", str(error), retryable=False) from None

    return checked


@overload
def skill(function: Callable[P, R], /) -> Skill[P, R]: ...
@overload
def skill(name: str | None = None, /) -> Callable[[Callable[P, R]], Skill[P, R]]: ...
def skill(what: Any = None, /) -> Any:
    """Makes a function a skill: `@skill`, or `@skill("audio.generate")` with a name of its own."""
    if callable(what):
        return Skill(what)
    return lambda function: Skill(function, what)
