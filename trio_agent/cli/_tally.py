"""What a run has come to, counted from its events: calls by tool and by turn, how many at once, how long.

Pure: knows no clock and no terminal.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Final

import attrs

from .._events import Event, ModelCallStart, PhaseChange, TextDelta, ToolUse
from .._facts import AgentEnd, AgentResume, AgentStart, MessageEnd, ToolExecutionEnd, ToolExecutionStart, TurnStart
from .._messages import ResultStatus, ToolCall

__all__ = ["Tally", "ToolTally", "TurnTally", "plural"]

SLOWEST: Final = 3
"""How many of the slowest calls are remembered."""

TAIL: Final = 200
"""Characters of the answer under way that are remembered."""


@attrs.define
class ToolTally:
    """The calls of one tool."""

    asked: int = 0
    running: int = 0
    statuses: Counter[ResultStatus] = attrs.field(factory=Counter[ResultStatus])
    durations: list[float] = attrs.field(factory=list[float])
    """Seconds, of the calls that ran."""

    @property
    def ended(self) -> int:
        """How many have their result."""
        return self.statuses.total()

    def percentile(self, share: float) -> float:
        """The duration that this share of the calls stayed within; 0 if none has run."""
        ordered = sorted(self.durations)
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


@attrs.define
class TurnTally:
    """The calls of one turn."""

    number: int
    calls: list[ToolCall] = attrs.field(factory=list[ToolCall])
    """In the order in which the model asked for them."""
    ends: list[int] = attrs.field(factory=list[int])
    """The places of the calls in that order, from 0, in the order in which they ended."""
    statuses: Counter[ResultStatus] = attrs.field(factory=Counter[ResultStatus])
    peak: int = 0
    """How many ran at once, at most."""
    began: float | None = None
    ended: float | None = None
    """When the first call started and the last one ended, on the run's clock."""

    @property
    def wall(self) -> float:
        """Seconds from the first start to the last end."""
        return 0.0 if self.began is None or self.ended is None else self.ended - self.began


@attrs.define
class Tally:
    """The run so far; :meth:`see` is given each event of it, in order."""

    turns: list[TurnTally] = attrs.field(factory=list[TurnTally])
    tools: dict[str, ToolTally] = attrs.field(factory=dict[str, ToolTally])
    running: dict[str, float] = attrs.field(factory=dict[str, float])
    """By id, the calls that run now, and when each started."""
    peak: int = 0
    serial: float = 0.0
    """Seconds that all calls took, added up."""
    slowest: list[tuple[float, int, ToolCall]] = attrs.field(factory=list[tuple[float, int, ToolCall]])
    """Seconds, a number that breaks ties, and the call; a heap."""
    doing: str = "idle"
    """What the run is busy with: ``model``, ``tools``, ``retry`` (it waits for the next attempt) or ``idle``."""
    model: str = ""
    model_calls: int = 0
    tail: str = ""
    """The end of the text that the model is writing or wrote last."""
    began: float | None = None
    ended: float | None = None
    _calls: dict[str, ToolCall] = attrs.field(factory=dict[str, ToolCall])
    _earlier: tuple[ToolCall, ...] = ()
    """The calls of a turn that another process began, and that this run goes on with."""
    _number: int = 0
    """Of the turn that the run goes on with, if another process began it."""

    def go_on(self, calls: Sequence[ToolCall]) -> None:
        """The run will go on with these calls, which an earlier process was told of.  Those count that it runs or ends."""
        self._earlier = tuple(calls)

    @property
    def turn(self) -> TurnTally:
        """The latest turn."""
        if not self.turns:
            self.turns.append(TurnTally(self._number))
        return self.turns[-1]

    @property
    def asked(self) -> int:
        """How many calls the model asked for."""
        return sum(tool.asked for tool in self.tools.values())

    @property
    def statuses(self) -> Counter[ResultStatus]:
        """What became of the calls."""
        return sum((tool.statuses for tool in self.tools.values()), Counter[ResultStatus]())

    @property
    def wall(self) -> float:
        """Seconds from the first event to the last."""
        return 0.0 if self.began is None or self.ended is None else self.ended - self.began

    def see(self, event: Event) -> None:
        """Count one event in."""
        match event:
            case AgentStart():
                self.began = event.time
            case AgentResume():
                self.began = event.time
                self._number = event.turn
                if self._earlier:
                    self.turns.append(TurnTally(event.turn, list(self._earlier)))
            case AgentEnd():
                self.ended = event.time
            case PhaseChange() if event.phase != "turn":
                self.doing = event.phase
            case TurnStart():
                reopened = [] if self.turns else list(self._earlier)
                self.turns.append(TurnTally(event.number, reopened))
            case ModelCallStart():
                self.doing = "model"
                self.model = event.model
                self.model_calls += 1
                self.tail = ""
            case TextDelta():
                self.tail = (self.tail + event.text)[-TAIL:]
            case MessageEnd() if event.message.role == "assistant" and event.message.finish_reason != "malformed":
                self.turn.calls.extend(event.message.calls)
                self._ask(event.message.calls)
            case ToolUse():
                self.doing = "tools"
                self.call(event.call.id)
            case ToolExecutionStart():
                self._start(event)
            case ToolExecutionEnd():
                self._end(event)
            case _:
                pass

    def _ask(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            self._calls[call.id] = call
            self.tools.setdefault(call.name, ToolTally()).asked += 1

    def call(self, call_id: str) -> ToolCall:
        """A call that was asked for, in this process or before."""
        if call_id not in self._calls:
            self._ask([call for call in self._earlier if call.id == call_id])
        return self._calls[call_id]

    def _start(self, event: ToolExecutionStart) -> None:
        call = self.call(event.call_id)
        self.running[call.id] = event.time
        self.tools[call.name].running += 1
        turn = self.turn
        if turn.began is None:
            turn.began = event.time
        turn.peak = max(turn.peak, len(self.running))
        self.peak = max(self.peak, turn.peak)

    def _end(self, event: ToolExecutionEnd) -> None:
        call = self.call(event.result.call_id)
        tool, turn = self.tools[call.name], self.turn
        started = self.running.pop(call.id, None)
        if started is not None:
            # A call that was cut has no duration of its own.
            took = event.duration or event.time - started
            tool.running -= 1
            tool.durations.append(took)
            self.serial += took
            turn.ended = event.time
            heapq.heappush(self.slowest, (took, event.seq, call))
            if len(self.slowest) > SLOWEST:
                heapq.heappop(self.slowest)
        tool.statuses[event.result.status] += 1
        turn.statuses[event.result.status] += 1
        turn.ends.append(event.index)


def plural(count: int, word: str) -> str:
    """``1 call``, ``1,000 calls``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
