"""Kind F: what fails inside of nurseries, and cancellations that are taken for failures."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.scenarios.cutting import HOWS, after, cut
from tests.scenarios.stage import Bench, Scene
from trio_agent import (
    Agent,
    AgentEnd,
    Diagnostic,
    Emit,
    HookFailed,
    Middleware,
    ModelRequest,
    ProviderError,
    Retry,
    TextChunk,
    tool,
)
from trio_agent._errors import leaves
from trio_agent.testing import ScriptedModel, call, calls

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


class FailsTwice:
    """A provider in which two things go wrong at once."""

    name = "twice"
    model = "twice-1"
    context_window = None

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        async with trio.open_nursery() as nursery:
            for error in (ConnectionResetError("reset by peer"), OSError("could not tidy up")):
                nursery.start_soon(self._fail, error)
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()

    async def _fail(self, error: Exception) -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise error


async def test_two_errors_of_a_provider_at_once_are_both_told_and_no_cancellation_is(
    autojump_clock: MockClock,
) -> None:
    """B38: the callers find each cause; logs show the causes and not the wrapper's text."""
    scene = Scene(Agent(FailsTwice()))
    result = await scene.play()
    assert isinstance(result.error, ExceptionGroup)
    assert {type(error) for error in leaves(result.error)} == {ConnectionResetError, OSError}
    (end,) = scene.of(AgentEnd)
    assert end.error is not None
    told = end.error.message.split("; ")
    assert sorted(told) == ["ConnectionResetError: reset by peer", "OSError: could not tidy up"]


class WaitsNested:
    """A provider that waits in nested nurseries, all of which are cancelled."""

    name = "waiting"
    model = "waiting-1"
    context_window = None

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        emit(TextChunk("Half an answ"))
        await wait_nested()


async def wait_nested() -> None:
    async with trio.open_nursery() as outer:
        outer.start_soon(trio.sleep_forever)
        async with trio.open_nursery() as inner:
            inner.start_soon(trio.sleep_forever)
            inner.start_soon(trio.sleep_forever)


class HookWaitsNested(Middleware):
    async def before_model(self, ctx: Any) -> None:
        await wait_nested()


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("where", ["provider", "hook"])
async def test_cancellations_out_of_nested_nurseries_are_no_error_of_a_provider_or_a_hook(
    autojump_clock: MockClock, where: str, how: str
) -> None:
    """B38: a group that contains Cancelled only; Cancelled is never reported as an error."""
    hooks = [HookWaitsNested()] if where == "hook" else []
    scene = Scene(Agent(WaitsNested(), middleware=hooks))
    await cut(scene, how, after(1))  # asserts that the run was cancelled or aborted, and not failed
    assert scene.result.text == ("" if where == "hook" else "Half an answ")
    assert scene.of(Diagnostic) == []
    assert not any("Cancelled" in str(event) for event in scene.events)


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
