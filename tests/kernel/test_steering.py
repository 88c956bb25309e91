"""Steers and follow-ups: delivered once, at a turn's start, or handed back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, Watched
from trio_agent import (
    Agent,
    FatalToolError,
    HookContext,
    Image,
    Message,
    MessageDelivered,
    MessageQueued,
    Middleware,
    RequestError,
    RunEnded,
    RunResult,
    Text,
    ToolExecutionStart,
    TurnStart,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, fail, say


def said(messages: Sequence[Message]) -> list[str]:
    """Who spoke, and what users said."""
    return [message.text if message.role == "user" else message.role for message in messages]


async def test_a_steer_comes_at_the_next_turn_after_the_results(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=5, id="a"), call("work", seconds=2, id="b")), say("Ah."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(1)
            await watched.run.steer("left!")
            assert watched.run.state.queued[0].text == "left!"
            await watched.run.wait()
    told = watched.tale
    assert told[told.index("queued steer 'left!'") :][:3] == ["queued steer 'left!'", "end b ok", "end a ok"]
    at = told.index("turn_start 2")
    assert told[at + 1 : at + 3] == ["message_delivered", "model_call_start 1"]
    assert said(model.requests[1].messages) == ["go", "assistant", "tool", "left!"]
    assert watched.result.messages[3].origin == "steer"
    assert watched.result.undelivered == ()
    assert watched.took == 5


async def test_a_follow_up_comes_when_the_run_would_stop(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", seconds=1)), say("Done."), say("And that."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await watched.run.follow_up("and then?")
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "assistant", "tool", "assistant", "and then?", "assistant"]
    assert watched.result.messages[4].origin == "follow_up"
    assert watched.result.text == "And that."


@pytest.mark.parametrize(
    ("options", "history"),
    [
        ({}, ["go", "assistant", "s1", "assistant", "s2", "assistant", "f1", "assistant", "f2", "assistant"]),
        ({"steering": "all"}, ["go", "assistant", "s1", "s2", "assistant", "f1", "assistant", "f2", "assistant"]),
        ({"follow_up": "all"}, ["go", "assistant", "s1", "assistant", "s2", "assistant", "f1", "f2", "assistant"]),
        (
            {"steering": "all", "follow_up": "all"},
            ["go", "assistant", "s1", "s2", "assistant", "f1", "f2", "assistant"],
        ),
    ],
)
async def test_each_queue_is_emptied_one_or_all_at_a_time(
    autojump_clock: MockClock, options: Any, history: list[str]
) -> None:
    model = ScriptedModel(say("Hm.", delay=1), repeat_last=True)
    with trio.fail_after(100):
        async with Watched(Agent(model, **options)) as watched:
            await trio.sleep(0.5)
            for text in ("f1", "f2"):
                await watched.run.follow_up(text)
            for text in ("s1", "s2"):
                await watched.run.steer(text)
            await watched.run.wait()
    assert said(watched.result.messages) == history
    assert watched.result.turns == history.count("assistant")


async def test_a_steer_before_the_first_step_comes_after_the_input(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("Both."))
    with trio.fail_after(10):
        async with Watched(Agent(model)) as watched:
            await watched.run.steer("and this")
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "and this", "assistant"]
    assert watched.result.turns == 1


async def test_a_steer_in_the_last_answer_revives_the_run(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("I am done.", chunks=2, every=2), say("Not quite, then."))
    with trio.fail_after(10):
        async with Watched(Agent(model)) as watched:
            await trio.sleep(1)
            await watched.run.steer("wait", interrupt=True)  # while the model streams it cuts nothing
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "assistant", "wait", "assistant"]
    assert watched.result.messages[1].text == "I am done."
    assert (watched.result.text, watched.took) == ("Not quite, then.", 2)


async def test_a_message_may_be_given_whole(autojump_clock: MockClock) -> None:
    message = Message("user", (Text("look"), Image("image/png", b"x")))
    model = ScriptedModel(say("Hm.", delay=1), say("I see."))
    with trio.fail_after(10):
        async with Watched(Agent(model)) as watched:
            await watched.run.follow_up(message)
            for bad in (Message("assistant", "x"), Message("user", ()), Message("tool", ())):
                with pytest.raises(RequestError):
                    await watched.run.steer(bad)
            await watched.run.wait()
    assert model.requests[1].messages[-1].content == message.content
    assert len(watched.all(MessageQueued)) == 1


# -------------------------------------------------------------------------- when the queues are not read


@tool(terminal=True)
async def finish() -> str:
    """Finish."""
    return "finished"


@tool
async def explode() -> str:
    """Explode."""
    raise FatalToolError("boom")


class StopsAfterEachTurn(Middleware):
    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        return True


NOT_READ: dict[str, tuple[dict[str, Any], str]] = {
    "error": ({"model": ScriptedModel(fail(401, after=say("Hm.", delay=2)))}, "error"),
    "fatal tool": ({"model": ScriptedModel(say("Hm.", delay=2) + call(explode)), "tools": [explode]}, "error"),
    "max_turns": ({"model": ScriptedModel(say("Hm.", delay=2)), "max_turns": 1}, "max_turns"),
    "terminal tool": ({"model": ScriptedModel(say("Hm.", delay=2) + call(finish)), "tools": [finish]}, "stop"),
    "should_stop": ({"model": ScriptedModel(say("Hm.", delay=2)), "middleware": [StopsAfterEachTurn()]}, "stop"),
    "abort": ({"model": ScriptedModel(say("Hm.", delay=2))}, "aborted"),
    "leave": ({"model": ScriptedModel(say("Hm.", delay=2))}, "cancelled"),
}


@pytest.mark.parametrize("why", NOT_READ)
async def test_what_no_turn_came_for_is_handed_back(autojump_clock: MockClock, why: str) -> None:
    options, reason = NOT_READ[why]
    with trio.fail_after(100):
        async with Watched(Agent(**options)) as watched:
            await trio.sleep(1)
            await watched.run.follow_up("f1")
            await watched.run.steer("s1")
            await watched.run.follow_up("f2")
            await watched.run.steer("s2")
            if why == "abort":
                watched.run.abort()
            if why != "leave":
                await watched.run.wait()
    assert watched.result.stop_reason == reason
    assert said(watched.result.undelivered) == ["s1", "s2", "f1", "f2"]
    assert watched.all(MessageDelivered) == []
    assert watched.result.turns == 1


# ------------------------------------------------------------------------------------------ the end


async def test_after_the_end_nothing_is_accepted(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Done.")))) as watched:
            await watched.run.wait()
            for verb in (watched.run.steer, watched.run.follow_up):
                with pytest.raises(RunEnded) as caught:
                    await verb("too late")
                assert caught.value.code == "RUN_ENDED"
    with pytest.raises(RunEnded):
        await watched.run.steer("too late")
    assert watched.result.undelivered == ()
    assert watched.all(MessageQueued) == []


async def test_while_the_listeners_handle_the_end_nothing_is_accepted(autojump_clock: MockClock) -> None:
    async def slow(event: Any) -> None:
        await trio.sleep(1)

    with trio.fail_after(1000):
        async with Watched(Agent(ScriptedModel(say("Done.")), listeners=[slow])) as watched:
            await trio.sleep(5.5)
            with pytest.raises(RunEnded):
                await watched.run.steer("too late")
            await watched.run.wait()
    assert watched.took > 6


async def test_a_steer_while_after_agent_runs_revives_the_run_and_it_is_not_run_again(
    autojump_clock: MockClock,
) -> None:
    ran = []

    class Last(Middleware):
        async def after_agent(self, ctx: HookContext) -> None:
            ran.append(ctx.turn)
            await watched.run.steer("one more")

    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Done."), say("Really.")), middleware=[Last()])) as watched:
            await watched.run.wait()
    assert ran == [1]
    assert watched.result.text == "Really."


# --------------------------------------------------------------------------------------- interrupting


async def test_interrupt_cuts_what_runs_and_starts_nothing_else(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    model = ScriptedModel(
        calls(
            call("work", id="quick", seconds=1),
            call("work", id="long", seconds=9),
            call("work", id="slow", seconds=9),
            call("work", id="waiting"),
        ),
        calls(call("work", id="next", seconds=1)),
        say("As you say."),
    )
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[gauge.tool()], max_parallel_tools=2)) as watched:
            await trio.sleep(2)
            await watched.run.steer("the other one", interrupt=True)
            await watched.run.wait()
    assert watched.statuses == {
        "quick": "ok",
        "long": "interrupted",
        "slow": "interrupted",
        "waiting": "not_run",
        "next": "ok",
    }
    assert sorted(gauge.cut) == ["long", "slow"]
    assert watched.took == 3
    assert said(watched.result.messages)[:5] == ["go", "assistant", "tool", "the other one", "assistant"]
    told = watched.tale
    assert told.index("queued steer 'the other one'") < told.index("end long interrupted")
    assert "turn_end 1 tool_use" in told


async def test_interrupt_cuts_a_single_call_too(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work", id="long", seconds=9)), say("As you say."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[Gauge().tool()])) as watched:
            await trio.sleep(2)
            await watched.run.steer("stop that", interrupt=True)
            await watched.run.wait()
    assert watched.statuses == {"long": "interrupted"}
    assert (watched.took, watched.result.text) == (2, "As you say.")


# ------------------------------------------------------------------------------- from inside, and cancelled


@pytest.mark.parametrize("store", [None, FakeStore])
async def test_a_listener_may_steer(autojump_clock: MockClock, store: Any) -> None:
    async def listener(event: object) -> None:
        if isinstance(event, ToolExecutionStart):
            await watched.run.steer("noted")

    model = ScriptedModel(calls(call("work", seconds=1)), say("Done."))
    with trio.fail_after(10):
        async with Watched(Agent(model, tools=[Gauge().tool()], store=store and store())) as watched:
            watched.run.subscribe(listener)
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "assistant", "tool", "noted", "assistant"]


async def test_a_tool_may_steer(autojump_clock: MockClock) -> None:
    @tool
    async def hint() -> str:
        """Hint."""
        await watched.run.steer("a hint")
        return "hinted"

    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(calls(call(hint)), say("Ah.")), tools=[hint])) as watched:
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "assistant", "tool", "a hint", "assistant"]


async def test_a_steer_that_was_cancelled_before_it_began_was_not_accepted(autojump_clock: MockClock) -> None:
    with trio.fail_after(10):
        async with Watched(Agent(ScriptedModel(say("Done.", delay=1)))) as watched:
            with trio.CancelScope() as scope:
                scope.cancel()
                await watched.run.steer("never said")
            assert scope.cancelled_caught
            await watched.run.wait()
    assert watched.all(MessageQueued) == []
    assert watched.result.undelivered == ()


async def test_a_steer_that_is_cancelled_while_it_waits_comes_once(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("Hm.", delay=5), say("Ah."))
    with trio.fail_after(100):
        async with Watched(Agent(model, store=FakeStore(delay=1))) as watched:
            await trio.sleep(2.5)
            with trio.move_on_after(0.1) as scope:
                await watched.run.steer("said once")
            assert scope.cancelled_caught
            await watched.run.wait()
    assert said(watched.result.messages) == ["go", "assistant", "said once", "assistant"]
    assert len(watched.all(MessageDelivered)) == 1


# ----------------------------------------------------------------------------------------- whatever comes


async def _steered(plan: list[tuple[float, str, bool]], mode: str, abort_at: float) -> tuple[RunResult, list[Any]]:
    gauge = Gauge()
    model = ScriptedModel(
        *[calls(call("work", seconds=1), call("work", seconds=3)), say("Hm.", delay=1)] * 2, say("Yes.", delay=1)
    )
    accepted: list[str] = []

    async def say_it(number: int, at: float, verb: str, interrupt: bool) -> None:
        await trio.sleep(at)
        try:
            if verb == "steer":
                await watched.run.steer(str(number), interrupt=interrupt)
            else:
                await watched.run.follow_up(str(number))
        except RunEnded:
            return
        accepted.append(str(number))

    with trio.fail_after(1000):
        options: dict[str, Any] = {"steering": mode, "follow_up": mode, "max_turns": 5}
        async with Watched(Agent(model, tools=[gauge.tool()], max_parallel_tools=1, **options)) as watched:
            async with trio.open_nursery() as nursery:
                for number, (at, verb, interrupt) in enumerate(plan):
                    nursery.start_soon(say_it, number, at, verb, interrupt)
                with trio.move_on_after(abort_at):
                    await watched.run.wait()
                watched.run.abort()
    return watched.result, [accepted, watched.all(TurnStart)]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 0.5, 1.5, 4.0, 4.5, 5.5, 9.0, 20.0]),
            st.sampled_from(["steer", "follow_up"]),
            st.booleans(),
        ),
        max_size=6,
    ),
    st.sampled_from(["one", "all"]),
    st.sampled_from([0.7, 4.2, 100.0]),
)
def test_every_accepted_message_is_delivered_once_or_handed_back(
    plan: list[tuple[float, str, bool]], mode: str, abort_at: float
) -> None:
    result, (accepted, turns) = trio.run(_steered, plan, mode, abort_at, clock=MockClock(autojump_threshold=0))
    delivered = [message.text for message in result.messages if message.origin is not None]
    assert sorted(delivered + said(result.undelivered)) == sorted(accepted)
    assert len(turns) == result.turns
