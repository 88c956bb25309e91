"""Synchronous tools: what a cancellation can do to a thread, which is to wait and then to leave it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from trio_agent._messages import ToolCall, ToolResult
from trio_agent._ports import PreparedCall
from trio_agent.tools import LocalDispatcher, ToolContext, tool

from .conftest import FakeContext


class Worker:
    """A tool that blocks its thread until it is let go."""

    def __init__(self, result: Callable[[], Any] = lambda: "done") -> None:
        self.started = trio.Event()
        self.go = threading.Event()
        self.result = result
        token = trio.lowlevel.current_trio_token()

        def block() -> Any:
            token.run_sync_soon(self.started.set)
            assert self.go.wait(20)
            return self.result()

        self.dispatcher = LocalDispatcher([tool(block)])

    async def dispatch(self, context: FakeContext) -> ToolResult:
        prepared = self.dispatcher.prepare(ToolCall("c1", "block"))
        assert isinstance(prepared, PreparedCall)
        return await self.dispatcher.dispatch(prepared, context)


async def until_asked(context: FakeContext) -> None:
    while not context.deadline_asked:
        await trio.lowlevel.checkpoint()


async def test_without_a_cancellation_nobody_asks_for_a_deadline(context: FakeContext) -> None:
    worker = Worker()
    worker.go.set()
    with trio.fail_after(10):
        assert (await worker.dispatch(context)).text == "done"
    assert (context.deadline_asked, context.abandoned) == (0, False)


async def test_a_thread_that_ends_before_the_deadline_keeps_its_result(context: FakeContext) -> None:
    worker = Worker()
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await worker.dispatch(context))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await worker.started.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await until_asked(context)
                worker.go.set()
    assert [result.text for result in results] == ["done"]
    assert (context.deadline_asked, context.abandoned) == (1, False)


async def test_an_error_of_a_thread_that_was_cut_is_not_lost_either(context: FakeContext) -> None:
    def fail() -> None:
        raise LookupError("gone")

    worker = Worker(fail)
    caught: list[BaseException] = []

    async def call() -> None:
        try:
            await worker.dispatch(context)
        except LookupError as error:
            caught.append(error)

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await worker.started.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await until_asked(context)
                worker.go.set()
    assert [str(error) for error in caught] == ["gone"]


async def test_a_thread_that_does_not_end_is_abandoned_at_the_deadline(
    context: FakeContext, autojump_clock: trio.testing.MockClock
) -> None:
    worker = Worker()
    context.deadline = trio.current_time() + 5
    left_at = math.nan

    async def call() -> None:
        nonlocal left_at
        try:
            await worker.dispatch(context)
        finally:
            left_at = trio.current_time()

    # Real threads need real time, of which a clock that jumps knows nothing: it jumps when told to.
    autojump_clock.autojump_threshold = math.inf
    with trio.fail_after(100):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await worker.started.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await until_asked(context)
                assert not context.abandoned
                autojump_clock.jump(5)
        assert nursery.cancel_scope.cancelled_caught
        assert left_at == 5
        assert context.abandoned
        assert not context.ended.is_set()
        worker.go.set()
        await context.ended.wait()  # in Trio's thread, when the thread has really ended


async def test_after_the_calls_own_timeout_nobody_waits(context: FakeContext) -> None:
    worker = Worker()
    context.deadline = -math.inf
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(worker.dispatch, context)
            await worker.started.wait()
            nursery.cancel_scope.cancel()
        assert (context.deadline_asked, context.abandoned) == (1, True)
        worker.go.set()
        await context.ended.wait()


async def test_a_call_that_is_cancelled_before_it_starts_never_starts(context: FakeContext) -> None:
    worker = Worker()
    worker.go.set()
    with trio.CancelScope() as scope:
        scope.cancel()
        await worker.dispatch(context)
    assert scope.cancelled_caught
    assert not worker.started.is_set()
    assert (context.deadline_asked, context.abandoned) == (0, False)


async def test_an_abandoned_thread_may_outlive_the_whole_program(context: FakeContext) -> None:
    finished = threading.Event()
    go = threading.Event()

    def outlive() -> None:
        go.wait(20)

    def program() -> None:
        async def main() -> None:
            inner = FakeContext()
            inner.deadline = -math.inf
            dispatcher = LocalDispatcher([tool(outlive)])
            prepared = dispatcher.prepare(ToolCall("c1", "outlive"))
            assert isinstance(prepared, PreparedCall)
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(dispatcher.dispatch, prepared, inner)
                    await trio.testing.wait_all_tasks_blocked()
                    scope.cancel()
            assert inner.abandoned

        trio.run(main)
        go.set()
        finished.set()

    with trio.fail_after(20):
        await trio.to_thread.run_sync(program)
    assert finished.is_set()


async def test_nothing_but_the_abandoned_thread_is_left(context: FakeContext) -> None:
    worker = Worker()
    context.deadline = -math.inf
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            before = trio.lowlevel.current_statistics().tasks_living
            nursery.start_soon(worker.dispatch, context)
            await worker.started.wait()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                while nursery.child_tasks:
                    await trio.lowlevel.checkpoint()
            assert trio.lowlevel.current_statistics().tasks_living == before
        worker.go.set()
        await context.ended.wait()


async def test_a_tool_may_speak_from_its_thread(context: FakeContext) -> None:
    @tool
    def speak(ctx: ToolContext) -> str:
        for n in range(3):
            ctx.progress(n)
        return "said"

    dispatcher = LocalDispatcher([speak])
    prepared = dispatcher.prepare(ToolCall("c1", "speak"))
    assert isinstance(prepared, PreparedCall)
    with trio.fail_after(10):
        result = await dispatcher.dispatch(prepared, context)
    assert (result.text, context.said) == ("said", [0, 1, 2])


async def test_tools_do_not_take_trios_default_threads(context: FakeContext) -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = 1
    workers = [Worker() for _ in range(5)]
    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.dispatch, context)
            for worker in workers:
                await worker.started.wait()  # all five block at once
            assert limiter.borrowed_tokens == 0
            for worker in workers:
                worker.go.set()


async def test_no_thread_to_be_had_is_an_error_and_no_abandonment(
    context: FakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*args: object, **kwargs: object) -> None:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("can't start new thread")

    worker = Worker()
    monkeypatch.setattr(trio.to_thread, "run_sync", refuse)
    with trio.fail_after(10), pytest.raises(RuntimeError, match="can't start new thread"):
        await worker.dispatch(context)
    assert not context.abandoned


async def test_the_last_moment_counts(context: FakeContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread ends while its abandonment is on its way: what it has returned is returned."""
    run_sync = trio.to_thread.run_sync
    over = trio.Event()

    async def slow_to_tell(function: Callable[[], Any], **options: Any) -> None:
        await run_sync(function, limiter=options["limiter"])
        over.set()
        await trio.sleep_forever()  # the word of it does not arrive before the deadline

    worker = Worker()
    worker.go.set()
    context.deadline = -math.inf
    monkeypatch.setattr(trio.to_thread, "run_sync", slow_to_tell)
    results: list[ToolResult] = []

    async def call() -> None:
        results.append(await worker.dispatch(context))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await over.wait()
            nursery.cancel_scope.cancel()
    assert [result.text for result in results] == ["done"]
    assert not context.abandoned
