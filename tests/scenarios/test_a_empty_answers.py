"""Kind A: answers and outputs that say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios import reopening
from tests.scenarios.cutting import HOWS, after, cut, seen
from tests.scenarios.disks import SESSION, Disk
from tests.scenarios.going_on import WAYS, go_on, pairs, roles, store_for
from tests.scenarios.reopening import PROMPTED, cut_and_go_on
from tests.scenarios.stage import HANG, Bench, Scene
from trio_agent import Agent, CallChunk, Fact, NotResumable, Run, Text, TextDelta, ToolResult, tool
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


@pytest.mark.parametrize("way", reopening.WAYS)
@pytest.mark.parametrize("how", ["abort now", "cancel the caller", "leave the session"])
async def test_a_session_keeps_nothing_of_an_answer_that_was_cut_before_it_said_anything(
    autojump_clock: MockClock, disk: Disk, how: str, way: str
) -> None:
    """B06: both in a session, which then is prompted or resumed."""
    for came, answer in NOTHING.items():
        bench = Bench()
        agent = Agent(ScriptedModel(stall(answer)), tools=[bench.ok])
        result, request = await cut_and_go_on(disk, agent, how, after(1), way, f"{came}, first")
        assert roles(result.messages) == roles(request.messages) == ["user"]
        assert request.messages[0].text == ("goand now?" if way in PROMPTED else "go")
        agent = Agent(ScriptedModel(call(bench.ok, id="0"), stall(answer)), tools=[bench.ok])
        _, request = await cut_and_go_on(disk, agent, how, after(1), way, f"{came}, behind results")
        assert roles(request.messages) == ["user", "assistant", "tool", "user"][: 4 if way in PROMPTED else 3]
        assert pairs(request.messages) == {"0": "ok"}
        assert bench.begun == ["0"]


@pytest.mark.parametrize("way", ["prompted elsewhere", "resumed elsewhere"])
@pytest.mark.parametrize("came", NOTHING)
async def test_an_answer_that_a_crash_has_cut_is_asked_for_again(
    autojump_clock: MockClock, disk: Disk, came: str, way: str
) -> None:
    """B06: cut by the end of its process, which had no time to say so."""
    bench = Bench()
    facts: list[Fact] = []
    agent = Agent(ScriptedModel(call(bench.ok, id="0"), stall(NOTHING[came])), tools=[bench.ok])
    with trio.fail_after(HANG):
        async with disk.store() as store, agent.replace(store=store).session(SESSION) as session:
            async with session.run("go") as run:
                run.events()  # somebody looks, so that everything is written as soon as it has happened
                await trio.sleep(1)
                facts += await disk.facts()
    assert [fact.kind for fact in facts][-2:] == ["turn_end", "turn_start"]
    await disk.crashed(facts, "crashed")
    request = await reopening.go_on(disk, way, "crashed")
    assert roles(request.messages) == ["user", "assistant", "tool", "user"][: 4 if way in PROMPTED else 3]
    assert pairs(request.messages) == {"0": "ok"}
    assert len({fact.run_id for fact in await disk.log("crashed")}) == (2 if way in PROMPTED else 1)


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


@pytest.mark.parametrize("way", PROMPTED)
@pytest.mark.parametrize("how", reopening.HOWS)
async def test_of_an_answer_that_had_said_something_a_session_keeps_just_that(
    autojump_clock: MockClock, disk: Disk, how: str, way: str
) -> None:
    """B06: the same in a session.  A model has nothing to answer then, so that there is nothing to resume."""
    begun = stall(think("Hm.", "seal") + say("\n\nLet me") + call("ok", id="1"))
    agent = Agent(ScriptedModel(begun), tools=[Bench().ok])
    _, request = await cut_and_go_on(disk, agent, how, seen(TextDelta), way)
    assert roles(request.messages) == ["user", "assistant", "user"]
    assert (request.messages[1].text, request.messages[1].calls) == ("\n\nLet me", ())
    assert request.messages[1].finish_reason == "interrupted"
    async with disk.store() as store, agent.replace(store=store).session("cut") as session:
        await session.configure(model=ScriptedModel(begun))
        await reopening.cut(session, how.replace("session", "run"), seen(TextDelta))
        with pytest.raises(NotResumable, match="ends with an answer"):
            await session.resume()


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


@pytest.mark.parametrize("way", PROMPTED)
async def test_what_was_said_without_saying_anything_is_no_part_of_what_a_session_tells_a_model(
    autojump_clock: MockClock, disk: Disk, way: str
) -> None:
    """B06: answers without content, and an empty output, in a session."""

    @tool
    async def silent() -> str:
        return " \n"

    for came in ("an empty delta", "blank lines", "reasoning", "sealed reasoning"):
        agent = Agent(ScriptedModel(call(silent, id="1"), NOTHING[came]), tools=[silent])

        async def to_its_end(run: Run) -> None:
            await run.wait()

        result, request = await cut_and_go_on(disk, agent, "leave the run", to_its_end, way, came)
        assert result.stop_reason == "stop"
        assert roles(request.messages) == ["user", "assistant", "tool", "user"]
        assert request.messages[2].results[0].text == "(no output)"


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
