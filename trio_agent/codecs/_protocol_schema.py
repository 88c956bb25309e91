"""The json codec's protocol as a JSON Schema, for servers that hold an answer to one.

Knows no server's dialect; wires adapt what they send.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias, cast

from ._prompt import Offer

__all__ = ["protocol_schema"]

Schema: TypeAlias = dict[str, Any]  # Any: a JSON Schema

_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
"""Keywords whose values are no schemas: a ``$ref`` in them is somebody's data."""
_NAMED: Final = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
"""Keywords whose values are schemas by a name, which may look like a keyword."""


def protocol_schema(offer: Offer) -> Schema:
    """What an answer must be: calls of the tools that are offered, or the final form, or either.

    A schema that refers to itself moves to ``$defs``, and its references with it.
    """
    moved: dict[str, Schema] = {}
    forms: list[Schema] = []
    if offer.tools:
        calls = [
            _object(name={"const": spec.name}, input=_placed(spec.parameters, f"input_{index}", moved))
            for index, spec in enumerate(offer.tools)
        ]
        items = calls[0] if len(calls) == 1 else {"anyOf": calls}
        forms.append(_object(type={"const": "tool_calls"}, calls={"type": "array", "minItems": 1, "items": items}))
    if offer.final and offer.schema is not None:
        forms.append(_object(type={"const": "final"}, output=_placed(offer.schema, "output", moved)))
    elif offer.final:
        forms.append(_object(type={"const": "final"}, text={"type": "string"}))
    schema = forms[0] if len(forms) == 1 else {"anyOf": forms}
    return {**schema, "$defs": moved} if moved else schema


def _object(**properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _placed(schema: Schema, name: str, moved: dict[str, Schema]) -> Schema:
    """``schema`` as it may stand inside of another one."""
    root = f"#/$defs/{name}"
    inner = {key: value for key, value in schema.items() if key not in ("$schema", "$id")}
    rewritten = cast(Schema, _moved(inner, root))
    if rewritten == inner:
        return inner
    moved[name] = rewritten
    return {"$ref": root}


def _moved(schema: object, root: str) -> object:
    """A schema with each reference into its own document pointing below ``root``."""
    if isinstance(schema, list):
        return [_moved(each, root) for each in cast("list[object]", schema)]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, object] = {}
    for key, value in cast("Mapping[str, object]", schema).items():
        if key in ("$ref", "$dynamicRef") and isinstance(value, str) and (value == "#" or value.startswith("#/")):
            moved[key] = root + value[1:]
        elif key in _DATA:
            moved[key] = value
        elif key in _NAMED and isinstance(value, dict):
            by_name = cast("Mapping[str, object]", value)
            moved[key] = {name: _moved(each, root) for name, each in by_name.items()}
        else:
            moved[key] = _moved(value, root)
    return moved
