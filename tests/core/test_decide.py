"""The core as a whole: whatever happened, there is a next step, and a way to settle."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.random_logs import Log, folded, prefixes
from trio_agent import (
    AbortRequested,
    AgentStart,
    Failure,
    Message,
    MessageEnd,
    ToolExecutionEnd,
)
from trio_agent._core._decide import (
    CallModel,
    Deliver,
    Finish,
    Recover,
    Reopen,
    Repair,
    RunTools,
    Settle,
    decide,
)
from trio_agent._core._settle import close_run, close_session, close_turn
from trio_agent._core._state import State, fold
from trio_agent._written import read_fact, write_fact
from trio_agent.testing import check_history, check_order


@settings(max_examples=100)
@given(st.data())
def test_every_prefix_of_every_log_folds_and_asks_for_a_next_step(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    for _, state in prefixes(log.facts):
        step = decide(state)
        assert isinstance(step, CallModel | Deliver | Finish | Recover | Reopen | Repair | RunTools | Settle)
        assert step == decide(state)


@settings(max_examples=200)
@given(st.data())
def test_every_log_stands_in_the_promised_order(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    if any(isinstance(fact, AgentStart) for fact in log.facts):
        check_order(log.facts, facts_only=True, session=True)


@settings(max_examples=60)
@given(st.data())
def test_every_prefix_can_be_settled_and_what_a_model_then_sees_is_valid(data: st.DataObject) -> None:
    log = Log(data)
    log.session(3)
    reason = data.draw(st.sampled_from(["aborted", "cancelled", "interrupted", "error"]))
    for facts, _ in prefixes(log.facts):
        again = Log(data, facts)
        was_open = again.state.run_id is not None
        failure = Failure("INTERNAL", "broke") if reason == "error" else None
        if was_open:
            if reason != "interrupted":  # then it is a crash that has cut it
                again.leave_the_stream()
            again.post(*close_turn(again.state, reason, failure))
            again.post(*close_run(again.state, reason, failure))
            assert not again.state.turn_open
            assert again.state.run_id is None
            assert again.state.stop_reason == reason
        again.post(*close_session(again.state))
        if any(isinstance(fact, AgentStart) for fact in facts):
            check_order(again.facts, facts_only=True, session=True)
        visible = list(again.state.transcript.visible())
        if visible:
            check_history(visible if visible[-1].role != "assistant" else [*visible, Message("user", "go on")])
        answered = {f.result.call_id for f in again.facts if isinstance(f, ToolExecutionEnd)}
        asked = {c.id for f in again.facts if isinstance(f, MessageEnd) for c in f.message.calls}
        assert answered == asked


@settings(max_examples=60)
@given(st.data())
def test_folding_the_same_facts_gives_equal_states_also_when_they_were_written(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    assert folded(log.facts) == log.state
    assert folded([read_fact(write_fact(fact)) for fact in log.facts]) == log.state


@settings(max_examples=60)
@given(st.data())
def test_a_snapshot_never_changes(data: st.DataObject) -> None:
    log = Log(data)
    log.session()
    state = State()
    taken = []
    for fact in log.facts:
        fold(state, fact)
        snapshot = state.snapshot()
        taken.append((snapshot, list(snapshot.messages), snapshot.pending, snapshot.queued, snapshot.requests))
    for snapshot, messages, pending, queued, requests in taken:
        assert (list(snapshot.messages), snapshot.pending, snapshot.queued) == (messages, pending, queued)
        assert snapshot.requests == requests


def test_after_an_abort_no_model_call_is_decided() -> None:
    log = Log(None)  # type: ignore[arg-type]  # nothing is drawn
    log.post(AgentStart((Message("user", "go"),)))
    assert decide(log.state) == CallModel()
    log.post(AbortRequested())
    assert decide(log.state) == Finish("aborted")
