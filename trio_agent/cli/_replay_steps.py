"""Whether each fact of a log is what ``decide`` says comes next, given those before it.

Pure, and weaker than running it again: it says that a fact may follow, not that it must.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from .._core._decide import CallModel, Deliver, Finish, Recover, Reopen, Repair, RunTools, Settle, Step, decide
from .._core._settle import close_turn
from .._core._state import State, fold
from .._facts import (
    AgentEnd,
    AgentResume,
    AgentStart,
    Fact,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)

__all__ = ["first_unexplained"]

CUT: Final[tuple[TurnEndReason, ...]] = ("aborted", "cancelled", "interrupted")
"""How turns end that somebody or something cut."""


def first_unexplained(facts: Sequence[Fact]) -> str | None:
    """The first fact of a whole log that nothing before it explains, and what was decided there; ``None``: there is none."""
    walk = _Walk()
    for fact in facts:
        if not walk.explains(fact):
            return f"fact {fact.seq:,} ({fact.kind}): what is decided there is {walk.step!r}"
        walk.go(fact)
    return None


@final
class _Walk:
    """The state on the way along a log."""

    def __init__(self) -> None:
        self._state = State()
        self._to_deliver: list[str] = []

    @property
    def step(self) -> Step:
        return decide(self._state)

    def go(self, fact: Fact) -> None:
        """Let it have happened."""
        if isinstance(fact, TurnStart):
            step = self.step
            self._to_deliver = list(step.ids) if isinstance(step, Deliver) else []
        elif isinstance(fact, MessageDelivered) and fact.id in self._to_deliver:
            self._to_deliver.remove(fact.id)
        fold(self._state, fact)

    def explains(self, fact: Fact) -> bool:
        """Whether it may come here.  What comes from outside may come anywhere."""
        state = self._state
        match fact:
            case AgentStart():
                return state.run_id is None
            case AgentResume():
                return state.run_id is not None
            case TurnStart():
                fails = isinstance(self.step, Finish)  # a failure outside of a turn opens one
                opens = fails or isinstance(self.step, CallModel | Deliver | Reopen)
                return opens and state.run_id is not None and not state.turn_open and fact.number == state.turn + 1
            case MessageDelivered():
                step = self.step
                due = step.ids if isinstance(step, Deliver) else self._to_deliver
                return fact.id in due or (isinstance(step, Repair) and fact.id in state.queue)
            case MessageQueued():
                return fact.origin != "repair" or isinstance(self.step, Repair)
            case MessageEnd() | ModelCallFailed():
                return self._may_answer(fact)
            case ToolExecutionStart() | ToolExecutionEnd():
                return self._may_run(fact)
            case TurnEnd():
                return self._may_end(fact)
            case AgentEnd():
                return self._may_finish(fact)
            case _:
                return True

    def _may_answer(self, fact: MessageEnd | ModelCallFailed) -> bool:
        state = self._state
        if isinstance(fact, MessageEnd) and fact.message.finish_reason == "error":
            return state.turn_open
        under_way = state.abort is not None and (state.answer is None or state.answer.finish_reason == "pause")
        return state.turn_open and (isinstance(self.step, CallModel) or under_way)

    def _may_run(self, fact: ToolExecutionStart | ToolExecutionEnd) -> bool:
        state = self._state
        if not 0 <= fact.index < len(state.calls) or state.results[fact.index] is not None:
            return False
        if isinstance(fact, ToolExecutionEnd):
            return True  # what was cut has an end wherever it is, also between runs
        first = state.started[fact.index]
        key = f"{state.run_id}.{state.turn}.{fact.index}" if first is None else first.idempotency_key
        runs = isinstance(self.step, RunTools) or (isinstance(self.step, Recover) and first is not None)
        return runs and fact.idempotency_key == key

    def _may_end(self, fact: TurnEnd) -> bool:
        state, step = self._state, self.step
        if not state.turn_open:
            return False
        if fact.reason == "error":
            return state.answer is not None and state.answer.finish_reason == "error"
        if isinstance(step, Settle) and close_turn(state, step.reason, stop=fact.stop) == [fact]:
            return True
        if state.missing:
            return False
        was_cut = any(result is not None and result.status in ("not_run", "interrupted") for result in state.results)
        return (was_cut and fact.reason in CUT) or any(close_turn(state, cut, stop=fact.stop) == [fact] for cut in CUT)

    def _may_finish(self, fact: AgentEnd) -> bool:
        state = self._state
        if state.turn_open or fact.usage != state.usage:
            return False
        cut = fact.reason in ("cancelled", "interrupted", "error") or (
            fact.reason == "aborted" and state.abort is not None
        )
        return cut or self.step == Finish(fact.reason)
