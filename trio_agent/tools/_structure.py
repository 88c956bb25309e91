"""From JSON to arguments: validate, then structure into the annotated types.

The schema decides what is valid; the structuring decides nothing, it only converts.  Values of types
that JSON has are not touched at all.
"""

from __future__ import annotations

import enum
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from .._errors import describe
from ._check import Check, compile_check, python_types
from ._leaves import FORMATS, LEAVES
from ._records import Annotation, is_record, origin_of, record_of
from ._schema import Schema, collection_kind, is_alias, is_union, schema_of
from ._validate import InvalidArguments, Validator, make_validator

if TYPE_CHECKING:
    from cattrs import Converter

__all__ = ["Arguments", "Reader", "SchemaReader", "SignatureReader", "structurer"]

Arguments: TypeAlias = dict[str, Any]  # Any: JSON, or structured values

_Hook: TypeAlias = Callable[[Any], object]  # Any: JSON

_MODERN: Final = ("2020-12", "2019-09", "draft-07", "draft-06")


class SchemaReader:
    """Reads arguments by a schema that was written by hand: they stay JSON."""

    __slots__ = ("_check", "_validator")

    def __init__(self, schema: Schema) -> None:
        self._validator = make_validator(schema, formats=False)
        dialect = schema.get("$schema", _MODERN[0])
        modern = any(name in dialect for name in _MODERN)
        self._check: Check = compile_check(schema) if modern else _not_known

    def read(self, value: Arguments) -> Arguments:
        """The arguments, validated.

        Raises:
          InvalidArguments: they are not valid.
        """
        if not _surely_valid(self._check, value):
            self._validator.check(value)
        return value


class SignatureReader:
    """Reads arguments by a function's signature, into its annotated types."""

    __slots__ = ("_all_hooks", "_annotations", "_check", "_converter", "_hooks", "_schema", "_validator")

    def __init__(self, schema: Schema, annotations: Mapping[str, Annotation]) -> None:
        self._schema = schema
        self._annotations = annotations
        self._check = compile_check(schema, formats=FORMATS)
        self._converter: Converter | None = None
        self._hooks = tuple(
            (name, _float if _is_float(annotation) else self._hook(annotation))
            for name, annotation in annotations.items()
            if not _is_plain(annotation)
        )
        self._validator: Validator | None = None
        self._all_hooks: Mapping[str, _Hook] | None = None

    def read(self, value: Arguments) -> Arguments:
        """The arguments, validated and structured.

        Raises:
          InvalidArguments: they are not valid, or a type refused to be made of them.
        """
        if _surely_valid(self._check, value):
            if not self._hooks:
                return value
            arguments = dict(value)
            for name, hook in self._hooks:
                if name in arguments:
                    arguments[name] = _structured(hook, name, arguments[name])
            return arguments
        if self._validator is None:
            self._validator = make_validator(self._schema, formats=True)
        self._validator.check(value)
        # Valid, but not plainly so: 1.0 where an int is wanted, for instance.  Every value is converted.
        if self._all_hooks is None:
            self._all_hooks = {name: self._hook(annotation) for name, annotation in self._annotations.items()}
        hooks = self._all_hooks
        return {name: _structured(hooks[name], name, item) for name, item in value.items()}

    def _hook(self, annotation: Annotation) -> _Hook:
        if self._converter is None:
            self._converter = _make_converter()
        return _hook(self._converter, annotation)


Reader: TypeAlias = SchemaReader | SignatureReader


def _not_known(value: object) -> bool:
    return False


def _surely_valid(check: Check, value: Arguments) -> bool:
    try:
        return check(value)
    except RecursionError:
        return False  # jsonschema says it in words


def _structured(hook: _Hook, name: str, value: object) -> object:
    try:
        return hook(value)
    except Exception as error:  # a class of the user's may refuse a value by any exception
        raise InvalidArguments(f"$.{name}: {describe(error, 300)}") from error


def _is_plain(annotation: Annotation) -> bool:
    """Whether its values are what JSON parsing gives, so that nothing is to be done."""
    if annotation in (str, int, bool, None, types.NoneType, Any, object, list, dict):
        return True
    if isinstance(annotation, typing.NewType):
        return _is_plain(annotation.__supertype__)
    if origin_of(annotation) is typing.Annotated:
        return _is_plain(get_args(annotation)[0])
    if origin_of(annotation) is Literal:
        return not any(isinstance(value, enum.Enum) for value in get_args(annotation))
    if is_union(annotation) or collection_kind(annotation) in ("array", "object"):
        return all(map(_is_plain, get_args(annotation)))
    return False


def _is_float(annotation: Annotation) -> bool:
    while origin_of(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    return annotation is float


def _float(value: float) -> float:
    # An int becomes a float, as JSON knows no difference and the function may rely on its methods.
    value = float(value)
    if not math.isfinite(value):
        raise ValueError("expected a number of ordinary size")
    return value


def _hook(converter: Converter, annotation: Annotation) -> _Hook:
    return lambda value: converter.structure(value, annotation)


def structurer(annotation: Annotation) -> Callable[[Any], object]:  # Any: JSON
    """What makes a value of the annotated type out of JSON that its schema describes."""
    return _hook(_make_converter(), annotation)


def _make_converter() -> Converter:
    # One for each tool: to a converter's cache A | B and B | A are the same, and here the order decides.
    # cattrs is imported for the first annotation that needs it.
    from cattrs import Converter

    converter = Converter(detailed_validation=False)
    for leaf_type, leaf in LEAVES.items():
        converter.register_structure_hook(leaf_type, _ignoring_type(leaf.read))
    converter.register_structure_hook(float, _ignoring_type(_float))
    as_it_is = (Any, object, None, types.NoneType)
    converter.register_structure_hook_func(lambda annotation: annotation in as_it_is, lambda value, _: value)
    factories: tuple[tuple[Callable[[Annotation], bool], Callable[[Converter, Annotation], _CattrsHook]], ...] = (
        (_is_literal, _literal_hook),
        (is_record, _record_hook),
        (is_union, _union_hook),
        (is_alias, _alias_hook),
    )
    for predicate, factory in factories:
        converter.register_structure_hook_factory(predicate, _with_converter(factory, converter))
    return converter


_CattrsHook: TypeAlias = Callable[[Any, Any], Any]  # Any: JSON, any annotation, and a value of it


def _with_converter(
    factory: Callable[[Converter, Annotation], _CattrsHook], converter: Converter
) -> Callable[[Annotation], _CattrsHook]:
    return lambda annotation: factory(converter, annotation)


def _ignoring_type(read: Callable[[Any], object]) -> _CattrsHook:
    return lambda value, _: read(value)


def _is_literal(annotation: Annotation) -> bool:
    return origin_of(annotation) is Literal


def _literal_hook(_: Converter, annotation: Annotation) -> _CattrsHook:
    options: dict[tuple[bool, object], object] = {}
    for option in get_args(annotation):
        value = option.value if isinstance(option, enum.Enum) else option
        # 1.0 is the literal 1, and True is not.
        options[isinstance(value, bool), value] = option
    return lambda value, _: options[isinstance(value, bool), value]


def _alias_hook(converter: Converter, annotation: Annotation) -> _CattrsHook:
    return lambda value, _: converter.structure(value, annotation.__value__)


def _record_hook(converter: Converter, annotation: Annotation) -> _CattrsHook:
    record = record_of(annotation)
    fields = tuple((field.key, field.annotation) for field in record.fields)

    def structure(value: dict[str, object], _: object) -> object:
        return record.make(
            **{key: converter.structure(value[key], field_type) for key, field_type in fields if key in value}
        )

    return structure


def _union_hook(converter: Converter, annotation: Annotation) -> _CattrsHook:
    """The first member whose schema accepts the value, but of a float's a float before an int."""
    members: list[Any] = sorted(get_args(annotation), key=lambda member: member is not float)
    options = [(_acceptor(member), member) for member in members]

    def structure(value: object, _: object) -> object:
        for accepts, member in options:
            if accepts(value) and not (member is float and type(value) is not float):
                return converter.structure(value, member)
        return converter.structure(value, float)

    return structure


def _acceptor(member: object) -> Callable[[object], bool]:
    schema = schema_of(member)
    check = compile_check(schema, formats=FORMATS)
    possible = python_types(schema)
    kept: list[Validator] = []

    def accepts(value: object) -> bool:
        if type(value) not in possible:
            return False
        if check(value):
            return True
        if not kept:
            kept.append(make_validator(schema, formats=True))
        return kept[0].accepts(value)

    return accepts
