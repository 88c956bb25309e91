"""What calls say after their ends: dropped, told once a call, and counted.

Knows nothing of how a call ends; its context asks here when it is closed.
"""

from __future__ import annotations

from typing import Final, final

from .._messages import ToolCall
from ._journal import Journal

__all__ = ["LateUpdates"]

NAMED: Final = 8
"""How many calls the count at the run's end names."""


@final
class LateUpdates:
    """One run's: a thread that was left to itself may go on talking, and must not flood the observers."""

    __slots__ = ("_counts", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._counts: dict[str, int] = {}
        """By call, in the order in which they first were late."""

    def dropped(self, call: ToolCall) -> None:
        """It has said something: the first time is told at once."""
        name = f"{call.name} ({call.id})"
        count = self._counts[name] = self._counts.get(name, 0) + 1
        if count == 1:
            self._journal.diagnose("LATE_UPDATE", f"{name} said something after its end; it was dropped")

    def tell(self) -> None:
        """The run ends: of calls that were late more than once, say how often."""
        again = [f"{name} {_times(count)}" for name, count in self._counts.items() if count > 1]
        if again:
            more = f" and {len(again) - NAMED} more calls" if len(again) > NAMED else ""
            text = f"said after the call's end, and dropped: {', '.join(again[:NAMED])}{more}"
            self._journal.diagnose("LATE_UPDATE", text)


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"
