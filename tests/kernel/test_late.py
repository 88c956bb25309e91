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
    Event,
    HookContext,
    Message,
    ModelRequest,
    RunEnded,
    TextChunk,
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
        assert watched.diagnostics() == ["LATE_UPDATE"] * 2 * count
        assert [line for line in watched.tale if line.startswith("custom")] == ["custom note"]


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
