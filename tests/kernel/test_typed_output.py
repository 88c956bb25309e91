"""Typed output: told with each request, checked when a run would stop, repaired by asking, given as a value."""

from __future__ import annotations

import json
from typing import Annotated, Any, NamedTuple, TypedDict

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Agent, Codec, ConfigError, OutputError, tool
from trio_agent._events import Event
from trio_agent.codecs import JSONCodec, ReActCodec
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, say
from trio_agent.tools import TypedOutput, schema_of


@attrs.frozen
class Line:
    item: str
    price: Annotated[float, "euros"]


@attrs.frozen
class Report:
    """An invoice."""

    title: str
    lines: list[Line] = attrs.field(factory=list)


@attrs.frozen
class Node:
    name: str
    children: list[Node] = attrs.field(factory=list)


@attrs.frozen
class Even:
    value: int

    def __attrs_post_init__(self) -> None:
        if self.value % 2:
            raise ValueError("an odd value")


class Point(TypedDict):
    x: int


class Pair(NamedTuple):
    x: int
    y: int


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}}, "required": ["n"]}
GOOD = '{"title": "May", "lines": [{"item": "tea", "price": 2}]}'


@tool(effect="pure")
async def look() -> str:
    """Look."""
    return "seen"


async def test_the_result_holds_the_value_of_the_last_answer() -> None:
    model = ScriptedModel(calls(call("look")), say(GOOD))
    agent = Agent(model, tools=[look], output=Report)
    with trio.fail_after(5):
        result = await agent.send("Read the invoice.")
    assert result.output == Report("May", [Line("tea", 2.0)])
    assert result.text == GOOD
    assert [request.output_schema for request in model.requests] == [{"title": "Report", **schema_of(Report)}] * 2


async def test_without_an_output_there_is_no_schema_and_no_value() -> None:
    model = ScriptedModel(say(GOOD))
    with trio.fail_after(5):
        result = await Agent(model).send("Hello.")
    assert result.output is None
    assert model.requests[0].output_schema is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Report, GOOD, Report("May", [Line("tea", 2.0)])),
        (Report, f"```json\n{GOOD}\n```", Report("May", [Line("tea", 2.0)])),
        (Node, '{"name": "a", "children": [{"name": "b"}]}', Node("a", [Node("b")])),
        (Point, '{"x": 1}', {"x": 1}),
        (Pair, '{"x": 1, "y": 2}', Pair(1, 2)),
        (SCHEMA, ' {"n": 3, "more": null} ', {"n": 3, "more": None}),
    ],
)
async def test_an_answer_is_read_into_its_type(kind: Any, text: str, value: object) -> None:
    with trio.fail_after(5):
        result = await Agent(ScriptedModel(say(text)), output=kind).send("Go.")
    assert result.output == value
    assert type(result.output) is type(value)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (Report, "I could not find it.", "it is not JSON"),
        (Report, '{"lines": []}', "title"),
        (Report, '{"title": "May", "lines": [{"item": "tea", "price": "two"}]}', "lines[0].price"),
        (Report, "[1]", "got an array"),
        (Report, "null", "got null"),
        (Report, "", "got nothing"),
        (Even, '{"value": 3}', "an odd value"),
        (SCHEMA, '{"n": 2}', "$.n"),
        (SCHEMA, '{"n": NaN}', "NaN"),
    ],
)
async def test_an_answer_that_does_not_fit_is_asked_for_again(kind: Any, text: str, told: str) -> None:
    good = {Report: GOOD, Even: '{"value": 4}'}.get(kind if isinstance(kind, type) else Line, '{"n": 4}')
    model = ScriptedModel(say(text), say(good))
    with trio.fail_after(5):
        result = await Agent(model, output=kind).send("Go.")
    assert result.stop_reason == "stop"
    assert result.output is not None
    assert result.turns == 1
    repair = model.requests[1].messages[-1]
    assert (repair.role, repair.origin) == ("user", "repair")
    assert told in repair.text
    assert [message.finish_reason for message in result.messages if message.role == "assistant"] == [
        "malformed",
        "stop",
    ]


async def test_a_model_that_never_fits_ends_the_run_with_its_fault() -> None:
    model = ScriptedModel(say("no"), say("no"), say("no"))
    with trio.fail_after(5):
        result = await Agent(model, output=Report, max_decode_retries=2).send("Go.")
    assert result.stop_reason == "error"
    assert isinstance(result.error, OutputError)
    assert result.error.code == "MALFORMED_OUTPUT"
    assert "not the output that was asked for" in str(result.error)
    assert result.output is None
    assert len(model.requests) == 3


async def test_an_answer_that_is_followed_by_another_message_is_not_checked() -> None:
    model = ScriptedModel(calls(call("look")), say("Wait."), say(GOOD))
    agent = Agent(model, tools=[look], output=Report)
    with trio.fail_after(5):
        async with agent.run("Go.") as run:
            await run.follow_up("And now the report.")
            result = await run.wait()
    assert result.output == Report("May", [Line("tea", 2.0)])
    assert [message.finish_reason for message in result.messages if message.role == "assistant"] == [
        "tool_use",
        "stop",
        "stop",
    ]


async def test_an_answer_that_was_cut_at_its_limit_is_no_output() -> None:
    with trio.fail_after(5):
        result = await Agent(ScriptedModel(say('{"title": "M', finish="length")), output=Report).send("Go.")
    assert result.stop_reason == "length"
    assert result.output is None


async def test_a_run_that_stops_behind_its_tools_has_no_output() -> None:
    @tool(terminal=True)
    async def done() -> str:
        """Done."""
        return "done"

    with trio.fail_after(5):
        result = await Agent(ScriptedModel(calls(call("done"))), tools=[done], output=Report).send("Go.")
    assert (result.stop_reason, result.output) == ("stop", None)


CALL_IN_JSON = '{"type": "tool_calls", "calls": [{"name": "look", "input": {}}]}'


@pytest.mark.parametrize(
    ("codec", "asks", "wrong", "right"),
    [
        (
            JSONCodec(),
            CALL_IN_JSON,
            '{"type": "final", "output": {"x": "one"}}',
            '{"type": "final", "output": {"x": 1}}',
        ),
        (
            JSONCodec(constrain=True),
            CALL_IN_JSON,
            '{"type": "final", "text": "one"}',
            '{"type":"final","output":{"x":1}}',
        ),
        (ReActCodec(), "Action: look\nAction Input: {}", "Final Answer: one", 'Final Answer: {"x": 1}'),
    ],
    ids=["json", "json, constrained", "react"],
)
async def test_models_without_tool_calling_give_it_in_their_protocol(
    codec: Codec, asks: str, wrong: str, right: str
) -> None:
    model = ScriptedModel(asks, wrong, right)
    with trio.fail_after(5):
        result = await Agent(model, tools=[look], output=Point, codec=codec).send("Go.")
    assert result.output == {"x": 1}
    assert [request.tools for request in model.requests] == [()] * 3
    assert all('"x"' in (request.system or "") for request in model.requests)  # it is told what to write
    constrained = isinstance(codec, JSONCodec) and codec.constrain
    assert [request.output_schema is not None for request in model.requests] == [constrained] * 3


async def test_one_run_may_have_an_output_of_its_own() -> None:
    agent = Agent(ScriptedModel(say('{"x": 1}'), say(GOOD), say('{"n": 5}')), output=Report)
    with trio.fail_after(5):
        assert (await agent.send("Go.", output=Point)).output == {"x": 1}
        assert (await agent.send("Go.")).output == Report("May", [Line("tea", 2.0)])
        async with agent.run("Go.", output=SCHEMA) as run:
            pass
        assert run.result.stop_reason == "cancelled"


async def test_a_session_keeps_a_runs_own_output_through_a_change_of_its_model() -> None:
    first = ScriptedModel(calls(call("look")))
    second = ScriptedModel(say("Hm."), say('{"x": 1}'), say(GOOD))
    with trio.fail_after(5):
        async with Agent(first, tools=[look], output=Report).session() as session:
            async with session.run("Go.", output=Point) as run:
                await session.configure(model=second)
                result = await run.wait()
            assert result.output == {"x": 1}
            assert (await session.prompt("Again.")).output == Report("May", [Line("tea", 2.0)])


async def test_a_run_that_was_cut_is_resumed_with_its_output() -> None:
    store = MemoryStore()
    with trio.fail_after(5):
        async with Agent(ScriptedModel(say("no"), say("no")), output=Report, store=store).session("s") as session:
            result = await session.prompt("Go.", max_turns=1)
        assert result.error is not None
        model = ScriptedModel(say("still no"), say('{"x": 2}'))
        async with Agent(model, store=store).session("s") as session:
            result = await session.resume(output=Point)
    assert result.output == {"x": 2}


async def test_what_the_events_say_does_not_depend_on_the_output() -> None:
    seen: list[Event] = []
    agent = Agent(ScriptedModel(say("no"), say(GOOD)), output=Report)
    with trio.fail_after(5):
        async with agent.run("Go.") as run:
            seen.extend([event async for event in run])
    ends = [event for event in seen if event.kind == "message_end"]
    assert [end.error.code if end.error else None for end in ends] == ["MALFORMED_OUTPUT", None]


@pytest.mark.parametrize("kind", [int, list[int], "Report", 3, {"type": "array"}, {"$ref": "#/$defs/x"}])
def test_what_is_no_object_is_refused_when_the_agent_is_made(kind: Any) -> None:
    with pytest.raises(ConfigError, match="output"):
        Agent(ScriptedModel(), output=kind)


def test_a_class_that_holds_itself_has_an_object_at_the_top() -> None:
    schema = TypedOutput(Node).schema
    assert (schema["type"], schema["title"]) == ("object", "Node")
    assert schema["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


LINES = st.builds(Line, st.text(st.characters(codec="utf-8")), st.floats(allow_nan=False, allow_infinity=False))


@given(st.builds(Report, st.text(st.characters(codec="utf-8")), st.lists(LINES, max_size=3)), st.booleans())
def test_whatever_has_the_type_is_read_back(report: Report, fenced: bool) -> None:
    text = json.dumps(attrs.asdict(report))
    assert TypedOutput(Report).read(f"```json\n{text}\n```" if fenced else text) == report


@given(st.text())
def test_any_other_text_is_refused_in_words(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        TypedOutput(SCHEMA).read(text)
