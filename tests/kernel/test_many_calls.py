"""Many calls, threads, and cuts in the midst of calls that never wait."""

from __future__ import annotations

import contextvars
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, play, results
from trio_agent import (
    Agent,
    CallTool,
    HookContext,
    Middleware,
    PreparedCall,
    Retry,
    ToolContext,
    ToolExecutionUpdate,
    ToolResult,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, say


async def test_ten_thousand_calls_cost_ten_tasks(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(*[call("work", id=f"c{n}") for n in range(10_000)]), say("Done."))
    before = trio.lowlevel.current_statistics().tasks_living
    with trio.fail_after(1000):
        result = await Agent(model, tools=[gauge.tool()]).send("go")
    assert len(gauge.returned) == 10_000
    assert gauge.tasks - before <= 12
    assert [each.call_id for each in result.messages[2].results] == [f"c{n}" for n in range(10_000)]
    model.verify()


async def test_eight_hundred_calls_never_run_more_than_ten_at_once(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    answer = calls(*[call("work", id=f"c{n}", seconds=1 + n % 3) for n in range(800)])
    watched = await play(Agent(ScriptedModel(answer, say("Done.")), tools=[gauge.tool()]))
    assert gauge.peak == 10
    assert len(gauge.returned) == 800
    assert [result.call_id for result in results(watched)] == [f"c{n}" for n in range(800)]


@pytest.mark.parametrize(("how", "held"), [("cancel", True), ("cancel", False), ("abort", True)])
async def test_calls_that_never_wait_are_stopped_by_a_cut_too(autojump_clock: MockClock, how: str, held: bool) -> None:
    begun = 0
    scope = trio.CancelScope()
    run: Any = None

    @tool
    async def busy() -> str:
        """Never wait."""
        nonlocal begun
        begun += 1
        if begun == 50:
            if how == "cancel":
                scope.cancel()
            else:
                run.abort(0)
        return "busy"

    agent = Agent(ScriptedModel(calls(*[call(busy) for _ in range(1_000)])), tools=[busy])
    with trio.fail_after(1000), scope:
        if held:
            async with agent.run("go") as run:
                await run.wait()
        else:
            await agent.send("go")
    assert scope.cancelled_caught == (how == "cancel")
    assert begun < 150


async def test_a_single_call_that_never_waits_is_the_last_after_a_cut(autojump_clock: MockClock) -> None:
    begun = 0
    scope = trio.CancelScope()

    @tool
    async def busy() -> str:
        """Never wait."""
        nonlocal begun
        begun += 1
        scope.cancel()
        return "busy"

    model = ScriptedModel(calls(call(busy)), repeat_last=True)
    with trio.fail_after(100), scope:
        await Agent(model, tools=[busy]).send("go")
    assert begun == 1
    assert len(model.requests) == 1


async def test_calls_that_never_wait_let_other_tasks_run(autojump_clock: MockClock) -> None:
    @tool
    async def busy() -> str:
        """Never wait."""
        return "busy"

    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    model = ScriptedModel(calls(*[call(busy) for _ in range(1_000)]), say("Done."))
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            await Agent(model, tools=[busy]).send("go")
            nursery.cancel_scope.cancel()
    assert turns > 10


@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("how", ["abort", "cancel_call", "interrupt"])
async def test_a_call_that_was_left_out_while_others_ran_does_not_start(
    autojump_clock: MockClock, how: str, cap: int
) -> None:
    begun: list[str] = []
    first = trio.Event()

    @tool
    async def busy(ctx: ToolContext) -> str:
        """Never wait."""
        begun.append(ctx.call_id)
        first.set()
        return "busy"

    names = [f"c{number}" for number in range(400)]
    for steps in range(5):
        begun.clear()
        first = trio.Event()
        model = ScriptedModel(calls(*[call(busy, id=name) for name in names]), say("Done."), say("Yes."))
        with trio.fail_after(100):
            async with Watched(Agent(model, tools=[busy], max_parallel_tools=cap)) as watched:
                await first.wait()
                for _ in range(steps):
                    await trio.lowlevel.checkpoint()
                had = list(begun)
                assert len(had) < len(names)
                if how == "abort":
                    watched.run.abort(5)
                elif how == "interrupt":
                    await watched.run.steer("Stop.", interrupt=True)
                else:
                    assert all(watched.run.cancel_call(name) for name in names if name not in had)
                await watched.run.wait()
        assert begun == had
        assert {name for name, status in watched.statuses.items() if status == "not_run"} == {*names} - {*had}


async def test_calls_that_never_wait_let_other_tasks_run_also_if_hooks_emit(autojump_clock: MockClock) -> None:
    steps, at = 0, list[int]()

    @tool
    async def busy() -> str:
        """Never wait."""
        return "busy"

    class Emits(Middleware):
        async def wrap_tool_call(self, ctx: HookContext, call: PreparedCall, call_next: CallTool) -> ToolResult:
            ctx.emit("called", {})
            at.append(steps)
            return await call_next(call)

    async def step() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    model = ScriptedModel(calls(*[call(busy) for _ in range(1_000)]), say("Done."))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(step)
        with trio.fail_after(1000):
            await Agent(model, tools=[busy], middleware=[Emits()]).send("go")
        nursery.cancel_scope.cancel()
    assert len(at) == 1_000
    assert at[-1] - at[0] >= 10


# -------------------------------------------------------------------- threads: on the real clock, no sleeps

WHO = contextvars.ContextVar("WHO", default="nobody")


async def test_synchronous_tools_run_in_threads_at_once_and_with_their_context() -> None:
    barrier = threading.Barrier(3)
    threads: set[int] = set()

    @tool
    def meet(ctx: ToolContext) -> str:
        """Meet the others."""
        barrier.wait(60)
        threads.add(threading.get_ident())
        ctx.progress("met")
        ctx.emit("met", {"who": WHO.get()})
        return WHO.get()

    WHO.set("me")
    with trio.fail_after(60):
        watched = await play(Agent(ScriptedModel(calls(*[call(meet)] * 3), say("Done.")), tools=[meet]))
    assert [result.text for result in results(watched)] == ["me"] * 3
    assert len(threads) == 3
    assert threading.get_ident() not in threads
    assert [update.data for update in watched.all(ToolExecutionUpdate)] == ["met"] * 3


async def test_an_error_in_a_thread_is_the_calls_result() -> None:
    @tool
    def fail() -> str:
        """Fail."""
        raise ValueError("in a thread")

    watched = await play(Agent(ScriptedModel(calls(call(fail, id="a")), say("Done.")), tools=[fail]))
    assert watched.statuses == {"a": "error"}
    assert "ValueError: in a thread" in results(watched)[0].text


@pytest.mark.parametrize("how", ["timeout", "abort", "leave"])
async def test_a_thread_that_will_not_end_is_left_to_itself(how: str) -> None:
    began, go = trio.Event(), threading.Event()

    def block() -> str:
        """Block."""
        trio.from_thread.run_sync(began.set)
        assert go.wait(60)
        return "too late"

    blocking = tool(timeout=0.001 if how == "timeout" else None)(block)
    model = ScriptedModel(calls(call("block", id="a"), call("work", id="b")), say("Done."))
    try:
        with trio.fail_after(60):
            agent = Agent(model, tools=[blocking, Gauge().tool()], settle_timeout=0, retry=Retry(base=0))
            async with Watched(agent) as watched:
                await began.wait()
                if how == "abort":
                    watched.run.abort(0)
                if how != "leave":
                    await watched.run.wait()
    finally:
        go.set()
    assert watched.statuses == {"a": "timed_out" if how == "timeout" else "interrupted", "b": "ok"}
    assert watched.diagnostics()[0] == "THREAD_ABANDONED"
    assert watched.result.stop_reason == {"timeout": "stop", "abort": "aborted", "leave": "cancelled"}[how]


async def test_preparing_many_calls_lets_other_tasks_run(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(*[call("nope", id=f"c{n}") for n in range(640)]), say("Done."))
    steps, at = 0, list[int]()

    class Watch(Middleware):
        async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> None:
            at.append(steps)

    async def step() -> None:
        nonlocal steps
        while True:
            await trio.lowlevel.checkpoint()
            steps += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(step)
        with trio.fail_after(1000):
            await Agent(model, middleware=[Watch()]).send("go")
        nursery.cancel_scope.cancel()
    assert len(at) == 640
    assert at[-1] - at[0] >= 9
    model.verify()
