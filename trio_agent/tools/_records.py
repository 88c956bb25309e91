"""Types with named fields, seen as one kind: attrs classes, dataclasses, TypedDicts and NamedTuples.

The schema and the structuring both ask here what the fields are.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast, get_args, get_origin

import attrs

__all__ = [
    "MISSING",
    "Annotation",
    "Field",
    "Record",
    "Unusable",
    "is_record",
    "origin_of",
    "record_of",
    "record_values",
]


Annotation: TypeAlias = Any  # Any: what stands behind a colon may be anything


class Unusable(Exception):
    """An annotation that has no JSON form; the text says which and why."""


MISSING: Final = object()
"""A field or parameter has no default that could be told."""


@attrs.frozen
class Field:
    """One field of a record."""

    key: str
    """Its name in JSON, and as an argument of the class."""
    attribute: str
    annotation: Annotation
    required: bool
    default: object = MISSING


@attrs.frozen
class Record:
    """A type with named fields."""

    cls: type
    fields: tuple[Field, ...]
    make: Callable[..., object]


def origin_of(annotation: Annotation) -> Annotation:
    """What an annotation with brackets is one of, such as ``list`` of ``list[int]``; ``None`` of others."""
    origin: Annotation = get_origin(annotation)
    return origin


def is_record(annotation: Annotation) -> bool:
    """Whether it is a class with named fields."""
    return isinstance(annotation, type) and _has_fields(annotation)


def _has_fields(cls: type) -> bool:
    return _is_typed_dict(cls) or _is_named_tuple(cls) or attrs.has(cls) or dataclasses.is_dataclass(cls)


def _is_typed_dict(cls: type) -> bool:
    # By shape: typing and typing_extensions have each a TypedDict of their own.
    return issubclass(cls, dict) and {"__required_keys__", "__total__"} <= cls.__dict__.keys()


def _is_named_tuple(cls: type) -> bool:
    return issubclass(cls, tuple) and {"_fields", "_field_defaults"} <= cls.__dict__.keys()


def record_of(cls: type) -> Record:
    """Its fields, in their order.

    Raises:
      Unusable: a field has no annotation, or one that cannot be resolved.
    """
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except Exception as error:  # an annotation is code, and may raise whatever code raises
        raise Unusable(f"the annotations of {cls.__qualname__} cannot be resolved: {error}") from error
    if _is_typed_dict(cls):
        return Record(cls, tuple(_typed_dict_field(cls, key, hint) for key, hint in hints.items()), dict)
    if _is_named_tuple(cls):
        return Record(cls, tuple(_named_tuple_fields(cls, hints)), cls)
    if attrs.has(cls):
        return Record(cls, tuple(_attrs_fields(cls, hints)), cls)
    return Record(cls, tuple(_dataclass_fields(cls, hints)), cls)


def _typed_dict_field(cls: type, key: str, hint: Annotation) -> Field:
    # __required_keys__ is wrong where annotations are strings: there it does not see NotRequired.
    required = key in cast("frozenset[str]", cls.__dict__["__required_keys__"])
    while (origin := origin_of(hint)) in (typing.Required, typing.NotRequired):
        required = origin is typing.Required
        hint = get_args(hint)[0]
    return Field(key, key, hint, required)


def _named_tuple_fields(cls: type, hints: dict[str, Any]) -> typing.Iterator[Field]:
    defaults = cast("dict[str, object]", cls.__dict__["_field_defaults"])
    for name in cast("tuple[str, ...]", cls.__dict__["_fields"]):
        if name not in hints:
            raise Unusable(f"the field {cls.__qualname__}.{name} has no annotation")
        yield Field(name, name, hints[name], name not in defaults, defaults.get(name, MISSING))


def _attrs_fields(cls: type, hints: dict[str, Any]) -> typing.Iterator[Field]:
    for field in attrs.fields(cls):
        if not field.init:
            continue
        hint = hints.get(field.name, field.type)
        if hint is None:
            raise Unusable(f"the field {cls.__qualname__}.{field.name} has no annotation")
        default: object = field.default
        required = default is attrs.NOTHING
        # A factory is not called: it may do anything, or ask for the instance.
        told = MISSING if required or isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]  # Factory is a class; its stub says function
        yield Field(field.alias, field.name, hint, required, told)


def _dataclass_fields(cls: type, hints: dict[str, Any]) -> typing.Iterator[Field]:
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        told = MISSING if field.default is dataclasses.MISSING else field.default
        yield Field(field.name, field.name, hints[field.name], required, told)
    for name, hint in hints.items():
        if isinstance(hint, dataclasses.InitVar):
            raise Unusable(f"{cls.__qualname__}.{name} is an InitVar, which is no field")


def record_values(value: object) -> dict[str, object] | None:
    """The fields of an instance by name; ``None`` if it is no attrs or dataclass instance."""
    cls = type(value)
    if attrs.has(cls):
        return {field.name: getattr(value, field.name) for field in attrs.fields(cls)}
    if dataclasses.is_dataclass(cls):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(cls)}
    return None
