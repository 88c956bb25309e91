"""The book of one turn's calls: announced, started, ended and answered, each at most once and in order.

After a crash or a suspension the turn goes on: what has no result is announced again, and may start again.
Knows nothing of the rest of a run.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Final

import attrs

from .._events import MessageStart
from .._facts import (
    ApprovalRequest,
    ApprovalResolved,
    InputRequest,
    InputResolved,
    ToolExecutionEnd,
    ToolExecutionStart,
)
from .._messages import NEVER_STARTED, Message, ToolCall, ToolResult
from ._questions import PERMISSION, QuestionBook, broken_rule

__all__ = ["CallBook"]

_UNSEEN: Final = -1
"""The place of a call that nothing has told yet."""


@attrs.define
class _Entry:
    """What has become of a call."""

    id: str
    index: int
    name: str | None = None
    call: ToolCall | None = None
    """``None``: its message was not seen."""
    start: ToolExecutionStart | None = None
    """Since the run goes on."""
    earlier: ToolExecutionStart | None = None
    """The latest start before a crash or a suspension."""
    result: ToolResult | None = None
    announced: bool = False
    paired: bool = False
    questions: QuestionBook = attrs.field(factory=QuestionBook)


class CallBook:
    """Keeps the calls of the open turn, and the ids of all calls before it.

    Args:
      shown: observations are fed too, so announcements and result pairs must be there.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._ids: set[str] = set()
        self._entries: dict[str, _Entry] = {}
        self._unseen = False  # the turn began before what was seen: calls become known when they are told of
        self._announced = 0
        self._open = 0  # calls without result
        self._waiting = 0  # those of them without announcement
        self._next = 0  # the place of the call that is announced next
        self._paired = 0
        self._pair: _Entry | None = None

    def know(self, ids: Iterable[str]) -> None:
        """These ids are taken by calls of a history that the run began with."""
        self._ids.update(ids)

    def clear(self) -> None:
        """A new turn."""
        self._entries = {}
        self._unseen = False
        self._open = self._waiting = self._announced = self._next = self._paired = 0

    def asked(self, calls: tuple[ToolCall, ...]) -> None:
        """An assistant message is whole."""
        self.clear()
        for index, call in enumerate(calls):
            if not call.id or call.id in self._ids:
                broken_rule(f"the call id {call.id!r} is {'used again' if call.id else 'blank'}")
            self._ids.add(call.id)
            self._entries[call.id] = _Entry(call.id, index, call.name, call)
        self._open = self._waiting = len(calls)

    def go_on(self, *, unseen: bool = False) -> None:
        """The turn goes on after a crash or a suspension.

        Args:
          unseen: nothing of it was seen before.
        """
        self._unseen = self._unseen or unseen
        self._announced = self._next = self._paired = 0
        self._pair = None
        for entry in self._entries.values():
            entry.paired = False
            entry.questions.go_on()
            if entry.result is None:
                entry.announced = False
                entry.earlier = entry.start or entry.earlier
                entry.start = None
        self._waiting = self._open

    def reopen(self, *, unseen: bool) -> None:
        """Another run goes on with the calls that were suspended: each is prepared again.

        Args:
          unseen: nothing of them was seen before.
        """
        self._unseen = self._unseen or unseen
        for entry in self._entries.values():
            entry.questions.suspended = False

    def announced(self, call: ToolCall) -> None:
        """``tool_use``: every call without a result, in input order."""
        entry = self._find(call.id, call.name)
        if entry.call is None:
            entry.call = call
        known = entry.index != _UNSEEN
        if entry.announced or entry.result is not None or (known and self._is_out_of_order(entry.index)):
            broken_rule(f"tool_use of call {call.id!r} out of input order")
        if entry.call != call:
            broken_rule(f"tool_use of call {call.id!r} is not the call of its message")
        entry.announced = True
        self._announced += 1
        self._waiting -= 1
        self._next = max(self._next, entry.index + 1)

    def _is_out_of_order(self, index: int) -> bool:
        """Whether a later call was announced, or one before it should have been."""
        if index == self._next or self._unseen:
            return index < self._next
        between = itertools.islice(self._entries.values(), self._next, index)
        return index < self._next or any(entry.result is None for entry in between)

    def started(self, start: ToolExecutionStart) -> None:
        """``tool_execution_start``: after all were announced and before its end; again only if its effect allows it."""
        entry = self._find(start.call_id, start.name, start.index)
        what = f"the start of call {start.call_id!r}"
        self._check_announced(what)
        if entry.start is not None or entry.result is not None:
            broken_rule(f"{what} after its {'end' if entry.result else 'start'}")
        if start.index != entry.index or start.name != entry.name:
            broken_rule(f"{what} names another place or tool than its message")
        if entry.questions.left_for_later:
            broken_rule(f"{what}, which waits for an answer that comes later")
        if entry.earlier is not None:
            if entry.earlier.effect == "once":
                broken_rule(f"{what} again, and its effect was once")
            if entry.earlier.idempotency_key != start.idempotency_key:
                broken_rule(f"{what} has another idempotency key than before: {start.idempotency_key!r}")
        entry.start = start

    def updated(self, call_id: str) -> None:
        """``tool_execution_update``: between start and end."""
        entry = self._find(call_id)
        if entry.start is None or entry.result is not None:
            broken_rule(f"an update of call {call_id!r} {'after its end' if entry.result else 'before its start'}")

    def was_cut(self, call_id: str) -> bool:
        """Whether the call may have started before a crash or a suspension, and has not started since."""
        entry = self._entries.get(call_id)
        if entry is None:
            return self._unseen
        return entry.start is None and (self._unseen or entry.earlier is not None)

    def ended(self, end: ToolExecutionEnd, *, cut: bool) -> None:
        """``tool_execution_end``: once a call; with a start exactly if it ran.

        Args:
          cut: it has not started since a crash or a suspension has cut it.
        """
        status, call_id = end.result.status, end.result.call_id
        entry = self._find(call_id, index=end.index)
        if entry.result is not None:
            broken_rule(f"a second end of call {call_id!r}")
        if end.index != entry.index:
            broken_rule(f"the end of call {call_id!r} has index {end.index}, its place is {entry.index}")
        if self._announced or not (cut or status == "not_run"):
            # Calls that settlement answers may never have been announced; then none of the turn was.
            self._check_announced(f"the end of call {call_id!r}")
        if status == "not_run" and entry.start is not None and entry.start.effect == "pure":
            broken_rule(f"call {call_id!r} is not_run and has a start, and its effect is {entry.start.effect}")
        if status in NEVER_STARTED and entry.earlier is not None:
            broken_rule(f"call {call_id!r} is {status}, and had started before")
        if status not in NEVER_STARTED and not cut and entry.start is None:
            broken_rule(f"call {call_id!r} is {status} and has no start")
        self._has_ended(entry, end.result)

    def _has_ended(self, entry: _Entry, result: ToolResult) -> None:
        entry.result = result
        self._open -= 1
        self._waiting -= not entry.announced

    # --- what a person is asked ----------------------------------------------------------------------

    def requested(self, request: ApprovalRequest | InputRequest) -> None:
        """A request belongs to a call that was announced: to one that is prepared, or to one that is running."""
        what = f"{request.kind} of call {request.call_id!r}"
        entry = self._find(request.call_id, index=request.index)
        self._check_place(entry, request.index, what)
        self._check_announced(what)
        if entry.result is not None:
            broken_rule(f"{what} after its end")
        if isinstance(request, ApprovalRequest):
            if entry.name not in (None, request.name):
                broken_rule(f"{what} names another tool than its message")
            entry.questions.requested(PERMISSION, what)
        else:
            if entry.start is None:
                broken_rule(f"{what} before its start")
            entry.questions.requested(request.number, what)

    def resolved(self, resolved: ApprovalResolved | InputResolved) -> None:
        """A resolution belongs to a request that was not answered, of a call without a result."""
        what = f"{resolved.kind} of call {resolved.call_id!r}"
        entry = self._find(resolved.call_id, index=resolved.index)
        self._check_place(entry, resolved.index, what)
        if entry.result is not None:
            broken_rule(f"{what} after its end")
        if isinstance(resolved, ApprovalResolved):
            number, later = PERMISSION, resolved.verdict == "suspend"
        else:
            number, later = resolved.number, resolved.answer is None
        entry.questions.resolved(number, what, later=later, unseen=self._unseen)

    def _check_place(self, entry: _Entry, index: int, what: str) -> None:
        if entry.index != index:
            broken_rule(f"{what} has index {index}, its place is {entry.index}")

    # --- results -------------------------------------------------------------------------------------

    def pair_begins(self, start: MessageStart) -> None:
        """``message_start`` of a result: in input order, after the last end."""
        self.check_ended("the results")
        entry = self._find(start.call_id or "")
        if entry.paired or (entry.index != self._paired if not self._unseen else _UNSEEN < entry.index < self._paired):
            broken_rule(f"the result of call {start.call_id!r} out of input order")
        self._pair = entry

    def pair_ends(self, message: Message) -> None:
        """``message_end`` of a result: the one whose pair is open, as its end told it."""
        entry = self._pair
        if entry is not None and entry.result is None and self._unseen:  # it ended before what was seen
            for told in message.results:
                self._has_ended(entry, told)
        result = None if entry is None else entry.result
        if entry is None or result is None or message.content != (result,) or result.call_id != entry.id:
            broken_rule("message_end of a result that is not the one its tool_execution_end told")
        entry.paired = True
        self._paired = max(self._paired, entry.index) + 1 if self._unseen else self._paired + 1

    def check_complete(self, what: str) -> None:
        """Every call has its end, and if shown its pair, before ``what``."""
        self.check_ended(what)
        if self._shown and not all(entry.paired for entry in self._entries.values()):
            paired = sum(entry.paired for entry in self._entries.values())
            broken_rule(f"{what} after {paired} of {len(self._entries)} results")

    def check_suspended(self) -> None:
        """``turn_end:suspended``: a call has no result yet, and each of these waits for a person's answer."""
        if self._unseen:
            return
        if not self._open:
            broken_rule("turn_end:suspended, and every call has its end")
        for entry in self._entries.values():
            if entry.result is None and not entry.questions.suspended:
                broken_rule(f"turn_end:suspended before the end of {entry.id!r}, which waits for no answer")

    def check_ended(self, what: str) -> None:
        """Every call has its end before ``what``."""
        if self._open:
            missing = [entry.id for entry in self._entries.values() if entry.result is None]
            broken_rule(f"{what} before the end of {', '.join(map(repr, missing))}")

    def _check_announced(self, what: str) -> None:
        if self._shown and self._waiting:
            broken_rule(f"{what} after {self._announced} of {self._announced + self._waiting} tool_use")

    def _find(self, call_id: str, name: str | None = None, index: int = _UNSEEN) -> _Entry:
        entry = self._entries.get(call_id)
        if entry is None:
            if not self._unseen:
                broken_rule(f"call {call_id!r} is none of the turn's")
            entry = self._entries[call_id] = _Entry(call_id, index, name)
            self._ids.add(call_id)
            self._open += 1
            self._waiting += 1
        if self._unseen:  # what is told first of a call that was not seen is believed
            entry.name = entry.name or name
            entry.index = index if entry.index == _UNSEEN else entry.index
        return entry
