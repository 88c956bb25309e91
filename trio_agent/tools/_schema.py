"""JSON Schema 2020-12 from annotations: the same types, the same bytes.

Knows nothing of functions, tools and validation.  A class that is used once is written where it
stands; one that is used again, or in itself, goes to ``$defs``.
"""

from __future__ import annotations

import collections.abc
import enum
import json
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import attrs

from .._errors import ConfigError
from ._check import compile_check
from ._docstring import first_paragraph
from ._leaves import FORMATS, LEAVES, leaf_text
from ._records import MISSING, Annotation, Unusable, is_record, origin_of, record_of, record_values

__all__ = ["Constraint", "Schema", "SchemaBuilder", "collection_kind", "is_alias", "is_union", "json_form", "schema_of"]

Schema: TypeAlias = dict[str, Any]  # Any: a JSON Schema

_PLAIN: Final[Mapping[object, Schema]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    types.NoneType: {"type": "null"},
    Any: {},
    object: {},
}

CollectionKind: TypeAlias = Literal["array", "set", "tuple", "object"]

_COLLECTIONS: Final[Mapping[object, CollectionKind]] = {
    list: "array",
    collections.abc.Sequence: "array",
    collections.abc.MutableSequence: "array",
    set: "set",
    frozenset: "set",
    collections.abc.Set: "set",
    collections.abc.MutableSet: "set",
    tuple: "tuple",
    dict: "object",
    collections.abc.Mapping: "object",
    collections.abc.MutableMapping: "object",
}

_LIMITS: Final[Mapping[str, Mapping[str, str]]] = {
    # constraint -> JSON type -> keyword
    "ge": {"integer": "minimum", "number": "minimum"},
    "gt": {"integer": "exclusiveMinimum", "number": "exclusiveMinimum"},
    "le": {"integer": "maximum", "number": "maximum"},
    "lt": {"integer": "exclusiveMaximum", "number": "exclusiveMaximum"},
    "multiple_of": {"integer": "multipleOf", "number": "multipleOf"},
    "min_length": {"string": "minLength", "array": "minItems", "object": "minProperties"},
    "max_length": {"string": "maxLength", "array": "maxItems", "object": "maxProperties"},
    "pattern": {"string": "pattern"},
}


@attrs.frozen(kw_only=True)
class Constraint:
    """What an ``Annotated`` type must also be: ``Annotated[int, Constraint(ge=1)]``.

    Objects of other packages that have attributes of these names, such as those of
    ``annotated_types``, do as well.
    """

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    """Characters of a string, items of a collection, entries of a mapping."""
    max_length: int | None = None
    pattern: str | None = None
    """A regular expression that must be found somewhere in the string."""
    description: str | None = None


def is_union(annotation: Annotation) -> bool:
    """Whether it is ``A | B``, ``Union[A, B]`` or ``Optional[A]``."""
    return origin_of(annotation) in (typing.Union, types.UnionType)


def is_alias(annotation: Annotation) -> bool:
    """Whether it is a ``type`` statement's alias; by name, as older Pythons have none."""
    return type(annotation).__name__ == "TypeAliasType"


def collection_kind(annotation: Annotation) -> CollectionKind | None:
    """Which kind of collection an annotation is, if it is one."""
    origin = origin_of(annotation) or annotation
    try:
        return _COLLECTIONS.get(origin)
    except TypeError:  # an unhashable annotation
        return None


def schema_of(annotation: Annotation) -> Schema:
    """The schema of one annotation, with its ``$defs``.

    Raises:
      ConfigError: it has none.
    """
    builder = SchemaBuilder()
    try:
        schema = builder.build(annotation)
        return builder.finish(schema)
    except Unusable as error:
        raise ConfigError(str(error)) from error


class SchemaBuilder:
    """Builds the parts of one schema, which share their definitions; then :meth:`finish` it.

    The parts are changed in place until then.
    """

    def __init__(self) -> None:
        self._names: dict[object, str] = {}
        self._defs: dict[str, Schema] = {}
        self._refs: dict[str, list[Schema]] = {}
        self._defaults: list[tuple[Schema, object]] = []

    def build(self, annotation: Annotation) -> Schema:
        """The schema of an annotation.

        Raises:
          Unusable: it has none.
        """
        try:
            plain = _PLAIN.get(annotation)
        except TypeError:
            plain = None
        if plain is not None:
            return dict(plain)
        if isinstance(annotation, type) and annotation in LEAVES:
            return dict(LEAVES[annotation].schema)
        if isinstance(annotation, typing.NewType):
            return self.build(annotation.__supertype__)
        if is_record(annotation) or is_alias(annotation):
            return self._named(annotation)
        if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
            return _choice([member.value for member in annotation], annotation.__qualname__)
        return self._special(annotation)

    def _special(self, annotation: Annotation) -> Schema:
        """The schema of an annotation with brackets, or of a bare collection."""
        if is_union(annotation):
            return {"anyOf": [self.build(member) for member in get_args(annotation)]}
        if origin_of(annotation) is typing.Annotated:
            return self._annotated(annotation)
        if origin_of(annotation) is Literal:
            values = [value.value if isinstance(value, enum.Enum) else value for value in get_args(annotation)]
            return _choice(values, str(annotation))
        kind = collection_kind(annotation)
        if kind is None:
            raise Unusable(f"{_shown(annotation)} has no JSON form that is known here")
        return self._collection(kind, get_args(annotation), annotation)

    def describe(self, schema: Schema, description: str, default: object = MISSING) -> None:
        """Add a description and a default to a part.  A default that its schema refuses is not told."""
        if description:
            schema["description"] = description
        if default is not MISSING:
            try:
                self._defaults.append((schema, json_form(default)))
            except (ValueError, RecursionError):
                pass  # no JSON form, so nothing that a model could send: the parameter is optional, that is all

    def finish(self, schema: Schema) -> Schema:
        """The whole: single uses are put in their place, the others are defined in ``$defs``."""
        for name, places in self._refs.items():
            if len(places) == 1:
                (place,) = places
                remarks = {key: value for key, value in place.items() if key != "$ref"}
                place.clear()
                place.update(self._defs.pop(name) | remarks)
        for part, default in self._defaults:
            if compile_check(part | {"$defs": self._defs}, formats=FORMATS)(default):
                part["default"] = default
        if self._defs:
            schema["$defs"] = self._defs
        return schema

    def _named(self, annotation: Annotation) -> Schema:
        """A reference to a class's definition, which is built when the class is met first."""
        name = self._names.get(annotation)
        if name is None:
            plain = str(getattr(annotation, "__name__", annotation))
            name = plain
            while name in self._defs:
                name = f"{plain}_{len(self._defs) + 1}"
            self._names[annotation] = name
            self._defs[name] = {}
            self._refs[name] = []
            if isinstance(annotation, type):
                self._defs[name].update(self._record(annotation))
            else:
                body = self.build(_alias_value(annotation))
                if "$ref" in body:  # another name for a class, or for itself
                    del self._names[annotation], self._defs[name]
                    if self._refs.pop(name):
                        raise Unusable(f"the alias {plain} means nothing but itself")
                    return body
                self._defs[name].update(body)
        reference: Schema = {"$ref": f"#/$defs/{name}"}
        self._refs[name].append(reference)
        return reference

    def _record(self, cls: type) -> Schema:
        if getattr(cls, "__parameters__", ()):
            raise Unusable(f"the generic class {cls.__qualname__} has no JSON form that is known here")
        record = record_of(cls)
        properties: dict[str, Schema] = {}
        for field in record.fields:
            try:
                part = self.build(field.annotation)
            except Unusable as error:
                raise Unusable(f"the field {cls.__qualname__}.{field.key}: {error}") from error
            self.describe(part, "", field.default)
            properties[field.key] = part
        schema: Schema = {"type": "object", "properties": properties}
        required = [field.key for field in record.fields if field.required]
        if required:
            schema["required"] = required
        schema["additionalProperties"] = False
        doc = cls.__dict__.get("__doc__")
        # Dataclasses and NamedTuples write a docstring of their own, which is only the signature.
        if isinstance(doc, str) and not doc.startswith(f"{cls.__name__}("):
            schema["description"] = first_paragraph(doc)
        return schema

    def _annotated(self, annotation: Annotation) -> Schema:
        base, *remarks = get_args(annotation)
        schema = self.build(base)
        for remark in remarks:
            if isinstance(remark, str):
                schema["description"] = remark
                continue
            for constraint in _LIMITS:
                limit = getattr(remark, constraint, None)
                if limit is not None:
                    _limit(schema, constraint, limit)
            description = getattr(remark, "description", None)
            if isinstance(description, str):
                schema["description"] = description
        return schema

    def _collection(self, kind: CollectionKind, args: tuple[Annotation, ...], annotation: Annotation) -> Schema:
        if kind == "object":
            return self._mapping(args)
        if kind == "tuple" and not (len(args) == 2 and args[1] is Ellipsis):
            return self._tuple(args, annotation)
        schema: Schema = {"type": "array", "items": self.build(args[0]) if args else {}}
        if kind == "set":
            schema["uniqueItems"] = True
        return schema

    def _tuple(self, args: tuple[Annotation, ...], annotation: Annotation) -> Schema:
        if annotation is tuple or annotation is typing.Tuple:  # noqa: UP006  # what older code annotates with
            return {"type": "array", "items": {}}
        size: Schema = {"minItems": len(args), "maxItems": len(args)}
        if args and all(arg == args[0] for arg in args):
            return {"type": "array", "items": self.build(args[0]), **size}
        if not args:
            return {"type": "array", "items": {}, **size}
        return {"type": "array", "prefixItems": [self.build(arg) for arg in args], **size}

    def _mapping(self, args: tuple[Annotation, ...]) -> Schema:
        key, value = args or (str, Any)
        keys = self.build(key)
        named = keys.get("type") == "string" or not keys
        if not named:
            raise Unusable(f"a mapping has strings as keys in JSON, not {_shown(key)}")
        schema: Schema = {"type": "object"}
        if len(keys) > 1:
            schema["propertyNames"] = keys
        schema["additionalProperties"] = self.build(value) or True
        return schema


def _alias_value(annotation: Annotation) -> object:
    try:
        return annotation.__value__
    except Exception as error:  # an alias is code that is run when it is asked for
        raise Unusable(f"{annotation} cannot be resolved: {error}") from error


def _choice(values: list[object], shown: str) -> Schema:
    if not values or not all(value is None or isinstance(value, str | int | float) for value in values):
        raise Unusable(f"the values of {shown} must be strings, numbers, booleans or None")
    values = [json_form(value) for value in values]
    schema: Schema = {"const": values[0]} if len(values) == 1 else {"enum": values}
    names: Mapping[type, str] = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        types.NoneType: "null",
    }
    kinds = {names[type(value)] for value in values}
    return {"type": kinds.pop(), **schema} if len(kinds) == 1 else schema


def _limit(schema: Schema, constraint: str, limit: object) -> None:
    """Put a constraint into a schema, or into those branches of a union that it fits."""
    branches = cast("list[Schema]", schema.get("anyOf", [schema]))
    fits = False
    for branch in branches:
        keyword = _LIMITS[constraint].get(branch.get("type", ""))
        # An enumeration has said all already, and a formatted string has no length that means anything.
        if keyword is not None and not branch.keys() & {"enum", "const", "format"}:
            branch[keyword] = getattr(limit, "pattern", limit)  # a compiled pattern, too
            fits = True
    if not fits:
        raise Unusable(f"the constraint {constraint} does not fit a schema of {json.dumps(schema)[:200]}")


def json_form(value: object) -> object:
    """A default as JSON.

    Raises:
      ValueError: it has no JSON form that is known here.
    """
    if isinstance(value, enum.Enum):
        return json_form(value.value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    text = leaf_text(value)
    if text is not None:
        return text
    if isinstance(value, tuple) and is_record(type(cast(object, value))):
        return json_form(cast("Any", value)._asdict())  # Any: the method that all NamedTuples have
    if isinstance(value, list | tuple):
        return [json_form(item) for item in cast("list[object]", value)]
    if isinstance(value, set | frozenset):
        return sorted((json_form(item) for item in cast("set[object]", value)), key=json.dumps)
    if isinstance(value, Mapping):
        return {_key_form(key): json_form(item) for key, item in cast("Mapping[object, object]", value).items()}
    if is_record(type(value)):
        fields = {field.attribute: field.key for field in record_of(type(value)).fields}
        values = record_values(value) or {}
        return {fields[name]: json_form(item) for name, item in values.items() if name in fields}
    raise ValueError(f"{type(value).__name__} has no JSON form that is known here")


def _key_form(key: object) -> str:
    text = json_form(key)
    if not isinstance(text, str):
        raise ValueError(f"{type(key).__name__} cannot be a key in JSON")
    return text


def _shown(annotation: Annotation) -> str:
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
