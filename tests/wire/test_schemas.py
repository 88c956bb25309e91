"""Real MCP declarations: each registers, validates good and bad inputs, and passes through each wire's adapter."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jsonschema
import pytest

from tests.wire.recordings import ROOT
from trio_agent import Message, ModelRequest, Tool, ToolCall, ToolResult
from trio_agent.tools import LocalDispatcher
from trio_agent.wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire

FOLDER = Path(os.environ.get("TRIO_AGENT_SHARED", ROOT.parent / "shared")) / "schemas"
COUNT = 44
ABSENT = "the MCP declarations are not here: no folder schemas in ../shared, and TRIO_AGENT_SHARED names none"


def declarations() -> list[Any]:  # Any: pytest's parameter sets have no public type
    if not FOLDER.is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=ABSENT), id="absent")]
    files = sorted(path for path in FOLDER.glob("*.json") if path.name != "index.json")
    return [pytest.param(json.loads(path.read_text(encoding="utf-8")), id=path.stem) for path in files]


async def echo(input: dict[str, Any]) -> str:
    return json.dumps(input)


def tool(declared: dict[str, Any]) -> Tool:
    return Tool(declared["name"], declared.get("description", ""), declared["inputSchema"], echo)


class Sampler:
    """Makes an input that a schema takes, with every property that it names, as far down as the schema goes."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def of(self, schema: Any, depth: int = 0) -> Any:
        if schema is True or schema == {}:
            return "anything"
        if "$ref" in schema:
            target: Any = self._root
            for step in schema["$ref"].removeprefix("#/").split("/"):
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

    def _of_type(self, kind: str, schema: dict[str, Any], depth: int) -> Any:
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


def bad_inputs(schema: dict[str, Any], good: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Inputs that are wrong in one place: without something required, or of another type."""
    for name in schema.get("required", ()):
        yield {key: value for key, value in good.items() if key != name}
    for name, part in schema.get("properties", {}).items():
        kind = part.get("type") if isinstance(part, dict) else None
        if kind in ("string", "integer", "number", "boolean", "array", "object"):
            yield {**good, name: 3 if kind == "string" else "wrong"}


def prepared(declared: dict[str, Any], input: Any) -> Any:
    return LocalDispatcher([tool(declared)]).prepare(ToolCall("c1", declared["name"], json.dumps(input)))


SEEN: Counter[str] = Counter()


@pytest.mark.parametrize("declared", declarations())
def test_a_declaration_registers_and_tells_good_from_bad(declared: dict[str, Any]) -> None:
    schema = declared["inputSchema"]
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    good = Sampler(schema).of(schema)
    validator.validate(good)  # so that the sample is one
    assert not isinstance(prepared(declared, good), ToolResult)
    bad = [each for each in bad_inputs(schema, good) if not validator.is_valid(each)]
    for each in bad:
        refused = prepared(declared, each)
        assert isinstance(refused, ToolResult)
        assert refused.status == "invalid"
    assert len(bad) >= len(schema.get("required", ()))
    SEEN["good"] += 1
    SEEN["bad"] += len(bad)


@pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)
def test_all_of_them_are_here() -> None:
    assert len(declarations()) == COUNT
    dialects = Counter(each.values[0]["inputSchema"].get("$schema", "none") for each in declarations())
    assert {name.rpartition("json-schema.org/")[2].partition("/schema")[0]: n for name, n in dialects.items()} == {
        "draft-07": 10,
        "draft/2020-12": 9,
        "none": 25,
    }
    print(f"declarations {COUNT} of {COUNT}: good inputs {SEEN['good']}, bad inputs {SEEN['bad']}")


# ------------------------------------------------------------------------------------------ through the wires


def walk(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        yield cast("dict[str, Any]", schema)
        for part in cast("dict[str, Any]", schema).values():
            yield from walk(part)
    elif isinstance(schema, list):
        for part in cast("list[Any]", schema):
            yield from walk(part)


def taken_whole(sent: dict[str, Any], declared: dict[str, Any]) -> None:
    """Everything of the declaration is told."""
    assert {"type": "object", "properties": {}, **declared["inputSchema"]} == sent


def taken_by_anthropic(sent: dict[str, Any], declared: dict[str, Any]) -> None:
    """An object at the top, and no combination beside it; whatever the declaration takes it takes."""
    assert sent["type"] == "object"
    assert not {"oneOf", "anyOf", "allOf"} & sent.keys()
    good = Sampler(declared["inputSchema"]).of(declared["inputSchema"])
    jsonschema.Draft202012Validator(sent).validate(good)


def taken_as_openapi(sent: dict[str, Any], declared: dict[str, Any]) -> None:
    """Google's subset of OpenAPI: no references, nothing about further properties, types in capitals."""
    for part in walk({key: value for key, value in sent.items() if key != "properties"}):
        assert not {"$ref", "$defs", "additionalProperties", "const", "$schema"} & part.keys()
    assert sent["type"] == "OBJECT"
    assert set(sent.get("required", ())) <= set(sent.get("properties", {}))


def function(body: dict[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", body["tools"][0]["function"]["parameters"])


WIRES: dict[str, Any] = {
    "chat": (OpenAIChatWire(), function, taken_whole),
    "responses": (OpenAIResponsesWire(), lambda body: body["tools"][0]["parameters"], taken_whole),
    "anthropic": (AnthropicWire(), lambda body: body["tools"][0]["input_schema"], taken_by_anthropic),
    "gemini": (
        GeminiWire(),
        lambda body: body["tools"][0]["functionDeclarations"][0]["parametersJsonSchema"],
        lambda sent, declared: taken_whole({"type": "object", "properties": {}, **sent}, declared),
    ),
    "gemini, openapi": (
        GeminiWire(schemas="openapi"),
        lambda body: body["tools"][0]["functionDeclarations"][0].get("parameters", {"type": "OBJECT"}),
        taken_as_openapi,
    ),
    "ollama": (OllamaWire(), function, taken_whole),
}


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("declared", declarations())
def test_a_declaration_passes_through_a_wire(declared: dict[str, Any], name: str) -> None:
    wire, parameters, taken = WIRES[name]
    request = ModelRequest((Message("user", "Hello."),), tools=(tool(declared).spec,))
    taken(parameters(json.loads(wire.request(request, "m").body)), declared)
