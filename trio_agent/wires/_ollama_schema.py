"""The schema of a tool's input in the words that Ollama shows to a model; knows nothing of requests.

Source: Ollama's issues 11444 and 13472 and its change 13508, and a Go client's copy of its request types, read 2026-12.
Of a property the server keeps ``type``, ``description``, ``enum``, ``anyOf``, ``properties`` and, as they are, ``items``;
beside the properties it keeps ``required`` and ``$defs``.  The rest it drops without a word, references and constants
among it; servers before that change drop the properties of properties too.  By those types, a property that is
no object makes it refuse the whole request.
"""

from __future__ import annotations

from typing import Final, cast

from ._anthropic_schema import input_schema, referred
from ._json import JSONObject, as_list, as_object, as_text

__all__ = ["shown_schema"]

MAX_DEPTH: Final = 32
"""Levels of properties and alternatives; what lies deeper is left as it is."""

MAX_SCHEMAS: Final = 2_000
"""Parts that one schema may consist of once its references are written out; a few lines can ask for millions."""


def shown_schema(schema: JSONObject) -> JSONObject:
    """The schema with the rest said in the words that are kept; what has none of them is left where it stands.

    It takes what the given one takes: the arguments are checked against that one by whoever runs the tool.
    """
    top = input_schema(schema)
    return {**top, "properties": _Shower(top).properties(top, frozenset(), 0)}


class _Shower:
    """Rewrites the parts of one schema.

    ``within`` are the references that are being written out around a part.
    """

    __slots__ = ("_left", "_root")

    def __init__(self, root: JSONObject) -> None:
        self._root = root
        self._left = MAX_SCHEMAS

    def properties(self, fields: JSONObject, within: frozenset[str], depth: int) -> JSONObject:
        parts = as_object(fields.get("properties"))
        return {name: self._part(part, within, depth) for name, part in parts.items() if part is not False}

    def _part(self, part: object, within: frozenset[str], depth: int) -> JSONObject:
        fields = as_object(part)
        self._left -= 1
        if depth >= MAX_DEPTH or self._left < 0:
            return fields
        fields, within = self._resolved(fields, within)
        shown = {**fields}
        if "oneOf" in shown and "anyOf" not in shown:
            shown["anyOf"] = shown.pop("oneOf")
        if "anyOf" in shown:
            options = [option for option in as_list(shown["anyOf"]) if option is not False]
            shown["anyOf"] = [self._part(option, within, depth + 1) for option in options]
        if "const" in shown:
            shown["enum"] = [shown["const"]]
        if "properties" in shown:
            shown["properties"] = self.properties(fields, within, depth + 1)
            shown.setdefault("type", "object")
        return shown

    def _resolved(self, fields: JSONObject, within: frozenset[str]) -> tuple[JSONObject, frozenset[str]]:
        """The schema with its reference and its ``allOf`` put into it, and the references that this took."""
        ref = as_text(fields.get("$ref"))
        if ref:
            beside = {key: value for key, value in fields.items() if key != "$ref"}
            target = referred(ref, self._root)
            if ref in within:  # recursion: of another one of the same kind only that is said
                kind = cast(object, target.get("type"))
                return ({"type": kind, **fields} if kind is not None else fields), within
            target, within = self._resolved(target, within | {ref})
            fields = _both(target, beside)
        for member in as_list(fields.get("allOf")):
            resolved, within = self._resolved(as_object(member), within)
            fields = _both(resolved, fields)
        return fields, within


def _both(first: JSONObject, over: JSONObject) -> JSONObject:
    """What both say; where they differ ``over`` wins, but the properties are those of both."""
    both = {**first, **over}
    if "properties" in first and "properties" in over:
        both["properties"] = {**as_object(first["properties"]), **as_object(over["properties"])}
    return both
