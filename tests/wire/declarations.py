"""The recorded MCP declarations, as values: each as a tool, and an input that it takes; knows no wires.

A clone has none of them: then there is one entry that skips its test and says why.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from tests.wire.recordings import ROOT
from trio_agent import Tool

FOLDER = Path(os.environ.get("TRIO_AGENT_SHARED", ROOT.parent / "shared")) / "schemas"
COUNT = 44
ABSENT = "the MCP declarations are not here: no folder schemas in ../shared, and TRIO_AGENT_SHARED names none"

Declared = dict[str, Any]  # Any: a declaration of MCP, or a JSON Schema


def declarations(wanted: Callable[[Declared], bool] = bool) -> list[Any]:  # Any: pytest's have no public type
    if not FOLDER.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    files = sorted(path for path in FOLDER.glob("*.json") if path.name != "index.json")
    read = [(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in files]
    return [pytest.param(declared, id=name) for name, declared in read if wanted(declared)]


async def echo(input: dict[str, Any]) -> str:
    return json.dumps(input)


def tool(declared: Declared) -> Tool:
    return Tool(declared["name"], declared.get("description", ""), declared["inputSchema"], echo)


class Sampler:
    """Makes an input that a schema takes, with every property that it names, as far down as the schema goes."""

    def __init__(self, root: Declared) -> None:
        self._root = root

    def of(self, schema: Any, depth: int = 0) -> Any:
        if schema is True or schema == {}:
            return "anything"
        if "$ref" in schema:
            target: Any = self._root
            for step in filter(None, schema["$ref"].removeprefix("#").split("/")):
                target = target[step]
            return self.of(target, depth + 1)
        for keyword in ("const", "default"):
            if keyword in schema:
                return schema[keyword]
        if "enum" in schema:
            return schema["enum"][0]
        for keyword in ("oneOf", "anyOf"):
            if keyword in schema:
                rest = {key: value for key, value in schema.items() if key != keyword}
                return self.of({**rest, **schema[keyword][0]}, depth)
        if "allOf" in schema:
            merged = {key: value for key, value in schema.items() if key != "allOf"}
            for part in schema["allOf"]:
                merged.update(part)
            return self.of(merged, depth)
        kind = schema.get("type", "object" if "properties" in schema else "string")
        return self._of_type(kind[0] if isinstance(kind, list) else kind, schema, depth)

    def _of_type(self, kind: str, schema: Declared, depth: int) -> Any:
        if kind == "object":
            required = set(schema.get("required", ()))
            named = schema.get("properties", {})
            return {name: self.of(part, depth + 1) for name, part in named.items() if depth < 3 or name in required}
        if kind == "array":
            count = schema.get("minItems", 1 if depth < 6 else 0)
            return [self.of(schema.get("items", {}), depth + 1) for _ in range(count)]
        if kind in ("integer", "number"):
            return schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        if kind == "string":
            formats = {"uri": "http://x/y", "date-time": "2026-01-01T00:00:00Z", "date": "2026-01-01"}
            return formats.get(schema.get("format", ""), "x" * max(1, schema.get("minLength", 1)))
        return {"boolean": True, "null": None}[kind]


def good_input(schema: Declared) -> Any:
    return Sampler(schema).of(schema)


def parts(schema: Any) -> Iterator[Declared]:
    """The schema and those inside of it; what only stands for itself, such as an enumeration, is none."""
    if not isinstance(schema, dict):
        return
    fields = cast("dict[str, Any]", schema)
    yield fields
    for keyword in ("properties", "$defs", "definitions", "patternProperties"):
        for part in cast("dict[str, Any]", fields.get(keyword, {})).values():
            yield from parts(part)
    for keyword in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for part in fields.get(keyword, ()):
            yield from parts(part)
    for keyword in ("items", "additionalProperties", "not", "propertyNames", "contains"):
        yield from parts(fields.get(keyword))
