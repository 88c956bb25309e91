"""The book of one turn's calls: announced, started, ended and answered, each at most once and in order.

Knows nothing of the rest of a run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import attrs

from .._events import MessageStart
from .._facts import ToolExecutionEnd, ToolExecutionStart
from .._messages import Message, ToolCall, ToolResult

__all__ = ["CallBook", "broken_rule"]


def broken_rule(text: str) -> NoReturn:
    """Raise: a promise was broken."""
    raise AssertionError(text)


@attrs.define
class _Entry:
    """What has become of a call."""

    index: int
    call: ToolCall
    start: ToolExecutionStart | None = None
    result: ToolResult | None = None


class CallBook:
    """Keeps the calls of the open turn, and the ids of all calls before it.

    Args:
      shown: observations are fed too, so announcements and result pairs must be there.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._ids: set[str] = set()
        self._entries: dict[str, _Entry] = {}
        self._announced = 0
        self._paired = 0
        self._pair: ToolResult | None = None

    def know(self, ids: Iterable[str]) -> None:
        """These ids are taken by calls of a history that the run began with."""
        self._ids.update(ids)

    def clear(self) -> None:
        """A new turn."""
        self._entries = {}
        self._announced = self._paired = 0

    def asked(self, calls: tuple[ToolCall, ...]) -> None:
        """An assistant message is whole."""
        self.clear()
        for index, call in enumerate(calls):
            if not call.id or call.id in self._ids:
                broken_rule(f"the call id {call.id!r} is {'used again' if call.id else 'blank'}")
            self._ids.add(call.id)
            self._entries[call.id] = _Entry(index, call)

    def announced(self, call: ToolCall) -> None:
        """``tool_use``: every call, in input order."""
        entry = self._find(call.id)
        if entry.index != self._announced:
            broken_rule(f"tool_use of call {call.id!r} out of input order")
        if entry.call != call:
            broken_rule(f"tool_use of call {call.id!r} is not the call of its message")
        self._announced += 1

    def started(self, start: ToolExecutionStart) -> None:
        """``tool_execution_start``: once a call, after all were announced and before its end."""
        entry = self._find(start.call_id)
        self._check_announced(f"the start of call {start.call_id!r}")
        if entry.start is not None or entry.result is not None:
            broken_rule(f"the start of call {start.call_id!r} after its {'end' if entry.result else 'start'}")
        if start.index != entry.index or start.name != entry.call.name:
            broken_rule(f"the start of call {start.call_id!r} names another place or tool than its message")
        entry.start = start

    def updated(self, call_id: str) -> None:
        """``tool_execution_update``: between start and end."""
        entry = self._find(call_id)
        if entry.start is None or entry.result is not None:
            broken_rule(f"an update of call {call_id!r} {'after its end' if entry.result else 'before its start'}")

    def ended(self, end: ToolExecutionEnd, *, refused: bool) -> None:
        """``tool_execution_end``: once a call; with a start exactly if it ran.

        Args:
          refused: its status says that it failed in preparation; the table has seen that nothing started.
        """
        status, call_id = end.result.status, end.result.call_id
        entry = self._find(call_id)
        if entry.result is not None:
            broken_rule(f"a second end of call {call_id!r}")
        if end.index != entry.index:
            broken_rule(f"the end of call {call_id!r} has index {end.index}, its place is {entry.index}")
        if self._announced or status != "not_run":
            # Calls that settlement answers may never have been announced; then none of the turn was.
            self._check_announced(f"the end of call {call_id!r}")
        if status == "not_run" and entry.start is not None and entry.start.effect != "once":
            broken_rule(f"call {call_id!r} is not_run and has a start, and its effect is {entry.start.effect}")
        if not refused and status != "not_run" and entry.start is None:
            broken_rule(f"call {call_id!r} is {status} and has no start")
        entry.result = end.result

    def pair_begins(self, start: MessageStart) -> None:
        """``message_start`` of a result: in input order, after the last end."""
        self._check_ended("the results")
        entry = self._find(start.call_id or "")
        if entry.index != self._paired:
            broken_rule(f"the result of call {start.call_id!r} out of input order")
        self._pair = entry.result

    def pair_ends(self, message: Message) -> None:
        """``message_end`` of a result: the one whose pair is open, as its end told it."""
        if self._pair is None or message.content != (self._pair,):
            broken_rule("message_end of a result that is not the one its tool_execution_end told")
        self._paired += 1

    def check_complete(self, what: str) -> None:
        """Every call has its end, and if shown its pair, before ``what``."""
        self._check_ended(what)
        if self._shown and self._paired < len(self._entries):
            broken_rule(f"{what} after {self._paired} of {len(self._entries)} results")

    def _check_announced(self, what: str) -> None:
        if self._shown and self._announced < len(self._entries):
            broken_rule(f"{what} after {self._announced} of {len(self._entries)} tool_use")

    def _check_ended(self, what: str) -> None:
        missing = [entry.call.id for entry in self._entries.values() if entry.result is None]
        if missing:
            broken_rule(f"{what} before the end of {', '.join(map(repr, missing))}")

    def _find(self, call_id: str) -> _Entry:
        entry = self._entries.get(call_id)
        if entry is None:
            broken_rule(f"call {call_id!r} is none of the turn's")
        return entry
