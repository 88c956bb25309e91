"""What Ollama's server would drop of a tool's schema is said in the words that it keeps."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_agent import Message, ModelRequest, ToolSpec
from trio_agent.wires import OllamaWire

NODE = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "label": {"type": "string"}}}


def sent(**schema: Any) -> dict[str, Any]:
    request = ModelRequest((Message("user", "Go."),), tools=(ToolSpec("f", "", schema),))
    parameters: dict[str, Any] = json.loads(OllamaWire().request(request, "m").body)["tools"][0]["function"][
        "parameters"
    ]
    return parameters


def shown(part: Any, **definitions: Any) -> Any:
    return sent(type="object", properties={"a": part}, **{"$defs": definitions})["properties"]["a"]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"type": "integer", "minimum": 1}, {"type": "integer", "minimum": 1}),
        ({"$ref": "#/$defs/x"}, {"type": "string"}),
        ({"$ref": "#/$defs/x", "description": "It."}, {"type": "string", "description": "It."}),
        ({"$ref": "#/$defs/y"}, {"type": "string", "maxLength": 3}),
        ({"allOf": [{"$ref": "#/$defs/x"}], "description": "It."}, {"type": "string", "description": "It."}),
        ({"oneOf": [{"$ref": "#/$defs/x"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"anyOf": [{"const": 1}, False, True]}, {"anyOf": [{"const": 1, "enum": [1]}, {}]}),
        ({"type": "string", "const": "x"}, {"type": "string", "const": "x", "enum": ["x"]}),
        ({"properties": {"b": {"$ref": "#/$defs/x"}}}, {"type": "object", "properties": {"b": {"type": "string"}}}),
        ({"type": "array", "items": {"$ref": "#/$defs/x"}}, {"type": "array", "items": {"$ref": "#/$defs/x"}}),
        (True, {}),
    ],
    ids=lambda each: json.dumps(each)[:50],
)
def test_what_would_be_dropped_is_said_in_what_is_kept(part: Any, said: Any) -> None:
    found = shown(part, x={"type": "string"}, y={"$ref": "#/$defs/x", "maxLength": 3})
    assert {key: value for key, value in found.items() if key != "allOf"} == said


def test_properties_of_all_parts_are_told() -> None:
    part = {"allOf": [{"properties": {"b": {"type": "string"}}}], "properties": {"c": {"type": "null"}}}
    assert shown(part)["properties"] == {"b": {"type": "string"}, "c": {"type": "null"}}


def test_a_property_that_can_have_no_value_is_left_out() -> None:
    assert sent(type="object", properties={"a": False, "b": {}})["properties"] == {"b": {}}


def test_alternatives_at_the_top_become_one_object() -> None:
    told = sent(
        oneOf=[{"properties": {"a": {"$ref": "#/$defs/x"}}}, {"properties": {"b": {}}}],
        **{"$defs": {"x": {"type": "string"}}},
    )
    assert told["properties"] == {"a": {"type": "string"}, "b": {}}
    assert told["type"] == "object"


def test_recursion_is_cut_where_it_begins_again() -> None:
    """B29."""
    found = shown({"$ref": "#/$defs/node"}, node=NODE)
    assert found["properties"]["label"] == {"type": "string"}
    assert found["properties"]["next"] == {"type": "object", "$ref": "#/$defs/node"}
    assert shown({"$ref": "#/$defs/x"}, x={"allOf": [{"$ref": "#/$defs/x"}]}) is not None


def test_a_schema_that_unfolds_without_end_stays_small() -> None:
    levels = {
        f"d{level}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{level + 1}"} for name in "abcdefgh"}}
        for level in range(12)
    }
    told = sent(type="object", properties={"a": {"$ref": "#/$defs/d0"}}, **{"$defs": {**levels, "d12": {}}})
    assert len(json.dumps(told)) < 400_000
