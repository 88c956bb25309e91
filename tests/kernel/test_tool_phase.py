"""One turn's tools: order, lanes, errors, threads, and what many calls cost."""

from __future__ import annotations

import itertools
from typing import Any

import attrs
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.kernel.fakes import FakeStore, Gauge, Watched, play, results
from trio_agent import (
    Agent,
    FatalToolError,
    HookContext,
    Middleware,
    ProviderError,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolExecutionUpdate,
    tool,
)
from trio_agent.testing import ScriptedModel, call, calls, say


async def work_through(answer: Any, *tools: Any, more: Any = (), **options: Any) -> Watched:
    """A run whose first answer has calls; ``work`` is among the tools."""
    return await play(Agent(ScriptedModel(answer, *more, say("Done.")), tools=tools or [Gauge().tool()], **options))


def times(watched: Watched) -> dict[str, tuple[float, float]]:
    """By call id: when it started and ended, in seconds from the beginning."""
    begun = {start.call_id: start.time - watched.began for start in watched.all(ToolExecutionStart)}
    return {
        end.result.call_id: (begun[end.result.call_id], end.time - watched.began)
        for end in watched.all(ToolExecutionEnd)
        if end.result.call_id in begun
    }


# ------------------------------------------------------------------------------------- parallel and in lanes


@pytest.mark.parametrize(("cap", "took"), [(1, 8), (2, 4), (3, 4), (10, 2)])
async def test_no_more_calls_run_at_once_than_allowed(autojump_clock: MockClock, cap: int, took: float) -> None:
    gauge = Gauge()
    answer = calls(*[call("work", seconds=2) for _ in range(4)])
    watched = await work_through(answer, gauge.tool(), max_parallel_tools=cap)
    assert watched.took == took
    assert gauge.peak == min(cap, 4)


async def test_an_exclusive_call_runs_alone(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    answer = calls(
        call("work", id="a", seconds=2),
        call("work", id="b", seconds=4),
        call("alone", id="c", seconds=3),
        call("work", id="d", seconds=1),
        call("alone", id="e", seconds=1),
        call("alone", id="f", seconds=1),
        call("work", id="g", seconds=1),
    )
    watched = await work_through(answer, gauge.tool(), gauge.tool("alone", exclusive=True))
    assert times(watched) == {
        "a": (0, 2),
        "b": (0, 4),
        "c": (4, 7),
        "d": (7, 8),
        "e": (8, 9),
        "f": (9, 10),
        "g": (10, 11),
    }


async def test_a_lane_keeps_input_order_and_other_lanes_stay_parallel(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    keyed = gauge.tool(lane=lambda input: input["key"])
    answer = calls(
        call("work", id="x1", seconds=3, key="x"),
        call("work", id="x2", seconds=1, key="x"),
        call("work", id="y1", seconds=2, key="y"),
        call("work", id="x3", seconds=1, key="x"),
        call("free", id="f", seconds=1),
    )
    watched = await work_through(answer, keyed, gauge.tool("free"), max_parallel_tools=2)
    # A call that waits for its lane holds neither worker nor token.
    assert times(watched) == {"x1": (0, 3), "y1": (0, 2), "f": (2, 3), "x2": (3, 4), "x3": (4, 5)}


async def test_a_call_in_several_lanes_is_the_first_of_each(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    both = gauge.tool(lane=lambda input: list(input["key"]))
    answer = calls(*[call("work", id=key, seconds=1, key=key) for key in ("ab", "ba", "c", "bc", "a")])
    watched = await work_through(answer, both)
    assert times(watched) == {"ab": (0, 1), "c": (0, 1), "ba": (1, 2), "bc": (2, 3), "a": (2, 3)}


async def test_a_lane_that_cannot_be_told_fails_its_call_only(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    keyed = gauge.tool("keyed", lane=lambda input: input["nope"])
    watched = await work_through(calls(call("keyed", id="a"), call("work", id="b")), keyed, gauge.tool())
    assert gauge.begun == ["b"]
    assert watched.statuses == {"a": "invalid", "b": "ok"}
    assert "KeyError" in results(watched)[0].text


@attrs.frozen
class Planned:
    """One call of a plan: how long it takes, and which lanes it is in; ``!`` is exclusive."""

    seconds: int
    lanes: str

    @property
    def exclusive(self) -> bool:
        return "!" in self.lanes


PLANS = st.lists(
    st.builds(Planned, st.integers(0, 3), st.sampled_from(["", "", "a", "b", "ab", "ba", "bc", "!", "a!"])), max_size=9
)


async def _carry_out(plan: list[Planned], cap: int, durable: bool) -> tuple[Watched, Gauge]:
    gauge = Gauge()
    tools = [
        gauge.tool("work", lane=lambda input: list(input["key"].strip("!"))),
        gauge.tool("alone", lane=lambda input: list(input["key"].strip("!")), exclusive=True),
    ]
    answer = calls(
        *[
            call("alone" if item.exclusive else "work", id=f"c{index}", seconds=item.seconds, key=item.lanes)
            for index, item in enumerate(plan)
        ]
    )
    options: dict[str, Any] = {"store": FakeStore(delay=0.25)} if durable else {}
    return await work_through(answer, *tools, max_parallel_tools=cap, **options), gauge


@given(PLANS, st.integers(1, 4), st.booleans())
def test_every_plan_is_carried_out(plan: list[Planned], cap: int, durable: bool) -> None:
    watched, gauge = trio.run(_carry_out, plan, cap, durable, clock=MockClock(autojump_threshold=0))
    ids = [f"c{index}" for index in range(len(plan))]
    assert watched.result.stop_reason == "stop"
    assert sorted(gauge.begun) == sorted(gauge.returned) == ids
    assert gauge.peak <= cap
    assert [result.call_id for result in results(watched)] == ids
    assert {result.status for result in results(watched)} <= {"ok"}
    ends = watched.all(ToolExecutionEnd)
    assert [end.result.call_id for end in ends] == gauge.returned
    spans = times(watched)
    for (i, first), (j, second) in itertools.combinations(enumerate(plan), 2):
        if first.exclusive or second.exclusive or set(first.lanes) & set(second.lanes):
            assert spans[f"c{i}"][1] <= spans[f"c{j}"][0], (first, second)


# ----------------------------------------------------------------------------------------------- errors


async def test_a_fatal_error_ends_the_run_and_cuts_the_siblings(autojump_clock: MockClock) -> None:
    @tool
    async def explode(seconds: float) -> str:
        """Explode."""
        await trio.sleep(seconds)
        raise FatalToolError("boom")

    gauge = Gauge()
    answer = calls(
        call("work", id="done", seconds=1),
        call(explode, id="bad", seconds=2),
        call("work", id="cut", seconds=9),
        call("work", id="late", seconds=1),
    )
    watched = await work_through(answer, explode, gauge.tool(), max_parallel_tools=3)
    assert watched.statuses["done"] == "ok"
    assert watched.statuses["bad"] == "error"
    assert watched.statuses["cut"] == "interrupted"
    assert watched.took == 2
    assert watched.reason == ("error", "error")
    error = watched.result.error
    assert isinstance(error, FatalToolError)
    assert (error.code, error.message) == ("TOOL_FAILED", "boom")


async def test_a_fatal_error_of_a_single_call_ends_the_run(autojump_clock: MockClock) -> None:
    @tool
    async def explode() -> str:
        """Explode."""
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [FatalToolError("boom")])])

    watched = await work_through(calls(call(explode, id="a")), explode)
    assert watched.statuses == {"a": "error"}
    assert isinstance(watched.result.error, FatalToolError)
    assert watched.result.turns == 1
    assert watched.tale[-4:] == ["message_end error ''", "turn_end 1 error", "phase idle", "agent_end error"]


async def test_a_group_that_a_tool_raises_is_told_by_its_leaves(autojump_clock: MockClock) -> None:
    @tool
    async def nest(count: int) -> str:
        """Nest."""

        async def fail(number: int) -> None:
            raise ValueError(f"leaf {number}")

        async with trio.open_nursery() as nursery:
            for number in range(count):
                nursery.start_soon(fail, number)
        return "never"

    watched = await work_through(calls(call(nest, id="one", count=1), call(nest, id="two", count=2)), nest)
    one, two = results(watched)
    assert (one.status, two.status) == ("error", "error")
    assert "ValueError: leaf 0" in one.text
    assert "Group" not in one.text
    assert "ValueError: leaf 0" in two.text
    assert "ValueError: leaf 1" in two.text
    assert watched.result.stop_reason == "stop"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("count", [1, 2])
async def test_an_interrupt_of_a_tool_passes_through_after_settlement(
    autojump_clock: MockClock, kind: type[BaseException], count: int
) -> None:
    error = kind()

    @tool
    async def leave() -> str:
        """Leave."""
        await trio.sleep(1)
        raise error

    model = ScriptedModel(calls(*[call(leave, id="a"), call("work", id="b", seconds=9)][:count]))
    watched = Watched(Agent(model, tools=[leave, Gauge().tool()]))
    with pytest.raises(kind) as caught, trio.fail_after(100):
        async with watched:
            await watched.run.wait()
    assert caught.value is error
    assert set(watched.statuses.values()) == {"interrupted"}
    assert watched.reason == ("cancelled", "cancelled")


async def test_what_a_tool_says_after_its_end_is_dropped_and_told(autojump_clock: MockClock) -> None:
    kept: list[ToolContext] = []

    @tool
    async def keep(ctx: ToolContext) -> str:
        """Keep the context."""
        ctx.progress("in time")
        kept.append(ctx)
        return "kept"

    class Later(Middleware):
        async def should_stop_after_turn(self, ctx: HookContext) -> bool:
            for context in kept:
                context.progress("late")
                context.emit("late", {})
            return False

    watched = await work_through(calls(call(keep, id="a"), call(keep, id="b")), keep, middleware=[Later()])
    assert [update.data for update in watched.all(ToolExecutionUpdate)] == ["in time"] * 2
    assert watched.diagnostics() == ["LATE_UPDATE"] * 3, "one a call, and how often"
    assert "custom late" not in watched.tale


# ------------------------------------------------------------------------------------- the ends of an answer


async def test_a_tool_with_a_timeout_is_cut_when_it_passes(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    limited = gauge.tool("limited", timeout=3)
    answer = calls(
        call("limited", id="a", seconds=9), call("limited", id="b", seconds=2), call("work", id="c", seconds=5)
    )
    watched = await work_through(answer, limited, gauge.tool())
    assert watched.statuses == {"a": "timed_out", "b": "ok", "c": "ok"}
    assert times(watched)["a"] == (0, 3)
    assert gauge.cut == ["a"]
    assert watched.result.stop_reason == "stop"


async def test_a_terminal_tool_stops_the_run_after_its_turn_if_it_ended_well(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    finish = gauge.tool("finish", terminal=True)
    answer = calls(call("finish", id="a"), call("work", id="b", seconds=2))
    watched = await work_through(answer, finish, gauge.tool())
    assert watched.reason == ("tool_use", "stop")
    assert (watched.result.turns, watched.took) == (1, 2)
    watched = await work_through(calls(call("finish", id="a", boom="no")), finish)
    assert (watched.result.turns, watched.result.text) == (2, "Done.")


async def test_calls_of_an_answer_that_was_cut_off_are_truncated(autojump_clock: MockClock) -> None:
    gauge = Gauge()
    answer = calls(call("work", id="a"), call("work", id="b", raw='{"sec'), finish="length")
    watched = await work_through(answer, gauge.tool())
    assert watched.statuses == {"a": "truncated", "b": "truncated"}
    assert gauge.begun == []
    assert "less" in results(watched)[0].text
    assert "turn_end 1 length" in watched.tale
    assert (watched.result.turns, watched.result.stop_reason) == (2, "stop")


@pytest.mark.parametrize("reason", ["length", "refusal"])
async def test_an_answer_without_calls_ends_the_run_for_its_reason(autojump_clock: MockClock, reason: Any) -> None:
    watched = await play(Agent(ScriptedModel(say("Well", finish=reason))))
    assert watched.reason == (reason, reason)
    assert watched.result.error is None


async def test_a_paused_answer_is_gone_on_with_in_the_same_turn(autojump_clock: MockClock) -> None:
    model = ScriptedModel(say("One, ", finish="pause"), say("two.", finish="pause"), say("Three."))
    watched = await play(Agent(model))
    assert (watched.result.turns, watched.result.text) == (1, "Three.")
    assert len(model.requests) == 3
    watched = await play(Agent(ScriptedModel(say("More", finish="pause"), repeat_last=True)))
    assert watched.reason == ("error", "error")
    assert len(watched.agent.model.requests) == 11  # type: ignore[attr-defined]  # a ScriptedModel


async def test_an_unknown_end_is_an_error_that_names_it(autojump_clock: MockClock) -> None:
    watched = await play(Agent(ScriptedModel(say("Hm.", finish="unknown"))))
    assert isinstance(watched.result.error, ProviderError)
    assert watched.result.error.code == "PROVIDER_ERROR"
    assert watched.reason == ("error", "error")
    assert len(watched.agent.model.requests) == 1  # type: ignore[attr-defined]  # a ScriptedModel


async def test_turns_are_counted_and_may_run_out(autojump_clock: MockClock) -> None:
    model = ScriptedModel(calls(call("work")), repeat_last=True)
    agent = Agent(model, tools=[Gauge().tool()], max_turns=3)
    cases: list[tuple[dict[str, Any], int]] = [({}, 3), ({"max_turns": 5}, 5), ({"max_turns": 1}, 1)]
    for options, turns in cases:
        watched = await play(agent, **options)
        assert watched.reason == ("tool_use", "max_turns")
        assert watched.result.turns == turns
        assert watched.result.error is None
    watched = await play(agent.replace(model=ScriptedModel(say("Done.")), max_turns=1))
    assert watched.result.stop_reason == "stop"


async def test_what_a_tool_steers_stands_behind_its_start(autojump_clock: MockClock) -> None:
    @tool
    async def steers(ctx: ToolContext) -> None:
        """Steer."""
        await watched.run.steer(ctx.call_id)

    model = ScriptedModel(calls(call(steers, id="a"), call(steers, id="b")), say("Done."), say("And b."))
    with trio.fail_after(100):
        async with Watched(Agent(model, tools=[steers])) as watched:
            await watched.run.wait()
    told = watched.tale
    for name in "ab":
        assert told.index(f"start {name}") < told.index(f"queued steer '{name}'") < told.index(f"end {name} ok")
