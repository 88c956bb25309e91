"""JSON Schemas as Anthropic takes them: of a tool's input, and of the final answer.  Knows no messages.

Source: "Tool use" and "Structured outputs" of Anthropic's documentation, and its error messages, read 2026-11.
A tool's schema only guides the model: the arguments are checked against the whole one by whoever runs the tool.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, cast

from ._json import JSONObject, as_list, as_object, as_text

__all__ = ["has_format", "input_schema", "referred"]

COMBINED: Final = ("allOf", "anyOf", "oneOf", "$ref")
"""What a tool's schema must not have at its top level, and a reference, behind which one may stand."""

OF_MANY: Final = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
"""Keywords with a schema for each name."""

OF_SEVERAL: Final = ("allOf", "anyOf", "oneOf", "prefixItems")
OF_ONE: Final = (
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)

ESCAPED: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")
"""Characters of a reference that are written as bytes."""

MAX_DEPTH: Final = 64
"""Levels of a schema that are looked at."""

MAX_PARTS: Final = 2_000
"""Parts that are merged into one object; one more is taken to allow everything.  A few lines can ask for millions."""

FORMATTED: Final = frozenset(
    {
        "$defs",
        "$ref",
        "$schema",
        "additionalProperties",
        "anyOf",
        "const",
        "default",
        "definitions",
        "description",
        "enum",
        "format",
        "items",
        "minItems",
        "properties",
        "required",
        "title",
        "type",
    }
)
"""The keywords that a schema of the final answer may have; one more, and the vendor refuses the request."""

FORMATS: Final = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)


def input_schema(schema: JSONObject) -> JSONObject:
    """The schema of a tool's input: of type object, with no combination at its top level, in dialect 2020-12.

    Combinations are merged into one object: it takes whatever they take, as far as they speak of a property.
    Of ``allOf`` everything is required; of ``anyOf`` and ``oneOf`` what all of their branches require.
    """
    modern = _modern(schema, 0)
    modern.pop("$schema", None)
    if not any(key in modern for key in COMBINED):
        return {"properties": {}, **modern, "type": "object"}
    return {**_Merger(modern).merged(modern, frozenset()), "type": "object"}


def _modern(schema: JSONObject, depth: int) -> JSONObject:
    """The schema with draft-07's arrays of items in the words of 2020-12, which is all that the vendor reads."""
    if depth > MAX_DEPTH:
        return schema
    found: JSONObject = {}
    for key, value in schema.items():
        if key in OF_MANY and isinstance(value, dict):
            parts = cast(JSONObject, value)
            found[key] = {name: _modern_part(part, depth) for name, part in parts.items()}
        elif (key in OF_SEVERAL or key == "items") and isinstance(value, list):
            found[key] = [_modern_part(part, depth) for part in cast("list[object]", value)]
        elif key in OF_ONE:
            found[key] = _modern_part(value, depth)
        else:
            found[key] = value
    if isinstance(found.get("items"), list):
        first = as_list(found.pop("items"))
        if first:
            found["prefixItems"] = first
        if "additionalItems" in found:
            found["items"] = _modern_part(found.pop("additionalItems"), depth)
    return found


def _modern_part(part: object, depth: int) -> object:
    return _modern(cast(JSONObject, part), depth + 1) if isinstance(part, dict) else part


class _Merger:
    """Merges the parts of one schema."""

    __slots__ = ("_left", "_root")

    def __init__(self, root: JSONObject) -> None:
        self._root = root
        self._left = MAX_PARTS

    def merged(self, schema: JSONObject, seen: frozenset[str]) -> JSONObject:
        """The schema without combinations at its top.

        Args:
          seen: the references that were followed on the way here.
        """
        self._left -= 1
        if self._left < 0:
            return {}
        flat: JSONObject = {key: value for key, value in schema.items() if key not in COMBINED}
        properties = dict(as_object(flat.get("properties")))
        required = as_list(flat.get("required"))[:]
        closed = False
        parts = [self.merged(as_object(part), seen) for part in as_list(schema.get("allOf"))]
        ref = as_text(schema.get("$ref"))
        if ref and ref not in seen and len(seen) < MAX_DEPTH:
            parts.append(self.merged(referred(ref, self._root), seen | {ref}))
        for part in parts:
            for name, told in as_object(part.get("properties")).items():
                known = properties.get(name, told)
                properties[name] = told if known == told else {"allOf": [known, told]}
            required += as_list(part.get("required"))
            closed = closed or _is_closed(part)
            flat = {**part, **flat}
        for key in ("anyOf", "oneOf"):
            branches = [self.merged(as_object(part), seen) for part in as_list(schema.get(key)) if part is not False]
            branches = [branch for branch in branches if _takes_objects(branch)]
            for name, told in _alternatives(branches).items():
                properties.setdefault(name, told)
            if branches:
                wanted = [as_list(branch.get("required")) for branch in branches]
                required += [name for name in wanted[0] if all(name in names for names in wanted)]
                closed = closed or all(map(_is_closed, branches))
        flat["properties"] = properties
        if required:
            flat["required"] = list(dict.fromkeys(required))
        # What else is allowed was said beside fewer properties: only "nothing else" holds for the merged ones too.
        if closed or flat.get("additionalProperties") is not False:
            flat.pop("additionalProperties", None)
        return {**flat, "additionalProperties": False} if closed else flat


def _alternatives(branches: Iterable[JSONObject]) -> JSONObject:
    """For each property what the branches say of it: one of that."""
    told: dict[str, list[object]] = {}
    for branch in branches:
        for name, schema in as_object(branch.get("properties")).items():
            known = told.setdefault(name, [])
            if schema not in known:
                known.append(schema)
    return {name: known[0] if len(known) == 1 else {"anyOf": known} for name, known in told.items()}


def _is_closed(schema: JSONObject) -> bool:
    return schema.get("additionalProperties") is False and "patternProperties" not in schema


def _takes_objects(schema: JSONObject) -> bool:
    told = schema.get("type", "object")
    return told == "object" or "object" in as_list(told)


def referred(ref: str, root: JSONObject) -> JSONObject:
    """What a reference into the schema itself points to; an empty schema if there is nothing."""
    found: object = root
    if not ref.startswith("#"):
        return {}
    for step in ref[1:].split("/")[1:]:
        name = ESCAPED.sub(lambda match: bytes.fromhex(match[0].replace("%", "")).decode("utf-8", "replace"), step)
        found = as_object(found).get(name.replace("~1", "/").replace("~0", "~"))
    return as_object(found)


def has_format(schema: JSONObject) -> bool:
    """Whether the vendor can hold the final answer to the schema.

    All of its objects must be closed, it may not be recursive, and it must do without limits on numbers and
    lengths.  It is not rewritten: that would ask the model for something else than what is checked.
    """
    return schema.get("type") == "object" and _is_formatted(schema, schema, frozenset(), set())


def _is_formatted(schema: object, root: JSONObject, path: frozenset[str], known: set[str]) -> bool:
    """As :func:`has_format`, of a part.

    Args:
      path: the references that were followed on the way here.
      known: those behind which all is well and no way leads back; it takes up more.
    """
    fields = as_object(schema)
    if not fields or not fields.keys() <= FORMATTED:
        return False
    if "properties" in fields or fields.get("type") == "object" or "object" in as_list(fields.get("type")):
        if fields.get("additionalProperties") is not False:
            return False
    elif "additionalProperties" in fields:
        return False
    if fields.get("minItems", 0) not in (0, 1) or ("format" in fields and fields["format"] not in FORMATS):
        return False
    if any(isinstance(value, dict | list) for value in (fields.get("const"), *as_list(fields.get("enum")))):
        return False
    ref = as_text(fields.get("$ref"))
    if ref and ref not in known:
        if ref in path or not _is_formatted(referred(ref, root), root, path | {ref}, known):
            return False
        known.add(ref)
    parts = [*as_object(fields.get("properties")).values(), *as_list(fields.get("anyOf"))]
    if "items" in fields:
        parts.append(fields["items"])
    return all(_is_formatted(part, root, path, known) for part in parts)
