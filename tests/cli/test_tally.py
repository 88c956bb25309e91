"""What is counted from a run's events is what the run was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from trio_agent import Agent, Event, FatalToolError, Message, MessageEnd, ToolCall, ToolResult, tool
from trio_agent.cli._summary import asked_text, ended_text, fault_in, statuses_text, summary
from trio_agent.cli._tally import SLOWEST, Tally
from trio_agent.testing import Answer, ScriptedModel, call, calls, fail


@tool
async def nap(seconds: float) -> str:
    """Sleep."""
    await trio.sleep(seconds)
    return "slept"


@tool
async def crash() -> None:
    """Fail."""
    raise ValueError("broken")


@tool
async def give_up() -> None:
    """End the run."""
    raise FatalToolError("enough")


async def counted(
    *turns: Answer | str, at_once: int = 10, patience: float = 1e6
) -> tuple[Tally, Sequence[Message], str]:
    tally = Tally()

    async def see(event: Event) -> None:
        tally.see(event)

    agent = Agent(ScriptedModel(*turns), tools=[nap, crash, give_up], max_parallel_tools=at_once, listeners=[see])
    with trio.move_on_after(patience):
        async with agent.run("Go.") as run:
            await run.wait()
    return tally, run.state.messages, run.result.stop_reason


async def test_how_many_ran_at_once_and_for_how_long(autojump_clock: trio.testing.MockClock) -> None:
    turn = calls(*(call(nap, seconds=seconds) for seconds in (4, 3.5, 2, 1)))
    tally, _, _ = await counted(turn, call(nap, seconds=5), "Done.", at_once=3)
    assert (tally.asked, tally.statuses, tally.peak) == (5, {"ok": 5}, 3)
    assert (tally.wall, tally.serial) == (9, 15.5)
    first, second, third = tally.turns
    assert (first.peak, first.wall, first.ends) == (3, 4, [2, 3, 1, 0])
    assert (second.peak, second.wall, second.ends) == (1, 5, [0])
    assert (third.calls, third.wall, tally.tail, tally.model_calls) == ([], 0, "Done.", 3)
    assert sorted(took for took, _, _ in tally.slowest) == [3.5, 4, 5]
    assert len(tally.slowest) == SLOWEST
    assert (tally.running, tally.doing) == ({}, "idle")


async def test_calls_are_counted_by_tool(autojump_clock: trio.testing.MockClock) -> None:
    naps = [call(nap, seconds=seconds) for seconds in range(1, 21)]
    tally, _, _ = await counted(calls(*naps, call(crash), call("absent")), "Done.", at_once=30)
    assert list(tally.tools) == ["nap", "crash", "absent"]
    nap_tally = tally.tools["nap"]
    assert (nap_tally.asked, nap_tally.ended, nap_tally.running, nap_tally.statuses) == (20, 20, 0, {"ok": 20})
    assert [nap_tally.percentile(share) for share in (0, 0.5, 0.95, 1)] == [1, 11, 20, 20]
    assert tally.tools["crash"].statuses == {"error": 1}
    assert tally.tools["absent"].percentile(0.5) == 0
    assert asked_text(tally.turns[0]) == "22 calls of nap, crash, absent"
    assert ended_text(tally.turns[0]) == "20 ok, 1 failed, 1 of unknown tools in 20.00 s, 21 in flight at most"


async def test_a_call_that_was_cut_counts_for_as_long_as_it_ran(autojump_clock: trio.testing.MockClock) -> None:
    turn = calls(*(call(nap, seconds=seconds) for seconds in (1, 50, 60)))
    tally, messages, stop_reason = await counted(turn, at_once=2, patience=10)
    assert tally.statuses == {"ok": 1, "interrupted": 2}
    assert tally.serial == 1 + 10 + 9
    lines = list(summary(tally, messages, "cancelled", fault_in(messages)))
    assert stop_reason == "cancelled"
    assert lines.pop(5) in (  # two that are cut at once may end in either order
        "events     ends came in the order 1, 2, 3 of turn 1",
        "events     ends came in the order 1, 3, 2 of turn 1",
    )
    assert lines == [
        "run        1 turn, cancelled",
        "calls      3: 1 ok, 2 interrupted",
        "in flight  2 at most",
        "wall       10.00 s",
        "serial     20.00 s: how long the calls took, added up",
        "results    the model got them in the order 1, 2, 3",
        "history    valid: 3 messages, and each call has its one result",
    ]


async def test_calls_that_did_not_run_are_not_in_flight(autojump_clock: trio.testing.MockClock) -> None:
    tally, messages, _ = await counted(calls(call(give_up), call(nap, seconds=1)), at_once=1)
    assert tally.statuses == {"error": 1, "not_run": 1}
    assert tally.peak == 1
    assert fault_in(messages) is None


async def test_the_orders_of_ends_and_of_results_are_told(autojump_clock: trio.testing.MockClock) -> None:
    turn = calls(*(call(nap, seconds=20 - place) for place in range(12)))
    tally, messages, _ = await counted(turn, "Done.", at_once=12)
    lines = list(summary(tally, messages, "stop", None, 1.5))
    assert "events     ends came in the order 12, 11, 10, 9, 8, 7, 6, 5, ..., 1 of turn 1" in lines
    assert "results    the model got them in the order 1, 2, 3, 4, 5, 6, 7, 8, ..., 12" in lines
    assert "serial     174.00 s: how long the calls took, added up, 1.50 s of it on purpose" in lines


async def test_a_run_without_calls_is_told_in_few_words(autojump_clock: trio.testing.MockClock) -> None:
    tally, messages, _ = await counted("Hello.")
    assert list(summary(tally, messages, "stop", None)) == [
        "run        1 turn, stop",
        "calls      none",
        "history    valid: 2 messages",
    ]
    assert statuses_text(tally.statuses) == "none ended"


def test_calls_of_an_answer_that_could_not_be_read_are_no_calls() -> None:
    tally = Tally()
    tally.see(MessageEnd(Message("assistant", (ToolCall("c1", "nap", "{"),), finish_reason="malformed")))
    assert (tally.asked, tally.turn.calls) == (0, [])


async def test_a_retry_is_seen(autojump_clock: trio.testing.MockClock) -> None:
    tally, _, _ = await counted(fail(429, retry_after=3), "Hello.")
    assert (tally.model_calls, tally.wall, tally.tail) == (2, 3, "Hello.")


USER = Message("user", "Go.")
ASKS = Message("assistant", (ToolCall("c1", "nap"), ToolCall("c2", "nap")))


def results(*ids: str) -> Message:
    return Message("tool", tuple(ToolResult.of(call_id, "interrupted") for call_id in ids))


@pytest.mark.parametrize(
    "messages",
    [
        [USER],
        [USER, Message("assistant", "Hm", finish_reason="interrupted")],
        [USER, Message("assistant", "", finish_reason="error")],
        [USER, ASKS, results("c1", "c2")],
        [USER, ASKS, results("c1", "c2"), Message("assistant", "Done.")],
    ],
)
def test_a_history_that_is_whole_has_no_fault(messages: list[Message]) -> None:
    assert fault_in(messages) is None


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([USER, ASKS], "the calls ['c1', 'c2'] were answered by []"),
        ([USER, ASKS, results("c1")], "the calls ['c1', 'c2'] were answered by ['c1']"),
        ([USER, ASKS, results("c2", "c1")], "answered by ['c2', 'c1']"),
        ([USER, ASKS, results("c1", "c2", "c2")], "answered by"),
        ([USER, results("c1")], "the calls [] were answered by ['c1']"),
        ([Message("assistant", "I begin.")], "the first message is the assistant's"),
    ],
)
def test_a_history_that_is_not_whole_is_told_where(messages: list[Message], fault: str) -> None:
    assert fault in (fault_in(messages) or "")


def test_a_fault_is_in_the_summary() -> None:
    lines = list(summary(Tally(), [USER], "stop", "the calls x"))
    assert lines[-1] == "history    NOT VALID: the calls x"
