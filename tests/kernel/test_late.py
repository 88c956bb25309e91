"""What is said when it is too late: after a call, after a stream, after the run."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Watched, hooked, play
from trio_agent import (
    Agent,
    AgentError,
    Diagnostic,
    Event,
    HookContext,
    Message,
    ModelRequest,
    RunEnded,
    TextChunk,
    Tool,
    ToolContext,
    Usage,
    UsageReport,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, say, stall


async def test_a_call_that_settlement_answers_is_closed_too(autojump_clock: MockClock) -> None:
    kept: list[ToolContext] = []

    @tool
    async def hang(ctx: ToolContext) -> None:
        """Hang."""
        kept.append(ctx)
        await trio.sleep_forever()

    async def after_agent(ctx: HookContext) -> None:
        for each in kept:
            each.progress("late")
            each.emit("late", {})
        ctx.emit("note", {})

    for count in (1, 3):
        kept.clear()
        model = ScriptedModel(calls(*[call(hang)] * count))
        with trio.fail_after(100):
            async with Watched(Agent(model, tools=[hang], middleware=[hooked(after_agent=after_agent)])) as watched:
                await trio.sleep(1)
                watched.run.abort(0)
                await watched.run.wait()
        assert watched.reason == ("aborted", "aborted")
        assert watched.diagnostics() == ["LATE_UPDATE"] * (count + 1)
        assert [line for line in watched.tale if line.startswith("custom")] == ["custom note"]


@pytest.mark.parametrize("store", [None, FakeStore], ids=["volatile", "durable"])
@pytest.mark.parametrize("how", ["stop", "abort", "leave", "error"])
async def test_what_calls_say_after_their_ends_is_counted_and_not_told_each_time(
    autojump_clock: MockClock, how: str, store: Any
) -> None:
    def chat(times: dict[str, int]) -> None:
        for context in kept:
            for _ in range(times.get(context.call_id, 0)):
                context.progress("late")
                context.emit("late", {})

    async def before_model(ctx: HookContext) -> None:
        if ctx.turn == 2:
            kept.sort(key=lambda context: context.call_id)
            chat({"a": 400, "b": 1})
            if how == "abort":
                watched.run.abort(0)
            elif how == "leave":
                left.set()
            elif how == "error":
                raise ValueError("no")

    async def after_agent(ctx: HookContext) -> None:
        chat({"a": 100})
        kept[2].progress("late")

    left = trio.Event()
    kept: list[ToolContext] = []
    model = ScriptedModel(calls(*[call("keep", id=each) for each in "abcd"]), *[say("Done.")] * (how == "stop"))
    hooks = hooked(before_model=before_model, after_agent=after_agent)
    agent = Agent(model, tools=[keeping(kept)], middleware=[hooks], store=store and store())
    with trio.fail_after(100):
        async with Watched(agent) as watched:
            await (left.wait() if how == "leave" else watched.run.wait())
    assert watched.diagnostics() == ["LATE_UPDATE"] * 4
    *first, last = [event.text for event in watched.all(Diagnostic)]
    assert ["keep (a)" in first[0], "keep (b)" in first[1], "keep (c)" in first[2]] == [True] * 3
    assert "keep (a) 1000 times, keep (b) twice" in last
    assert "(c)" not in last
    assert "(d)" not in last
    assert watched.tale[-3:-1] == ["diagnostic LATE_UPDATE", "phase idle"]


async def test_a_count_of_late_calls_names_few_of_many(autojump_clock: MockClock) -> None:
    async def after_agent(ctx: HookContext) -> None:
        for context in kept:
            for _ in range(3):
                context.progress("late")

    kept: list[ToolContext] = []
    model = ScriptedModel(calls(*[call("keep", id=f"c{number}") for number in range(50)]), say("Done."))
    watched = await play(Agent(model, tools=[keeping(kept)], middleware=[hooked(after_agent=after_agent)]))
    assert watched.diagnostics() == ["LATE_UPDATE"] * 51
    text = watched.all(Diagnostic)[-1].text
    assert text.count("3 times") == 8
    assert "42 more calls" in text


def keeping(kept: list[ToolContext]) -> Tool:
    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        kept.append(ctx)
        return "kept"

    return keep


async def test_a_chunk_that_comes_when_its_stream_is_over_is_part_of_nothing(autojump_clock: MockClock) -> None:
    kept: list[Any] = []

    async def wrap_model_call(ctx: HookContext, request: ModelRequest, emit: Any, call_next: Any) -> None:
        kept.append(emit)
        await call_next(request, emit)

    async def after_agent(ctx: HookContext) -> None:
        with contextlib.suppress(AgentError):
            kept[0](TextChunk("late"))

    hooks = hooked(wrap_model_call=wrap_model_call, after_agent=after_agent)
    for cut in (True, False):
        kept.clear()
        model = ScriptedModel(say("Half") + stall() if cut else say("Half"))
        with trio.fail_after(100):
            async with Watched(Agent(model, middleware=[hooks])) as watched:
                await trio.sleep(1)
                watched.run.abort(0)
                await watched.run.wait()
        assert watched.the_answer.text == "Half"
        assert not [line for line in watched.tale if "late" in line]


@pytest.mark.parametrize("store", [None, FakeStore], ids=["volatile", "durable"])
async def test_nothing_is_logged_by_a_hooks_context_after_the_end(autojump_clock: MockClock, store: Any) -> None:
    kept: list[HookContext] = []
    refused: list[str] = []

    async def before_agent(ctx: HookContext) -> None:
        kept.append(ctx)

    async def listener(event: Event) -> None:
        if event.kind == "agent_end":
            await try_both()

    async def try_both() -> None:
        with pytest.raises(RunEnded):
            kept[0].emit("late", {})
        with pytest.raises(RunEnded):
            await kept[0].call_model([Message("user", "?")], purpose="late")
        refused.append("both")

    hooks = hooked(before_agent=before_agent)
    agent = Agent(ScriptedModel(say("Done.")), middleware=[hooks], listeners=[listener], store=store and store())
    watched = await play(agent)
    await try_both()
    assert refused == ["both", "both"]
    assert watched.log[-1].kind == "agent_end"


@pytest.mark.parametrize("how", ["cut", "broken"])
async def test_what_a_hooks_model_call_has_used_counts_however_it_ends(autojump_clock: MockClock, how: str) -> None:
    class Model:
        name = model = "m"
        context_window = None

        async def stream(self, request: ModelRequest, emit: Any) -> None:
            emit(UsageReport(Usage(5, 1)))
            if how == "broken":
                raise ValueError("broken")
            await trio.sleep_forever()

    async def before_agent(ctx: HookContext) -> None:
        await ctx.call_model([Message("user", "?")], purpose="ask")

    with trio.fail_after(100):
        async with Agent(Model(), middleware=[hooked(before_agent=before_agent)]).run("go") as run:
            await trio.sleep(1)
            run.abort(0)
            await run.wait()
    assert run.result.usage == Usage(5, 1)
    assert [fact.kind for fact in run.log].count("model_call_end") == 1
