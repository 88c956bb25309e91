"""Kind F: leaving, cancelling and failing, and what Trio makes of it."""

from __future__ import annotations

import ast
import gc
import logging
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx  # noqa: ASYNC127  the older of the two clients that are supported
import pytest
import trio
from trio.testing import MockClock

import trio_agent
from tests.scenarios.stage import Bench, Scene, until
from trio_agent import (
    Agent,
    AgentEnd,
    Diagnostic,
    Emit,
    Event,
    HookFailed,
    Middleware,
    ModelRequest,
    ProviderError,
    Retry,
    Run,
    RunCancelled,
    RunEnded,
    TextChunk,
    ToolContext,
    ToolExecutionStart,
    tool,
)
from trio_agent.providers import HTTPResponse, OpenAI
from trio_agent.testing import STALL, Item, ModelServer, ScriptedModel, call, calls, fail, say, stall

REAL = 30
"""Seconds on the real clock, where there are sockets; nothing waits for it."""

HOWS = ["break", "body exception", "outer cancel", "abort now", "abort soon"]


class Oops(Exception):
    """What the body of a block raises."""


async def cut(scene: Scene, how: str, when: Callable[[Run], Awaitable[object]], hang: float = 100_000) -> None:
    """Play ``scene`` until ``when`` returns, and end it in the way that ``how`` says."""
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await when(run)
        match how:
            case "break":
                return
            case "body exception":
                raise Oops
            case "outer cancel":
                scope.cancel()
            case "abort now":
                run.abort(grace=0)
            case _:
                run.abort(grace=0.01)
        await run.wait()

    if how == "body exception":
        with pytest.raises(Oops):
            await scene.play(body, hang=hang)
    else:
        with scope:
            await scene.play(body, hang=hang)
        assert scope.cancelled_caught == (how == "outer cancel")
    assert scene.result.stop_reason == ("aborted" if how.startswith("abort") else "cancelled")
    assert isinstance(scene.result.error, RunCancelled)


def after(seconds: float) -> Callable[[Run], Awaitable[object]]:
    async def wait(run: Run) -> None:
        await trio.sleep(seconds)

    return wait


def seen(kind: type[Event]) -> Callable[[Run], Awaitable[object]]:
    async def wait(run: Run) -> None:
        async for event in run:
            if isinstance(event, kind):
                return

    return wait


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


# ------------------------------------------------------------------------------------------ B31


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "waits again"])
@pytest.mark.parametrize("how", HOWS)
async def test_a_tool_that_shields_itself_is_named_and_waited_for(
    autojump_clock: MockClock, how: str, returns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """B31: a tool with a shielded sleep."""

    @tool
    async def stubborn() -> str:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        if not returns:
            await trio.sleep(1)
        return "done after all"

    scene = Scene(Agent(ScriptedModel(call(stubborn, id="c1")), tools=[stubborn]))
    began = trio.current_time()
    with caplog.at_level(logging.WARNING, "trio_agent"):
        await cut(scene, how, after(1))
    assert trio.current_time() - began == pytest.approx(60)
    (told,) = scene.of(Diagnostic)
    assert told.code == "CALL_WILL_NOT_STOP"
    assert "stubborn (c1)" in told.text
    assert told.time - began == pytest.approx(6, abs=0.1)  # after the settle time, long before the end
    assert "stubborn (c1)" in caplog.text
    assert scene.statuses == {"c1": "ok" if returns else "interrupted"}


class Stubborn(Middleware):
    """One hook that swallows its cancellation and goes on, for a while."""

    def __init__(self, hook: str) -> None:
        self.hook = hook
        self.swallowed = 0

    async def stay(self) -> None:
        for _ in range(30):
            try:
                await trio.sleep(1_000)
            except trio.Cancelled:  # noqa: ASYNC103  the misbehaviour that is tested
                self.swallowed += 1  # noqa: ASYNC104


def _stubborn(name: str) -> Any:
    if name == "wrap_model_call":

        async def wrap_model(self: Stubborn, ctx: Any, request: Any, emit: Any, call_next: Any) -> None:
            await self.stay()
            await call_next(request, emit)

        return wrap_model
    if name == "wrap_tool_call":

        async def wrap_tool(self: Stubborn, ctx: Any, call: Any, call_next: Any) -> Any:
            await self.stay()
            return await call_next(call)

        return wrap_tool

    async def hook(self: Stubborn, ctx: Any, *args: Any) -> Any:
        await self.stay()
        return args[0] if name in ("transform_context", "convert_to_llm") else None

    return hook


HOOKS = [name for name, member in vars(Middleware).items() if callable(member) and not name.startswith("_")]


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("name", HOOKS)
async def test_a_hook_that_swallows_its_cancellation_does_not_keep_the_run_alive(
    autojump_clock: MockClock, name: str, how: str
) -> None:
    """B31: a hook that swallows Cancelled and loops."""
    assert len(HOOKS) == 10
    stubborn = type("StubbornHook", (Stubborn,), {name: _stubborn(name)})(name)
    bench = Bench()
    # after_agent is cut while it runs under the settle deadline, so something else has to be cut before
    model = ScriptedModel(STALL) if name == "after_agent" else ScriptedModel(call(bench.ok, id="1"), "done")
    scene = Scene(Agent(model, tools=[bench.ok], middleware=[stubborn]))
    began = trio.current_time()
    await cut(scene, how, after(1))
    assert stubborn.swallowed == 30
    assert trio.current_time() - began == pytest.approx(6 if name == "after_agent" else 1, abs=0.1)
    assert scene.kinds[-1] == "agent_end"
    # Nothing new was begun on the way out.
    assert len(model.requests) <= 1
    if name in ("before_tool_call", "wrap_tool_call"):
        assert bench.finished == []


@pytest.mark.parametrize("how", HOWS)
async def test_a_thread_that_ignores_the_cancellation_is_waited_for_with_a_limit(
    autojump_clock: MockClock, how: str
) -> None:
    """B31: grace period in a bounded shield; a report of which call would not stop."""
    release = threading.Event()

    @tool
    def blocker() -> None:
        release.wait()

    scene = Scene(Agent(ScriptedModel(call(blocker, id="c1")), tools=[blocker]))
    began = trio.current_time()
    try:
        await cut(scene, how, after(1))
    finally:
        release.set()
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)
    assert scene.statuses == {"c1": "interrupted"}
    assert "THREAD_ABANDONED" in [told.code for told in scene.of(Diagnostic)]
    assert any("blocker (c1)" in told.text for told in scene.of(Diagnostic))


@pytest.mark.parametrize("how", HOWS)
async def test_a_listener_that_hangs_is_waited_for_with_a_limit(autojump_clock: MockClock, how: str) -> None:
    """B31: kernel code never shields without a deadline."""

    async def hung(event: Event) -> None:
        if isinstance(event, ToolExecutionStart):
            await trio.sleep_forever()

    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.hang)), tools=[bench.hang], listeners=[hung]))
    began = trio.current_time()
    await cut(scene, how, after(1))
    assert trio.current_time() - began == pytest.approx(6, abs=0.1)


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


def shapes(events: Iterable[Event]) -> list[object]:
    """The events; neighbouring deltas are one, because those that are unread may be merged."""
    found: list[object] = []
    for event in events:
        if isinstance(event, trio_agent.TextDelta) and found and isinstance(found[-1], str):
            found[-1] += event.text
        else:
            found.append(event.text if isinstance(event, trio_agent.TextDelta) else event)
    return found


# ------------------------------------------------------------------------------------------ B34


async def test_the_body_of_the_loop_may_have_scopes_of_its_own(autojump_clock: MockClock) -> None:
    """B34: consumer with its own cancel scope around the loop body."""
    bench = Bench()
    model = ScriptedModel(say("One two three", chunks=13, every=0.1) + call(bench.ok, seconds=1), "done")
    scene = Scene(Agent(model, tools=[bench.ok]))
    got: list[Event] = []

    async def body(run: Run) -> None:
        with trio.CancelScope():
            async for event in run:
                got.append(event)
                with trio.move_on_after(0.01):
                    await trio.sleep(1)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(trio.sleep_forever)
                    nursery.cancel_scope.cancel()

    result = await scene.play(body)
    assert "".join(event.text for event in got if isinstance(event, trio_agent.TextDelta)) == "One two threedone"
    assert isinstance(got[-1], AgentEnd)
    assert result.stop_reason == "stop"


@pytest.mark.parametrize("read", [0, 1, 6])
async def test_a_reader_may_leave_in_the_middle_of_a_flood(autojump_clock: MockClock, read: int) -> None:
    """B34: reader leaves while the producer is blocked on send.  The producer never is."""

    async def flood(request: ModelRequest) -> Item:
        return say("x" * 20_000, chunks=20_000) + stall()

    scene = Scene(Agent(ScriptedModel(flood)))

    async def body(run: Run) -> None:
        reader = aiter(run)
        for _ in range(read):
            await anext(reader)
        await trio.testing.wait_all_tasks_blocked()  # all of it was said, though nobody reads
        assert sum(len(message.text) for message in run.state.messages) == 2

    result = await scene.play(body)
    assert result.stop_reason == "cancelled"
    assert result.text == "x" * 20_000
    assert len(scene.of(trio_agent.TextDelta)) == 1  # merged while it was unread


class FailsWhileClosing:
    """A provider that fails when its stream is cut."""

    name = "closing"
    model = "closing-1"
    context_window = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        emit(TextChunk("Half an answ"))
        try:
            await trio.sleep_forever()
        finally:
            raise self._error


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "error", [ValueError("while closing"), ProviderError("reset by peer", code="PROVIDER_DISCONNECT")], ids=repr
)
async def test_a_provider_that_fails_while_it_is_closed_does_not_make_leaving_an_error(
    autojump_clock: MockClock, how: str, error: Exception
) -> None:
    """B34: producer fails while closing.  A closed reader means stop, not an error."""
    scene = Scene(Agent(FailsWhileClosing(error)))
    await cut(scene, how, seen(trio_agent.TextDelta))
    assert scene.result.text == "Half an answ"


class RaisesAtTheEnd(Middleware):
    async def after_agent(self, ctx: Any) -> None:
        raise KeyError("after all")


async def raises_at_the_end(event: Event) -> None:
    if isinstance(event, AgentEnd):
        raise KeyError("at the end")


@pytest.mark.parametrize("how", ["break", "body exception", "outer cancel"])
@pytest.mark.parametrize("options", [{"middleware": [RaisesAtTheEnd()]}, {"listeners": [raises_at_the_end]}], ids=str)
async def test_what_fails_while_leaving_does_not_hide_why_it_was_left(
    autojump_clock: MockClock, how: str, options: dict[str, Any]
) -> None:
    """B34: producer fails while closing."""
    bench = Bench()
    scene = Scene(Agent(ScriptedModel(call(bench.hang, id="1")), tools=[bench.hang], **options))
    scope = trio.CancelScope()

    async def body(run: Run) -> None:
        await trio.sleep(1)
        if how == "body exception":
            raise Oops
        if how == "outer cancel":
            scope.cancel()
            await trio.lowlevel.checkpoint()

    if how == "body exception":
        with pytest.raises(Oops):
            await scene.play(body)
    else:
        with scope:
            await scene.play(body)
        assert scope.cancelled_caught == (how == "outer cancel")
    assert scene.statuses == {"1": "interrupted"}
    assert scene.result.stop_reason == "error"
    assert getattr(scene.result.error, "code", None) in ("HOOK_FAILED", "LISTENER_FAILED")


SCOPES = {"open_nursery", "CancelScope", "move_on_after", "move_on_at", "fail_after", "fail_at"}


def yields_inside_a_scope(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields of generators that are not made context managers, inside of a nursery or a cancel scope."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        names = {ast.unparse(decorator).rpartition(".")[2] for decorator in function.decorator_list}
        if names & {"contextmanager", "asynccontextmanager", "as_safe_channel", "fixture"}:
            continue
        for block in ast.walk(function):
            if isinstance(block, ast.With | ast.AsyncWith) and any(
                isinstance(item.context_expr, ast.Call)
                and ast.unparse(item.context_expr.func).rpartition(".")[2] in SCOPES
                for item in block.items
            ):
                yield from (node for node in ast.walk(block) if isinstance(node, ast.Yield | ast.YieldFrom))


def test_nothing_of_ours_yields_inside_a_scope() -> None:
    """B34: no yield inside a scope in our code."""
    bad = "async def f():\n  async with trio.open_nursery() as n:\n    yield 1"
    assert len(list(yields_inside_a_scope(ast.parse(bad)))) == 1
    sources = sorted(Path(trio_agent.__file__).parent.rglob("*.py"))
    assert len(sources) > 40
    assert [path for path in sources if list(yields_inside_a_scope(ast.parse(path.read_text("utf-8"))))] == []


# ------------------------------------------------------------------------------------------ B38


class Nested:
    """A provider that raises inside of three nested nurseries."""

    name = "nested"
    model = "nested-1"
    context_window = None

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.requests = 0

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        self.requests += 1
        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep_forever)
            async with trio.open_nursery() as middle:
                middle.start_soon(trio.sleep_forever)
                async with trio.open_nursery() as inner:
                    inner.start_soon(trio.sleep_forever)
                    inner.start_soon(self._fail)

    async def _fail(self) -> None:
        await trio.sleep(0.1)
        raise self.error


@pytest.mark.parametrize("attempts", [1, 3])
async def test_an_error_out_of_nested_nurseries_leaves_as_itself(autojump_clock: MockClock, attempts: int) -> None:
    """B38: provider raising a connection error inside three nested nurseries."""
    error = ProviderError("connection reset", code="PROVIDER_DISCONNECT")
    provider = Nested(error)
    scene = Scene(Agent(provider, retry=Retry(attempts=attempts)))
    result = await scene.play()
    assert provider.requests == attempts  # its code was seen through the groups
    assert result.stop_reason == "error"
    assert result.error is error
    with pytest.raises(ProviderError, match="connection reset"):
        result.raise_for_error()
    end = scene.of(AgentEnd)[0]
    assert end.error is not None
    assert (end.error.code, end.error.message) == ("PROVIDER_DISCONNECT", "connection reset")


async def test_a_foreign_error_out_of_nested_nurseries_leaves_as_itself(autojump_clock: MockClock) -> None:
    """B38: callers cannot catch it, and logs show only the wrapper's text."""
    error = ConnectionResetError("reset by peer")
    scene = Scene(Agent(Nested(error)))
    result = await scene.play()
    assert result.error is error
    end = scene.of(AgentEnd)[0]
    assert end.error is not None
    assert end.error.message == "ConnectionResetError: reset by peer"


class FailsNested(Middleware):
    async def before_model(self, ctx: Any) -> None:
        async with trio.open_nursery() as outer, trio.open_nursery() as inner:
            outer.start_soon(trio.sleep_forever)
            inner.start_soon(trio.sleep_forever)
            raise KeyError("in the hook")


async def test_a_hook_that_fails_in_nested_nurseries_is_one_documented_error_with_its_cause(
    autojump_clock: MockClock,
) -> None:
    """B38: one documented kernel error with the cause attached."""
    scene = Scene(Agent(ScriptedModel(), middleware=[FailsNested()]))
    result = await scene.play()
    assert isinstance(result.error, HookFailed)
    assert isinstance(result.error.__cause__, KeyError | ExceptionGroup)
    assert "KeyError: 'in the hook'" in str(result.error)
    assert "Group" not in str(result.error)
    assert "Cancelled" not in str(result.error)


async def test_two_tools_that_fail_at_once_have_an_error_result_each(autojump_clock: MockClock) -> None:
    """B38: two tools that fail at once."""

    @tool
    async def fails(text: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(1)
            raise ValueError(text)

    model = ScriptedModel(calls(call(fails, text="one", id="1"), call(fails, text="two", id="2")), "done")
    scene = Scene(Agent(model, tools=[fails]))
    result = await scene.play()
    assert result.stop_reason == "stop"
    assert scene.statuses == {"1": "error", "2": "error"} or list(scene.statuses.values()) == ["error", "error"]
    assert scene.results["1"].text == "The tool failed. ValueError: one"
    assert scene.results["2"].text == "The tool failed. ValueError: two"


async def test_no_group_and_no_cancellation_stands_in_the_text_of_a_tool_error(autojump_clock: MockClock) -> None:
    """B38: no group in a tool's error text; Cancelled never reported as an error."""

    @tool
    async def fails_twice() -> None:
        async with trio.open_nursery() as outer:
            for text in ("one", "two"):
                outer.start_soon(fail_with, text)
            outer.start_soon(trio.sleep_forever)

    async def fail_with(text: str) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            await trio.sleep(1)
            raise ValueError(text)

    scene = Scene(Agent(ScriptedModel(call(fails_twice, id="1"), "done"), tools=[fails_twice]))
    await scene.play()
    told = scene.results["1"]
    assert told.status == "error"
    assert "ValueError: one" in told.text
    assert "ValueError: two" in told.text
    assert "Group" not in told.text
    assert "Cancelled" not in told.text


@pytest.mark.parametrize("how", HOWS)
async def test_a_group_that_holds_cancellations_only_is_an_interruption(autojump_clock: MockClock, how: str) -> None:
    """B38: a group that contains Cancelled only."""

    @tool
    async def waits() -> None:
        async with trio.open_nursery() as outer:
            outer.start_soon(trio.sleep_forever)
            async with trio.open_nursery() as inner:
                inner.start_soon(trio.sleep_forever)
                inner.start_soon(trio.sleep_forever)

    model = ScriptedModel(calls(call(waits, id="1"), call(waits, id="2")))
    scene = Scene(Agent(model, tools=[waits]))
    await cut(scene, how, after(1))
    assert set(scene.statuses.items()) == {("1", "interrupted"), ("2", "interrupted")}
    assert not any("Cancelled" in result.text for result in scene.results.values())


async def test_a_tool_that_fails_while_it_is_cancelled_keeps_its_failure(autojump_clock: MockClock) -> None:
    """B38: a group that holds a failure and cancellations: the failure is the result, the cancellation goes on."""

    @tool
    async def fails_on_the_way_out() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep_forever)
            try:
                await trio.sleep_forever()
            finally:
                raise OSError("could not tidy up")

    model = ScriptedModel(call(fails_on_the_way_out, id="1"))
    scene = Scene(Agent(model, tools=[fails_on_the_way_out]))
    await cut(scene, "outer cancel", after(1))
    assert scene.statuses == {"1": "error"}
    assert "OSError: could not tidy up" in scene.results["1"].text
    assert len(model.requests) == 1


# ------------------------------------------------------------------------------------------ B40


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("then", ["returns", "raises", "goes on"])
async def test_a_tool_that_swallows_its_cancellation_does_not_stop_it(
    autojump_clock: MockClock, how: str, then: str
) -> None:
    """B40: cancel from outside while a tool catches BaseException."""

    @tool
    async def swallows() -> str:
        try:
            await trio.sleep_forever()
        except BaseException:  # noqa: ASYNC103  the misbehaviour that is tested
            if then == "raises":
                raise ValueError("it was nothing") from None
            if then == "goes on":
                await trio.sleep(10)  # noqa: ASYNC102
        return "all is well"

    model = ScriptedModel(calls(call(swallows, id="1"), call(swallows, id="2")), "never")
    scene = Scene(Agent(model, tools=[swallows]))
    began = trio.current_time()
    await cut(scene, how, after(1))  # asserts that the cancellation went on, and the stop reason
    assert trio.current_time() - began == pytest.approx(1, abs=0.1)
    assert len(model.requests) == 1
    status = {"returns": "ok", "raises": "error", "goes on": "interrupted"}[then]
    assert set(scene.statuses.items()) == {("1", status), ("2", status)}


@pytest.mark.parametrize("how", HOWS)
async def test_a_single_tool_that_swallows_its_cancellation_does_not_stop_it(
    autojump_clock: MockClock, how: str
) -> None:
    """B40: a single call runs in the loop's own task."""

    @tool
    async def swallows() -> str:
        try:
            await trio.sleep_forever()
        except BaseException:  # noqa: ASYNC103  the misbehaviour that is tested
            return "all is well"

    model = ScriptedModel(call(swallows, id="1"), "never")
    scene = Scene(Agent(model, tools=[swallows]))
    await cut(scene, how, after(1))
    assert len(model.requests) == 1
    assert scene.statuses == {"1": "ok"}


@pytest.mark.parametrize(("raises", "status"), [(True, "error"), (False, "ok")])
async def test_an_inner_timeout_is_the_affair_of_its_tool(autojump_clock: MockClock, raises: bool, status: str) -> None:
    """B40: a tool whose own inner scope times out."""

    @tool
    async def looks() -> str:
        if raises:
            with trio.fail_after(5):
                await trio.sleep_forever()
        with trio.move_on_after(5):
            await trio.sleep_forever()
        return "nothing came"

    bench = Bench()
    model = ScriptedModel(calls(call(looks, id="1"), call(bench.ok, seconds=9, id="2")), "done")
    scene = Scene(Agent(model, tools=[looks, bench.ok]))
    result = await scene.play()
    assert scene.statuses == {"1": status, "2": "ok"}
    if raises:
        assert "TooSlowError" in scene.results["1"].text
    assert (result.stop_reason, len(model.requests)) == ("stop", 2)
