"""Kind E: tools that do not exist, names that no vendor takes, and schemas with references."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trio.testing import MockClock

from tests.scenarios.stage import Bench, Scene
from trio_agent import (
    Agent,
    ConfigError,
    ModelRequest,
    Tool,
    ToolCallDelta,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolUse,
    tool,
)
from trio_agent.providers import OpenAI
from trio_agent.testing import Answer, ModelServer, ScriptedModel, call, calls
from trio_agent.wires import OpenAIChatWire

HANG = 30
"""Seconds on the real clock, where there are sockets; nothing waits for it."""


# ------------------------------------------------------------------------------------------ B27


@tool
async def read_file() -> str:
    return "read"


@tool
async def write_file() -> str:
    return "written"


async def test_an_invented_tool_is_an_error_result_and_its_siblings_run(autojump_clock: MockClock) -> None:
    """B27: M: call(1, nope) + call(2, ok) | text."""
    bench = Bench()
    model = ScriptedModel(calls(call("nope", id="1"), call("ok", seconds=1, id="2")), "done")
    scene = Scene(Agent(model, tools=[bench.ok, read_file]))
    result = await scene.play()
    assert scene.statuses == {"1": "unknown_tool", "2": "ok"}
    assert "'nope'" in scene.results["1"].text
    assert "ok" in scene.results["1"].text  # nothing is near, so it says what there is
    assert "read_file" in scene.results["1"].text
    # An explicit event: announced and ended, never started.
    assert [use.call.name for use in scene.of(ToolUse)] == ["nope", "ok"]
    assert [end.result.status for end in scene.of(ToolExecutionEnd)] == ["unknown_tool", "ok"]
    assert scene.started == ["2"]
    assert (result.stop_reason, result.text) == ("stop", "done")


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("read_flie", "read_file"),
        ("ReadFile", "read_file"),
        ("readfile", "read_file"),
        ("write-file", "write_file"),
        ("READ_FILE", "read_file"),
    ],
)
async def test_the_error_result_names_near_tools(autojump_clock: MockClock, name: str, near: str) -> None:
    """B27: error result that lists near names."""
    model = ScriptedModel(call(name, id="1"), "done")
    scene = Scene(Agent(model, tools=[Bench().ok, read_file, write_file]))
    await scene.play()
    assert scene.statuses == {"1": "unknown_tool"}
    _, meant, hint = scene.results["1"].text.partition("Did you mean ")
    assert meant
    assert near in hint
    assert len(scene.results["1"].text) < 300


@pytest.mark.parametrize("name", ["x" * 1_000_000, "a\nb", "é" * 300, "", "\u2028", "{}", "functions.read_file"])
async def test_no_invented_name_is_too_strange_to_be_answered(autojump_clock: MockClock, name: str) -> None:
    """B27: nothing escapes the call."""
    model = ScriptedModel(calls(call(name, id="1"), call(read_file, id="2")), "done")
    scene = Scene(Agent(model, tools=[read_file]))
    result = await scene.play()
    assert scene.statuses == {"1": "unknown_tool", "2": "ok"}
    assert len(scene.results["1"].text) < 500
    assert result.stop_reason == "stop"
    json.loads(OpenAIChatWire().request(model.requests[1], "m").body)


async def test_a_model_that_invents_tools_for_ever_is_stopped(autojump_clock: MockClock) -> None:
    """B27: bounded by turn limits."""
    model = ScriptedModel(call("nope"), repeat_last=True)
    scene = Scene(Agent(model, tools=[read_file], max_turns=3))
    result = await scene.play()
    assert (result.stop_reason, len(model.requests)) == ("max_turns", 3)
    assert list(scene.statuses.values()) == ["unknown_tool"] * 3


# ------------------------------------------------------------------------------------------ B28

NAMES = ["a.b", "a_b", "a b", "a/b", "a-b", "n" * 90, "n" * 91, "größe", "工具", "a__b"]


def named(name: str, got: list[str]) -> Tool:
    async def handler(value: dict[str, Any]) -> str:
        got.append(name)
        return f"this is {name}"

    return Tool(name, f"The tool {name}.", {"type": "object"}, handler)


async def test_names_that_no_vendor_takes_are_mapped_to_the_wire_and_back() -> None:
    """B28: tools a.b, a_b, a b, a 90-character name, non-ASCII."""

    def answer(request: ModelRequest, number: int) -> Answer | str:
        return calls(*(call(spec.name) for spec in request.tools)) if number == 1 else "done"

    got: list[str] = []
    async with ModelServer(answer) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, tools=[named(name, got) for name in NAMES], max_parallel_tools=1))
        result = await scene.play(hang=HANG)
        server.verify()  # the checker of bodies refuses names that are not legal
    sent = [spec.name for spec in server.requests[0].tools]
    assert len(set(sent)) == len(NAMES)
    assert all(len(name) <= 64 and name.replace("-", "_").isascii() for name in sent)
    assert [wire for wire, name in zip(sent, NAMES, strict=True) if wire == name] == ["a_b", "a-b", "a__b"]
    # Events, results and the history know the original names only.
    assert got == NAMES
    assert [use.call.name for use in scene.of(ToolUse)] == NAMES
    assert [start.name for start in scene.of(ToolExecutionStart)] == NAMES
    assert [c.name for message in result.messages for c in message.calls] == NAMES
    assert {delta.name for delta in scene.of(ToolCallDelta)} <= set(NAMES)
    assert [r.text for m in result.messages for r in m.results] == [f"this is {name}" for name in NAMES]
    # The next request says the same wire names again.
    assert [c.name for m in server.requests[1].messages for c in m.calls] == sent
    assert [spec.name for spec in server.requests[1].tools] == sent
    assert result.stop_reason == "stop"


async def test_a_legal_name_that_looks_like_a_mapped_one_stays_a_tool_of_its_own() -> None:
    """B28: no collision."""
    wire = OpenAIChatWire()
    first = json.loads(wire.request(ModelRequest((), tools=(named("a.b", []).spec,)), "m").body)
    mapped = first["tools"][0]["function"]["name"]

    def answer(request: ModelRequest, number: int) -> Answer | str:
        return calls(*(call(spec.name) for spec in request.tools)) if number == 1 else "done"

    got: list[str] = []
    names = ["a.b", mapped]
    async with ModelServer(answer) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, tools=[named(name, got) for name in names], max_parallel_tools=1))
        await scene.play(hang=HANG)
        server.verify()
    assert got == names
    assert [use.call.name for use in scene.of(ToolUse)] == names


async def test_tool_choice_names_the_tool_by_its_wire_name() -> None:
    """B28: wherever a name is sent."""
    got: list[str] = []

    def answer(request: ModelRequest, number: int) -> Answer | str:
        return call(request.tool_choice) if number == 1 else "done"

    async with ModelServer(answer) as server, OpenAI("m", base_url=server.base_url, api_key="k") as provider:
        scene = Scene(Agent(provider, tools=[named("a.b", got), named("a_b", got)], tool_choice="a.b"))
        await scene.play(hang=HANG)
        server.verify()
    assert got == ["a.b"]


# ------------------------------------------------------------------------------------------ B29

TREE: dict[str, Any] = {
    "type": "object",
    "properties": {"root": {"$ref": "#/$defs/node"}},
    "required": ["root"],
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
                "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
            },
            "required": ["name"],
            "additionalProperties": False,
        }
    },
}

GOOD: dict[str, dict[str, Any]] = {
    "definitions": {
        "type": "object",
        "properties": {"unit": {"$ref": "#/$defs/unit"}},
        "$defs": {"unit": {"enum": ["m", "km"]}},
    },
    "recursive": TREE,
    "recursive_root": {"type": "object", "properties": {"again": {"$ref": "#"}}},
    "nullable": {"type": "object", "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}}},
    "draft_7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"x": {"$ref": "#/definitions/y"}},
        "definitions": {"y": {"type": "string"}},
    },
    "two_in_a_circle": {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/a"}},
        "$defs": {
            "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}},
            "b": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}},
        },
    },
}

BAD: dict[str, dict[str, Any]] = {
    "dangling": {"type": "object", "properties": {"x": {"$ref": "#/$defs/nowhere"}}, "$defs": {}},
    "dangling_deep": {"type": "object", "properties": {"x": {"anyOf": [{"items": {"$ref": "#/$defs/nowhere"}}]}}},
    "a_local_path": {"type": "object", "properties": {"x": {"$ref": "./other.json#/$defs/y"}}},
    "a_file": {"type": "object", "properties": {"x": {"$ref": "file:///etc/passwd"}}},
    "an_address": {"type": "object", "properties": {"x": {"$ref": "https://schemas.example.org/x.json"}}},
    "a_circle_of_nothing": {
        "type": "object",
        "properties": {"x": {"$ref": "#/$defs/a"}},
        "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
    },
    "no_schema": {"type": "object", "properties": {"x": {"type": "strng"}}},
    "not_an_object": {"type": "array", "items": {}},
}


def by_hand(name: str, schema: dict[str, Any], got: list[Any]) -> Tool:
    async def handler(value: dict[str, Any]) -> str:
        got.append(value)
        return "taken"

    return Tool(name, "By hand.", schema, handler)


async def test_good_schemas_reach_the_model_and_the_wire_whole(autojump_clock: MockClock) -> None:
    """B29: good schemas pass through whole."""
    model = ScriptedModel("done")
    scene = Scene(Agent(model, tools=[by_hand(name, schema, []) for name, schema in GOOD.items()]))
    await scene.play()
    assert {spec.name: spec.parameters for spec in model.requests[0].tools} == GOOD
    body = json.loads(OpenAIChatWire().request(model.requests[0], "m").body)
    assert {t["function"]["name"]: t["function"]["parameters"] for t in body["tools"]} == GOOD


async def test_a_schema_without_a_type_is_one_of_an_object(autojump_clock: MockClock) -> None:
    """B29: missing type."""
    got: list[Any] = []
    untyped = by_hand("untyped", {"properties": {"x": {"type": "integer"}}}, got)
    bare = by_hand("bare", {}, got)
    model = ScriptedModel(calls(call("untyped", x=1), call("bare", y=2), call("untyped", x="no")), "done")
    scene = Scene(Agent(model, tools=[untyped, bare]))
    await scene.play()
    assert [spec.parameters["type"] for spec in model.requests[0].tools] == ["object", "object"]
    assert model.requests[0].tools[0].parameters["properties"] == {"x": {"type": "integer"}}
    assert sorted(map(str, got)) == ["{'x': 1}", "{'y': 2}"]
    assert list(scene.statuses.values()).count("invalid") == 1


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_tool_is_refused_by_name_and_the_rest_still_work(autojump_clock: MockClock, name: str) -> None:
    """B29: a dangling reference takes down the whole tool list."""
    with pytest.raises(ConfigError, match=f"'{name}'") as caught:
        by_hand(name, BAD[name], [])
    assert caught.value.code == "INVALID_CONFIG"
    got: list[Any] = []
    model = ScriptedModel(call("recursive", root={"name": "x"}), "done")
    scene = Scene(Agent(model, tools=[by_hand(good, schema, got) for good, schema in GOOD.items()]))
    await scene.play()
    assert got == [{"root": {"name": "x"}}]


def nested(depth: int, last: dict[str, Any]) -> dict[str, Any]:
    node = last
    for _ in range(depth):
        node = {"name": "n", "next": node, "children": [last]}
    return {"root": node}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (nested(0, {"name": "x"}), "ok"),
        (nested(20, {"name": "x", "next": None}), "ok"),
        (nested(20, {"name": 3}), "invalid"),
        (nested(20, {}), "invalid"),
        (nested(1, {"name": "x", "more": 1}), "invalid"),
        ({}, "invalid"),
    ],
    ids=["flat", "deep", "a wrong type deep down", "a field missing deep down", "a field too many", "nothing"],
)
async def test_a_recursive_schema_is_checked_to_its_depth(
    autojump_clock: MockClock, value: dict[str, Any], status: str
) -> None:
    """B29: recursive schemas are cut."""
    got: list[Any] = []
    model = ScriptedModel(call("tree", value, id="1"), "done")
    scene = Scene(Agent(model, tools=[by_hand("tree", TREE, got)]))
    await scene.play()
    assert scene.statuses == {"1": status}
    assert got == ([value] if status == "ok" else [])


@pytest.mark.parametrize("name", ["recursive_root", "two_in_a_circle"])
async def test_recursion_never_loops(autojump_clock: MockClock, name: str) -> None:
    """B29: recursion never loops in any dereferencing step."""
    got: list[Any] = []
    steps = {"recursive_root": ["again"], "two_in_a_circle": ["a", "b"]}[name]
    value: dict[str, Any] = {}
    for index in range(59, -1, -1):
        value = {steps[index % len(steps)]: value}
    model = ScriptedModel(calls(call(name, value, id="1"), call(name, {steps[0]: 3}, id="2")), "done")
    scene = Scene(Agent(model, tools=[by_hand(name, GOOD[name], got)]))
    await scene.play()
    assert {call_id: scene.statuses[call_id] for call_id in "12"} == {"1": "ok", "2": "invalid"}
    assert got == [value]
