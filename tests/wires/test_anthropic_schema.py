"""The schema of a tool's input as Anthropic takes it: an object, and nothing combined at its top level."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent._messages import Message
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent._ports import Wire
from trio_agent.wires import AnthropicWire, OllamaWire

SHARED = Path(os.environ.get("TRIO_AGENT_SHARED", Path(__file__).parents[3] / "shared")) / "schemas"
DECLARATIONS = sorted(path for path in SHARED.glob("*.json") if path.name != "index.json")

COMBINED = {"allOf", "anyOf", "oneOf", "$ref"}
WORD = {"type": "string"}
NUMBER = {"type": "integer"}


def adapted(schema: dict[str, Any]) -> dict[str, Any]:
    request = ModelRequest((Message("user", "Hi."),), tools=(ToolSpec("look", "", schema),))
    [tool] = json.loads(AnthropicWire().request(request, "m").body)["tools"]
    found: dict[str, Any] = tool["input_schema"]
    return found


def test_a_schema_without_combinations_stays_as_it_is() -> None:
    schema = {"type": "object", "properties": {"x": {"anyOf": [WORD, {"type": "null"}]}}, "required": ["x"]}
    assert adapted(schema) == schema
    assert adapted({}) == {"type": "object", "properties": {}}
    assert adapted({"type": ["object", "null"]}) == {"type": "object", "properties": {}}


@pytest.mark.parametrize("key", ["anyOf", "oneOf"])
def test_what_every_branch_requires_is_required(key: str) -> None:
    schema = {
        "type": "object",
        "properties": {"id": WORD},
        "required": ["id"],
        key: [
            {"properties": {"a": WORD, "both": WORD}, "required": ["a", "both"]},
            {"properties": {"b": NUMBER, "both": NUMBER, "id": NUMBER}, "required": ["b", "both"]},
        ],
    }
    assert adapted(schema) == {
        "type": "object",
        "properties": {"id": WORD, "a": WORD, "both": {"anyOf": [WORD, NUMBER]}, "b": NUMBER},
        "required": ["id", "both"],
    }


def test_branches_that_only_require_leave_the_rest_alone() -> None:
    schema = {
        "type": "object",
        "properties": {"title": WORD, "text": WORD},
        "anyOf": [{"required": ["title"]}, {"required": ["text"]}],
    }
    assert adapted(schema) == {"type": "object", "properties": {"title": WORD, "text": WORD}}


def test_everything_of_all_of_is_required() -> None:
    schema = {
        "description": "Both.",
        "allOf": [
            {"properties": {"a": WORD}, "required": ["a"]},
            {"properties": {"a": {"minLength": 1}, "b": NUMBER}, "required": ["a", "b"]},
        ],
    }
    assert adapted(schema) == {
        "type": "object",
        "description": "Both.",
        "properties": {"a": {"allOf": [WORD, {"minLength": 1}]}, "b": NUMBER},
        "required": ["a", "b"],
    }


def test_references_at_the_top_are_followed() -> None:
    a = {"type": "object", "properties": {"x": WORD, "next": {"$ref": "#/$defs/A"}}, "required": ["x"]}
    defs = {"A": a, "a/b": {"properties": {"y": NUMBER}}, "None": {"type": "null"}}
    flat = {"$defs": defs, **a}
    assert adapted({"$ref": "#/$defs/A", "$defs": defs}) == flat
    both = adapted({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/a~1b"}], "$defs": defs})
    assert both["properties"] == {**a["properties"], "y": NUMBER}
    assert adapted({"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/None"}], "$defs": defs}) == flat
    assert adapted({"$ref": "#/$defs/%C3%96", "$defs": {"Ö": {"required": ["x"]}}})["required"] == ["x"]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}}},
        {"$ref": "#/absent"},
        {"$ref": "https://elsewhere/x.json"},
        {"anyOf": []},
        {"anyOf": [True, False]},
        {"anyOf": [{"type": "string"}]},
    ],
)
def test_a_combination_that_says_nothing_is_any_object(schema: dict[str, Any]) -> None:
    found = adapted(schema)
    assert (found["type"], found["properties"]) == ("object", {})
    assert not found.keys() & COMBINED


def test_nothing_else_is_allowed_where_no_branch_allows_it() -> None:
    shut = {"properties": {"a": WORD}, "additionalProperties": False}
    also = {"properties": {"b": WORD}, "additionalProperties": False}
    open_ = {"properties": {"c": WORD}}
    by_pattern = {"patternProperties": {"^x": WORD}, "additionalProperties": False}
    assert adapted({"anyOf": [shut, also]})["additionalProperties"] is False
    assert "additionalProperties" not in adapted({"anyOf": [shut, open_]})
    assert "additionalProperties" not in adapted({"anyOf": [shut, by_pattern]})
    assert "additionalProperties" not in adapted({"anyOf": [open_], "additionalProperties": WORD})
    assert adapted({"anyOf": [open_], "additionalProperties": False})["additionalProperties"] is False
    assert adapted({"allOf": [shut, open_]})["additionalProperties"] is False


def test_draft_07_is_put_into_the_words_of_2020_12() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "pair": {"type": "array", "items": [WORD, {"items": [NUMBER]}], "additionalItems": {"items": [WORD]}},
            "none": {"type": "array", "items": [], "additionalItems": False},
            "items": {"enum": [{"items": [1]}]},
        },
    }
    assert adapted(schema) == {
        "type": "object",
        "properties": {
            "pair": {
                "type": "array",
                "prefixItems": [WORD, {"prefixItems": [NUMBER]}],
                "items": {"prefixItems": [WORD]},
            },
            "none": {"type": "array", "items": False},
            "items": {"enum": [{"items": [1]}]},
        },
    }


def test_a_schema_of_any_depth_is_read() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"properties": {"x": schema}}
    assert adapted(schema) == {"type": "object", **schema}


def doubled(part: Callable[[dict[str, Any]], dict[str, Any]], last: dict[str, Any]) -> dict[str, Any]:
    """60 definitions, each of which refers to the next one twice: written out, there is no end to them."""
    defs = {f"d{level}": part({"$ref": f"#/$defs/d{level + 1}"}) for level in range(60)}
    return {**defs, "d60": last}


@pytest.mark.parametrize("key", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("wire", [AnthropicWire(), OllamaWire()], ids=lambda wire: type(wire).__name__)
def test_combinations_that_unfold_without_end_are_merged_as_far_as_it_takes_no_time(wire: Wire, key: str) -> None:
    defs = doubled(lambda part: {key: [part, part]}, {"properties": {"x": WORD}, "required": ["x"]})
    tools = (ToolSpec("look", "", {"type": "object", "$ref": "#/$defs/d0", "$defs": defs}),)
    [tool] = json.loads(wire.request(ModelRequest((Message("user", "Hi."),), tools=tools), "m").body)["tools"]
    found = tool["input_schema"] if "input_schema" in tool else tool["function"]["parameters"]
    assert found["properties"] == {"x": WORD}
    assert not found.keys() & COMBINED


def shut(**properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


@pytest.mark.parametrize("last", [shut(x=WORD), shut(x={"type": "string", "minLength": 1})])
def test_whether_an_output_has_a_format_is_found_out_in_no_time(last: dict[str, Any]) -> None:
    defs = doubled(lambda part: shut(left=part, right=part), last)
    schema = {**shut(a={"$ref": "#/$defs/d0"}), "$defs": defs}
    request = ModelRequest((Message("user", "Hi."),), output_schema=schema)
    assert ("output_config" in json.loads(AnthropicWire().request(request, "m").body)) == (last == shut(x=WORD))


@pytest.mark.skipif(not DECLARATIONS, reason="the tool declarations of real servers are not here")
@pytest.mark.parametrize("path", DECLARATIONS, ids=lambda path: path.stem)
def test_real_declarations_pass_through_whole(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))["inputSchema"]
    found = adapted(schema)
    assert not found.keys() & COMBINED
    jsonschema.Draft202012Validator.check_schema(found)
    wanted = {key: value for key, value in schema.items() if key != "$schema"}
    assert found == {"properties": {}, **wanted}


NAMES = ("a", "b", "c")
values = st.sampled_from(["x", 1, None])
objects = st.dictionaries(st.sampled_from(NAMES), values)
leaves = st.sampled_from([WORD, NUMBER, {"type": ["string", "null"]}, {"const": 1}, True])
plain = st.fixed_dictionaries(
    {"properties": st.dictionaries(st.sampled_from(NAMES), leaves)},
    optional={
        "type": st.sampled_from(["object", "null", ["object", "null"]]),
        "required": st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
        "additionalProperties": st.sampled_from([False, True, WORD]),
    },
)
combined = st.recursive(
    plain,
    lambda parts: st.builds(
        lambda base, key, branches: {**base, key: branches},
        plain,
        st.sampled_from(["allOf", "anyOf", "oneOf"]),
        st.lists(parts, min_size=1, max_size=3),
    ),
    max_leaves=8,
)


def mentioned(schema: dict[str, Any]) -> set[str]:
    names = set(schema["properties"])
    for key in COMBINED - {"$ref"}:
        for part in schema.get(key, ()):
            names |= mentioned(part)
    return names


def speaks_of_all(schema: dict[str, Any]) -> bool:
    """Whether each branch that leaves a name out that another has also shuts it out."""
    for key in ("anyOf", "oneOf"):
        branches = schema.get(key, ())
        names: set[str] = set().union(*map(mentioned, branches))
        if any(mentioned(part) != names and part.get("additionalProperties") is not False for part in branches):
            return False
    return all(speaks_of_all(part) for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ()))


@given(combined, objects)
def test_what_the_schema_takes_the_merged_one_takes(schema: dict[str, Any], value: dict[str, Any]) -> None:
    found = adapted(schema)
    assert found["type"] == "object"
    assert not found.keys() & COMBINED
    jsonschema.Draft202012Validator.check_schema(found)
    if speaks_of_all(schema) and jsonschema.Draft202012Validator(schema).is_valid(value):
        jsonschema.Draft202012Validator(found).validate(value)
