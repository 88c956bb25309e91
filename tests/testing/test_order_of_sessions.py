"""The promised order of runs that are suspended and resumed, and of what stands between runs."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.testing.broken_orders import (
    a_model_call_in_the_reopened_turn,
    a_permission_after_the_end,
    a_permission_before_all_are_announced,
    a_permission_for_a_call_that_runs,
    a_permission_for_a_stranger,
    a_permission_for_another_tool,
    a_permission_outside_of_a_turn,
    a_permission_with_another_index,
    a_question_before_the_start,
    a_question_in_preparation,
    a_question_with_the_number_of_another,
    a_reply_to_another_question,
    a_second_end_in_the_resumption,
    a_turn_behind_the_suspended_one,
    allow,
    an_answer_after_the_end,
    an_answer_in_the_middle_of_the_resumption,
    an_answer_with_another_index,
    an_empty_reopened_turn,
    an_end_between_ordinary_runs,
    announced_though_it_has_its_result,
    answered_in_the_same_run_after_all,
    answered_twice,
    answered_without_a_question,
    ended_as_suspended_and_nothing_is,
    in_a_turn,
    never_started_and_interrupted,
    prompted_without_settling,
    results_of_the_resumption_only,
    resumed,
    resumed_out_of_the_blue,
    resumed_though_it_was_settled,
    resumed_though_nothing_was_suspended,
    resumed_under_another_name,
    rewound_in_a_run,
    rewound_into_a_turn,
    rewound_to_a_suspension,
    rewound_to_the_future,
    rewound_to_what_a_rewind_has_left_behind,
    rewound_without_settling,
    settled_by_a_prompt_and_not_recovered,
    settled_by_a_prompt_as_what_it_was_not,
    started_without_the_answer,
    suspended_for_nobody,
    suspended_with_a_call_that_runs,
    suspended_with_an_answer,
    suspended_with_nothing_left,
    suspended_with_results_told,
    suspended_without_calls,
)
from tests.testing.session_stories import (
    SESSIONS,
    Tell,
    a_prompt_after_a_suspension,
    answer_and_end,
    log_of,
    told,
)
from tests.testing.stories import Story, stamped
from trio_agent._events import Event
from trio_agent._facts import (
    AgentEnd,
    AgentStart,
    Custom,
    Rewind,
    ToolExecutionEnd,
)
from trio_agent.testing import check_order


def check_session(events: Iterable[Event]) -> None:
    """A session as its observer sees it, and its log."""
    made = list(events)
    shown = [event for event in made if not (isinstance(event, ToolExecutionEnd) and event.recovered)]
    check_order(stamped(shown), session=True)
    check_order(stamped(log_of(made)), session=True, facts_only=True)


@pytest.mark.parametrize("tell", SESSIONS)
def test_a_legal_session_is_accepted(tell: Tell) -> None:
    check_session(told(tell))


RESUMED = [tell for tell in SESSIONS if any(event.kind == "agent_start" and event.resumes for event in told(tell))]  # type: ignore[union-attr]


@pytest.mark.parametrize("tell", RESUMED)
def test_whoever_sees_only_the_resuming_run_finds_it_in_order_too(tell: Tell) -> None:
    """Its calls were announced, and some ended, in a run that was not seen."""
    events = stamped(told(tell))
    last = max(n for n, event in enumerate(events) if isinstance(event, AgentStart) and event.resumes)
    check_order(events[last:])
    check_order(log_of(events[last:]), facts_only=True)


FREE = ("message_queued", "config_change", "rewind", "text_delta", "tool_call_delta", "approval_request")
"""What may be missing, or be told again."""
ASKED = ("approval_resolved", "input_request", "input_resolved", "message_delivered")
"""What may be missing: an abort ends the wait, and a queued message waits on."""


def shown(tell: Tell) -> list[Event]:
    """What an observer sees of a session."""
    return [each for each in told(tell) if not (isinstance(each, ToolExecutionEnd) and each.recovered)]


def is_refused(events: list[Event], *, facts_only: bool = False) -> bool:
    try:
        check_order(stamped(events), session=True, facts_only=facts_only)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("tell", SESSIONS)
def test_dropping_an_event_of_a_session_is_noticed(tell: Tell) -> None:
    events = shown(tell)
    places = [n for n, event in enumerate(events) if event.kind not in (*FREE, *ASKED)]
    assert [(n, events[n].kind) for n in places if not is_refused([*events[:n], *events[n + 1 :]])] == []


@pytest.mark.parametrize("tell", SESSIONS)
def test_dropping_a_fact_of_a_session_is_noticed(tell: Tell) -> None:
    facts = log_of(told(tell))
    kinds = ("agent_start", "turn_start", "tool_execution_start", "tool_execution_end", "turn_end", "agent_end")
    places = [n for n, fact in enumerate(facts) if fact.kind in kinds]
    assert [(n, facts[n].kind) for n in places if not is_refused([*facts[:n], *facts[n + 1 :]], facts_only=True)] == []


@pytest.mark.parametrize("tell", SESSIONS)
def test_telling_an_event_of_a_session_twice_is_noticed(tell: Tell) -> None:
    events, facts = shown(tell), log_of(told(tell))
    free = tuple(kind for kind in FREE if kind not in ("text_delta", "message_queued"))
    for told_twice, facts_only in ((events, False), (facts, True)):
        places = [n for n, event in enumerate(told_twice) if event.kind not in free]
        assert [
            (n, told_twice[n].kind)
            for n in places
            if not is_refused([*told_twice[: n + 1], *told_twice[n:]], facts_only=facts_only)
        ] == []


# ------------------------------------------------------------------------- each rule, by its words


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (in_a_turn(answered_without_a_question), "approval_resolved of call 'c1', and nobody asked"),
        (in_a_turn(answered_twice), "approval_resolved of call 'c1', and it was answered"),
        (in_a_turn(answered_in_the_same_run_after_all), "and the answer was left for later"),
        (in_a_turn(started_without_the_answer), "the start of call 'c1', which waits for an answer that comes later"),
        (in_a_turn(a_permission_for_a_call_that_runs), "approval_request cannot stand here: the run is 'executing'"),
        (in_a_turn(a_permission_for_a_stranger), "call 'x' is none of the turn's"),
        (in_a_turn(a_permission_for_another_tool), "approval_request of call 'c1' names another tool"),
        (in_a_turn(a_permission_with_another_index), "approval_request of call 'c1' has index 1, its place is 0"),
        (in_a_turn(an_answer_with_another_index), "approval_resolved of call 'c1' has index 1, its place is 0"),
        (in_a_turn(a_permission_after_the_end), "approval_request of call 'c1' after its end"),
        (in_a_turn(an_answer_after_the_end), "approval_resolved of call 'c1' after its end"),
        (in_a_turn(a_question_before_the_start, 2), "input_request of call 'c2' before its start"),
        (in_a_turn(a_question_in_preparation), "input_request cannot stand here: the run is 'announcing'"),
        (in_a_turn(a_question_with_the_number_of_another), "input_request of call 'c1' has the number 1, after 1"),
        (in_a_turn(a_reply_to_another_question), "input_resolved of call 'c1', and nobody asked"),
        (a_permission_before_all_are_announced, "approval_request of call 'c1' after 1 of 2 tool_use"),
        (a_permission_outside_of_a_turn, "approval_request cannot stand here: the run is 'between'"),
        (in_a_turn(suspended_for_nobody), "turn_end:suspended before the end of 'c1', which waits for no answer"),
        (in_a_turn(suspended_with_a_call_that_runs, 2), "turn_end:suspended before the end of 'c2'"),
        (in_a_turn(suspended_with_an_answer), "turn_end:suspended before the end of 'c1', which waits for no answer"),
        (in_a_turn(suspended_with_nothing_left), "turn_end:suspended, and every call has its end"),
        (in_a_turn(suspended_with_results_told, 2), "the results before the end of 'c2'"),
        (suspended_without_calls, "turn_end:suspended cannot stand here: the run is 'answered'"),
        (in_a_turn(a_turn_behind_the_suspended_one), "model_call_start cannot stand here: the run is 'revoking'"),
        (ended_as_suspended_and_nothing_is, "agent_end:suspended cannot stand here: the run is 'closing'"),
        (resumed_though_nothing_was_suspended, "agent_start:resumes cannot stand here: the run is 'over'"),
        (resumed_though_it_was_settled, "agent_start:resumes cannot stand here: the run is 'over'"),
        (resumed_under_another_name, "agent_start resumes run 'r9', the one before it is 'r1'"),
        (resumed_out_of_the_blue, "agent_start resumes run 'r1', which the log does not have"),
        (resumed(a_model_call_in_the_reopened_turn), "model_call_start cannot stand here: the run is 'reopened'"),
        (resumed(an_empty_reopened_turn), "turn_end cannot stand here: the run is 'reopened'"),
        (resumed(announced_though_it_has_its_result), "tool_use of call 'c2' out of input order"),
        (resumed(a_second_end_in_the_resumption), "a second end of call 'c2'"),
        (resumed(results_of_the_resumption_only), "turn_end after 1 of 2 results"),
        (resumed(never_started_and_interrupted), "tool_execution_end:ran cannot stand here: the run is 'announcing'"),
        (resumed(an_answer_in_the_middle_of_the_resumption), "approval_resolved cannot stand here"),
        (resumed(an_answer_in_the_middle_of_the_resumption, allow), "approval_resolved cannot stand here"),
    ],
)
def test_a_broken_rule_is_named(tell: Tell, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(told(tell)), session=True)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("tell", "words"),
    [
        (settled_by_a_prompt_as_what_it_was_not, "tool_execution_end:ran cannot stand here: the run is 'pending'"),
        (settled_by_a_prompt_and_not_recovered, "between runs does not say that it is recovered"),
        (prompted_without_settling, "another run before the end of 'c1'"),
        (rewound_without_settling, "rewind before the end of 'c1'"),
        (rewound_into_a_turn, "a rewind to fact 3, where something was under way"),
        (rewound_to_a_suspension, "a rewind to fact 9, where something was under way"),
        (rewound_to_what_a_rewind_has_left_behind, "a rewind to fact 5, where something was under way"),
        (rewound_to_the_future, "a rewind to fact 6, where something was under way"),
        (rewound_in_a_run, "rewind cannot stand here"),
        (an_end_between_ordinary_runs, "tool_execution_end:not_run cannot stand here: the run is 'over'"),
    ],
)
def test_a_broken_rule_of_a_log_is_named(tell: Tell, words: str) -> None:
    with pytest.raises(AssertionError) as caught:
        check_order(stamped(log_of(told(tell))), session=True, facts_only=True)
    assert words in str(caught.value)


def test_an_observer_of_a_session_that_has_a_log_may_see_a_rewind_first() -> None:
    story = Story()
    story.add(Rewind(7))
    story.begin()
    answer_and_end(story)
    check_order(stamped(story.events, seq=10), session=True)
    check_order(stamped(log_of(story.events), seq=10), session=True, facts_only=True)


def test_ends_between_runs_are_shown_to_nobody() -> None:
    with pytest.raises(AssertionError, match="tool_execution_end:not_run between runs, where it is shown to nobody"):
        check_order(stamped(told(a_prompt_after_a_suspension)), session=True)


@pytest.mark.parametrize("tell", SESSIONS)
def test_one_run_alone_has_nothing_behind_its_end(tell: Tell) -> None:
    events = stamped(log_of(told(tell)))
    ends = [n for n, event in enumerate(events) if isinstance(event, AgentEnd)]
    begins = next(n for n, event in enumerate(events) if isinstance(event, AgentStart))
    check_order(events[begins : ends[0] + 1], facts_only=True)
    if ends[0] + 1 < len(events):
        with pytest.raises(AssertionError, match="after agent_end"):
            check_order(events[begins : ends[0] + 2], facts_only=True)


def test_a_custom_fact_stands_in_a_run_and_not_between_two() -> None:
    events = told(a_prompt_after_a_suspension)
    place = next(n for n, event in enumerate(events) if isinstance(event, AgentEnd))
    with pytest.raises(AssertionError, match="custom cannot stand here: the run is 'pending'"):
        check_order(stamped(log_of([*events[: place + 1], Custom("x", {})])), session=True, facts_only=True)
