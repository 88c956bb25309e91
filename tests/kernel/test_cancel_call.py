"""cancel_call: one call is cut, its siblings and the run go on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.kernel.fakes import FakeStore, Gauge, Watched, results
from trio_agent import (
    Agent,
    Block,
    HookContext,
    Middleware,
    PreparedCall,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, say


async def test_a_running_call_is_interrupted_and_its_sibling_goes_on(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", id="a", seconds=9), call("work", id="b", seconds=3)), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("a") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
    assert gauge.cut == ["a"]
    assert watched.took == 3
    assert watched.reason == ("stop", "stop")
    assert "turn_end 1 tool_use" in watched.tale
    assert [result.status for result in results(watched)] == ["interrupted", "ok"]
    assert "unknown" in results(watched)[0].text


async def test_a_waiting_call_is_not_run_and_its_worker_takes_the_next(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(call("work", id="a", seconds=3), call("work", id="b"), call("work", id="c", seconds=2)), say("Done.")
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()], max_parallel_tools=1)) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("b") is True
            assert watched.run.cancel_call("b") is False
            await watched.run.wait()
    assert watched.statuses == {"a": "ok", "b": "not_run", "c": "ok"}
    assert gauge.begun == ["a", "c"]
    assert watched.took == 5
    told = watched.tale
    assert told.index("end b not_run") < told.index("end a ok")


async def test_a_call_that_is_unknown_or_has_ended_gives_false(autojump_clock: MockClock) -> None:
    model = ScriptedModel(
        calls(call("work", id="a", seconds=1), call("work", id="b", seconds=3)), say("Done.", delay=1)
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            assert watched.run.cancel_call("a") is False  # the model has not asked yet
            await trio.sleep(2)
            assert watched.run.cancel_call("nope") is False
            assert watched.run.cancel_call("a") is False
            await trio.sleep(1.5)
            assert watched.run.cancel_call("b") is False  # the turn is over
            await watched.run.wait()
            assert watched.run.cancel_call("b") is False
    assert watched.statuses == {"a": "ok", "b": "ok"}


@pytest.mark.parametrize("options", [{}, {"timeout": 5}, {"lane": "x"}, {"exclusive": True}, {"effect": "pure"}])
async def test_the_only_call_of_a_turn_can_be_cut(autojump_clock: MockClock, options: Any) -> None:
    model = ScriptedModel(calls(call("work", id="a", seconds=9)), calls(call("work", id="b", seconds=2)), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool(**options)])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("a") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
    assert watched.took == 3


async def test_all_calls_can_be_cut_one_by_one(autojump_clock: MockClock) -> None:
    ids = [f"c{number}" for number in range(6)]
    model = ScriptedModel(calls(*[call("work", id=call_id, seconds=9) for call_id in ids]), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()], max_parallel_tools=2)) as watched:
            await trio.sleep(1)
            assert [watched.run.cancel_call(call_id) for call_id in ids] == [True] * 6
            await watched.run.wait()
    assert watched.statuses == {**dict.fromkeys(ids, "not_run"), "c0": "interrupted", "c1": "interrupted"}
    assert watched.took == 1


async def test_to_cut_a_call_costs_the_same_among_many(autojump_clock: MockClock) -> None:
    compared = 0

    class Id(str):
        """An id that counts how often it is compared."""

        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

    ids = [f"c{number}" for number in range(500)]
    model = ScriptedModel(calls(*[call("work", id=Id(each), seconds=1) for each in ids]), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(0.5)
            compared = 0
            assert all(watched.run.cancel_call(each) for each in reversed(ids))
            assert 0 < compared < 10 * len(ids)
            assert not any(watched.run.cancel_call(each) for each in ids[10:])
            await watched.run.wait()
    assert list(watched.statuses.values()).count("not_run") == 490
    assert list(watched.statuses.values()).count("interrupted") == 10


async def test_an_id_of_an_earlier_turn_is_none_of_this_one(autojump_clock: MockClock) -> None:
    model = ScriptedModel(
        calls(*[call("work", id=each, seconds=1) for each in "abc"]),
        calls(*[call("work", id=each, seconds=1) for each in "xyz"]),
        say("Done."),
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()], max_parallel_tools=1)) as watched:
            await trio.sleep(0.5)
            assert watched.run.cancel_call("b") is True
            await trio.sleep(2)  # c is done, x runs
            assert [watched.run.cancel_call(each) for each in "abc"] == [False] * 3
            assert watched.run.cancel_call("z") is True
            await watched.run.wait()
    assert [call_id for call_id, status in watched.statuses.items() if status == "not_run"] == ["b", "z"]


async def test_a_call_that_waits_for_its_lane(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(*[call("work", id=call_id, seconds=2) for call_id in "abc"]), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool(lane="one")])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("b") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "ok", "b": "not_run", "c": "ok"}
    assert gauge.begun == ["a", "c"]
    assert watched.took == 4


async def test_the_head_of_a_lane_lets_the_next_one_run(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(*[call("work", id=call_id, seconds=5) for call_id in "ab"]), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool(lane="one")])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("a") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
    assert watched.took == 6


async def test_a_call_that_waits_for_its_commit_has_not_run(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", id="a"), call("work", id="b")), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()], store=FakeStore(delay=1))) as watched:
            while not watched.run.state.pending:
                await trio.sleep(0.1)
            await wait_all_tasks_blocked()
            assert watched.run.cancel_call("a") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "not_run", "b": "ok"}
    assert gauge.begun == ["b"]
    assert watched.tale.index("start a") < watched.tale.index("end a not_run")


async def test_a_listener_may_cut_a_call_that_starts(autojump_clock: MockClock) -> None:
    async def listener(event: object) -> None:
        if isinstance(event, ToolExecutionStart) and event.call_id == "a":
            assert watched.run.cancel_call("a") is True

    model = ScriptedModel(calls(call("work", id="a", seconds=9), call("work", id="b", seconds=1)), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            watched.run.subscribe(listener)
            await watched.run.wait()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
    assert watched.took == 1


async def test_a_call_in_preparation_is_not_run(autojump_clock: MockClock) -> None:
    class Slow(Middleware):
        async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
            await trio.sleep(2)
            return None

    gauge = Gauge()
    model = ScriptedModel(calls(call("work", id="a"), call("work", id="b")), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()], middleware=[Slow()])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("a") is True
            assert watched.run.cancel_call("a") is False
            await watched.run.wait()
    assert watched.statuses == {"a": "not_run", "b": "ok"}
    assert gauge.begun == ["b"]


async def test_a_call_that_has_returned_keeps_its_result(autojump_clock: MockClock) -> None:
    class SlowAfter(Middleware):
        async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> None:
            await trio.sleep(5)

    model = ScriptedModel(calls(call("work", id="a"), call("work", id="b")), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()], middleware=[SlowAfter()])) as watched:
            await trio.sleep(1)
            assert watched.run.cancel_call("a") is True
            await watched.run.wait()
    assert watched.statuses == {"a": "ok", "b": "ok"}
    assert watched.took == 5


async def test_a_tool_may_cut_a_sibling_and_itself(autojump_clock: MockClock) -> None:
    @tool
    async def cut(ctx: ToolContext, other: str) -> str:
        """Cut another call."""
        await trio.sleep(1)
        watched.run.cancel_call(other)
        await trio.sleep(1)
        return "cut"

    model = ScriptedModel(
        calls(call(cut, id="a", other="b"), call("work", id="b", seconds=9)),
        calls(call(cut, id="c", other="c")),
        say("Done."),
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[cut, Gauge().tool()])) as watched:
            await watched.run.wait()
    assert watched.statuses == {"a": "ok", "b": "interrupted", "c": "interrupted"}
    assert watched.took == 3


# ------------------------------------------------------------------- threads: on the real clock, no sleeps


class Threads:
    """A tool whose thread says that it began, and ends when it is let go."""

    def __init__(self) -> None:
        self.began = trio.Event()
        self.go = threading.Event()
        self.ended = threading.Event()

        @tool
        def block() -> str:
            """Block."""
            trio.from_thread.run_sync(self.began.set)
            assert self.go.wait(60)
            self.ended.set()
            return "done"

        self.block = block


async def test_a_thread_that_will_not_end_is_abandoned() -> None:
    threads = Threads()
    model = ScriptedModel(calls(call("block", id="a"), call("work", id="b")), say("Done."))
    try:
        with trio.fail_after(60):
            agent = Agent(model, tools=[threads.block, Gauge().tool()], settle_timeout=0)
            async with Watched(agent) as watched:
                await threads.began.wait()
                assert watched.run.cancel_call("a") is True
                await watched.run.wait()
                assert not threads.ended.is_set()
    finally:
        threads.go.set()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
    assert watched.diagnostics() == ["THREAD_ABANDONED"]
    assert watched.reason == ("stop", "stop")


async def test_a_thread_that_ends_in_time_keeps_its_result() -> None:
    threads = Threads()
    model = ScriptedModel(calls(call("block", id="a")), say("Done."))
    with trio.fail_after(60):
        async with Watched(Agent(model, tools=[threads.block], settle_timeout=60)) as watched:
            await threads.began.wait()
            assert watched.run.cancel_call("a") is True
            await wait_all_tasks_blocked()
            threads.go.set()
            await watched.run.wait()
    assert watched.statuses == {"a": "ok"}
    assert results(watched)[0].text == "done"
    assert watched.diagnostics() == []


@pytest.mark.parametrize("verb", ["cancel_call", "interrupt", "abort"])
async def test_a_call_that_waits_for_the_token_of_an_abandoned_thread(verb: str) -> None:
    threads, gauge = Threads(), Gauge()
    model = ScriptedModel(calls(call("block", id="a")), calls(call("work", id="b")), say("Done."), say("More."))
    agent = Agent(model, tools=[threads.block, gauge.tool()], settle_timeout=0, max_parallel_tools=1)
    try:
        with trio.fail_after(60):
            async with Watched(agent) as watched:
                await threads.began.wait()
                assert watched.run.cancel_call("a") is True
                await wait_all_tasks_blocked()
                assert [call.id for call in watched.run.state.pending] == ["b"]
                if verb == "cancel_call":
                    assert watched.run.cancel_call("b") is True
                    assert watched.run.cancel_call("b") is False
                elif verb == "interrupt":
                    await watched.run.steer("not that", interrupt=True)
                else:
                    watched.run.abort(3_600)
                await watched.run.wait()
                assert not threads.ended.is_set()
    finally:
        threads.go.set()
    assert watched.statuses == {"a": "interrupted", "b": "not_run"}
    assert gauge.begun == []
    assert "start b" not in watched.tale


async def test_a_token_comes_back_when_an_abandoned_thread_ends() -> None:
    threads, gauge = Threads(), Gauge()
    model = ScriptedModel(calls(call("block", id="a")), calls(call("work", id="b")), say("Done."))
    agent = Agent(model, tools=[threads.block, gauge.tool()], settle_timeout=0, max_parallel_tools=1)
    try:
        with trio.fail_after(60):
            async with Watched(agent) as watched:
                await threads.began.wait()
                assert watched.run.cancel_call("a") is True
                await wait_all_tasks_blocked()
                assert gauge.begun == []
                threads.go.set()
                await watched.run.wait()
    finally:
        threads.go.set()
    assert watched.statuses == {"a": "interrupted", "b": "ok"}
