"""Agents whose models speak a protocol in plain text: tools run, what cannot be read is repaired, and that has an end."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from trio_agent import Agent, Codec, Event, Message, OutputError, TextDelta, ToolExecutionStart, tool
from trio_agent.codecs import JSONCodec, NativeCodec, ReActCodec
from trio_agent.testing import EventOrder, ScriptedModel, check_history, say

BOTH = [("add", {"a": 1, "b": 2}), ("double", {"n": 4})]


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    await trio.sleep(3)
    return a + b


@tool
async def double(n: int) -> int:
    """Double a number."""
    await trio.sleep(1)
    return 2 * n


@attrs.frozen
class Total:
    total: int


def in_json(*calls: tuple[str, dict[str, Any]]) -> str:
    return json.dumps({"type": "tool_calls", "calls": [{"name": name, "input": input} for name, input in calls]})


def in_react(name: str, input: dict[str, Any]) -> str:
    return f"Thought: I need {name}.\nAction: {name}\nAction Input: {json.dumps(input)}"


def in_hermes(*calls: tuple[str, dict[str, Any]]) -> str:
    said = [json.dumps({"name": name, "arguments": input}) for name, input in calls]
    return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in said)


CODECS: dict[str, tuple[Codec, list[str], str]] = {
    "json": (JSONCodec(), [in_json(*BOTH)], '{"type":"final","text":"Done."}'),
    "constrained json": (JSONCodec(constrain=True), [in_json(*BOTH)], '{"type":"final","text":"Done."}'),
    "react": (ReActCodec(), [in_react(*each) for each in BOTH], "Thought: I know.\nFinal Answer: Done."),
    "text": (NativeCodec(text_calls=True), [in_hermes(*BOTH)], "Done."),
}
BROKEN = {
    "json": '{"type":"tool_calls","calls":[{"name":"add"',
    "constrained json": '{"type":"tool_calls","calls":[]}',
    "react": "Action: add",
    "text": "<tool_call>add",
}


async def played(agent: Agent, input: str = "Go.") -> tuple[Any, list[Event]]:
    events: list[Event] = []
    order = EventOrder()
    with trio.fail_after(100):
        async with agent.run(input) as run:
            async for event in run:
                order.feed(event)
                events.append(event)
    order.done()
    return run.result, events


def started(events: Sequence[Event]) -> list[str]:
    return [event.name for event in events if isinstance(event, ToolExecutionStart)]


@pytest.mark.parametrize("name", CODECS)
async def test_the_tools_run_and_the_model_reads_what_they_gave(autojump_clock: MockClock, name: str) -> None:
    codec, asking, final = CODECS[name]
    with ScriptedModel(*asking, final) as model:
        result, events = await played(Agent(model, tools=[add, double], codec=codec))
    assert (result.text, result.stop_reason) == ("Done.", "stop")
    assert started(events) == ["add", "double"]
    results = [each for message in result.messages for each in message.results]
    assert [each.text for each in results] == ["3", "8"]
    assert len({each.call_id for each in results}) == 2
    last = model.requests[-1].messages
    check_history(last)
    if name != "text":
        assert not any(request.tools for request in model.requests)
        told = "\n".join(message.text for message in last)
        assert all(each.call_id in told for each in results)
        assert [event.text for event in events if isinstance(event, TextDelta)] == ["Done."]


async def test_two_calls_of_one_answer_run_at_the_same_time(autojump_clock: MockClock) -> None:
    began = trio.current_time()
    with ScriptedModel(in_json(*BOTH), "Done.") as model:
        await played(Agent(model, tools=[add, double], codec=JSONCodec()))
    assert trio.current_time() - began == 3


@pytest.mark.parametrize("name", CODECS)
async def test_an_answer_that_cannot_be_read_is_repaired_by_asking(autojump_clock: MockClock, name: str) -> None:
    codec, asking, final = CODECS[name]
    with ScriptedModel(BROKEN[name], *asking, final) as model:
        result, events = await played(Agent(model, tools=[add, double], codec=codec))
    assert (result.text, result.stop_reason) == ("Done.", "stop")
    assert started(events) == ["add", "double"]
    broken, repair = result.messages[1:3]
    assert (broken.text, broken.finish_reason) == (BROKEN[name], "malformed")
    assert repair.origin == "repair"
    asked_again = model.requests[1].messages
    assert [message.text for message in asked_again[1:]] == [BROKEN[name], repair.text]


@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("name", CODECS)
async def test_after_as_many_repairs_as_are_allowed_the_run_gives_up(
    autojump_clock: MockClock, name: str, retries: int
) -> None:
    with ScriptedModel(*[BROKEN[name]] * (retries + 1)) as model:
        result, events = await played(
            Agent(model, tools=[add, double], codec=CODECS[name][0], max_decode_retries=retries)
        )
    assert result.stop_reason == "error"
    assert isinstance(result.error, OutputError)
    assert result.error.code == "MALFORMED_TOOL_CALL"
    assert started(events) == []
    assert [message.origin for message in result.messages].count("repair") == retries


@pytest.mark.parametrize("name", ["json", "react", "text"])
async def test_the_same_answer_in_two_turns_makes_calls_with_different_ids(
    autojump_clock: MockClock, name: str
) -> None:
    codec, asking, final = CODECS[name]
    with ScriptedModel(asking[0], asking[0], final) as model:
        result, events = await played(Agent(model, tools=[add, double], codec=codec))
    ids = [call.id for message in result.messages for call in message.calls]
    assert len(ids) == len(set(ids)) == len(started(events))
    assert all(id.startswith("call_") and len(id) == 21 for id in ids)


async def test_an_invented_tool_is_a_result_that_the_model_reads(autojump_clock: MockClock) -> None:
    with ScriptedModel(in_json(("ad", {"a": 1}), BOTH[1]), '{"type":"final","text":"Done."}') as model:
        result, events = await played(Agent(model, tools=[add, double], codec=JSONCodec()))
    assert result.text == "Done."
    assert started(events) == ["double"]
    told = json.loads(model.requests[1].messages[-1].text)["results"]
    assert [(each["isError"], each.get("status")) for each in told] == [(True, "unknown_tool"), (False, None)]


async def test_a_whole_call_in_an_answer_that_hit_the_limit_does_not_run(autojump_clock: MockClock) -> None:
    cut = in_json(BOTH[0], ("double", {"n": 4}))
    with ScriptedModel(say(cut, finish="length"), '{"type":"final","text":"Done."}') as model:
        result, events = await played(Agent(model, tools=[add, double], codec=JSONCodec()))
    assert result.text == "Done."
    assert started(events) == []
    told = json.loads(model.requests[1].messages[-1].text)["results"]
    assert [each["status"] for each in told] == ["truncated", "truncated"]


@pytest.mark.parametrize(
    ("codec", "wrong", "right"),
    [
        (JSONCodec(), '{"type":"final","output":{"total":"x"}}', '{"type":"final","output":{"total":7}}'),
        (JSONCodec(constrain=True), '{"type":"final","text":"7"}', '{"type":"final","output":{"total":7}}'),
        (ReActCodec(), "Final Answer: seven", 'Final Answer: {"total": 7}'),
        (JSONCodec(), "seven", '{"total": 7}'),
    ],
)
async def test_a_typed_answer_is_asked_for_in_the_protocols_words(
    autojump_clock: MockClock, codec: Codec, wrong: str, right: str
) -> None:
    with ScriptedModel(wrong, right) as model:
        result, _ = await played(Agent(model, tools=[add], codec=codec, output=Total))
    assert result.output == Total(7)
    assert "total" in (model.requests[0].system or "")
    sent = model.requests[0].output_schema
    constrained = isinstance(codec, JSONCodec) and codec.constrain
    assert (sent is not None) == constrained
    assert [message.origin for message in result.messages if message.role == "user"] == [None, "repair"]


async def test_a_conversation_goes_on_and_its_beginning_stays_what_it_was(autojump_clock: MockClock) -> None:
    codec = JSONCodec()
    agent = Agent(ScriptedModel(in_json(*BOTH), "Done.", in_json(*BOTH), "Done."), tools=[add, double], codec=codec)
    model = agent.model
    assert isinstance(model, ScriptedModel)
    result, _ = await played(agent)
    with trio.fail_after(100):
        await agent.send([*result.messages, Message("user", "Again.")])
    histories = [list(request.messages) for request in model.requests]
    for shorter, longer in itertools.pairwise(histories):
        assert longer[: len(shorter)] == shorter
    assert len({request.system for request in model.requests}) == 1
