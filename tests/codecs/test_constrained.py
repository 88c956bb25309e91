"""The json codec's own schema, for servers that hold an answer to one: what it lets through is what can be read."""

from __future__ import annotations

import json
from typing import Any

import attrs
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codecs.speaking import written
from trio_agent._messages import Message
from trio_agent._model import ModelRequest, ToolSpec
from trio_agent.codecs import JSONCodec

TREE: dict[str, Any] = {  # Any: a JSON Schema
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {
        "root": {"$ref": "#/$defs/node"},
        "again": {"$ref": "#"},
        "$ref": {"type": "string"},
        "default": {"const": {"$ref": "#/not/a/reference"}},
    },
    "required": ["root"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["value"],
        }
    },
}
ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "number"}}, "required": ["a"]})
GROW = ToolSpec("grow", "Grows.", TREE)
ASKED = ModelRequest([Message("user", "Do it.")], tools=(ADD, GROW))
CODEC = JSONCodec(constrain=True)


def schema(**changes: Any) -> dict[str, Any]:  # Any: a JSON Schema
    found = CODEC.encode(attrs.evolve(ASKED, **changes)).output_schema
    assert found is not None
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def fits(answer: object, **changes: Any) -> bool:
    return bool(jsonschema.Draft202012Validator(schema(**changes)).is_valid(answer))


def called(name: str, **input: Any) -> dict[str, Any]:
    return {"type": "tool_calls", "calls": [{"name": name, "input": input}]}


FINAL = {"type": "final", "text": "Done."}


def test_without_the_option_no_schema_is_sent() -> None:
    assert JSONCodec().encode(attrs.evolve(ASKED, output_schema={"type": "object"})).output_schema is None


def test_calls_and_the_final_form_fit_and_nothing_else() -> None:
    assert fits(called("add", a=1))
    assert fits({"type": "tool_calls", "calls": [*called("add", a=1)["calls"], *called("add", a=2)["calls"]]})
    assert fits(FINAL)
    for answer in (called("add"), called("nope"), {"type": "tool_calls", "calls": []}, {"type": "final"}, {}, "x"):
        assert not fits(answer)
    assert not fits({**FINAL, "more": 1})


def test_references_of_a_schema_lead_to_what_they_led_to() -> None:
    leaf = {"value": 2}
    assert fits(called("grow", root={"value": 1, "children": [leaf]}, again={"root": leaf}))
    assert not fits(called("grow", root={"value": 1, "children": [{"value": "x"}]}))
    assert not fits(called("grow", root=leaf, again={}))
    assert fits(called("grow", root=leaf, default={"$ref": "#/not/a/reference"}, **{"$ref": "x"}))
    assert not fits(called("grow", root=leaf, **{"$ref": 1}))
    assert json.dumps(TREE).count("#/$defs/node") == 2  # the tool's own schema is as it was


def test_a_schema_without_references_stands_where_it_is_used() -> None:
    only = schema(tools=(ADD,))
    assert "$defs" not in only
    assert only["anyOf"][0]["properties"]["calls"]["items"]["properties"]["input"] == ADD.parameters


@pytest.mark.parametrize(
    ("choice", "calls", "final"), [("none", False, True), ("required", True, False), ("add", True, False)]
)
def test_the_choice_among_the_tools_is_in_the_schema(choice: str, calls: bool, final: bool) -> None:
    assert fits(called("add", a=1), tool_choice=choice) == calls
    assert fits(FINAL, tool_choice=choice) == final
    assert fits(called("grow", root={"value": 1}), tool_choice=choice) == (choice == "required")


def test_the_schema_of_the_answer_is_that_of_the_output() -> None:
    changes = {"output_schema": TREE}
    assert fits({"type": "final", "output": {"root": {"value": 1}}}, **changes)
    assert not fits({"type": "final", "output": {"root": {}}}, **changes)
    assert not fits(FINAL, **changes)
    assert fits(called("add", a=1), **changes)


def test_the_same_request_gives_the_same_schema_again() -> None:
    assert CODEC.encode(ASKED).output_schema is CODEC.encode(attrs.evolve(ASKED, turn=2)).output_schema
    assert schema(tool_choice="none") != schema()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_what_fits_is_read(numbers: list[float]) -> None:
    answer = {"type": "tool_calls", "calls": [{"name": "add", "input": {"a": number}} for number in numbers]}
    assert fits(answer)
    decoded = CODEC.decode(Message("assistant", written(answer), "stop"), ASKED)
    assert [call.input for call in decoded.message.calls] == [{"a": number} for number in numbers]
