"""The log of a session, taken apart: runs, what later ones settled of earlier ones, and what stands between them.

Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias

import attrs

from .._core._settle import close_session
from .._core._state import State, fold_read
from .._facts import (
    AbortRequested,
    AgentEnd,
    AgentResume,
    AgentStart,
    ConfigChange,
    Custom,
    Fact,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)

__all__ = ["Part", "PartKind", "cut_in_order", "parts_of", "starts_first"]

PartKind: TypeAlias = Literal["run", "cut run", "settlement", "between"]
"""``run``: from its beginning, or from where it went on after a crash, to its end.  ``cut run``: the same, but a crash
has cut it, or it still runs.  ``settlement``: what it was owed then, posted by a later one.  ``between``: what stands
between runs."""


@attrs.frozen
class Part:
    """A piece of a log."""

    kind: PartKind
    start: int
    """How many facts stand before it."""
    facts: tuple[Fact, ...]

    @property
    def stop(self) -> int:
        """How many facts stand before what follows."""
        return self.start + len(self.facts)

    def cut_turn(self, place: int) -> int | None:
        """Where the turn begins in which ``place`` is, if it was cut or failed, or calls of it, at a moment of its own.

        What stands behind a turn belongs to it.  ``None``: nothing of the kind is in it, so that the log tells all of it.
        """
        begins = [each for each, fact in enumerate(self.facts) if isinstance(fact, TurnStart)]
        start = max((each for each in begins if each <= place), default=0)
        stop = min((each for each in begins if each > place), default=len(self.facts))
        return start if any(map(_is_cut, self.facts[start:stop])) else None

    @property
    def is_run(self) -> bool:
        """Whether the kernel ran it."""
        return self.kind in ("run", "cut run")


def starts_first(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts, with what came from outside while calls started moved behind their starts.

    Which of those came first was chance, and nothing depends on it: it keeps no call from starting.
    """
    ordered: list[Fact] = []
    late: list[Fact] = []
    for fact in facts:
        if _holds_up_nothing(fact):
            late.append(fact)
        elif isinstance(fact, ToolExecutionStart):
            ordered.append(fact)
        else:
            ordered += (*late, fact)
            late = []
    return (*ordered, *late)


def cut_in_order(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts, with the ends of calls that were cut at the same moment in input order: theirs was chance."""
    ordered: list[Fact] = []
    cut: list[ToolExecutionEnd] = []
    for fact in facts:
        if isinstance(fact, ToolExecutionEnd) and fact.result.status in ("not_run", "interrupted"):
            cut.append(fact)
        else:
            ordered += (*sorted(cut, key=_index), fact)
            cut = []
    return (*ordered, *sorted(cut, key=_index))


def _index(end: ToolExecutionEnd) -> int:
    return end.index


def _holds_up_nothing(fact: Fact) -> bool:
    match fact:
        case MessageQueued(interrupt=False) | ConfigChange() | Custom(call_id=None) | ModelCallEnd():
            return True
        case AbortRequested():
            return fact.grace == math.inf
        case _:
            return False


def _is_cut(fact: Fact) -> bool:
    match fact:
        case ToolExecutionEnd():
            return fact.result.status in ("not_run", "interrupted")
        case MessageQueued():
            return fact.interrupt
        case AbortRequested():
            return fact.grace < math.inf
        case MessageEnd():
            return fact.message.finish_reason in ("interrupted", "error")
        case TurnEnd() | AgentEnd():
            return fact.reason in ("aborted", "cancelled", "interrupted", "error")
        case _:
            return False


def parts_of(facts: Sequence[Fact], session: str) -> list[Part]:
    """The parts of a log, in order; together they are all of it.

    Raises:
      SessionCorrupt: a fact cannot stand after those before it.
    """
    state = State()
    parts: list[Part] = []
    place = 0
    while place < len(facts):
        kind, stop = _next_part(state, facts, place, session)
        parts.append(Part(kind, place, tuple(facts[place:stop])))
        place = stop
    return parts


def _next_part(state: State, facts: Sequence[Fact], place: int, session: str) -> tuple[PartKind, int]:
    """The kind of the part that begins at ``place``, and where it ends.  It is folded."""
    owed = _settlement(state, facts, place)
    if owed:
        for fact in facts[place : place + owed]:
            fold_read(state, fact, session)
        return "settlement", place + owed
    runs = isinstance(facts[place], AgentStart | AgentResume)
    while True:
        fact = facts[place]
        fold_read(state, fact, session)
        place += 1
        if runs and isinstance(fact, AgentEnd):
            return "run", place
        if (
            place == len(facts)
            or isinstance(facts[place], AgentStart | AgentResume)
            or _settlement(state, facts, place)
        ):
            return "cut run" if runs else "between", place


def _settlement(state: State, facts: Sequence[Fact], place: int) -> int:
    """How many facts from ``place`` on were posted on behalf of a run that could not; 0 if none was."""
    match facts[place]:
        case ToolExecutionEnd(recovered=True):
            pass
        case TurnEnd() | AgentEnd(reason="interrupted") if state.run_id is not None:
            pass
        case _:
            return 0
    owed = close_session(state)
    return len(owed) if owed and list(facts[place : place + len(owed)]) == owed else 0
