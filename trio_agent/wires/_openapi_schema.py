"""A JSON Schema in the subset of OpenAPI's that Gemini's ``parameters`` take; knows nothing of requests.

Source: Gemini API reference, "Schema", read 2026-11.  The subset has ``type`` in capitals, ``format``,
``description``, ``nullable``, ``enum`` of strings, ``items``, ``minItems``, ``maxItems``, ``properties``,
``required``, ``minimum``, ``maximum`` and ``anyOf``.  What it cannot say is left out: the model is told less, and its
arguments are checked against the whole schema all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, cast

from ._json import JSONObject, as_count, as_list, as_object, as_text

__all__ = ["RECURSION", "openapi_parameters", "openapi_schema"]

RECURSION: Final = 1
"""How often a definition may stand inside of itself; the next one is an object of which nothing is said."""

MAX_DEPTH: Final = 32
"""Levels; what lies deeper is cut as well."""

MAX_SCHEMAS: Final = 2_000
"""Schemas that one may consist of once its references are written out; a few lines can ask for millions."""

FORMATS: Final[Mapping[str, frozenset[str]]] = {
    "string": frozenset({"date-time"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
"""Another one is refused."""

SCALARS: Final = frozenset({"string", "number", "integer", "boolean"})

KINDS: Final = SCALARS | {"array", "object"}

ANYTHING: Final = ("string", "number", "boolean", "object")
"""What stands for a schema that says nothing: a type is mandatory."""

ESCAPED: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")

UNIONS: Final = ("anyOf", "oneOf")

SHAPING: Final = frozenset({"$ref", "type", "properties", "items", "prefixItems", "enum", "const", "allOf", *UNIONS})
"""An alternative without any of these only restricts what stands beside it, such as which names are required."""


def openapi_parameters(schema: JSONObject) -> JSONObject | None:
    """The parameters of a tool; ``None`` if it takes none, because an object without properties is refused.

    Alternatives at the top become one object with the properties of all, since an object must stand there.
    """
    adapted = _adapt(schema, parameters=True)
    return adapted if adapted.get("properties") else None


def openapi_schema(schema: JSONObject) -> JSONObject:
    """Any schema, such as that of an answer."""
    return _adapt(schema, parameters=False)


def _adapt(schema: JSONObject, *, parameters: bool) -> JSONObject:
    recursion = RECURSION
    while True:
        adapter = _Adapter(schema, recursion)
        adapted = adapter.parameters() if parameters else adapter.convert(schema, ())
        if adapter.left >= 0 or not recursion:
            return adapted
        recursion -= 1  # too large, and cut where it happened to be: rather cut everywhere a little earlier


class _Adapter:
    """Converts the parts of one schema.

    ``within`` are the references that are being written out around a part.
    """

    __slots__ = ("_recursion", "_root", "left")

    def __init__(self, root: JSONObject, recursion: int) -> None:
        self._root = root
        self._recursion = recursion
        self.left = MAX_SCHEMAS

    def parameters(self) -> JSONObject:
        fields, within = self._flat(self._root, ())
        return self._plain(fields, "object", within)

    def convert(self, schema: object, within: tuple[str, ...], depth: int = 0) -> JSONObject:
        fields, within = self._resolve(schema, within)
        kinds = _kinds(fields)
        options, nullable = self._options(fields, within)
        nullable = nullable or "null" in kinds or None in _choices(fields)
        kinds = [kind for kind in kinds if kind != "null"]
        base = {key: value for key, value in fields.items() if key not in UNIONS}
        deep = bool(options) or not kinds or not SCALARS.issuperset(kinds)
        if deep and (self.left < 0 or depth >= MAX_DEPTH):
            found = [_cut(fields)]
        elif len(options) == 1:
            found = [self.convert(_merged(options[0], base), within, depth + 1)]
        elif options:
            found = [self.convert(_merged(base, option), within, depth + 1) for option in options]
        elif len(kinds) == 1:
            found = [self._plain(base, kinds[0], within, depth)]
        elif kinds:
            found = [self.convert({**base, "type": kind}, within, depth + 1) for kind in kinds]
        elif nullable:
            found = [{"type": "STRING"}]  # nothing but null
        else:
            found = [{"type": kind.upper()} for kind in ANYTHING]
        return _union(found, as_text(fields.get("description")), nullable)

    # --- what a schema says --------------------------------------------------------------------------

    def _resolve(self, schema: object, within: tuple[str, ...]) -> tuple[JSONObject, tuple[str, ...]]:
        """The schema with its references and its ``allOf`` put into it."""
        self.left -= 1
        fields = as_object(schema)
        if self.left < 0:
            return {key: value for key, value in fields.items() if key not in ("$ref", "allOf")}, within
        while "$ref" in fields:
            ref = as_text(fields["$ref"])
            beside = {key: value for key, value in fields.items() if key != "$ref"}
            target = self._find(ref)
            if within.count(ref) > self._recursion:
                return _merged({**_stub(target), "description": "Another one of the same kind."}, beside), within
            within = (*within, ref)
            fields = _merged(target, beside)
        members = as_list(fields.get("allOf"))
        if members:
            fields = {key: value for key, value in fields.items() if key != "allOf"}
            for member in members:
                resolved, within = self._resolve(member, within)
                fields = _merged(resolved, fields)
        return fields, within

    def _find(self, ref: str) -> JSONObject:
        """What a reference points to inside of the schema; another says nothing."""
        place: object = self._root if ref.startswith("#") else None
        for step in ref.split("/")[1:]:
            key = ESCAPED.sub(_unescaped, step).replace("~1", "/").replace("~0", "~")
            if isinstance(place, list):
                items = cast("list[object]", place)
                place = items[int(key)] if key.isdecimal() and int(key) < len(items) else None
            else:
                place = as_object(place).get(key)
        return as_object(place)

    def _options(self, fields: JSONObject, within: tuple[str, ...]) -> tuple[list[JSONObject], bool]:
        """The alternatives that shape the value, and whether null is one."""
        found: list[JSONObject] = []
        nullable = False
        for key in UNIONS:
            options = [as_object(option) for option in as_list(fields.get(key))]
            shaping = [option for option in options if not SHAPING.isdisjoint(option)]
            none = [option for option in shaping if _is_null(self._resolve(option, within)[0])]
            nullable = nullable or bool(none)
            found = found or [option for option in shaping if option not in none]
        return found, nullable

    def _flat(self, schema: object, within: tuple[str, ...]) -> tuple[JSONObject, tuple[str, ...]]:
        """The schema as one object: the properties of all alternatives, of which only the common ones are required."""
        fields, within = self._resolve(schema, within)
        properties = as_object(fields.get("properties"))
        required = set(_required(fields))
        common: list[set[str]] = []
        for key in UNIONS:
            for option in as_list(fields.get(key)):
                inner, within = self._flat(option, within)
                properties = {**as_object(inner.get("properties")), **properties}
                common.append(set(_required(inner)))
        if common:
            required = required.union(common[0].intersection(*common[1:]))
        return {**fields, "properties": properties, "required": sorted(required)}, within

    # --- one type ------------------------------------------------------------------------------------

    def _plain(self, fields: JSONObject, kind: str, within: tuple[str, ...], depth: int = 0) -> JSONObject:
        told: JSONObject = {"type": kind.upper()}
        description = as_text(fields.get("description"))
        choices = [choice for choice in _choices(fields) if choice is not None]
        if choices and kind != "string":  # only strings can be listed
            listed = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
            description = f"{description} One of: {listed}.".lstrip()
        if description:
            told["description"] = description
        if kind == "string":
            strings = [choice for choice in choices if isinstance(choice, str) and choice]
            if strings:
                told["enum"] = list(dict.fromkeys(strings))
        if (form := as_text(fields.get("format"))) in FORMATS.get(kind, ()):
            told["format"] = form
        if kind == "array":
            told["items"] = self._items(fields, within, depth)
            told.update((key, fields[key]) for key in ("minItems", "maxItems") if as_count(fields.get(key)) is not None)
        if kind in ("integer", "number"):
            told.update((key, fields[key]) for key in ("minimum", "maximum") if _is_number(fields.get(key)))
        if kind == "object":
            properties = {
                name: self.convert(inner, within, depth + 1)
                for name, inner in as_object(fields.get("properties")).items()
                if inner is not False
            }
            if properties:
                told["properties"] = properties
            required = [name for name in _required(fields) if name in properties]
            if required:
                told["required"] = required
        return told

    def _items(self, fields: JSONObject, within: tuple[str, ...], depth: int) -> JSONObject:
        items = cast(object, fields.get("items"))
        places = as_list(fields.get("prefixItems")) or as_list(items)  # a schema for each place: any of them
        if places:
            return _union([self.convert(place, within, depth + 1) for place in places], "", False)
        return self.convert(items, within, depth + 1)


def _kinds(fields: JSONObject) -> list[str]:
    """The types that the schema names, or that follow from what it says."""
    given = cast(object, fields.get("type"))
    if isinstance(given, str | list):
        named = [given] if isinstance(given, str) else list(map(as_text, as_list(cast(object, given))))
        return [kind for kind in dict.fromkeys(named) if kind in KINDS or kind == "null"]
    if "properties" in fields:
        return ["object"]
    if "items" in fields or "prefixItems" in fields:
        return ["array"]
    return list(dict.fromkeys(_kind_of(choice) for choice in _choices(fields)))


def _kind_of(value: object) -> str:
    if value is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array")):
        if isinstance(value, kind):
            return name
    return "object"


def _choices(fields: JSONObject) -> list[object]:
    return [fields["const"]] if "const" in fields else as_list(fields.get("enum"))


def _unescaped(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("%", "")).decode("utf-8", "replace")


def _required(fields: JSONObject) -> list[str]:
    return list(dict.fromkeys(name for name in as_list(fields.get("required")) if isinstance(name, str)))


def _is_null(fields: JSONObject) -> bool:
    return _kinds(fields) == ["null"]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _merged(base: JSONObject, over: JSONObject) -> JSONObject:
    """Both at once: what ``over`` says wins, and the properties are those of both."""
    merged = {**base, **over}
    if "properties" in base and "properties" in over:
        merged["properties"] = {**as_object(base["properties"]), **as_object(over["properties"])}
    if "required" in base and "required" in over:
        merged["required"] = list(dict.fromkeys(_required(base) + _required(over)))
    return merged


def _stub(fields: JSONObject) -> JSONObject:
    """A schema of the same type that says nothing of what is inside."""
    return {"type": "array", "items": {"type": "object"}} if _kinds(fields) == ["array"] else {"type": "object"}


def _cut(fields: JSONObject) -> JSONObject:
    if _kinds(fields) == ["array"]:
        return {"type": "ARRAY", "items": {"type": "OBJECT"}}
    return {"type": "OBJECT"}


def _union(found: list[JSONObject], description: str, nullable: bool) -> JSONObject:
    """One of several; nothing may stand beside ``anyOf``, so what holds for all is said in each."""
    told: list[JSONObject] = []
    for each in found:
        for option in as_list(each.get("anyOf")) or [each]:
            option = {**as_object(option)}
            if description:
                option.setdefault("description", description)
            if nullable:
                option["nullable"] = True
            if option not in told:
                told.append(option)
    return told[0] if len(told) == 1 else {"anyOf": told}
