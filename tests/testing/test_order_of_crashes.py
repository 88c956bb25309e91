"""The promised order of runs that go on after a crash: in their log, and for who sees them from there."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest

from tests.testing.session_stories import (
    CRASHES,
    Tell,
    a_call_of_the_model,
    answer_and_end,
    begin,
    behind_the_answer,
    log_of,
    suspended,
    told,
)
from tests.testing.stories import Story, stamped
from trio_agent._events import GOES_ON, ORDER, Event, MessageStart, PhaseChange
from trio_agent._facts import (
    AgentEnd,
    AgentResume,
    ApprovalResolved,
    MessageEnd,
    Place,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
    stamp,
)
from trio_agent._messages import Message, ToolCall, ToolResult
from trio_agent.testing import check_order


@pytest.mark.parametrize("tell", CRASHES)
def test_a_run_goes_on_wherever_a_crash_has_cut_it(tell: Tell) -> None:
    check_order(stamped(log_of(told(tell))), session=True, facts_only=True)


@pytest.mark.parametrize("tell", CRASHES)
def test_whoever_sees_a_run_from_where_it_goes_on_finds_it_in_order(tell: Tell) -> None:
    events = stamped(told(tell))
    last = max(n for n, event in enumerate(events) if isinstance(event, AgentResume))
    check_order(events[last:])
    check_order(events[last:], session=True)


@pytest.mark.parametrize("tell", CRASHES)
def test_dropping_a_fact_behind_a_crash_is_noticed(tell: Tell) -> None:
    facts = log_of(told(tell))
    crash = max(n for n, fact in enumerate(facts) if isinstance(fact, AgentResume))
    for n, fact in enumerate(facts):
        if n > crash and fact.kind in ("turn_start", "tool_execution_end", "turn_end", "agent_end"):
            with pytest.raises(AssertionError):
                check_order(stamped([*facts[:n], *facts[n + 1 :]]), session=True, facts_only=True)


def test_every_place_where_a_run_can_be_is_one_where_a_crash_can_cut_it() -> None:
    unlogged = {"failing"}  # a message that begins and has not ended is not in the log
    suspended = {"suspended", "suspending"}  # there another run goes on
    assert set(GOES_ON) == set(ORDER) - {"outside", "over", "pending"} - unlogged - suspended
    assert set(GOES_ON.values()) <= set(ORDER)


def test_every_place_can_be_reached_and_left() -> None:
    reached = {after for row in ORDER.values() for after in row.values()} | set(GOES_ON.values())
    assert set(ORDER) - {"outside"} == reached - {"outside"}
    assert [place for place, row in ORDER.items() if not row] == []


# ------------------------------------------------------------------------- each rule, by its words


def crashed(tell: Callable[[Story, tuple[ToolCall, ...]], None], calls: int = 1) -> Tell:
    """A crash in the middle of started calls, the first ``once``, the others ``pure``; then ``tell`` happens."""

    def story_of(story: Story) -> None:
        asked = begin(story, calls)
        for index, call in enumerate(asked):
            story.start(call, index, "pure" if index else "once")
        story.go_on()
        tell(story, asked)

    return story_of


def a_once_call_starts_again(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.announce(calls)
    story.start(calls[0], 0)


def under_another_key(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.announce(calls[1:])
    story.start(calls[1], 1, "pure", turn=7)


def without_a_start_and_well(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0, "ok")


def without_a_start_and_not_run(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0, "not_run")


def denied_after_all(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.finish(calls[1], 1, "denied")


def left_out(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.end_turn()


def ended_again(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.recover(calls[0], 0)


def an_error_too_early(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.error_pair()


def another_run(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.begin()


def suspended_though_nobody_asked(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.recover(calls[0], 0)
    story.end_suspended()


def an_answer_to_no_question(story: Story, calls: tuple[ToolCall, ...]) -> None:
    story.permit(calls[0], 0)


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (crashed(a_once_call_starts_again), "the start of call 'c1' again, and its effect was once"),
        (crashed(under_another_key, 2), "the start of call 'c2' has another idempotency key than before: 'r1.7.1'"),
        (crashed(without_a_start_and_well), "tool_execution_end:ran cannot stand here"),
        (crashed(without_a_start_and_not_run), "call 'c1' is not_run, and had started before"),
        (crashed(denied_after_all, 2), "call 'c2' is denied, and had started before"),
        (crashed(left_out, 2), "turn_end before the end of 'c2'"),
        (crashed(ended_again), "a second end of call 'c1'"),
        (crashed(an_error_too_early, 2), "another message before the end of 'c2'"),
        (crashed(another_run), "agent_start cannot stand here"),
        (crashed(suspended_though_nobody_asked, 2), "turn_end:suspended before the end of 'c2', which waits for no"),
        (crashed(an_answer_to_no_question), "approval_resolved of call 'c1', and nobody asked"),
    ],
)
def test_a_broken_rule_of_a_run_that_goes_on_is_named(tell: Tell, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(log_of(told(tell))), session=True, facts_only=True)
    assert words in str(caught.value)


def test_a_crash_that_nobody_told_allows_nothing() -> None:
    def tell(story: Story) -> None:
        (call,) = begin(story, 1)
        story.start(call, 0, "pure")
        story.start(call, 0, "pure")

    with pytest.raises(AssertionError, match="the start of call 'c1' after its start"):
        check_order(stamped(log_of(told(tell))), facts_only=True)


def test_an_observer_never_sees_a_run_go_on_in_its_middle() -> None:
    with pytest.raises(AssertionError, match="agent_resume cannot stand here: the run is 'opened'"):
        check_order(stamped(told(a_call_of_the_model)), session=True)


def test_a_run_whose_turn_is_suspended_does_not_go_on() -> None:
    story = Story()
    suspended(story)
    del story.events[-1]
    story.go_on()
    with pytest.raises(AssertionError, match="agent_resume cannot stand here: the run is 'suspended' or 'suspending'"):
        check_order(stamped(log_of(story.events)), facts_only=True)


@pytest.mark.parametrize("facts_only", [False, True])
def test_a_run_that_has_ended_does_not_go_on(facts_only: bool) -> None:
    story = Story()
    story.begin()
    answer_and_end(story)
    story.add(AgentResume())
    with pytest.raises(AssertionError, match="agent_resume cannot stand here: the run is 'over'"):
        check_order(stamped(log_of(story.events) if facts_only else story.events), session=True, facts_only=facts_only)


def test_the_run_that_goes_on_is_the_one_that_was_cut() -> None:
    events = stamped(log_of(told(behind_the_answer)))
    crash = next(n for n, event in enumerate(events) if isinstance(event, AgentResume))
    stamp(events[crash], events[crash].seq, 0.0, Place("r9", 1))
    with pytest.raises(AssertionError, match="agent_resume of run 'r9', open is 'r1'"):
        check_order(events, facts_only=True)


def test_a_message_id_of_a_cut_answer_is_not_used_again_within_its_run() -> None:
    story = Story()
    story.begin()
    story.begin_turn()
    story.answer("a", "pause")
    story.go_on()
    story.messages = 0
    story.answer()
    with pytest.raises(AssertionError, match="the message id 'm1' is used again"):
        check_order(stamped(log_of(story.events)), facts_only=True)


# ------------------------------------------------------------------- of a run that is seen from its crash


def seen_from_the_crash(*events: Event) -> list[Event]:
    return stamped([AgentResume(), PhaseChange("turn"), *events], seq=9)


SEEN = ToolCall("c2", "look", "{}")


def pair(result: ToolResult) -> list[Event]:
    return [MessageStart("", "tool", result.call_id), MessageEnd(Message("tool", (result,)))]


def end_of(call_id: str, index: int, status: str = "ok") -> ToolExecutionEnd:
    return ToolExecutionEnd(ToolResult(call_id, (), status), index)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([end_of("c1", 0)], "tool_execution_end:ran cannot stand here: the run is 'resumed'"),
        ([end_of("c1", 0, "denied")], "tool_execution_end:refused cannot stand here: the run is 'resumed'"),
        ([end_of("c1", 0, "interrupted"), end_of("c1", 0, "interrupted")], "a second end of call 'c1'"),
        ([end_of("c1", 0, "interrupted"), TurnStart(4)], "turn_start cannot stand here: the run is 'recovered'"),
        ([*pair(ToolResult("c1")), *pair(ToolResult("c1"))], "the result of call 'c1' out of input order"),
        ([end_of("c1", 1, "interrupted"), end_of("c2", 0, "interrupted")], "turn_end after 0 of 2 results"),
        (pair(ToolResult("c1"))[:1] + pair(ToolResult("c2"))[1:], "not the one its tool_execution_end told"),
        ([ApprovalResolved("c1", 0, "allow")], "approval_resolved cannot stand here: the run is 'resumed'"),
        ([TurnStart(0)], "turn 0 after turn 0"),
    ],
)
def test_what_is_seen_of_a_run_that_goes_on_is_held_to_the_order(events: list[Event], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(seen_from_the_crash(*events, TurnEnd(0, "tool_use"), PhaseChange("idle"), AgentEnd("stop")))
    assert words in str(caught.value)


def test_calls_that_were_not_seen_are_held_to_what_is_told_of_them() -> None:
    def tell(story: Story) -> None:
        story.go_on()
        story.announce([SEEN])

    for last, words in (
        (lambda story: story.start(ToolCall("c1", "look"), 0), "the start of call 'c1' after 1 of 2 tool_use"),
        (lambda story: story.start(attrs.evolve(SEEN, name="other"), 1), "names another place or tool"),
        (lambda story: story.announce([SEEN]), "tool_use of call 'c2' out of input order"),
        (lambda story: story.finish(SEEN, 1, "ok"), "tool_execution_end:ran cannot stand here"),
    ):
        story = Story()
        tell(story)
        last(story)
        with pytest.raises(AssertionError) as caught:
            check_order(stamped(story.events, seq=9))
        assert words in str(caught.value)


def test_results_that_were_not_seen_stand_in_input_order() -> None:
    results = [ToolResult("c1"), ToolResult("c2", status="interrupted"), ToolResult("c3")]
    cut = end_of("c2", 1, "interrupted")
    tail = (TurnEnd(0, "tool_use"), PhaseChange("idle"), AgentEnd("stop"))
    check_order(seen_from_the_crash(cut, *(e for r in results for e in pair(r)), *tail))
    results[0:2] = results[1], results[0]
    with pytest.raises(AssertionError, match="turn_end"):
        check_order(seen_from_the_crash(cut, *(e for r in results[:1] for e in pair(r)), *tail[1:]))
