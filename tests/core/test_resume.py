"""What there is to go on with, after any prefix of any log: always an answer, and never a second effect."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.random_logs import Log, folded, prefixes
from trio_agent import (
    AgentEnd,
    AgentResume,
    AgentStart,
    Allow,
    Answer,
    ApprovalRequest,
    Deny,
    InvalidAnswer,
    Message,
    NotResumable,
    Request,
    Rewind,
    ToolExecutionStart,
    TurnEnd,
    Usage,
)
from trio_agent._core._decide import Finish, Recover, Reopen, RunTools, Settle, decide
from trio_agent._core._resume import Resumption, resumption
from trio_agent._core._state import State, fold
from trio_agent.testing import check_history, check_order


def right(request: Request) -> Answer:
    return Allow() if isinstance(request, ApprovalRequest) else "this"


def wrong(request: Request) -> Answer:
    """Of the wrong kind, and never given before: what was given may be given again."""
    return "no such thing" if isinstance(request, ApprovalRequest) else Deny("no such thing")


def planned(state: State, answers: dict[str, Answer], *, somebody_to_ask: bool) -> Resumption | None:
    """What a resume does; ``None``: it says why it cannot."""
    try:
        return resumption(state, answers, somebody_to_ask=somebody_to_ask)
    except NotResumable:
        return None


# --------------------------------------------------------------------------------------- resumption


@settings(max_examples=100)
@given(st.data())
def test_every_prefix_can_be_resumed_or_says_why_not(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    state = State()
    for _, state in prefixes(log.facts):
        alone = planned(state, {}, somebody_to_ask=False)
        helped = planned(state, {}, somebody_to_ask=True)
        assert alone is None or alone == helped
        over = not state.turn_open and state.last is not None and state.last.reason == "suspended"
        if state.run_id is not None and not over:
            assert helped == Resumption(True)
        elif state.missing:
            assert helped == Resumption(False, state.latest_run)
            assert (alone is None) == bool(state.requests)
        else:
            assert helped in (None, Resumption(False))
    assert state == log.state  # looking changes nothing


@settings(max_examples=100)
@given(st.data())
def test_every_request_of_every_prefix_takes_its_answer_and_no_other(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for _, state in prefixes(log.facts):
        requests = state.requests
        for request in requests:
            with pytest.raises(InvalidAnswer):
                resumption(state, {request.call_id: wrong(request)}, somebody_to_ask=True)
        with pytest.raises(InvalidAnswer):
            resumption(state, {"nobody's": Allow()}, somebody_to_ask=True)
        if not requests:
            continue
        plan = resumption(state, {each.call_id: right(each) for each in requests}, somebody_to_ask=False)
        assert [answer.call_id for answer in plan.answers] == [request.call_id for request in requests]
        assert plan.same_run or plan.resumes == state.latest_run


@settings(max_examples=100)
@given(st.data())
def test_an_answer_may_be_given_again_and_not_be_changed(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for facts, state in prefixes(log.facts):
        if not state.requests or state.run_id is not None:
            continue
        answers = {request.call_id: right(request) for request in state.requests}
        again = Log(data, facts)
        plan = resumption(again.state, answers, somebody_to_ask=False)
        again.post(AgentStart((), resumes=plan.resumes), *plan.answers)
        assert resumption(again.state, answers, somebody_to_ask=False) == Resumption(True)
        for call_id, answer in answers.items():
            other: Answer = Deny("no") if isinstance(answer, Allow) else "that"
            with pytest.raises(InvalidAnswer):
                resumption(again.state, {call_id: other}, somebody_to_ask=False)


# ------------------------------------------------------------------------------------ after a crash


@settings(max_examples=100)
@given(st.data())
def test_after_a_crash_no_step_starts_a_call_again_that_must_not(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for facts, state in prefixes(log.facts):
        if state.run_id is None:
            continue
        again = Log(data, facts)
        again.post(AgentResume())
        cut = {
            index
            for index, start in enumerate(again.state.started)
            if start is not None and start.effect == "once" and again.state.results[index] is None
        }
        assert again.state.lost == cut
        step = decide(again.state)
        assert isinstance(step, Recover) == bool(cut and again.state.turn_open)
        if isinstance(step, Recover):
            assert set(step.indexes) == cut
            again.perform(step)
            assert not again.state.lost
            assert not isinstance(decide(again.state), Recover)


@settings(max_examples=150)
@given(st.data())
def test_wherever_a_crash_comes_the_run_goes_on_to_a_valid_end(data: st.DataObject) -> None:
    log = Log(data)
    log.session(4)
    begins = [n for n, fact in enumerate(log.facts) if isinstance(fact, AgentStart)]
    if not begins:
        return
    kept = data.draw(st.integers(begins[0] + 1, len(log.facts)))
    again = Log(data, log.facts[:kept])
    for _ in range(3):
        again.resume()
        if again.state.run_id is None and not again.state.missing:
            break
    again.settle_what_is_left()
    check_order(again.facts, facts_only=True, session=True)
    once: set[str] = set()
    for fact in again.facts:
        if isinstance(fact, ToolExecutionStart) and fact.effect == "once":
            assert fact.call_id not in once
            once.add(fact.call_id)
    visible = list(again.state.transcript.visible())
    if visible:
        check_history(visible if visible[-1].role != "assistant" else [*visible, Message("user", "go on")])


@settings(max_examples=100)
@given(st.data())
def test_a_run_that_resumes_another_begins_with_its_calls(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for facts, state in prefixes(log.facts):
        if state.run_id is not None or not state.missing:
            continue
        again = Log(data, facts)
        calls, results, started = again.state.calls, list(again.state.results), list(again.state.started)
        again.post(AgentStart((), resumes=again.state.latest_run))
        assert decide(again.state) == Reopen()
        again.perform(Reopen())
        assert (again.state.calls, again.state.results, again.state.started) == (calls, results, started)
        assert decide(again.state) == RunTools()
        again.abort(0.0)
        assert decide(again.state) == Settle("aborted")


# ----------------------------------------------------------------------------------------- the ledger


def counts(usage: Usage) -> tuple[int, ...]:
    return tuple(count or 0 for count in attrs.astuple(usage))


@settings(max_examples=100)
@given(st.data())
def test_usage_and_turns_only_grow_until_a_new_run_begins(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    state = State()
    for fact in log.facts:
        usage, turns, number = counts(state.usage), state.turns, state.turn
        fold(state, fact)
        if isinstance(fact, AgentStart) and fact.resumes is None:
            assert (counts(state.usage), state.turns) == ((0,) * len(usage), 0)
        else:
            assert all(new >= old for new, old in zip(counts(state.usage), usage, strict=True))
            assert state.turns >= turns
        assert state.turn >= number
        if isinstance(fact, AgentEnd):
            assert fact.usage == state.usage


# ----------------------------------------------------------------------------------------- boundaries


@settings(max_examples=100)
@given(st.data())
def test_a_rewind_to_any_boundary_gives_the_history_that_was_there(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for to in (0, *log.state.boundaries):
        again = Log(data, log.facts)
        waiting = dict(again.state.queue)
        again.post(Rewind(to))
        assert list(again.state.transcript) == list(folded(log.facts[:to]).transcript)
        assert again.state.queue == waiting
        assert again.state.call_ids == log.state.call_ids
        assert (again.state.missing, again.state.requests, again.state.run_id) == (0, (), None)
        assert isinstance(decide(again.state), Finish)
        if any(isinstance(fact, AgentStart) for fact in again.facts):
            check_order(again.facts, facts_only=True, session=True)
        again.post(Rewind(again.state.head))
        assert list(again.state.transcript) == list(folded(log.facts[:to]).transcript)


@settings(max_examples=100)
@given(st.data())
def test_a_boundary_is_an_end_with_nothing_under_way(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for facts, state in prefixes(log.facts):
        if not facts:
            continue
        last = facts[-1]
        settled = not state.missing and not state.turn_open
        is_end = isinstance(last, TurnEnd | AgentEnd | Rewind) and settled
        assert (state.head in state.boundaries) == is_end
        if is_end:
            assert state.boundaries[state.head] == len(state.transcript)


def test_a_session_without_a_history_has_nothing_to_go_on_with() -> None:
    with pytest.raises(NotResumable, match="no history yet"):
        resumption(State(), {}, somebody_to_ask=True)
