"""The five acceptance criteria of an agent kernel and its lifecycle.

1. It is driven through nothing but: prompt (``run``, ``send``), abort, subscribe, wait for idle (``wait``)
   and configuration.
2. Subscribers cannot change messages, and what they await counts into the completion.
3. Any exception inside ends as a message of an error and as ``agent_end`` with reason error.
4. The whole sequence of events is promised, also that of the results of parallel calls.
5. Unknown tools, errors of tools, and aborts have explicit events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, Recorder, Watched, play, results
from trio_agent import (
    Agent,
    AgentEnd,
    AgentError,
    Decoded,
    HookContext,
    HookFailed,
    ListenerFailed,
    Message,
    MessageEnd,
    Middleware,
    ModelRequest,
    PreparedCall,
    StoreFailed,
    ToolCall,
    ToolContext,
    ToolResult,
)
from trio_agent.testing import ScriptedModel, call, calls, check_order, say

# -------------------------------------------------------------------------- 1. a handful of verbs


async def test_1_a_conversation_is_driven_by_its_verbs_alone(autojump_clock: MockClock) -> None:
    gauge, recorder = Gauge(), Recorder()
    model = ScriptedModel(
        calls(call("work", seconds=1)),
        say("First."),
        say("Second, which takes its time.", chunks=2, every=100),
    )
    agent = Agent(model, tools=[gauge.tool()], system="Be brief.")  # configuration
    with trio.fail_after(1000):
        first = await agent.send("one")  # prompt
        history = [*first.messages, Message("user", "two")]
        async with agent.run(history) as run:  # prompt
            unsubscribe = run.subscribe(recorder)  # subscribe
            await trio.sleep(1)
            run.abort(0)  # abort
            second = await run.wait()  # wait for idle
            unsubscribe()
    assert (first.text, first.stop_reason) == ("First.", "stop")
    assert (second.text, second.stop_reason) == ("Second, which ", "aborted")
    assert run.result is second
    check_order(recorder.events)
    assert [request.system for request in model.requests] == ["Be brief."] * 3
    model.assert_exhausted()


async def test_1_one_blueprint_runs_many_times_at_once(autojump_clock: MockClock) -> None:
    model = ScriptedModel(lambda request: say(request.messages[-1].text.upper(), delay=1))
    agent = Agent(model)
    answers = {}

    async def ask(question: str) -> None:
        answers[question] = (await play(agent, question)).result.text

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            for question in "abc":
                nursery.start_soon(ask, question)
    assert answers == {"a": "A", "b": "B", "c": "C"}
    assert trio.current_time() == 1


# ------------------------------------------------------------------------------- 2. subscribers


async def test_2_nothing_that_is_shown_can_be_changed(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    tried: list[str] = []

    async def vandal(event: Any) -> None:
        for field in attrs.fields(type(event)):
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                setattr(event, field.name, None)
            tried.append(f"{event.kind}.{field.name}")
        for message in [*getattr(event, "messages", ()), *([event.message] if isinstance(event, MessageEnd) else [])]:
            with pytest.raises(attrs.exceptions.FrozenInstanceError):
                message.content = ()
            assert isinstance(message.content, tuple)
            for block in message.content:
                for field in attrs.fields(type(block)):
                    with pytest.raises(attrs.exceptions.FrozenInstanceError):
                        setattr(block, field.name, None)
        for block_input in [c.input for c in getattr(getattr(event, "message", None), "calls", ())]:
            block_input["seconds"] = 1_000  # a fresh copy: it changes nothing

    model = ScriptedModel(calls(call("work", seconds=1), text="Hm."), say("Done."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()])) as watched:
            watched.run.subscribe(vandal)
            messages = watched.run.state.messages
            with pytest.raises((AttributeError, TypeError)):
                messages.append(Message("user", "mine"))  # type: ignore[attr-defined]
            await watched.run.wait()
    assert watched.result.stop_reason == "stop"
    assert watched.took == 1
    assert {"message_end.message", "agent_start.messages", "tool_execution_end.result"} <= set(tried)


@pytest.mark.parametrize("store", [None, FakeStore])
async def test_2_what_subscribers_await_counts(autojump_clock: MockClock, store: Any) -> None:
    slow, slower = Recorder(1), Recorder(2)
    agent = Agent(ScriptedModel(say("Hello.")), listeners=[slow, slower], store=store and store())
    with trio.fail_after(1000):
        result = await agent.send("go")
    assert result.stop_reason == "stop"
    for recorder in (slow, slower):
        assert isinstance(recorder.events[-1], AgentEnd)
        check_order(recorder.events)
    assert slower.times[-1] == trio.current_time() == 3 * len(slow.events)


# ------------------------------------------------------------------------- 3. no exception escapes


class Oops(Exception):
    pass


@attrs.define
class Breaking(Middleware):
    """Raises in one hook."""

    where: str

    async def _do(self, hook: str) -> None:
        if self.where == hook:
            raise Oops

    async def before_agent(self, ctx: HookContext) -> None:
        await self._do("before_agent")

    async def before_model(self, ctx: HookContext) -> None:
        await self._do("before_model")

    async def wrap_model_call(self, ctx: HookContext, request: ModelRequest, emit: Any, call_next: Any) -> None:
        await self._do("wrap_model_call")
        await call_next(request, emit)

    async def after_agent(self, ctx: HookContext) -> None:
        await self._do("after_agent")


@attrs.define
class BreakingCodec:
    where: str
    streams: bool = True

    def encode(self, request: ModelRequest) -> ModelRequest:
        if self.where == "encode":
            raise Oops
        return request

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        if self.where == "decode":
            raise Oops
        return Decoded(message)

    def repair(self, error: str, attempt: int) -> str:
        raise AssertionError


@attrs.define
class BreakingDispatcher:
    specs: tuple[Any, ...] = ()

    def prepare(self, call: ToolCall) -> PreparedCall | ToolResult:
        raise Oops

    async def dispatch(self, prepared: PreparedCall, context: ToolContext) -> ToolResult:
        raise AssertionError


async def breaking_listener(event: object) -> None:
    raise Oops


INSIDE: dict[str, tuple[dict[str, Any], type[AgentError] | type[Oops]]] = {
    "provider": ({"model": ScriptedModel(Oops())}, Oops),
    "before_agent": ({"middleware": [Breaking("before_agent")]}, HookFailed),
    "before_model": ({"middleware": [Breaking("before_model")]}, HookFailed),
    "wrap_model_call": ({"middleware": [Breaking("wrap_model_call")]}, HookFailed),
    "after_agent": ({"middleware": [Breaking("after_agent")]}, HookFailed),
    "encode": ({"codec": BreakingCodec("encode")}, Oops),
    "decode": ({"codec": BreakingCodec("decode")}, Oops),
    "prepare": ({"dispatcher": BreakingDispatcher()}, Oops),
    "listener": ({"listeners": [breaking_listener]}, ListenerFailed),
    "store": ({"store": FakeStore(fail_at=1)}, StoreFailed),
}


@pytest.mark.parametrize("where", INSIDE)
async def test_3_any_exception_inside_is_told_and_not_raised(autojump_clock: MockClock, where: str) -> None:
    options, kind = INSIDE[where]
    agent = Agent(
        **{
            "model": ScriptedModel(calls(call("nope", id="a")) if where == "prepare" else say("Fine.", delay=1)),
            **options,
        }
    )
    watched = await play(agent)
    result = watched.result
    assert result.stop_reason == "error"
    assert type(result.error) is kind
    said = "Fine." if where == "decode" else ""
    turn = 2 if where == "after_agent" else 1  # an error outside a turn opens one
    assert watched.tale[-4:] == [
        f"message_end error {said!r}",
        f"turn_end {turn} error",
        "phase idle",
        "agent_end error",
    ]
    ended = watched.the(AgentEnd)
    assert ended.error is not None
    expected = getattr(result.error, "code", "INTERNAL")
    assert ended.error.code == expected
    failed = [event for event in watched.all(MessageEnd) if event.error is not None]
    assert [event.error for event in failed] == [ended.error]
    if kind is not Oops and where != "store":
        assert "Oops" in ended.error.message
    if where == "prepare":
        assert watched.statuses == {"a": "not_run"}


async def test_3_a_group_with_one_leaf_is_that_leaf(autojump_clock: MockClock) -> None:
    error = Oops("inside")
    watched = await play(Agent(ScriptedModel(ExceptionGroup("outer", [ExceptionGroup("inner", [error])]))))
    assert watched.result.error is error


# ------------------------------------------------------------------------------ 4. the whole sequence


async def test_4_the_whole_sequence_parallel_results_included(autojump_clock: MockClock) -> None:
    gauge, recorder = Gauge(), Recorder()
    model = ScriptedModel(
        calls(call("work", id="slow", seconds=2), call("work", id="quick", seconds=1)), say("Done.", chunks=2, every=1)
    )
    watched = await play(Agent(model, tools=[gauge.tool()], listeners=[recorder]))
    assert recorder.tale == [
        "agent_start",
        "phase turn",
        "turn_start 1",
        "model_call_start 1",
        "message_start assistant",
        *["tool_call_delta"] * 2,
        "message_end tool_use ''",
        *["tool_use slow", "tool_use quick"],
        *["start slow", "start quick"],
        *["end quick ok", "end slow ok"],
        *["message_start slow", "message_end slow ok"],
        *["message_start quick", "message_end quick ok"],
        "turn_end 1 tool_use",
        "turn_start 2",
        "model_call_start 1",
        "message_start assistant",
        *["text_delta 'Do'", "text_delta 'ne.'"],
        "message_end stop 'Done.'",
        "turn_end 2 stop",
        "phase idle",
        "agent_end stop",
    ]
    merged = [line for line in recorder.tale if line != "text_delta 'ne.'"]
    assert [line.replace("'Do'", "'Done.'") for line in merged] == watched.tale


# ------------------------------------------------------------------------------ 5. explicit events


async def test_5_unknown_tools_errors_and_aborts_have_events(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(
            call("nope", id="unknown"),
            call("work", id="failing", boom="no"),
            call("work", id="running", seconds=9),
            call("work", id="waiting"),
        )
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()], max_parallel_tools=1)) as watched:
            await trio.sleep(1)
            watched.run.abort(0, "enough")
            await watched.run.wait()
    told = watched.tale
    assert told[told.index("tool_use waiting") + 1 :] == [
        "end unknown unknown_tool",
        *["start failing", "end failing error"],
        "start running",
        "abort 0",
        "end running interrupted",
        "end waiting not_run",
        *["message_start unknown", "message_end unknown unknown_tool"],
        *["message_start failing", "message_end failing error"],
        *["message_start running", "message_end running interrupted"],
        *["message_start waiting", "message_end waiting not_run"],
        "turn_end 1 aborted",
        "phase idle",
        "agent_end aborted",
    ]
    texts: Sequence[str] = [result.text for result in results(watched)]
    assert "no such tool" in texts[0]
    assert "ValueError: no" in texts[1]
    assert "unknown" in texts[2]
    assert "not run" in texts[3]
