"""Kind A: answers and outputs that say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from trio.testing import MockClock

from tests.scenarios.cutting import HOWS, after, cut, seen
from tests.scenarios.going_on import WAYS, go_on, pairs, roles, store_for
from tests.scenarios.stage import Bench, Scene
from trio_agent import Agent, CallChunk, Text, TextDelta, ToolResult, tool
from trio_agent.testing import STALL, Answer, ScriptedModel, call, chunks, say, stall, think
from trio_agent.wires import OpenAIChatWire

# ------------------------------------------------------------------------------------------ B06

NOTHING: dict[str, Answer] = {
    "no delta": STALL,
    "an empty delta": say(""),
    "blank lines": say("\n\n"),
    "blanks in pieces": say(" \n\t \u2003", chunks=5),
    "reasoning": think("Hm."),
    "sealed reasoning": think("Hm.", "seal"),
    "reasoning and blank lines": think("Hm.", "seal") + say("\n\n"),
    "half a call": chunks(CallChunk(0, "1", "ok", '{"sec')),
    "a call without the end of the answer": call("ok", id="1"),
    "blank lines and a call": say("\n\n") + call("ok", id="1"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("came", NOTHING)
async def test_of_an_answer_that_was_cut_before_it_said_anything_nothing_is_kept(
    autojump_clock: MockClock, came: str, how: str, way: str
) -> None:
    """B06: cancel after zero deltas, after blank lines, after reasoning only; then prompt."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(stall(NOTHING[came])), tools=[bench.ok], store=store_for(way)))
    await cut(scene, how, after(1))
    assert roles(scene.result.messages) == ["user"]
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user"]
    assert request.messages[0].text == "goand now?"
    assert bench.begun == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("came", NOTHING)
async def test_an_answer_after_results_that_was_cut_before_it_said_anything_does_no_harm(
    autojump_clock: MockClock, came: str, how: str, way: str
) -> None:
    """B06: the same in the second turn, behind the results of the first."""
    bench = Bench()
    model = ScriptedModel(call(bench.ok, id="0"), stall(NOTHING[came]))
    scene = Scene(Agent(model, tools=[bench.ok], store=store_for(way)))
    await cut(scene, how, after(1))
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user", "assistant", "tool", "user"]
    assert pairs(request.messages) == {"0": "ok"}
    assert bench.begun == ["0"]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("how", HOWS)
async def test_of_an_answer_that_had_said_something_just_that_is_kept(
    autojump_clock: MockClock, how: str, way: str
) -> None:
    """B06: interrupting as the first tokens arrive."""
    bench = Bench()
    begun = stall(think("Hm.", "seal") + say("\n\nLet me") + call("ok", id="1"))
    scene = Scene(Agent(ScriptedModel(begun), tools=[bench.ok], store=store_for(way)))
    await cut(scene, how, seen(TextDelta))
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user", "assistant", "user"]
    assert request.messages[1].text == "\n\nLet me"
    assert request.messages[1].calls == ()
    assert request.messages[1].finish_reason == "interrupted"
    assert bench.begun == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("came", ["an empty delta", "blank lines", "reasoning", "sealed reasoning"])
async def test_an_answer_that_ends_without_having_said_anything_is_left_out_of_requests(
    autojump_clock: MockClock, came: str, way: str
) -> None:
    """B06: stored, but left out of the projection."""
    scene = Scene(Agent(ScriptedModel(NOTHING[came]), store=store_for(way)))
    result = await scene.play()
    assert result.stop_reason == "stop"
    request = await go_on(scene, way)
    assert roles(request.messages) == ["user"]


OUTPUTS: list[Any] = [
    "",
    " \n\t",
    None,
    ToolResult("?", ()),
    ToolResult("?", (Text(""), Text("\n"))),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: repr(output)[:40])
async def test_an_empty_output_of_a_tool_becomes_a_short_placeholder(
    autojump_clock: MockClock, output: object, way: str
) -> None:
    """B06."""

    @tool
    async def silent() -> Any:
        return output

    model = ScriptedModel(call(silent, id="1"), "done")
    scene = Scene(Agent(model, tools=[silent], store=store_for(way)))
    await scene.play()
    for request in (model.requests[1], await go_on(scene, way)):
        (result,) = request.messages[2].results
        assert (result.status, result.text) == ("ok", "(no output)")
    body = json.loads(OpenAIChatWire().request(model.requests[1], "m").body)
    assert [m["content"] for m in body["messages"] if m["role"] == "tool"] == ["(no output)"]
