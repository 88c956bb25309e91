"""The core as a whole: whatever happened, there is a next step, and a way to settle."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trio_agent import (
    AbortRequested,
    AgentStart,
    Custom,
    Fact,
    Failure,
    Limits,
    Message,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    Place,
    Reasoning,
    Text,
    ToolCall,
    ToolExecutionEnd,
    ToolExecutionStart,
    ToolResult,
    TurnStart,
    Usage,
)
from trio_agent._core._decide import CallModel, Deliver, Finish, Repair, RunTools, Settle, Step, decide
from trio_agent._core._settle import close_run, close_turn, next_message_id
from trio_agent._core._state import State, fold
from trio_agent._facts import stamp
from trio_agent._written import read_fact, write_fact
from trio_agent.testing import check_history, check_order

STATUSES = st.sampled_from(["ok", "error", "interrupted", "timed_out"])
REFUSALS = st.sampled_from(["invalid", "unknown_tool", "denied", "not_run"])


class Log:
    """A log that grows as a run could have made it: what the core decides, chance performs."""

    def __init__(self, draw: st.DataObject) -> None:
        self.data = draw
        self.state = State()
        self.facts: list[Fact] = []
        self.place = Place("run", 0)
        self.calls = 0
        self.queued = 0

    def post(self, *facts: Fact) -> None:
        for fact in facts:
            if isinstance(fact, AgentStart):
                self.place = Place(f"run{len(self.facts)}", self.state.turn)
            if isinstance(fact, TurnStart):
                self.place = Place(self.place.run_id, fact.number)
            stamp(fact, self.state.head + 1, 0.0, self.place)
            fold(self.state, fact)
            self.facts.append(fact)

    def draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)

    def run(self, text: str) -> None:
        """One run, from its start to its end."""
        limits = Limits(
            max_turns=self.draw(st.integers(1, 6)),
            max_decode_retries=self.draw(st.integers(0, 2)),
            steering=self.draw(st.sampled_from(["one", "all"])),
            follow_up=self.draw(st.sampled_from(["one", "all"])),
        )
        self.post(AgentStart((Message("user", text),), limits, delivered=tuple(self.state.queue)))
        while not isinstance(step := decide(self.state), Finish):
            self.meanwhile()
            if decide(self.state) == step:
                before = self.state.head
                self.perform(step)
                assert self.state.head > before, step
        failure = self.state.failure or Failure("INTERNAL", "?")
        self.post(*close_run(self.state, step.reason, failure if step.reason == "error" else None))

    def meanwhile(self) -> None:
        """What may happen at any moment."""
        match self.draw(st.integers(0, 15)):
            case 0:
                self.abort(self.draw(st.sampled_from([0.0, 5.0, math.inf])))
            case 1 | 2:
                self.queued += 1
                origin = self.draw(st.sampled_from(["steer", "follow_up"]))
                self.post(MessageQueued(f"q{self.queued}", origin, Message("user", "psst", origin=origin)))
            case 3:
                self.post(Custom("note", {"n": 1}))

    def abort(self, grace: float) -> None:
        if self.state.abort is None or grace < self.state.abort.grace:
            self.post(AbortRequested(grace))

    def perform(self, step: Step) -> None:
        state = self.state
        match step:
            case Deliver(ids):
                self.post(TurnStart(state.turn + 1), *map(MessageDelivered, ids))
            case CallModel():
                if not state.turn_open:
                    self.post(TurnStart(state.turn + 1))
                for number in range(1, self.draw(st.integers(1, 3))):
                    self.post(ModelCallFailed(number, Failure("RATE_LIMIT", "later"), Usage(1)))
                self.answer()
            case RunTools():
                self.tools()
            case Repair():
                self.queued += 1
                self.post(
                    MessageQueued(f"q{self.queued}", "repair", Message("user", "again", origin="repair")),
                    MessageDelivered(f"q{self.queued}"),
                )
            case Settle(reason, failure):
                self.post(*close_turn(state, reason, failure, stop=self.draw(st.integers(0, 9)) == 0))
            case Finish():
                raise AssertionError(step)

    def answer(self) -> None:
        reasons = ["stop", "tool_use", "tool_use", "length", "refusal", "pause", "malformed", "error", "interrupted"]
        reason = self.draw(st.sampled_from(reasons))
        content: list[Any] = []
        if self.draw(st.booleans()):
            content.append(Reasoning("hm"))
        if reason == "interrupted" or self.draw(st.booleans()):
            content.append(Text(self.draw(st.sampled_from(["words", "  "])) if reason == "stop" else "words"))
        if reason in ("tool_use", "length"):
            for _ in range(self.draw(st.integers(reason == "tool_use", 4))):
                self.calls += 1
                content.append(ToolCall(f"c{self.calls}", "tool"))
        error = Failure("MALFORMED_OUTPUT", "what?") if reason in ("malformed", "error") else None
        message = Message("assistant", tuple(content), reason, id=next_message_id(self.state))
        self.post(MessageEnd(message, Usage(1, 1), error))

    def tools(self) -> None:
        state = self.state
        order = self.draw(st.permutations([i for i, r in enumerate(state.results) if r is None]))
        cut = self.draw(st.integers(0, 3)) == 0
        if cut:
            self.abort(0.0)
        for index in order:
            call = state.calls[index]
            if self.draw(st.integers(0, 3)) == 0:
                self.post(ToolExecutionEnd(ToolResult.of(call.id, self.draw(REFUSALS)), index))
        for index in order:
            call = state.calls[index]
            if state.results[index] is None and not (cut and self.draw(st.booleans())):
                self.post(ToolExecutionStart(call.id, index, "tool", "once", f"k{index}"))
                if not (cut and self.draw(st.booleans())):
                    result = ToolResult(call.id, (Text("done"),), self.draw(STATUSES))
                    self.post(ToolExecutionEnd(result, index, 1.0))


def prefixes(facts: list[Fact]) -> Iterator[tuple[list[Fact], State]]:
    state = State()
    yield [], State()
    for length, fact in enumerate(facts, 1):
        fold(state, fact)
        yield facts[:length], state


def folded(facts: list[Fact]) -> State:
    state = State()
    for fact in facts:
        fold(state, fact)
    return state


@settings(max_examples=60)
@given(st.data())
def test_every_prefix_of_every_log_folds_and_asks_for_a_next_step(data: st.DataObject) -> None:
    log = Log(data)
    log.run("one")
    log.run("two")
    check_order(log.facts, facts_only=True, session=True)
    for _, state in prefixes(log.facts):
        step = decide(state)
        assert isinstance(step, CallModel | Deliver | Finish | Repair | RunTools | Settle)
        assert step == decide(state)


@settings(max_examples=60)
@given(st.data())
def test_every_prefix_can_be_settled_and_what_a_model_then_sees_is_valid(data: st.DataObject) -> None:
    log = Log(data)
    log.run("one")
    reason = data.draw(st.sampled_from(["aborted", "cancelled", "interrupted", "error"]))
    for facts, _ in prefixes(log.facts):
        again = Log(data)
        again.post(*facts)
        place_of_last = facts[-1].place if facts else Place("none", 0)
        again.place = place_of_last
        was_open = again.state.run_id is not None
        failure = Failure("INTERNAL", "broke") if reason == "error" else None
        if was_open:
            again.post(*close_turn(again.state, reason, failure))
            again.post(*close_run(again.state, reason, failure))
            assert not again.state.turn_open
            assert again.state.run_id is None
            assert again.state.stop_reason == reason
            check_order(again.facts, facts_only=True, session=True)
        visible = list(again.state.transcript.visible())
        if visible:
            check_history(visible if visible[-1].role != "assistant" else [*visible, Message("user", "go on")])
        answered = {f.result.call_id for f in again.facts if isinstance(f, ToolExecutionEnd)}
        asked = {c.id for f in again.facts if isinstance(f, MessageEnd) for c in f.message.calls}
        if was_open or not facts or facts[-1].kind == "agent_end":
            assert answered == asked


@settings(max_examples=60)
@given(st.data())
def test_folding_the_same_facts_gives_equal_states_also_when_they_were_written(data: st.DataObject) -> None:
    log = Log(data)
    log.run("one")
    assert folded(log.facts) == log.state
    assert folded([read_fact(write_fact(fact)) for fact in log.facts]) == log.state


@settings(max_examples=60)
@given(st.data())
def test_a_snapshot_never_changes(data: st.DataObject) -> None:
    log = Log(data)
    log.run("one")
    state = State()
    taken = []
    for fact in log.facts:
        fold(state, fact)
        snapshot = state.snapshot()
        taken.append((snapshot, list(snapshot.messages), snapshot.pending, snapshot.queued))
    for snapshot, messages, pending, queued in taken:
        assert (list(snapshot.messages), snapshot.pending, snapshot.queued) == (messages, pending, queued)


def test_after_an_abort_no_model_call_is_decided() -> None:
    log = Log(None)  # type: ignore[arg-type]  # nothing is drawn
    log.post(AgentStart((Message("user", "go"),)))
    assert decide(log.state) == CallModel()
    log.post(AbortRequested())
    assert decide(log.state) == Finish("aborted")
