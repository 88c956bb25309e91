"""Real MCP declarations pass through each wire: what is sent is what the vendor takes, and takes what was declared."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import jsonschema
import pytest

from tests.wire.declarations import ABSENT, COUNT, FOLDER, Declared, declarations, good_input, parts, tool
from trio_agent import Message, ModelRequest, wires
from trio_agent.wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire

RECURSIVE: Declared = {
    "name": "tree",
    "inputSchema": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "label": {"type": "string"},
                    "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "minItems": 0},
                },
                "required": ["label"],
            }
        },
    },
}


def taken_whole(sent: Declared, declared: Declared) -> None:
    """An object with a map of properties, though an empty one; everything of the declaration is told."""
    assert {"type": "object", "properties": {}, **declared["inputSchema"]} == sent


def taken_strictly(sent: Declared, declared: Declared) -> None:
    """By OpenAI's strict mode: every object is closed, and all that it names is required."""
    taken_whole(sent, declared)
    for part in parts(sent):
        assert not {"oneOf", "allOf", "not", "patternProperties"} & part.keys()
        if "properties" in part or part.get("type") == "object":
            assert part.get("additionalProperties") is False
            assert set(part.get("properties", {})) == set(part.get("required", ()))


def taken_by_anthropic(sent: Declared, declared: Declared) -> None:
    """An object at the top, no combination beside it, in the newest dialect; everything of the declaration is told."""
    assert not {"oneOf", "anyOf", "allOf", "$ref"} & sent.keys()
    jsonschema.Draft202012Validator.check_schema(sent)
    jsonschema.Draft202012Validator(sent).validate(good_input(declared["inputSchema"]))
    said = {key: value for key, value in declared["inputSchema"].items() if key != "$schema"}
    assert {"type": "object", "properties": {}, **said} == sent


def taken_by_gemini(sent: Declared, declared: Declared) -> None:
    """JSON Schema as it was declared."""
    taken_whole({"type": "object", "properties": {}, **sent}, declared)


OPENAPI = {"type", "description", "nullable", "format", "enum", "items", "minItems", "maxItems", "properties"}
OPENAPI |= {"required", "minimum", "maximum", "anyOf"}
OPENAPI_TYPES = {"STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT"}


def taken_as_openapi(sent: Declared | None, declared: Declared) -> None:
    """Google's subset of OpenAPI, without references and additionalProperties; it takes what the declaration takes."""
    good = good_input(declared["inputSchema"])
    if sent is None:  # an object without properties is refused
        assert not declared["inputSchema"].get("properties")
        return
    assert sent["type"] == "OBJECT"
    assert sent["properties"]
    for part in parts(sent):
        assert part.keys() <= OPENAPI
        if "anyOf" in part:
            assert part.keys() == {"anyOf"}
            continue
        assert part["type"] in OPENAPI_TYPES
        assert "enum" not in part or (part["type"] == "STRING" and all(map(bool, part["enum"])))
        assert part["type"] != "ARRAY" or part["items"]
        assert set(part.get("required", ())) <= set(part.get("properties", {}))
    read = as_json_schema(sent)
    jsonschema.Draft202012Validator(read).validate(good)
    assert read["properties"].keys() == declared["inputSchema"]["properties"].keys()
    assert set(read.get("required", ())) == set(declared["inputSchema"].get("required", ()))
    assert names_it(read, good)


def as_json_schema(openapi: Any) -> Any:
    """What Google's words say, in those of JSON Schema."""
    told = {key: value for key, value in openapi.items() if key not in ("nullable", "type", "format")}
    if "type" in openapi:
        told["type"] = [openapi["type"].lower(), *(["null"] if openapi.get("nullable") else [])]
    if "enum" in told and openapi.get("nullable"):
        told["enum"] = [*told["enum"], None]
    if "properties" in told:
        told["properties"] = {name: as_json_schema(part) for name, part in told["properties"].items()}
    if "items" in told:
        told["items"] = as_json_schema(told["items"])
    if "anyOf" in told:
        told["anyOf"] = [as_json_schema(part) for part in told["anyOf"]]
    return told


def kept_by_ollama(sent: Declared, *, top: bool = False) -> Declared:
    """What the server's structure holds of a tool's parameters, or of one property."""
    kept = {"type", "required", "$defs", "items", "properties"}
    if not top:
        kept = {"type", "description", "enum", "anyOf", "items", "properties"}
    held = {key: value for key, value in sent.items() if key in kept}
    assert isinstance(held.get("type", ""), str) or not top
    if {"$ref", "allOf", "oneOf", "const"} & sent.keys():
        assert {"type", "anyOf", "enum", "properties"} & held.keys(), sent
    if "properties" in held:
        held["properties"] = {name: kept_by_ollama(part) for name, part in held["properties"].items()}
    if "anyOf" in held:
        held["anyOf"] = [kept_by_ollama(part) for part in held["anyOf"]]
    return held


def names_it(part: Declared, value: Any) -> bool:
    """Whether a model that is shown this part is told the fields of such a value."""
    if "anyOf" in part:
        return any(names_it(option, value) for option in part["anyOf"])
    if not isinstance(value, dict) or "properties" not in part:
        return not isinstance(value, dict) or not value or part.get("type", "object") == "object"
    fields = cast("dict[str, Any]", value)
    return all(name in part["properties"] and names_it(part["properties"][name], fields[name]) for name in fields)


def taken_by_ollama(sent: Declared, declared: Declared) -> None:
    """Of what the server does not drop a model can still tell each field of an input, and that takes the input."""
    assert sent["type"] == "object"
    good = good_input(declared["inputSchema"])
    held = kept_by_ollama(sent, top=True)
    for name, value in good.items():
        assert names_it(held["properties"][name], value), name
    jsonschema.Draft202012Validator(held).validate(good)
    assert declared["inputSchema"].get("$defs", {}) == held.get("$defs", {})


def function(body: Declared) -> Declared:
    return cast("Declared", body["tools"][0]["function"]["parameters"])


def declaration(body: Declared) -> Declared:
    return cast("Declared", body["tools"][0]["functionDeclarations"][0])


WIRES: dict[str, tuple[Any, Callable[[Declared], Any], Callable[[Any, Declared], None]]] = {
    "chat": (OpenAIChatWire(), function, taken_whole),
    "responses": (OpenAIResponsesWire(), lambda body: body["tools"][0]["parameters"], taken_whole),
    "anthropic": (AnthropicWire(), lambda body: body["tools"][0]["input_schema"], taken_by_anthropic),
    "gemini": (GeminiWire(), lambda body: declaration(body)["parametersJsonSchema"], taken_by_gemini),
    "gemini, openapi": (
        GeminiWire(schemas="openapi"),
        lambda body: declaration(body).get("parameters"),
        taken_as_openapi,
    ),
    "ollama": (OllamaWire(), function, taken_by_ollama),
}


def body_of(wire: Any, declared: Declared) -> Declared:
    request = ModelRequest((Message("user", "Hello."),), tools=(tool(declared).spec,))
    return cast("Declared", json.loads(wire.request(request, "m").body))


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("declared", [*declarations(), pytest.param(RECURSIVE, id="recursive")])
def test_a_declaration_passes_through_a_wire(declared: Declared, name: str) -> None:
    wire, parameters, taken = WIRES[name]
    taken(parameters(body_of(wire, declared)), declared)


def test_no_wire_is_left_out() -> None:
    assert {type(wire).__name__ for wire, *_ in WIRES.values()} == {each for each in wires.__all__ if "Wire" in each}


@pytest.mark.skipif(not FOLDER.is_dir(), reason=ABSENT)
def test_all_of_them_pass_through_all_of_these() -> None:
    for name, (wire, parameters, taken) in WIRES.items():
        passed = 0
        for each in declarations():
            [declared] = each.values
            taken(parameters(body_of(wire, declared)), declared)
            passed += 1
        print(f"{name:16} {passed} of {COUNT}")
        assert passed == COUNT


@pytest.mark.parametrize("name", WIRES)
def test_what_lacks_a_property_is_not_what_was_declared(name: str) -> None:
    """So that the checks above can fail."""
    wire, parameters, taken = WIRES[name]
    less: Declared = {**RECURSIVE["inputSchema"], "properties": {"other": {"type": "string"}}, "required": []}
    sent = parameters(body_of(wire, {**RECURSIVE, "inputSchema": less}))
    with pytest.raises((AssertionError, KeyError)):
        taken(sent, RECURSIVE)


CLOSED: Declared = {
    "name": "closed",
    "inputSchema": {
        "type": "object",
        "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
        "required": ["a"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize("declared", [*declarations(), pytest.param(CLOSED, id="closed")])
def test_strict_mode_is_asked_for_where_the_server_takes_it(declared: Declared) -> None:
    [sent] = body_of(OpenAIResponsesWire(strict_tools=True), declared)["tools"]
    # No server of MCP closes every object and requires all that it names.
    assert sent["strict"] == (declared is CLOSED)
    if sent["strict"]:
        taken_strictly(sent["parameters"], declared)
        return
    taken_whole(sent["parameters"], declared)
    with pytest.raises(AssertionError):
        taken_strictly(sent["parameters"], declared)
