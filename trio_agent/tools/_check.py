"""A check compiled from a schema's common keywords: it says "surely valid" or "I do not know", never "invalid".

It is sound: what it accepts, jsonschema accepts (a differential test).  Whatever it does not know it
leaves to jsonschema, which costs twenty times as much.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias, cast

__all__ = ["Check", "compile_check", "python_types"]

Check: TypeAlias = Callable[[Any], bool]  # Any: JSON
"""True: surely valid.  False: not known."""

_PYTHON_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    # 1.0 is an integer in JSON Schema, but not in Python: left to jsonschema and the structuring.
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}

_REMARKS: Final = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "format"}
    | {"contentEncoding", "contentMediaType", "$schema", "$comment", "$defs", "definitions"}
)
"""Keywords that forbid nothing."""

_KNOWN: Final = _REMARKS | frozenset(
    {"type", "enum", "const", "anyOf", "allOf", "$ref"}
    | {"minLength", "maxLength", "pattern"}
    | {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}
    | {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"}
    | {"properties", "required", "additionalProperties", "propertyNames", "minProperties", "maxProperties"}
)


def python_types(schema: Mapping[str, Any]) -> frozenset[type]:  # Any: a JSON Schema
    """The types that a valid value may have; a value of another is surely invalid."""
    names = schema.get("type", list(_PYTHON_TYPES))
    found = {
        python_type for name in ([names] if isinstance(names, str) else names) for python_type in _PYTHON_TYPES[name]
    }
    return frozenset(found | {float} if int in found else found)


def _always(value: object) -> bool:
    return True


def _unknown(value: object) -> bool:
    return False


def compile_check(
    schema: Mapping[str, Any],  # Any: a JSON Schema
    *,
    formats: Mapping[str, Callable[[str], object]] | None = None,
) -> Check:
    """Compile ``schema``, which must be a valid one of draft 6 or later.

    The check may raise :exc:`RecursionError` on a deep value.

    Args:
      formats: formats that are more than a remark, and their readers, which raise :exc:`ValueError`.
    """
    return _Compiler(schema, formats or {}).node(schema)


class _Compiler:
    def __init__(self, root: Mapping[str, Any], formats: Mapping[str, Callable[[str], object]]) -> None:
        self._root = root
        self._formats = formats
        self._refs: dict[str, list[Check]] = {}  # a list: filled when the target is compiled, so that it may recurse
        self._local = not _moves_its_base(root, is_root=True)

    def node(self, schema: object) -> Check:
        if schema is True:
            return _always
        if not isinstance(schema, Mapping):
            return _unknown
        schema = cast("Mapping[str, Any]", schema)
        if not schema.keys() - _REMARKS and schema.get("format") not in self._formats:
            return _always
        if schema.keys() - _KNOWN or ("items" in schema and "prefixItems" in schema):
            return _unknown
        common = self._common(schema)
        if _unknown in common:
            return _unknown
        names = schema.get("type", list(_PYTHON_TYPES))
        table: dict[type, Check] = {}
        for name in [names] if isinstance(names, str) else names:
            for python_type in _PYTHON_TYPES.get(name, ()):
                table[python_type] = _all_of([*self._parts(python_type, schema), *common])
        return _by_type(table)

    def _common(self, schema: Mapping[str, Any]) -> list[Check]:
        """Checks of values of any type."""
        parts: list[Check] = []
        if "enum" in schema:
            parts.append(_one_of(schema["enum"]))
        if "const" in schema:
            parts.append(_one_of([schema["const"]]))
        if "anyOf" in schema:
            parts.append(_any_of([self.node(branch) for branch in schema["anyOf"]]))
        if "allOf" in schema:
            parts.extend(self.node(branch) for branch in schema["allOf"])
        if "$ref" in schema:
            parts.append(self._ref(schema["$ref"]))
        return [part for part in parts if part is not _always]

    def _parts(self, python_type: type, schema: Mapping[str, Any]) -> list[Check]:
        if python_type is str:
            parts = self._string(schema)
        elif python_type in (int, float):
            parts = _number(schema)
            if python_type is float:
                parts.insert(0, isfinite)
        elif python_type is list:
            parts = self._array(schema)
        elif python_type is dict:
            parts = self._object(schema)
        else:
            parts = []
        return parts

    def _string(self, schema: Mapping[str, Any]) -> list[Check]:
        parts = _length(schema, "minLength", "maxLength")
        if "pattern" in schema:
            search = re.compile(schema["pattern"]).search
            parts.append(lambda value: search(value) is not None)
        read = self._formats.get(schema.get("format", ""))
        if read is not None:
            parts.append(_readable(read))
        return parts

    def _array(self, schema: Mapping[str, Any]) -> list[Check]:
        parts = _length(schema, "minItems", "maxItems")
        if "items" in schema:
            item = self.node(schema["items"])
            if item is not _always:
                parts.append(lambda value: all(map(item, value)))
        if "prefixItems" in schema:
            items = [self.node(branch) for branch in schema["prefixItems"]]
            parts.append(lambda value: all(check(item) for check, item in zip(items, value, strict=False)))
        if schema.get("uniqueItems"):
            parts.append(_unique)
        return parts

    def _object(self, schema: Mapping[str, Any]) -> list[Check]:
        parts = _length(schema, "minProperties", "maxProperties")
        if "propertyNames" in schema:
            name = self.node(schema["propertyNames"])
            parts.append(lambda value: all(map(name, value)))
        properties = {key: self.node(branch) for key, branch in schema.get("properties", {}).items()}
        extra = self.node(schema.get("additionalProperties", True))
        required = tuple(schema.get("required", ()))
        if required or properties or extra is not _always:
            parts.append(_members(required, properties, extra))
        return parts

    def _ref(self, ref: object) -> Check:
        if not self._local or not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")) or "%" in ref:
            return _unknown
        target = self._refs.get(ref)
        if target is None:
            place: object = self._root
            for step in ref.split("/")[1:]:
                key = step.replace("~1", "/").replace("~0", "~")
                if not isinstance(place, Mapping) or key not in place:
                    return _unknown
                place = cast("Mapping[str, object]", place)[key]
            target = self._refs[ref] = []
            target.append(self.node(place))
        found = target
        return lambda value: found[0](value)


def _moves_its_base(schema: object, *, is_root: bool = False) -> bool:
    """Whether a part of it has an ``$id``: then a local reference may mean another root."""
    if isinstance(schema, Mapping):
        schema = cast("Mapping[str, object]", schema)
        if "$id" in schema and not is_root:
            return True
        return any(_moves_its_base(part) for part in schema.values())
    if isinstance(schema, list):
        return any(_moves_its_base(part) for part in cast("list[object]", schema))
    return False


def _by_type(table: Mapping[type, Check]) -> Check:
    if len(table) == 1:
        ((only, check),) = table.items()
        if check is _always:
            return lambda value: type(value) is only
        return lambda value: type(value) is only and check(value)
    get = table.get

    def check_by_type(value: object) -> bool:
        check = get(type(value))
        return check is not None and check(value)

    return check_by_type


def _all_of(parts: Sequence[Check]) -> Check:
    if not parts:
        return _always
    if len(parts) == 1:
        return parts[0]
    parts = tuple(parts)

    def check_all(value: object) -> bool:
        for part in parts:
            if not part(value):
                return False
        return True

    return check_all


def _any_of(parts: Sequence[Check]) -> Check:
    parts = tuple(part for part in parts if part is not _unknown)
    if not parts or _always in parts:
        return _always if parts else _unknown

    def check_any(value: object) -> bool:
        for part in parts:
            if part(value):
                return True
        return False

    return check_any


def _one_of(values: Sequence[object]) -> Check:
    # With its type: True == 1 in Python, and not in JSON.
    allowed = {(type(value), value) for value in values if value is None or isinstance(value, str | int | float)}
    scalars = frozenset(python_type for python_type, _ in allowed)
    if not allowed:
        return _unknown
    return lambda value: type(value) in scalars and (type(value), value) in allowed


def _length(schema: Mapping[str, Any], least: str, most: str) -> list[Check]:
    parts: list[Check] = []
    if schema.get(least):
        low = schema[least]
        parts.append(lambda value: len(value) >= low)
    if most in schema:
        high = schema[most]
        parts.append(lambda value: len(value) <= high)
    return parts


def _number(schema: Mapping[str, Any]) -> list[Check]:
    parts: list[Check] = []
    if "minimum" in schema:
        minimum = schema["minimum"]
        parts.append(lambda value: value >= minimum)
    if "maximum" in schema:
        maximum = schema["maximum"]
        parts.append(lambda value: value <= maximum)
    if "exclusiveMinimum" in schema:
        above = schema["exclusiveMinimum"]
        parts.append(lambda value: value > above)
    if "exclusiveMaximum" in schema:
        below = schema["exclusiveMaximum"]
        parts.append(lambda value: value < below)
    if "multipleOf" in schema:
        step = schema["multipleOf"]
        # Of floats jsonschema has a rule of its own.
        parts.append(lambda value: type(value) is int and type(step) is int and value % step == 0)
    return parts


def _readable(read: Callable[[str], object]) -> Check:
    def check_format(value: str) -> bool:
        try:
            read(value)
        except ValueError:
            return False
        return True

    return check_format


def _unique(value: list[object]) -> bool:
    kinds = set(map(type, value))
    return kinds <= {str} and len(set(cast("list[str]", value))) == len(value)


def _members(required: tuple[str, ...], properties: Mapping[str, Check], extra: Check) -> Check:
    get = properties.get
    if extra is _always and not properties:
        return lambda value: all(name in value for name in required)

    def check_members(value: dict[str, object]) -> bool:
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            if not get(name, extra)(item):
                return False
        return True

    return check_members
