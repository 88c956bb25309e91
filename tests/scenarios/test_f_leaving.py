"""Kind F: leaving a run early, and what is still there afterwards."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, nullcontext
from typing import Any

import httpx  # noqa: ASYNC127  the older of the two clients that are supported
import pytest
import trio
from trio.testing import MockClock

import trio_agent
from tests.scenarios.cutting import HOWS, after, cut, seen
from tests.scenarios.stage import Bench, Scene, until
from trio_agent import Agent, Event, Run, RunEnded, Subscription, ToolContext, ToolExecutionStart, tool
from trio_agent.providers import HTTPResponse, OpenAI
from trio_agent.testing import STALL, Item, ModelServer, ScriptedModel, call, calls, fail, say, stall

# ------------------------------------------------------------------------------------------ B30


async def test_breaking_off_after_the_first_event_cancels_the_run_and_nothing_else(autojump_clock: MockClock) -> None:
    """B30: break after the first event; drop the iterator without closing; collect garbage."""
    bench, ticks = Bench(), 0

    async def bystander() -> None:
        nonlocal ticks
        for ticks in range(1, 11):  # noqa: B007
            await trio.sleep(1)

    scene = Scene(Agent(ScriptedModel(call(bench.hang)), tools=[bench.hang]))

    async def body(run: Run) -> None:
        async for _ in run:
            break
        extra = run.events()  # a reader that is never read, and dropped
        await extra.__anext__()
        del extra
        gc.collect()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(bystander)
        await scene.play(body)
        assert not nursery.cancel_scope.cancel_called
        assert scene.result.stop_reason == "cancelled"
        gc.collect()
        await trio.lowlevel.checkpoint()  # the caller is not cancelled
    assert ticks == 10


async def test_a_run_that_was_never_entered_leaves_nothing_behind(autojump_clock: MockClock) -> None:
    """B30: drop it."""
    model = ScriptedModel("never")
    run = Agent(model).run("go")
    with pytest.raises(RuntimeError, match="async with"):
        await run.wait()
    with pytest.raises(RuntimeError, match="async with"):
        aiter(run)
    with pytest.raises(RuntimeError, match="async with"):
        run.abort()
    with pytest.raises(RuntimeError, match="not done"):
        _ = run.result
    del run
    gc.collect()
    assert model.requests == []


async def test_leaving_a_run_in_another_task_is_refused_and_harms_nothing(autojump_clock: MockClock) -> None:
    """B30: close from another task; clean-up in the entering task; misuse raises a clear error."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.ok, seconds=5, id="1"), "done"), tools=[bench.ok]))

    async def close(run: Run) -> None:
        with pytest.raises(RuntimeError, match="the task that entered it"):
            await run.__aexit__(None, None, None)

    async def body(run: Run) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(close, run)
        await run.wait()

    result = await scene.play(body)
    assert (result.stop_reason, result.text) == ("stop", "done")


async def test_a_run_may_be_entered_once(autojump_clock: MockClock) -> None:
    """B30: misuse raises a clear error."""
    run = Agent(ScriptedModel("done")).run("go")
    with trio.fail_after(10):
        async with run:
            with pytest.raises(RuntimeError, match="once"):
                await run.__aenter__()
            assert (await run.wait()).text == "done"
        with pytest.raises(RuntimeError, match="once"):
            await run.__aenter__()
        with pytest.raises(RunEnded):
            await run.steer("too late")


async def test_a_run_may_be_left_once(autojump_clock: MockClock) -> None:
    """B30: misuse raises a clear error, and nothing outside of the run is cancelled."""
    run = Agent(ScriptedModel("done")).run("go")
    with trio.fail_after(10) as scope:
        with pytest.raises(RuntimeError, match="left once"):
            await run.__aexit__(None, None, None)
        async with run:
            await run.wait()
        with pytest.raises(RuntimeError, match="left once"):
            await run.__aexit__(None, None, None)
        await trio.lowlevel.checkpoint()
        assert not scope.cancel_called


@pytest.mark.parametrize("closes", [True, False], ids=["closed elsewhere", "dropped elsewhere"])
async def test_what_happens_to_a_reader_in_another_task_is_no_affair_of_the_run(
    autojump_clock: MockClock, closes: bool
) -> None:
    """B30: the iterator is closed or collected in another task than the one that entered the run."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.ok, seconds=5, id="1"), "done"), tools=[bench.ok]))

    async def read_one(reader: Subscription) -> None:
        with trio.CancelScope() as scope:  # which is not the run's
            await anext(reader)
            if closes:
                scope.cancel()
                await anext(reader)
        del reader
        gc.collect()
        await trio.lowlevel.checkpoint()

    async def body(run: Run) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(read_one, run.events())
        gc.collect()
        await run.wait()

    result = await scene.play(body)
    assert (result.stop_reason, result.text) == ("stop", "done")


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_nothing_spins_after_a_run_was_left_early(autojump_clock: MockClock) -> None:
    """B30: it went as far as spinning the processor."""
    bench = Bench()
    steps = Steps()
    with trio.fail_after(1_000):
        async with Agent(ScriptedModel(call(bench.hang)), tools=[bench.hang]).run("go") as run:
            async for _ in run:
                break
        gc.collect()
        trio.lowlevel.add_instrument(steps)
        for _ in range(10):
            await trio.sleep(1)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count < 100


async def test_a_generator_of_the_callers_around_a_run_can_be_closed_early(autojump_clock: MockClock) -> None:
    """B30: the loop stands in a generator; closed where it was begun, it cleans up in the entering task."""
    bench = Bench()
    agent = Agent(ScriptedModel(call(bench.hang, id="1")), tools=[bench.hang])
    runs: list[Run] = []

    async def events() -> AsyncGenerator[Event]:
        async with agent.run("go") as run:
            runs.append(run)
            async for event in run:
                yield event  # noqa: ASYNC119  the habit that is tested

    with trio.fail_after(10) as scope:
        async with aclosing(events()) as stream:
            async for event in stream:
                if isinstance(event, ToolExecutionStart):
                    break
        assert runs[0].result.stop_reason == "cancelled"
        assert bench.running == 0
        await trio.lowlevel.checkpoint()
        assert not scope.cancel_called


async def test_two_tasks_may_not_read_with_one_iterator(autojump_clock: MockClock) -> None:
    """B30: misuse raises a clear error, and costs no event."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.ok, seconds=5), "done"), tools=[bench.ok]))
    got: list[Event] = []

    async def read(run: Run) -> None:
        async for event in run:
            got.append(event)

    async def body(run: Run) -> None:
        aiter(run)  # before the first await, so that it begins with the first event
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read, run)
            await trio.sleep(1)
            with pytest.raises(trio.BusyResourceError):
                await anext(aiter(run))

    await scene.play(body)
    assert got == scene.events


REAL = 30
"""Seconds on the real clock, where there are sockets; nothing waits for it."""


# ------------------------------------------------------------------------------------------ B32


class CountingClient:
    """A client that counts the answers that are open."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.open = 0

    def stream(self, method: str, url: str, **options: Any) -> AbstractAsyncContextManager[HTTPResponse]:
        return self._stream(method, url, **options)

    @asynccontextmanager
    async def _stream(self, method: str, url: str, **options: Any) -> AsyncGenerator[HTTPResponse]:
        self.open += 1
        try:
            async with self._client.stream(method, url, **options) as answer:
                yield answer
        finally:
            self.open -= 1


PHASES: dict[str, tuple[tuple[Item, ...], Callable[[Run], Awaitable[object]]]] = {
    "before the first event": ((STALL,), after(0)),
    "while it streams": ((stall(say("Half an answ")),), seen(trio_agent.TextDelta)),
    "in the tool phase": ((call("wait", id="1"),), seen(ToolExecutionStart)),
    "in the second turn": ((call("ok"), stall(say("And th"))), seen(trio_agent.TextDelta)),
    "in backoff": ((fail(429, retry_after=50),), seen(trio_agent.RetryScheduled)),
}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("phase", PHASES)
async def test_leaving_stops_the_run_and_leaves_no_task_and_no_connection(phase: str, how: str) -> None:
    """B32: break around the next event while a tool waits 120 s; then list tasks and open connections."""
    bench = Bench()

    @tool
    async def wait(context: ToolContext) -> None:
        with bench.book(context.call_id):
            await trio.sleep(120)

    turns, when = PHASES[phase]
    async with ModelServer(ScriptedModel(*turns)) as server, httpx.AsyncClient(trust_env=False) as client:
        counting = CountingClient(client)
        provider = OpenAI("m", base_url=server.base_url, api_key="k", client=counting)
        scene = Scene(Agent(provider, tools=[bench.ok, wait]))

        async def there(run: Run) -> None:
            await when(run)
            await until(lambda: len(server.requests) == len(turns))

        await cut(scene, how, there, REAL)  # looks for tasks that live on
        assert counting.open == 0
        assert bench.running == 0
        assert len(server.requests) == len(turns)  # and no further request went out
        if phase not in ("in the tool phase", "in backoff"):
            # The answer was cut in the middle: its connection is closed, not only given back.
            await until(lambda: server.connections == 0)
        await client.aclose()
        await until(lambda: server.connections == 0)
        server.verify()


@pytest.mark.parametrize("how", HOWS)
async def test_a_provider_of_our_own_client_closes_all_connections(how: str) -> None:
    """B32: the same with the clients that the provider makes."""
    turns, when = PHASES["while it streams"]
    with trio.fail_after(REAL):
        async with ModelServer(*turns) as server:
            async with OpenAI("m", base_url=server.base_url, api_key="k") as provider:
                scene = Scene(Agent(provider))
                await cut(scene, how, when, REAL)
                await until(lambda: server.connections == 0)
            server.verify()


@pytest.mark.parametrize("how", HOWS)
async def test_leaving_returns_only_when_everything_is_done(autojump_clock: MockClock, how: str) -> None:
    """B32: the consumer's cancel returns before the inner tasks are done."""
    order: list[str] = []

    @tool
    async def tidy(seconds: float) -> None:
        try:
            await trio.sleep(120)
        finally:
            with trio.move_on_after(4, shield=True):
                await trio.sleep(seconds)
            order.append(f"tidied in {seconds:g}")

    model = ScriptedModel(calls(call(tidy, seconds=1), call(tidy, seconds=2), call(tidy, seconds=3)))
    scene = Scene(Agent(model, tools=[tidy]))
    began = trio.current_time()
    await cut(scene, how, after(1))
    order.append("left")
    assert order == ["tidied in 1", "tidied in 2", "tidied in 3", "left"]
    assert trio.current_time() - began == pytest.approx(4, abs=0.1)


async def test_a_timeout_around_one_receive_loses_no_event(autojump_clock: MockClock) -> None:
    """B32: timeout around the next event while a tool waits 120 s."""
    bench = Bench()
    model = ScriptedModel(say("Let me see.", chunks=5, every=3) + call(bench.ok, seconds=120), say("Done.", delay=7))
    scene = Scene(Agent(model, tools=[bench.ok]))
    got: list[Event] = []
    timeouts = 0

    async def body(run: Run) -> None:
        nonlocal timeouts
        reader = aiter(run)
        while True:
            with trio.move_on_after(1) as scope:
                try:
                    got.append(await anext(reader))
                except StopAsyncIteration:
                    return
            timeouts += scope.cancelled_caught

    result = await scene.play(body)
    assert timeouts > 100
    assert shapes(got) == shapes(scene.events)
    assert (result.stop_reason, result.text) == ("stop", "Done.")


@pytest.mark.parametrize("around", ["the next event", "the loop", "the block"])
async def test_a_timeout_that_leaves_the_block_leaves_nothing_behind(autojump_clock: MockClock, around: str) -> None:
    """B32: timeout around the next event while a tool waits 120 s; the consumer leaves, then tasks are listed."""
    bench = Bench()
    model = ScriptedModel(call(bench.ok, seconds=120, id="1"), "never")
    scene = Scene(Agent(model, tools=[bench.ok]))
    began = trio.current_time()

    async def body(run: Run) -> None:
        if around == "the next event":
            while True:
                with trio.fail_after(5):
                    await anext(run)
        with trio.fail_after(5) if around == "the loop" else nullcontext():
            async for _ in run:
                pass

    async def consume() -> None:
        with trio.fail_after(5) if around == "the block" else nullcontext():
            await scene.play(body)

    with pytest.raises(trio.TooSlowError):
        await consume()
    assert trio.current_time() - began == pytest.approx(5)
    assert scene.statuses == {"1": "interrupted"}
    assert (bench.running, len(model.requests)) == (0, 1)


def shapes(events: Iterable[Event]) -> list[object]:
    """The events; neighbouring deltas are one, because those that are unread may be merged."""
    found: list[object] = []
    for event in events:
        if isinstance(event, trio_agent.TextDelta) and found and isinstance(found[-1], str):
            found[-1] += event.text
        else:
            found.append(event.text if isinstance(event, trio_agent.TextDelta) else event)
    return found
