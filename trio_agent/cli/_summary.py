"""What was done, in a few lines, and whether the history that it left is whole.

Pure: counts nothing itself and prints nothing.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from .._core._transcript import project
from .._facts import StopReason
from .._messages import Message, ResultStatus
from ..testing import check_history
from ._tally import Tally, TurnTally, plural
from ._words import printable

__all__ = ["STATUSES", "asked_text", "ended_text", "fault_in", "statuses_text", "summary"]

SHOWN: Final = 8
"""How many numbers of an order are shown."""

STATUSES: Final[dict[ResultStatus, str]] = {
    "ok": "ok",
    "error": "failed",
    "invalid": "invalid",
    "unknown_tool": "of unknown tools",
    "denied": "denied",
    "not_run": "not run",
    "interrupted": "interrupted",
    "timed_out": "timed out",
    "truncated": "truncated",
}
"""What became of calls, as a person says it."""


def statuses_text(statuses: Counter[ResultStatus]) -> str:
    """``12 ok, 228 interrupted``."""
    told = [f"{statuses[status]:,} {text}" for status, text in STATUSES.items() if statuses[status]]
    return ", ".join(told) or "none ended"


def asked_text(turn: TurnTally) -> str:
    """``240 calls of read_and_count``."""
    names = printable(", ".join(dict.fromkeys(call.name for call in turn.calls)))
    return f"{plural(len(turn.calls), 'call')} of {names}"


def ended_text(turn: TurnTally) -> str:
    """``238 ok, 2 failed in 0.15 s, 240 in flight at most``."""
    return f"{statuses_text(turn.statuses)} in {turn.wall:.2f} s, {turn.peak:,} in flight at most"


def fault_in(messages: Sequence[Message]) -> str | None:
    """What is wrong with a history; ``None`` if each call has its one result, and a model would take it as it is."""
    # What a request shows would hide a missing result, so the results are counted before.
    after: Message | None
    for message, after in itertools.zip_longest(messages, messages[1:]):
        asked = [call.id for call in message.calls]
        given = [result.call_id for result in after.results] if after is not None else []
        if asked != given:
            return f"the calls {asked} were answered by {given}"
    try:
        check_history(project([*messages, Message("user", "Go on.")]))
    except AssertionError as fault:
        return str(fault)
    return None


def summary(
    tally: Tally,
    messages: Sequence[Message],
    stop_reason: StopReason,
    fault: str | None,
    waits: float | None = None,
) -> Iterator[str]:
    """The lines to print at a run's end.

    Args:
      tally: of all its events.
      messages: its history.
      stop_reason: why it stopped.
      fault: what is wrong with the history, if anything is; see :func:`fault_in`.
      waits: how many seconds the calls waited on purpose, all together, if they did.
    """
    yield _line("run", f"{plural(len(tally.turns), 'turn')}, {stop_reason}")
    yield _line("calls", f"{tally.asked:,}: {statuses_text(tally.statuses)}" if tally.asked else "none")
    if tally.peak:
        yield _line("in flight", f"{tally.peak:,} at most")
        of_it = "" if waits is None else f", {waits:.2f} s of it on purpose"
        yield _line("wall", f"{tally.wall:.2f} s")
        yield _line("serial", f"{tally.serial:.2f} s: how long the calls took, added up{of_it}")
    widest = max(tally.turns, key=lambda turn: len(turn.calls), default=None)
    if widest is not None and len(widest.calls) > 1:
        ends, results = widest.ends, _places_of_results(widest, messages)
        yield _line("events", f"ends came in the order {_order(ends)} of turn {widest.number}")
        yield _line("results", f"the model got them in the order {_order(results)}")
    if fault is not None:
        yield _line("history", f"NOT VALID: {fault}")
    else:
        owed = ", and each call has its one result" if tally.asked else ""
        yield _line("history", f"valid: {plural(len(messages), 'message')}{owed}")


def _line(name: str, text: str) -> str:
    return f"{name:<10} {text}"


def _places_of_results(turn: TurnTally, messages: Sequence[Message]) -> list[int]:
    """Where the results of a turn stand, as they lie in the history."""
    places = {call.id: place for place, call in enumerate(turn.calls)}
    return [places[result.call_id] for message in messages for result in message.results if result.call_id in places]


def _order(places: Iterable[int]) -> str:
    numbers = [place + 1 for place in places]
    told = ", ".join(map(str, numbers[:SHOWN]))
    return f"{told}, ..., {numbers[-1]}" if len(numbers) > SHOWN else told
