from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.testing.stories import FAILURE, Story, is_fact, stamped, stories
from trio_agent._events import (
    Event,
    MessageStart,
    ModelCallStart,
    PhaseChange,
    ReasoningDelta,
    TextDelta,
    ToolExecutionUpdate,
    ToolUse,
)
from trio_agent._facts import (
    AgentEnd,
    AgentStart,
    Custom,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    Place,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    stamp,
)
from trio_agent._messages import Message, Text, ToolCall, ToolResult
from trio_agent.testing import EventOrder, check_order

DELTAS = ("text_delta", "reasoning_delta", "tool_call_delta")
ANYWHERE = ("custom", "diagnostic", "message_queued", "tool_execution_update")


def run(tell: Callable[[Story], None]) -> list[Event]:
    """A run of one turn; ``tell`` says what happens in it."""
    story = Story()
    story.begin()
    story.begin_turn()
    tell(story)
    story.end_turn()
    story.end()
    return story.events


def log_of(events: list[Event]) -> list[Event]:
    return [event for event in events if is_fact(event)]


def call_of(event: Event) -> str | None:
    match event:
        case ToolExecutionStart(call_id=call_id):
            return call_id
        case ToolExecutionEnd(result=result):
            return result.call_id
        case _:
            return None


# ------------------------------------------------------------------------------ what is promised


@given(stories())
def test_a_legal_run_is_accepted(events: list[Event]) -> None:
    check_order(stamped(events))


@given(stories())
def test_the_log_of_a_legal_run_is_accepted(events: list[Event]) -> None:
    check_order(stamped(log_of(events)), facts_only=True)


@given(stories(), st.data())
def test_dropping_a_structural_event_is_noticed(events: list[Event], data: st.DataObject) -> None:
    structural = [n for n, e in enumerate(events) if e.kind not in (*ANYWHERE, *DELTAS, "message_delivered")]
    del events[data.draw(st.sampled_from(structural))]
    with pytest.raises(AssertionError):
        check_order(stamped(events))


@given(stories(), st.data())
def test_telling_a_structural_event_twice_is_noticed(events: list[Event], data: st.DataObject) -> None:
    free = [kind for kind in ANYWHERE if kind != "message_queued"]
    place = data.draw(st.sampled_from([n for n, e in enumerate(events) if e.kind not in free]))
    # a second update of arguments that are not compared is no change of structure
    assume(events[place].kind != "tool_call_delta")
    events.insert(place, events[place])
    with pytest.raises(AssertionError):
        check_order(stamped(events))


@given(stories(), st.data())
def test_swapping_neighbours_is_noticed_unless_they_are_of_two_calls(events: list[Event], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(events) - 2))
    a, b = events[place : place + 2]
    assume({a.kind, b.kind}.isdisjoint(ANYWHERE))
    assume(not (a.kind in DELTAS and b.kind in DELTAS))
    assume(not (a.kind == b.kind == "message_delivered"))
    assume(None in (call_of(a), call_of(b)) or call_of(a) == call_of(b))
    events[place : place + 2] = b, a
    with pytest.raises(AssertionError):
        check_order(stamped(events))


@given(stories(), st.data())
def test_a_log_without_one_of_its_ends_or_beginnings_is_refused(events: list[Event], data: st.DataObject) -> None:
    events = log_of(events)
    kinds = ("agent_start", "turn_start", "tool_execution_end", "turn_end", "agent_end")
    del events[data.draw(st.sampled_from([n for n, e in enumerate(events) if e.kind in kinds]))]
    with pytest.raises(AssertionError):
        check_order(stamped(events), facts_only=True)


@given(stories(), st.data())
def test_what_settlement_adds_to_a_log_that_was_cut_anywhere_is_accepted(
    events: list[Event], data: st.DataObject
) -> None:
    log = log_of(events)
    log = log[: data.draw(st.integers(1, len(log)))]
    calls: dict[str, tuple[int, str]] = {}
    open_turn = 0
    for event in log:
        match event:
            case TurnStart(number=number):
                open_turn = number
            case TurnEnd():
                open_turn = 0
            case MessageEnd(message=message):
                calls = {call.id: (index, "not_run") for index, call in enumerate(message.calls)}
            case ToolExecutionStart(call_id=call_id, index=index):
                calls[call_id] = index, "interrupted"
            case ToolExecutionEnd(result=result):
                del calls[result.call_id]
            case _:
                pass
    if not isinstance(log[-1], AgentEnd):
        for call_id, (index, status) in calls.items():
            log.append(ToolExecutionEnd(ToolResult(call_id, (), status), index, recovered=True))  # type: ignore[arg-type]
        if open_turn:
            log.append(TurnEnd(open_turn, "interrupted"))
        log.append(AgentEnd("interrupted"))
    check_order(stamped(log), facts_only=True)


# ------------------------------------------------------------------------- each rule, by its words


def refused_end_after_a_start(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    story.start(calls[0], 0)
    story.finish(calls[1], 1, "denied")


def ok_without_start(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    story.start(calls[1], 1)
    story.finish(calls[0], 0)


def end_twice(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.start(call, 0)
    story.finish(call, 0)
    story.finish(call, 0)


def start_twice(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.start(call, 0)
    story.start(call, 0)


def start_after_end(story: Story) -> None:
    calls = story.answer("", "tool_use", 1).calls
    story.announce(calls)
    story.finish(calls[0], 0, "not_run")
    story.start(calls[0], 0)


def start_under_another_name(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.start(attrs.evolve(call, name="other"), 0)


def started_pure_call_that_did_not_run(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.start(call, 0, "pure")
    story.finish(call, 0, "not_run")


def unannounced_start(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls[:1])
    story.start(calls[0], 0)


def unannounced_end(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls[:1])
    story.finish(calls[0], 0, "not_run")


def announced_out_of_order(story: Story) -> None:
    story.announce(reversed(story.answer("", "tool_use", 2).calls))


def announced_otherwise(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.add(ToolUse(attrs.evolve(call, arguments='{"n":2}')))


def end_with_another_index(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.finish(call, 1, "invalid")


def end_of_a_stranger(story: Story) -> None:
    story.announce(story.answer("", "tool_use", 1).calls)
    story.finish(ToolCall("x", "look"), 0, "invalid")


def update_after_the_end(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.start(call, 0)
    story.finish(call, 0)
    story.add(ToolExecutionUpdate(call.id, 1))


def update_before_the_start(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    story.start(calls[0], 0)
    story.add(ToolExecutionUpdate(calls[1].id, 1))


def results_out_of_order(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    story.pairs([story.finish(calls[n], n, "invalid") for n in (1, 0)])


def results_before_the_last_end(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    story.pairs([story.finish(calls[0], 0, "invalid")])


def another_result_than_told(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.pairs([attrs.evolve(story.finish(call, 0, "invalid"), content=(Text("x"),))])


def results_missing(story: Story) -> None:
    calls = story.answer("", "tool_use", 2).calls
    story.announce(calls)
    results = [story.finish(call, n, "invalid") for n, call in enumerate(calls)]
    story.pairs(results[:1])


def calls_without_ends(story: Story) -> None:
    story.answer("", "tool_use", 1)


def error_pair_before_the_ends(story: Story) -> None:
    story.answer("", "tool_use", 1)
    story.error_pair()


def call_id_used_again(story: Story) -> None:
    (call,) = story.answer("", "tool_use", 1).calls
    story.announce([call])
    story.pairs([story.finish(call, 0, "invalid")])
    story.end_turn()
    story.begin_turn()
    story.calls = 0
    story.answer("", "tool_use", 1)


def message_id_used_again(story: Story) -> None:
    story.answer(finish="pause")
    story.messages = 0
    story.answer()


def end_of_another_message(story: Story) -> None:
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"))
    story.add(MessageEnd(Message("assistant", "x", "stop", id="b")))


def delta_of_another_message(story: Story) -> None:
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), TextDelta("b", "x"))


def deltas_that_say_something_else(story: Story) -> None:
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), TextDelta("a", "x"))
    story.add(MessageEnd(Message("assistant", "xy", "stop", id="a")))


def reasoning_that_says_something_else(story: Story) -> None:
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), ReasoningDelta("a", "x"))
    story.add(MessageEnd(Message("assistant", "xy", "stop", id="a")))


def draft_that_is_not_discarded(story: Story) -> None:
    story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), ModelCallFailed(1, FAILURE))


def second_model_call_after_an_answer(story: Story) -> None:
    story.answer()
    story.answer()


def model_call_after_an_error(story: Story) -> None:
    story.answer(finish="error")
    story.answer()


def failed_answer_with_calls(story: Story) -> None:
    story.answer(finish="error", calls=1)


def user_message_with_a_pair(story: Story) -> None:
    story.add(MessageStart("u", "user"))


def retry_phase_out_of_the_blue(story: Story) -> None:
    story.add(PhaseChange("retry"))


def idle_inside_a_turn(story: Story) -> None:
    story.add(PhaseChange("idle"))


def turn_inside_a_turn(story: Story) -> None:
    story.begin_turn()


def the_same_turn_again(story: Story) -> None:
    story.end_turn()
    story.turn = 0
    story.begin_turn()


def end_of_another_turn(story: Story) -> None:
    story.turn += 1


def delivered_twice(story: Story) -> None:
    story.end_turn()
    story.begin_turn(1)
    story.add(MessageDelivered("q1"))


def delivered_and_never_queued(story: Story) -> None:
    story.add(MessageDelivered("q9"))


def queued_twice(story: Story) -> None:
    queued = MessageQueued("q", "steer", Message("user", "x"))
    story.add(queued, queued)


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (refused_end_after_a_start, "tool_execution_end:refused cannot stand here: the run is 'executing'"),
        (ok_without_start, "call 'c1' is ok and has no start"),
        (end_twice, "a second end of call 'c1'"),
        (start_twice, "the start of call 'c1' after its start"),
        (start_after_end, "the start of call 'c1' after its end"),
        (start_under_another_name, "names another place or tool"),
        (started_pure_call_that_did_not_run, "call 'c1' is not_run and has a start, and its effect is pure"),
        (unannounced_start, "the start of call 'c1' after 1 of 2 tool_use"),
        (unannounced_end, "the end of call 'c1' after 1 of 2 tool_use"),
        (announced_out_of_order, "tool_use of call 'c2' out of input order"),
        (announced_otherwise, "tool_use of call 'c1' is not the call of its message"),
        (end_with_another_index, "the end of call 'c1' has index 1, its place is 0"),
        (end_of_a_stranger, "call 'x' is none of the turn's"),
        (update_after_the_end, "an update of call 'c1' after its end"),
        (update_before_the_start, "an update of call 'c2' before its start"),
        (results_out_of_order, "the result of call 'c2' out of input order"),
        (results_before_the_last_end, "the results before the end of 'c2'"),
        (another_result_than_told, "not the one its tool_execution_end told"),
        (results_missing, "turn_end after 1 of 2 results"),
        (calls_without_ends, "turn_end before the end of 'c1'"),
        (error_pair_before_the_ends, "another message before the end of 'c1'"),
        (call_id_used_again, "the call id 'c1' is used again"),
        (message_id_used_again, "the message id 'm1' is used again"),
        (end_of_another_message, "message_end of message 'b', open is 'a'"),
        (delta_of_another_message, "text_delta of message 'b', open is 'a'"),
        (deltas_that_say_something_else, "the deltas of message 'a' say 'x', it says 'xy'"),
        (reasoning_that_says_something_else, "the reasoning deltas of message 'a'"),
        (draft_that_is_not_discarded, "the run is 'discarding', expected message_discarded"),
        (second_model_call_after_an_answer, "model_call_start cannot stand here: the run is 'answered'"),
        (model_call_after_an_error, "model_call_start cannot stand here: the run is 'ended'"),
        (failed_answer_with_calls, "a message with finish reason error asks for calls"),
        (user_message_with_a_pair, "message_start:user cannot stand here"),
        (retry_phase_out_of_the_blue, "phase_change:retry cannot stand here"),
        (idle_inside_a_turn, "phase_change:idle cannot stand here"),
        (turn_inside_a_turn, "turn_start cannot stand here: the run is 'opened'"),
        (the_same_turn_again, "turn 1 after turn 1"),
        (end_of_another_turn, "the end of turn 2 in turn 1"),
        (delivered_twice, "message 'q1' was delivered twice"),
        (delivered_and_never_queued, "message 'q9' was delivered and never queued"),
        (queued_twice, "message 'q' was queued twice"),
    ],
)
def test_a_broken_rule_is_named(tell: Callable[[Story], None], words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(run(tell)))
    assert words in str(caught.value)


def test_a_complaint_tells_the_place_and_the_last_kinds() -> None:
    with pytest.raises(AssertionError, match=r"at event 4; the last kinds: agent_start phase_change:turn turn_start "):
        check_order(stamped(run(turn_inside_a_turn)))


def test_a_once_call_that_is_cut_before_its_effect_may_have_a_start() -> None:
    def tell(story: Story) -> None:
        (call,) = story.answer("", "tool_use", 1).calls
        story.announce([call])
        story.start(call, 0, "once")
        story.pairs([story.finish(call, 0, "not_run")])

    check_order(stamped(run(tell)))


def test_calls_count_for_more_than_the_word_pause() -> None:
    def tell(story: Story) -> None:
        (call,) = story.answer("", "pause", 1).calls
        story.announce([call])
        story.pairs([story.finish(call, 0, "invalid")])

    check_order(stamped(run(tell)))


def test_a_codec_that_buffers_shows_no_deltas() -> None:
    events = [event for event in run(lambda story: story.answer() and None) if event.kind != "text_delta"]
    check_order(stamped(events))


def test_cut_reasoning_may_be_dropped_from_the_message() -> None:
    def tell(story: Story) -> None:
        story.add(ModelCallStart("m", 1), MessageStart("a", "assistant"), ReasoningDelta("a", "Hm"))
        story.add(TextDelta("a", "x"), MessageEnd(Message("assistant", "x", "interrupted", id="a")))

    check_order(stamped(run(tell)))


# ----------------------------------------------------------------------------- first, last, stamps


def test_nothing_stands_before_agent_start() -> None:
    with pytest.raises(AssertionError, match="custom cannot stand here"):
        check_order(stamped([Custom("x", {}), *run(lambda story: None)]))


def test_nothing_follows_agent_end() -> None:
    with pytest.raises(AssertionError, match="custom after agent_end"):
        check_order(stamped([*run(lambda story: None), Custom("x", {})]))


def test_a_run_that_has_not_ended_is_not_done() -> None:
    with pytest.raises(AssertionError, match="the run has not ended, it is 'opened'"):
        check_order(stamped(run(lambda story: None)[:3]))


def test_a_run_that_never_began_is_not_done() -> None:
    with pytest.raises(AssertionError, match="no run has begun"):
        EventOrder().done()


def test_seq_increases_over_facts() -> None:
    events = stamped(run(lambda story: None))
    stamp(events[2], 1, 0.0, Place("r1", 1))
    with pytest.raises(AssertionError, match="turn_start has seq 1, after seq 1"):
        check_order(events)


def test_an_observation_has_the_seq_of_the_fact_before_it() -> None:
    events = stamped(run(lambda story: None))
    stamp(events[1], 7, 0.0, Place("r1", 0))
    with pytest.raises(AssertionError, match="phase_change:turn has seq 7"):
        check_order(events)


def test_an_event_without_a_stamp_is_no_event() -> None:
    with pytest.raises(AssertionError, match="agent_start has no stamp"):
        EventOrder().feed(AgentStart(()))


def test_call_ids_of_the_input_are_taken() -> None:
    asked = Message("assistant", (ToolCall("c1", "look"),))
    events = run(lambda story: story.tools(["ok"]))
    events[0] = AgentStart((Message("user", "x"), asked, Message("tool", (ToolResult("c1"),))))
    with pytest.raises(AssertionError, match="the call id 'c1' is used again"):
        check_order(stamped(events))


def test_messages_that_an_earlier_run_left_are_delivered_with_the_start() -> None:
    events = run(lambda story: story.add(MessageDelivered("q0")))
    events[0] = AgentStart((), delivered=("q0",))
    with pytest.raises(AssertionError, match="delivered and never queued"):
        check_order(stamped(events))
    with pytest.raises(AssertionError, match="message 'q0' was delivered twice"):
        check_order(stamped(events, seq=10))  # the log began earlier, where it was queued


# ---------------------------------------------------------------------- sessions, logs, sub-agents


def two_runs() -> list[Event]:
    story = Story()
    for _ in range(2):
        story.begin()
        story.begin_turn()
        story.answer()
        story.end_turn()
        story.end()
    return story.events


def test_a_session_may_have_several_runs() -> None:
    check_order(stamped(two_runs()), session=True)
    check_order(stamped(log_of(two_runs())), session=True, facts_only=True)
    with pytest.raises(AssertionError, match="agent_start after agent_end"):
        check_order(stamped(two_runs()))


def test_messages_are_queued_between_the_runs_of_a_session() -> None:
    both = two_runs()
    first, second = both[: len(both) // 2], both[len(both) // 2 :]
    queued = MessageQueued("q1", "steer", Message("user", "x"))
    assert isinstance(first[-1], AgentEnd)
    check_order(stamped([*first, queued, *second]), session=True)
    with pytest.raises(AssertionError, match="custom cannot stand here"):
        check_order(stamped([*first, Custom("x", {}), *second]), session=True)


def test_a_log_holds_no_observation() -> None:
    with pytest.raises(AssertionError, match="phase_change:turn is an observation, and a log holds none"):
        check_order(stamped(run(lambda story: None)), facts_only=True)


def test_the_events_of_a_sub_agent_are_checked_on_their_own() -> None:
    parent = stamped(run(lambda story: story.tools(["ok"])))
    child = stamped(run(lambda story: story.answer() and None), "r2", ("r1", "c1"))
    place = next(n for n, event in enumerate(parent) if event.kind == "tool_execution_update")
    check_order([*parent[:place], *child, *parent[place:]])
    with pytest.raises(AssertionError, match="the run has not ended, it is 'closing'"):
        check_order([*parent[:place], *child[:-1], *parent[place:]])
    with pytest.raises(AssertionError, match="turn_end cannot stand here: the run is 'streaming'"):
        check_order([*parent[:place], *child[:7], *child[8:], *parent[place:]])


# ---------------------------------------------------------------------------------- as a listener


async def test_as_a_listener_it_tells_at_the_end_what_it_told_the_run() -> None:
    order = EventOrder()
    events = stamped(run(turn_inside_a_turn))
    for event in events[:3]:
        await order(event)
    with pytest.raises(AssertionError) as first:
        await order(events[3])
    with pytest.raises(AssertionError) as later:
        await order(events[4])
    with pytest.raises(AssertionError) as last:
        order.done()
    assert first.value is later.value is last.value
