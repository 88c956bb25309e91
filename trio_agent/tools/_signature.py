"""The parameters of a tool's function: which a model fills in, and which are injected."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Final, get_args

import attrs

from .._ports import ToolContext
from ._docstring import read_docstring
from ._records import MISSING, Annotation, Unusable
from ._schema import Schema, SchemaBuilder, is_union

__all__ = ["Signature", "context_parameter", "is_async", "is_method", "read_signature"]

_SAYS_CONTEXT: Final = re.compile(r"\bToolContext\b")


@attrs.frozen
class Signature:
    """What is known of a function that is a tool."""

    description: str
    schema: Schema
    annotations: Mapping[str, Annotation]
    """Of the parameters that the model fills in."""
    defaults: Mapping[str, object]
    context: str | None
    """The parameter that gets the :class:`ToolContext`."""


def _code_of(function: Callable[..., object]) -> Callable[..., object]:
    """The function below partials, wrappers, bound methods and callable objects."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = type(function).__call__
    return getattr(function, "__func__", function)


def is_async(function: Callable[..., object]) -> bool:
    """Whether a call of it gives a coroutine; then it is awaited, and otherwise run in a thread."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or (
        not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)
    )


def is_method(function: Callable[..., object]) -> bool:
    """Whether it is a method that is not bound yet, as it is in the body of its class."""
    if not inspect.isfunction(function) or "." not in function.__qualname__:
        return False
    first = next(iter(inspect.signature(function).parameters.values()), None)
    return first is not None and first.name == "self" and first.annotation is inspect.Parameter.empty


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise Unusable(f"its signature cannot be read: {error}") from error
    if is_method(function):
        del parameters[0]
    # What a partial has bound by name is the programmer's, not the model's: it may be a secret.
    bound: set[str] = set()
    while isinstance(function, functools.partial):
        bound |= function.keywords.keys()
        function = function.func
    return [parameter for parameter in parameters if parameter.name not in bound]


def _resolve(annotation: Annotation, function: Callable[..., object]) -> Annotation:
    """An annotation as an object; those that cannot be resolved but speak of a context are one."""
    holder = types.SimpleNamespace(__annotations__={"annotation": annotation})
    try:
        namespace = getattr(_code_of(function), "__globals__", {})
        return typing.get_type_hints(holder, namespace, include_extras=True)["annotation"]
    except Exception as error:  # an annotation is code, and may raise whatever code raises
        if isinstance(annotation, str) and _SAYS_CONTEXT.search(annotation):
            return ToolContext  # imported for the type checker only
        raise Unusable(
            f"its annotation {annotation!r} cannot be resolved ({error}); it must stand at the top of its module"
        ) from error


def _is_context(annotation: Annotation) -> bool:
    return annotation is ToolContext or (is_union(annotation) and ToolContext in get_args(annotation))


def context_parameter(function: Callable[..., object]) -> tuple[str | None, int]:
    """The parameter of a handler that is annotated as a context, and how many others it has.

    A handler whose signature cannot be read is taken to have one parameter.
    """
    try:
        parameters = _parameters(function)
    except Unusable:
        return None, 1
    context: str | None = None
    others = 0
    for parameter in parameters:
        annotation = parameter.annotation
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD) and _may_be_context(
            annotation, function
        ):
            context = parameter.name
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD, parameter.VAR_POSITIONAL):
            others += 1
    return context, others


def _may_be_context(annotation: Annotation, function: Callable[..., object]) -> bool:
    try:
        return _is_context(_resolve(annotation, function))
    except Unusable:
        return False  # of a handler nobody else reads the annotations, so they need not be readable


def read_signature(function: Callable[..., object], description: str | None) -> Signature:
    """Read a function: its docstring, its parameters and their schema.

    Raises:
      Unusable: it cannot be a tool; the text names the parameter.
    """
    code = _code_of(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise Unusable("a generator cannot be a tool: return the whole result, and show progress by a ToolContext")
    doc = code.__doc__
    if doc is None and not inspect.isroutine(inspect.unwrap(function)):
        doc = type(function).__doc__ if type(function) is not functools.partial else None
    documentation = read_docstring(doc)
    builder = SchemaBuilder()
    properties: dict[str, Schema] = {}
    required: list[str] = []
    annotations: dict[str, Annotation] = {}
    defaults: dict[str, object] = {}
    context: str | None = None
    for parameter in _parameters(function):
        name = parameter.name
        try:
            annotation = _annotation(parameter, function)
            if _is_context(annotation):
                if context is not None:
                    raise Unusable("there is a second ToolContext already")
                context = name
                continue
            part = builder.build(annotation)
        except Unusable as error:
            raise Unusable(f"parameter {name!r}: {error}") from error
        told = "" if "description" in part else documentation.parameters.get(name, "")
        builder.describe(part, told, MISSING if parameter.default is parameter.empty else parameter.default)
        properties[name] = part
        annotations[name] = annotation
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            defaults[name] = parameter.default
    schema: Schema = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    schema["additionalProperties"] = False
    told = documentation.description if description is None else description
    return Signature(told, builder.finish(schema), annotations, defaults, context)


def _annotation(parameter: inspect.Parameter, function: Callable[..., object]) -> Annotation:
    match parameter.kind:
        case inspect.Parameter.POSITIONAL_ONLY:
            raise Unusable("a model gives its arguments by name, so no parameter can be positional-only")
        case inspect.Parameter.VAR_POSITIONAL | inspect.Parameter.VAR_KEYWORD:
            raise Unusable("a model must know its parameters, so there can be no * or **")
        case _:
            pass
    if parameter.annotation is parameter.empty:
        raise Unusable("it has no annotation")
    return _resolve(parameter.annotation, function)
