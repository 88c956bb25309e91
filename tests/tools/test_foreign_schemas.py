"""Schemas that others wrote: real ones of MCP servers, and broken ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trio_agent._errors import ConfigError
from trio_agent._messages import ToolCall, ToolResult
from trio_agent._ports import PreparedCall
from trio_agent.tools import InvalidArguments, LocalDispatcher, Tool

SHARED = Path(os.environ.get("TRIO_AGENT_SHARED", Path(__file__).parents[3] / "shared")) / "schemas"
DECLARATIONS = sorted(path for path in SHARED.glob("*.json") if path.name != "index.json")


def handler(value: dict[str, Any]) -> str:
    return ""


def by_hand(schema: Any, name: str = "foreign") -> Tool:
    return Tool(name, "", schema, handler)


def sample(schema: Any, root: dict[str, Any]) -> Any:
    """A value that fits most schemas."""
    while "$ref" in schema:
        target: Any = root
        for step in schema["$ref"].split("/")[1:]:
            target = target[step]
        schema = target
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return sample(schema[union][0], root)
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            properties = schema.get("properties", {})
            return {name: sample(properties[name], root) for name in schema.get("required", ())}
        case "array":
            return [sample(schema.get("items", {}), root)] * schema.get("minItems", 1)
        case "string":
            return "x" * max(1, schema.get("minLength", 1))
        case "integer" | "number":
            return max(1, schema.get("minimum", 1))
        case "boolean":
            return True
        case _:
            return None


@pytest.mark.skipif(not DECLARATIONS, reason="the declarations of MCP servers are not here (TRIO_AGENT_SHARED)")
def test_declarations_of_real_servers_pass_through_whole_and_decide_as_jsonschema_does() -> None:
    assert len(DECLARATIONS) == 44
    for path in DECLARATIONS:
        declared = json.loads(path.read_text(encoding="utf-8"))
        schema = declared["inputSchema"]
        tool = Tool(declared["name"], declared.get("description", ""), schema, handler)
        assert tool.spec.parameters == schema, path.name
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
        good = sample(schema, schema)
        for value in (good, {}, {"nonsense": 1}, dict.fromkeys(good, 5), {**good, "nonsense": [1]}):
            try:
                tool.read(value)
                words = ""
            except InvalidArguments as error:
                words = str(error)
            assert (words == "") == validator.is_valid(value), (path.name, value)
            assert words == "" or words.startswith("$")


DRAFT_7 = "http://json-schema.org/draft-07/schema#"

GOOD: list[Any] = [
    {},
    {"type": "object"},
    {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
    {"$ref": "#/$defs/node", "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}}}}},
    {"properties": {"all": {"$ref": "#"}}},
    {"properties": {"$ref": {"type": "string"}, "const": {"const": {"$ref": "nowhere"}}}},
    {"$id": "https://example.com/tool", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
    {"properties": {"a": {"$ref": "#here"}}, "$defs": {"a": {"$anchor": "here"}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "definitions": {"a": {}}, "items": [{}]},
    {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"exclusiveMinimum": True, "minimum": 1}},
    },
    {
        "$schema": DRAFT_7,
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"properties": {"next": {"$ref": "#/$defs/a"}, "other": {"$ref": "#/$defs/b"}}}, "b": True},
    },
    {"properties": {"a": {"$ref": DRAFT_7}, "b": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}},
    {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {"a": True},
    },
]


@pytest.mark.parametrize("schema", GOOD, ids=str)
def test_a_good_schema_passes_whole(schema: dict[str, Any]) -> None:
    tool = by_hand(schema)
    assert tool.spec.parameters == {"type": "object", **schema}
    assert tool.read({}) == {}


BAD: list[tuple[Any, str]] = [
    (True, "must be a JSON object, got bool"),
    ("object", "must be a JSON object, got str"),
    ({"type": "string"}, 'of type object, got "string"'),
    ({"type": ["object", "null"]}, "of type object"),
    ({"properties": {"a": {"type": "strin"}}}, r"invalid at \$\.properties\.a\.type"),
    ({"properties": {"a": {"pattern": "("}}}, r"invalid at \$\.properties\.a\.pattern"),
    ({"patternProperties": {"(": {}}}, r"invalid at \$\.patternProperties"),
    ({"required": "a"}, r"invalid at \$\.required"),
    ({"properties": {"a": {"$ref": "#/$defs/nowhere"}}}, 'leads nowhere, "#/\\$defs/nowhere"'),
    ({"properties": {"a": {"$ref": "./local.json"}}}, r'leads nowhere, "\./local\.json"'),
    ({"properties": {"a": {"$ref": "https://example.com/x.json"}}}, "leads nowhere"),
    ({"properties": {"a": {"items": {"anyOf": [{"$ref": "#nowhere"}]}}}}, "leads nowhere"),
    ({"properties": {"a": {"$ref": "#/properties"}, "type": 3}}, "invalid at"),
    ({"properties": {"a": {"$ref": "#/required"}}, "required": []}, "leads nowhere"),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}, "leads nowhere"),
    # Draft 7 knows no $defs, so only the reference makes schemas of what stands there.
    (
        {"$schema": DRAFT_7, "$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}}},
        'leads nowhere, "#/\\$defs/b"',
    ),
    (
        {"$schema": DRAFT_7, "$ref": "#/$defs/a", "$defs": {"a": {"items": {"type": "strin"}}}},
        r'invalid at \$\.items of "#/\$defs/a"',
    ),
    ({"properties": {"a": {"$ref": "#/default"}}, "default": {"required": "b"}}, r'invalid at \$\.required of "#/def'),
    ({"$schema": "http://example.com/mine"}, 'unknown dialect, "http://example.com/mine"'),
    ({"$schema": 3}, "unknown dialect"),
    ({"default": float("nan")}, "is not JSON"),
    ({"default": {1, 2}}, "is not JSON"),
]


@pytest.mark.parametrize(("schema", "message"), BAD, ids=lambda value: str(value)[:60])
def test_a_bad_schema_is_refused_by_the_name_of_its_tool(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"'foreign'.*{message}"):
        by_hand(schema)


def test_a_schema_that_is_nested_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(5_000):
        schema = {"not": schema}
    with pytest.raises(ConfigError, match="'foreign'"):
        by_hand(schema)
    schema = {}
    for _ in range(300):
        schema = {"not": schema}
    with pytest.raises(ConfigError, match=r"'foreign'.*too deeply"):
        by_hand(schema)


def test_the_caller_may_change_the_schema_that_it_gave() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "integer"}}}
    tool = by_hand(schema)
    schema["properties"]["a"]["type"] = "string"
    assert tool.read({"a": 1}) == {"a": 1}


def test_a_recursive_schema_does_not_loop() -> None:
    """B29."""
    schema = {
        "type": "object",
        "properties": {"node": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}, "not": {"const": 1}}},
    }
    dispatcher = LocalDispatcher([by_hand(schema)])
    value = '{"node":' + '{"next":' * 3 + "{}" + "}" * 4
    assert isinstance(dispatcher.prepare(ToolCall("c", "foreign", value)), PreparedCall)
    value = '{"node":' + '{"next":' * 400 + "3" + "}" * 401
    refused = dispatcher.prepare(ToolCall("c", "foreign", value))
    assert isinstance(refused, ToolResult)
    assert refused.status == "invalid"


def test_a_circle_that_only_all_of_closes_is_an_invalid_call_and_not_a_loop() -> None:
    tool = by_hand({"allOf": [{"$ref": "#"}]})
    with pytest.raises(InvalidArguments, match="nested too deeply"):
        tool.read({})


TAGGED = {
    "oneOf": [
        {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "b"}, "size": {"type": "integer"}, "name": {"type": "string"}}},
    ]
}

FAULTS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"required": ["a", "b"]}, {}, r'^\$: missing "a"'),
    ({"additionalProperties": False}, {"a": 1}, r'^\$: unexpected "a"$'),
    ({"additionalProperties": {"type": "integer"}}, {"a": "x"}, r"^\$\.a: expected integer"),
    (
        {"properties": {"a": {"oneOf": [{"type": "string"}, {"type": "object", "required": ["k"]}]}}},
        {"a": {}},
        'missing "k"',
    ),
    ({"properties": {"a": {"oneOf": [{}, {}]}}}, {"a": 1}, "does not satisfy oneOf"),
    ({"properties": {"a": {"not": {}}}}, {"a": 1}, r"does not satisfy not: \{\}"),
    ({"properties": {"a": {"type": ["string", "null"]}}}, {"a": 1}, "expected string or null, got an integer"),
    ({"properties": {"a": False}}, {"a": 1}, "1 is not allowed"),
    ({"properties": {"a": {"anyOf": [False]}}}, {"a": 1}, r"^\$\.a: 1 is not allowed"),
    ({"properties": {"a": {"oneOf": [False, False]}}}, {"a": 1}, r"^\$\.a: 1 is not allowed"),
    (
        {"properties": {"a": {"anyOf": [False, {"type": "string"}]}}},
        {"a": 1},
        r"^\$\.a: expected string, got an integer",
    ),
    ({"properties": {"a": {"enum": list(range(30))}}}, {"a": 30}, "18, 19, …, got 30"),
    ({"properties": {"a": {"contains": {"const": 1}}}}, {"a": [2]}, r"does not satisfy contains"),
    ({"patternProperties": {"^a": {"type": "integer"}}}, {"ab": ""}, r"^\$\.ab: expected integer"),
    (TAGGED, {"kind": "b", "size": "x", "name": 1}, r"^\$: \$\.size: expected integer.*; \$\.name: expected string"),
    ({"minProperties": 1}, {}, "expected at least 1 properties, got 0"),
]


@pytest.mark.parametrize(("schema", "value", "message"), FAULTS, ids=lambda value: str(value)[:40])
def test_faults_are_told_in_words(schema: dict[str, Any], value: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArguments, match=message):
        by_hand(schema).read(value)
