"""What the log of a session adds up to: in which state it is, and how much was done in it.

Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

from .._core._state import State, fold_read
from .._facts import AgentStart, Fact, MessageEnd, ModelCallEnd, ModelCallFailed, ToolExecutionEnd, TurnStart
from .._messages import ResultStatus
from .._model import NO_USAGE, Usage

__all__ = ["QUIET", "Record", "age_text", "tokens_text"]

QUIET: Final = 60.0
"""Seconds without a new fact after which a run that has not ended is thought to have crashed."""


@attrs.define
class Record:
    """A session so far; :meth:`see` is given each fact of its log, in order."""

    session: str
    state: State = attrs.field(factory=State)
    runs: int = 0
    turns: int = 0
    calls: int = 0
    statuses: Counter[ResultStatus] = attrs.field(factory=Counter[ResultStatus])
    usage: Usage = NO_USAGE
    """Of all runs; also what was spent for nothing."""

    def see(self, fact: Fact) -> None:
        """Count one fact in.

        Raises:
          SessionCorrupt: it cannot stand after those before it.
        """
        fold_read(self.state, fact, self.session)
        match fact:
            case AgentStart():
                self.runs += 1
            case TurnStart():
                self.turns += 1
            case MessageEnd():
                self.usage += fact.usage
                if fact.message.finish_reason != "malformed":
                    self.calls += len(fact.message.calls)
            case ToolExecutionEnd():
                self.statuses[fact.result.status] += 1
            case ModelCallFailed() | ModelCallEnd():
                self.usage += fact.usage
            case _:
                pass

    def condition(self, age: float) -> str:
        """``running``, ``crashed?``, ``suspended``, why the latest run ended, or ``idle``.

        A log that stops in the middle of a run does not say whether its writer lives; only how long it has been silent.

        Args:
          age: seconds since the log was written to.
        """
        state = self.state
        if state.run_id is not None:
            return "running" if age < QUIET else "crashed?"
        return "suspended" if state.missing else state.stop_reason or "idle"


def tokens_text(usage: Usage, before: str = "") -> str:
    """``1,204 in, 88 out``, behind ``before``; empty if nobody has told either of the two."""
    if usage.input is None and usage.output is None:
        return ""
    told_in, told_out = ("?" if part is None else f"{part:,}" for part in (usage.input, usage.output))
    return f"{before}{told_in} in, {told_out} out"


def age_text(seconds: float) -> str:
    """``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length):,} {unit}"
    return f"{max(int(seconds), 0)} s"
