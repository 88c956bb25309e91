"""Abort, cancellation and Ctrl-C: what each of them leaves standing, in each phase of a run."""

from __future__ import annotations

import math
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Gauge, Watched, play
from trio_agent import (
    AbortRequested,
    Agent,
    CallChunk,
    HookContext,
    Message,
    MessageEnd,
    Middleware,
    ReasoningChunk,
    RunCancelled,
    TextChunk,
    ToolExecutionEnd,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, chunks, fail, say, stall

INF = math.inf
CUTS = ["outer cancel", "leave", "ctrl-c"]
HOWS: list[Any] = [INF, 5, 10, 0, *CUTS]


async def cut(agent: Agent, how: Any, at: float = 2) -> Watched:
    """A run that something happens to after ``at`` seconds."""
    with trio.fail_after(1000), trio.CancelScope() as outer:
        watched = Watched(agent)
        try:
            async with watched:
                await trio.sleep(at)
                match how:
                    case "leave":
                        pass
                    case "ctrl-c":
                        raise KeyboardInterrupt
                    case "outer cancel":
                        outer.cancel()
                        await watched.run.wait()
                    case _:
                        watched.run.abort(how)
                        await watched.run.wait()
        except KeyboardInterrupt:
            assert how == "ctrl-c"
        else:
            assert how != "ctrl-c"
    assert outer.cancelled_caught == (how == "outer cancel")
    assert isinstance(watched.result.error, RunCancelled)
    assert watched.result.error.code == "CANCELLED"
    return watched


def ending(how: Any) -> str:
    return "cancelled" if how in CUTS else "aborted"


def requests(watched: Watched) -> int:
    model = watched.agent.model
    assert isinstance(model, ScriptedModel)
    return len(model.requests)


# ------------------------------------------------------------------------------------- the table


@pytest.mark.parametrize("how", HOWS)
async def test_while_the_model_streams(autojump_clock: MockClock, how: Any) -> None:
    gauge = Gauge()
    model = ScriptedModel(calls(call("work", id="a", seconds=1), text="Let me see.", every=8), say("Never."))
    watched = await cut(Agent(model, tools=[gauge.tool()]), how)
    end = ending(how)
    took, turn_end, finish, statuses = {
        INF: (9, "tool_use", "tool_use", {"a": "ok"}),
        5: (7, end, "interrupted", {}),
        10: (8, end, "tool_use", {"a": "not_run"}),
    }.get(how, (2, end, "interrupted", {}))
    assert watched.took == took
    assert watched.reason == (turn_end, end)
    assert watched.statuses == statuses
    answer = watched.the_answer
    assert (answer.finish_reason, answer.text) == (finish, "Let me see.")
    assert gauge.begun == (["a"] if how == INF else [])
    assert requests(watched) == 1


@pytest.mark.parametrize("how", HOWS)
async def test_in_the_tool_phase(autojump_clock: MockClock, how: Any) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(call("work", id="a", seconds=3), call("work", id="b", seconds=9), call("work", id="c")), say("Never.")
    )
    watched = await cut(Agent(model, tools=[gauge.tool()], max_parallel_tools=2), how)
    end = ending(how)
    took, turn_end, statuses = {
        INF: (9, "tool_use", ["ok", "ok", "ok"]),
        5: (7, end, ["ok", "interrupted", "not_run"]),
        10: (9, end, ["ok", "ok", "not_run"]),
    }.get(how, (2, end, ["interrupted", "interrupted", "not_run"]))
    assert watched.took == took
    assert watched.reason == (turn_end, end)
    assert [watched.statuses[call_id] for call_id in "abc"] == statuses
    assert [call_id for call_id in "abc" if watched.statuses[call_id] == "interrupted"] == sorted(gauge.cut)
    assert ("c" in gauge.begun) == (how == INF)
    assert requests(watched) == 1
    placed = watched.result.messages[-1]
    assert placed.role == "tool"
    assert [result.status for result in placed.results] == statuses


@pytest.mark.parametrize("how", HOWS)
async def test_in_the_backoff(autojump_clock: MockClock, how: Any) -> None:
    watched = await cut(Agent(ScriptedModel(fail(503, retry_after=20), say("Never."))), how)
    end = ending(how)
    assert watched.took == 2
    assert watched.reason == (end, end)
    assert watched.tale[-4:] == ["phase turn", f"turn_end 1 {end}", "phase idle", f"agent_end {end}"]
    assert requests(watched) == 1
    assert [message.role for message in watched.result.messages] == ["user"]


@pytest.mark.parametrize("how", HOWS)
async def test_what_is_left_can_be_gone_on_with(autojump_clock: MockClock, how: Any) -> None:
    model = ScriptedModel(calls(call("work", id="a", seconds=3), call("work", id="b", seconds=9), text="Hm."))
    agent = Agent(model, tools=[Gauge().tool()])
    history = list((await cut(agent, how)).result.messages)
    again = await play(agent.replace(model=ScriptedModel(say("Going on."))), [*history, Message("user", "go on")])
    assert again.result.text == "Going on."


# -------------------------------------------------------------------------------- abort and abort again


async def test_a_later_stronger_abort_overrides(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", id="a", seconds=100)), say("Never."))
    with trio.fail_after(1000):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(1)
            watched.run.abort()
            await trio.sleep(1)
            watched.run.abort(50, "hurry")
            await trio.sleep(1)
            watched.run.abort(5)
            await watched.run.wait()
    assert watched.took == 8
    assert [(event.grace, event.reason) for event in watched.all(AbortRequested)] == [
        (INF, None),
        (50, "hurry"),
        (5, None),
    ]
    assert watched.statuses == {"a": "interrupted"}


async def test_a_weaker_abort_is_ignored_and_the_same_one_is_asked_for_once(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", id="a", seconds=100)), say("Never."))
    with trio.fail_after(1000):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(1)
            watched.run.abort(5)
            watched.run.abort(5)
            await trio.sleep(1)
            watched.run.abort(5)  # would last until 7
            watched.run.abort()
            await watched.run.wait()
            watched.run.abort(0)  # it is over
    assert watched.took == 6
    assert [event.grace for event in watched.all(AbortRequested)] == [5]


@pytest.mark.parametrize("grace", [-1, -math.inf, math.nan])
async def test_a_grace_that_is_no_time_is_refused(autojump_clock: MockClock, grace: float) -> None:
    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Fine.")))) as watched:
            with pytest.raises(ValueError, match="grace"):
                watched.run.abort(grace)
            await watched.run.wait()
    assert watched.result.stop_reason == "stop"


# ---------------------------------------------------------------------------------- what is kept of a text


@attrs.frozen
class Cut:
    stream: Any
    kept: str | None
    reasoning: str = ""


KEPT = {
    "text": Cut(say("Half "), "Half "),
    "nothing": Cut(chunks(), None),
    "white space": Cut(say(" \n "), None),
    "half a call": Cut(chunks(TextChunk("Wait. "), CallChunk(0, "a", "work", '{"sec')), "Wait. "),
    "only half a call": Cut(chunks(CallChunk(0, "a", "work", '{"sec')), None),
    "reasoning without its end": Cut(chunks(ReasoningChunk("Hm"), TextChunk("x"), ReasoningChunk("Hmm")), "x", "Hm"),
    "only reasoning": Cut(chunks(ReasoningChunk("Hm")), None),
}


@pytest.mark.parametrize("case", KEPT)
async def test_what_is_kept_of_a_cut_text(autojump_clock: MockClock, case: str) -> None:
    wanted = KEPT[case]
    watched = await cut(Agent(ScriptedModel(stall(wanted.stream)), tools=[Gauge().tool()]), 0)
    ends = [event.message for event in watched.all(MessageEnd)]
    if wanted.kept is None:
        assert ends == []
        assert [message.role for message in watched.result.messages] == ["user"]
        assert "model_call_failed 1 CANCELLED" in watched.tale
    else:
        (message,) = ends
        assert (message.text, message.reasoning) == (wanted.kept, wanted.reasoning)
        assert message.finish_reason == "interrupted"
        assert message.calls == ()
        assert watched.result.text == wanted.kept


# --------------------------------------------------------------------------------------- at a boundary


async def test_an_abort_before_the_first_step_opens_no_turn(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Never.")))) as watched:
            watched.run.abort()
            await watched.run.wait()
    assert watched.tale == ["agent_start", "abort inf", "phase turn", "phase idle", "agent_end aborted"]
    assert requests(watched) == 0


@pytest.mark.parametrize("grace", [INF, 5, 0])
async def test_an_abort_at_a_boundary_has_no_turn_to_end(autojump_clock: MockClock, grace: float) -> None:
    class AtTheBoundary(Middleware):
        async def should_stop_after_turn(self, ctx: HookContext) -> bool:
            watched.run.abort(grace)
            return False

    model = ScriptedModel(calls(call("work", id="a")), say("Never."))
    with trio.fail_after(10):
        async with Watched(Agent(model, tools=[Gauge().tool()], middleware=[AtTheBoundary()])) as watched:
            await watched.run.wait()
    assert watched.reason == ("tool_use", "aborted")
    assert watched.statuses == {"a": "ok"}
    assert requests(watched) == 1


@pytest.mark.parametrize("grace", [INF, 5])
async def test_an_abort_in_the_last_answer_keeps_all_of_it(autojump_clock: MockClock, grace: float) -> None:
    watched = await cut(Agent(ScriptedModel(say("The whole answer.", chunks=3, every=2))), grace, at=1)
    assert watched.reason == ("stop", "aborted")
    assert watched.result.text == "The whole answer."
    assert watched.took == 4


async def test_a_pending_abort_wins_over_an_error_of_the_provider(autojump_clock: MockClock) -> None:
    answer = say("Half an answer.", chunks=2, every=4)
    for reason in (500, 401):
        watched = await cut(Agent(ScriptedModel(fail(reason, after=answer), say("Never."))), INF)
        assert watched.reason == ("aborted", "aborted")
        assert watched.took == 4
        assert watched.the_answer.finish_reason == "interrupted"
        assert watched.result.text == "Half an answer."
        assert requests(watched) == 1


async def test_no_model_call_starts_once_an_abort_is_pending(autojump_clock: MockClock) -> None:
    class Slow(Middleware):
        """Takes its time before the model is asked."""

        def __init__(self, where: str) -> None:
            self.where = where

        async def before_model(self, ctx: HookContext) -> None:
            if self.where == "before_model":
                await trio.sleep(4)

        async def transform_context(self, ctx: HookContext, messages: Any) -> Any:
            if self.where == "transform_context":
                await trio.sleep(4)
            return messages

    for where in ("before_model", "transform_context"):
        for grace in (INF, 10):
            watched = await cut(Agent(ScriptedModel(say("Never.")), middleware=[Slow(where)]), grace)
            assert requests(watched) == 0, where
            assert watched.reason == ("aborted", "aborted")
            assert watched.took == 4


async def test_after_an_abort_a_paused_answer_is_not_gone_on_with(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("Wait for", finish="pause", chunks=2, every=4), say(" it."))
    watched = await cut(Agent(model), INF)
    assert watched.reason == ("aborted", "aborted")
    assert requests(watched) == 1


async def test_a_finished_result_is_kept_whatever_comes_after_it(autojump_clock: MockClock) -> None:
    class SlowAfter(Middleware):
        async def wrap_tool_call(self, ctx: HookContext, call: Any, call_next: Any) -> Any:
            result = await call_next(call)
            await trio.sleep(10)
            return result

        async def after_tool_result(self, ctx: HookContext, result: Any) -> None:
            await trio.sleep(10)

    for at in (5, 15):
        model = ScriptedModel(calls(call("work", id="a", seconds=1), call("work", id="b", seconds=30)))
        watched = await cut(Agent(model, tools=[Gauge().tool()], middleware=[SlowAfter()]), 0, at)
        assert watched.statuses == {"a": "ok", "b": "interrupted"}
        assert watched.took == at


@tool
async def stubborn() -> str:
    """Cannot be stopped."""
    with trio.CancelScope(shield=True):
        await trio.sleep(20)
    return "done all the same"


async def test_what_a_tool_shields_is_waited_for_and_somebody_is_told(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call(stubborn, id="a"), call(stubborn, id="b")))
    watched = await cut(Agent(model, tools=[stubborn], settle_timeout=5), 0)
    assert watched.took == 20
    assert watched.statuses == {"a": "ok", "b": "ok"}
    assert watched.diagnostics() == ["CALL_WILL_NOT_STOP"] * 2
    said = [event for event in watched.events if event.kind == "diagnostic"]
    assert {event.time - watched.began for event in said} == {7}
    assert watched.reason == ("tool_use", "aborted")


async def test_leaving_after_an_abort_tells_of_it_without_the_grace(autojump_clock: MockClock) -> None:
    with trio.fail_after(1000):
        async with Watched(Agent(ScriptedModel(calls(call(stubborn))), tools=[stubborn], settle_timeout=5)) as watched:
            await trio.sleep(1)
            watched.run.abort(50)
    assert watched.diagnostics() == ["CALL_WILL_NOT_STOP"]
    assert {event.time - watched.began for event in watched.events if event.kind == "diagnostic"} == {6}
    assert watched.took == 20


async def test_a_tool_may_abort_its_own_run(autojump_clock: MockClock) -> None:
    @tool
    async def enough() -> str:
        """Enough."""
        watched.run.abort(0)
        await trio.sleep(1)
        return "never"

    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(calls(call(enough, id="a"))), tools=[enough])) as watched:
            await watched.run.wait()
    assert watched.statuses == {"a": "interrupted"}
    assert watched.reason == ("aborted", "aborted")
    assert watched.the(ToolExecutionEnd).duration == 0


async def test_leaving_after_an_abort_does_not_wait_for_its_grace(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", id="a", seconds=100)))
    with trio.fail_after(1000):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(1)
            watched.run.abort(50)
    assert watched.took == 1
    assert watched.reason == ("cancelled", "cancelled")
