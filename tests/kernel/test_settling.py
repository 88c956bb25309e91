"""The end of a run: the time that settlement has, and what is left behind."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, hooked
from trio_agent import Agent, HookContext, RequestError, tool
from trio_agent.testing import ScriptedModel, call, say, stall


async def test_a_hook_that_takes_all_the_settle_time_leaves_enough_for_the_log(autojump_clock: MockClock) -> None:
    async def hang(ctx: HookContext) -> None:
        await trio.sleep_forever()

    store = FakeStore(delay=0.1)
    agent = Agent(ScriptedModel(stall()), store=store, middleware=[hooked(after_agent=hang)])
    with trio.fail_after(60):
        async with agent.run("go") as run:
            await trio.sleep(1)
            run.abort(grace=0)
            await run.wait()
    assert run.result.stop_reason == "aborted"
    assert store.facts[-1].kind == "agent_end"
    assert trio.current_time() < 1 + 5


async def test_a_thread_that_cannot_be_stopped_leaves_enough_for_the_log() -> None:
    go, began = threading.Event(), trio.Event()

    @tool
    def block() -> str:
        """Block."""
        trio.from_thread.run_sync(began.set)
        go.wait(60)
        return "late"

    store = FakeStore()
    try:
        with trio.fail_after(60):
            async with Agent(ScriptedModel(call(block)), tools=[block], store=store, settle_timeout=0.5).run(
                "go"
            ) as run:
                await began.wait()
                run.abort(grace=0)
                await run.wait()
    finally:
        go.set()
    assert run.result.stop_reason == "aborted"
    assert [result.status for message in run.result.messages for result in message.results] == ["interrupted"]
    assert store.facts[-1].kind == "agent_end"


@pytest.mark.parametrize("cut", [False, True])
async def test_a_run_is_freed_when_nobody_holds_it(autojump_clock: MockClock, cut: bool) -> None:
    agent = Agent(ScriptedModel(say("Hi.")))
    gc.collect()
    gc.disable()
    try:
        async with agent.run("go") as run:
            if not cut:
                await run.wait()
        left, journal = weakref.ref(run), weakref.ref(run._journal)
        del run
        await trio.lowlevel.checkpoint()
        assert left() is None
        assert journal() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("message", [5, None, b"now", ["now"], ""])
async def test_what_is_no_message_is_refused_by_name(autojump_clock: MockClock, message: Any) -> None:
    async with Agent(ScriptedModel(stall())).run("go") as run:
        with pytest.raises(RequestError, match="expected a user message"):
            await run.steer(message)
        with pytest.raises(RequestError, match="expected a user message"):
            await run.follow_up(message)
