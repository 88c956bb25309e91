"""Does a run tell its events in the promised order?  A checker to feed, to listen with, or to hold a list against.

The order itself is the table ``ORDER`` beside the events; here are its reader and the books of the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, get_args

import attrs

from .._events import (
    ORDER,
    Event,
    MessageDiscarded,
    MessageStart,
    Observation,
    PhaseChange,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolExecutionUpdate,
    ToolUse,
)
from .._facts import (
    AgentStart,
    MessageDelivered,
    MessageEnd,
    MessageQueued,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    kind_of,
)
from .._messages import ResultStatus
from ._calls import CallBook, broken_rule

__all__ = ["EventOrder", "check_order"]

_Table: TypeAlias = Mapping[str, Mapping[str, frozenset[str]]]

_REFUSED: Final[frozenset[ResultStatus]] = frozenset({"invalid", "unknown_tool", "denied", "truncated"})
_OBSERVED: Final = frozenset(kind_of(cls) for cls in get_args(Observation)) | {"message_end:tool"}
_ORDERED: Final = frozenset(key.partition(":")[0] for row in ORDER.values() for key in row)
_BETWEEN_RUNS: Final = frozenset({"message_queued"})
_SEEN: Final = 20
"""How many of the last kinds a complaint tells."""


def _key(event: Event) -> str:
    """What the table calls the event."""
    match event:
        case PhaseChange():
            return f"phase_change:{event.phase}"
        case MessageStart():
            return f"message_start:{event.role}"
        case MessageEnd(message=message):
            if message.role != "assistant":
                return f"message_end:{message.role}"
            reason = message.finish_reason
            if reason == "pause" and message.calls:
                return "message_end:answer"
            return f"message_end:{reason}" if reason in ("pause", "malformed", "error") else "message_end:answer"
        case ToolExecutionEnd(result=result):
            if result.status in _REFUSED:
                return "tool_execution_end:refused"
            return "tool_execution_end:not_run" if result.status == "not_run" else "tool_execution_end:ran"
        case _:
            return event.kind


def _is_observed(key: str) -> bool:
    return key in _OBSERVED or key.partition(":")[0] in _OBSERVED


def _table(facts_only: bool) -> _Table:
    """Where each key leads; for a log, observations may have happened unseen before and after it."""
    reach = {state: _unseen(state) if facts_only else frozenset({state}) for state in ORDER}
    table: dict[str, dict[str, frozenset[str]]] = {state: {} for state in ORDER}
    for state, row in table.items():
        for before in reach[state]:
            for key, after in ORDER[before].items():
                if not (facts_only and _is_observed(key)):
                    row[key] = row.get(key, frozenset()) | reach[after]
    return table


def _unseen(state: str) -> frozenset[str]:
    """Where a run may have come from ``state`` by observations alone."""
    found, todo = {state}, [state]
    while todo:
        for key, after in ORDER[todo.pop()].items():
            if _is_observed(key) and after not in found:
                found.add(after)
                todo.append(after)
    return frozenset(found)


_SHOWN: Final = _table(facts_only=False)
_LOGGED: Final = _table(facts_only=True)


@attrs.define
class _Draft:
    """An assistant message that is being streamed."""

    id: str
    text: list[str] = attrs.field(factory=list[str])
    reasoning: list[str] = attrs.field(factory=list[str])


class EventOrder:
    """Checks that events come in the promised order, one :meth:`feed` at a time.

    An instance is also a listener, so ``run.subscribe(order)`` checks a run while it goes; call
    :meth:`done` when it is over, which raises again what a listener could only tell the run.

    Events of a sub-agent's run, told by their longer path, are checked on their own.

    Args:
      facts_only: what is fed is a log, so no observation is in it and none is missed.  Otherwise all
        observations must be there, from ``agent_start`` on.
      session: several runs of one session may follow one another, with queued messages between them.
    """

    def __init__(self, *, facts_only: bool = False, session: bool = False) -> None:
        self._facts_only = facts_only
        self._session = session
        self._table = _LOGGED if facts_only else _SHOWN
        self._states: frozenset[str] = frozenset({"outside"})
        self._recent: deque[str] = deque(maxlen=_SEEN)
        self._count = 0
        self._runs = 0
        self._path: tuple[str, ...] | None = None
        self._children: dict[str, EventOrder] = {}
        self._broken: AssertionError | None = None
        self._seq = 0
        self._whole = False
        self._turn = 0
        self._draft: _Draft | None = None
        self._message_ids: set[str] = set()
        self._queued: set[str] = set()
        self._delivered: set[str] = set()
        self._calls = CallBook(shown=not facts_only)

    async def __call__(self, event: Event) -> None:
        """Feed as a listener.  No checkpoint."""
        self.feed(event)

    def feed(self, event: Event) -> None:
        """Take the next event.

        Raises:
          AssertionError: it cannot stand here; says the rule, the place, and the kinds that came before.
            Once broken, every further call raises the same.
        """
        if self._broken is not None:
            raise self._broken
        try:
            self._feed(event)
        except AssertionError as error:
            self._broken = AssertionError(
                f"{error}\n  at event {self._count}; the last kinds: {' '.join(self._recent)}"
            )
            raise self._broken from None

    def done(self) -> None:
        """Say that nothing more comes.

        Raises:
          AssertionError: an earlier event broke the order, or no run began, or one has not ended.
        """
        if self._broken is not None:
            raise self._broken
        tail = f"; the last kinds: {' '.join(self._recent)}"
        if self._runs == 0:
            broken_rule("no run has begun" + tail)
        if "outside" not in self._states:
            broken_rule(f"the run has not ended, it is {_names(self._states)}" + tail)
        for child in self._children.values():
            child.done()

    def _feed(self, event: Event) -> None:
        path = _path_of(event)
        if self._path is None:
            self._path = path
        elif path[: len(self._path)] == self._path != path:
            child = self._children.setdefault(event.run_id, EventOrder(facts_only=self._facts_only))
            child.feed(event)
            return
        key = _key(event)
        self._count += 1
        self._recent.append(key)
        if self._facts_only and _is_observed(key):
            broken_rule(f"{key} is an observation, and a log holds none")
        self._check_seq(event, key)
        self._step(key, event.kind)
        self._check(event)

    def _check_seq(self, event: Event, key: str) -> None:
        first = self._count == 1
        if _is_observed(key):
            # A diagnostic on the store overtakes what could not be written.
            ahead = event.kind == "diagnostic" and event.seq > self._seq
            if not first and event.seq != self._seq and not ahead:
                broken_rule(f"{key} has seq {event.seq}; that of the last fact before it is {self._seq}")
            return
        if not first and event.seq <= self._seq:
            broken_rule(f"{key} has seq {event.seq}, after seq {self._seq}")
        # With the whole log before us, nothing can be delivered that was not seen being queued.
        self._whole = self._whole or (first and event.seq == 1)
        self._seq = event.seq

    def _step(self, key: str, kind: str) -> None:
        if "outside" in self._states:
            if self._runs and not self._session:
                broken_rule(f"{key} after agent_end")
            if self._session and kind in _BETWEEN_RUNS:
                return
        elif kind not in _ORDERED:
            return
        reached = frozenset[str]().union(*(self._table[s].get(key, frozenset()) for s in self._states))
        if not reached:
            allowed = sorted({k for s in self._states for k in self._table[s]})
            broken_rule(f"{key} cannot stand here: the run is {_names(self._states)}, expected {' or '.join(allowed)}")
        self._states = reached

    def _check(self, event: Event) -> None:
        """The rules that hold beyond the kinds."""
        match event:
            case AgentStart():
                self._runs += 1
                self._calls.know(call.id for message in event.messages for call in message.calls)
                for queued_id in event.delivered:
                    self._deliver(queued_id)
            case MessageQueued():
                if event.id in self._queued:
                    broken_rule(f"message {event.id!r} was queued twice")
                self._queued.add(event.id)
            case MessageDelivered():
                self._deliver(event.id)
            case TurnStart():
                if event.number <= self._turn:
                    broken_rule(f"turn {event.number} after turn {self._turn}")
                self._turn = event.number
                self._calls.clear()
            case TurnEnd():
                if event.number != self._turn:
                    broken_rule(f"the end of turn {event.number} in turn {self._turn}")
                self._calls.check_complete("turn_end")
            case MessageStart(role="tool"):
                self._calls.pair_begins(event)
            case MessageStart():
                self._message_begins(event.message_id)
            case MessageEnd(message=message) if message.role == "tool":
                self._calls.pair_ends(message)
            case MessageEnd():
                self._message_ends(event)
            case TextDelta() | ReasoningDelta() | ToolCallDelta() | MessageDiscarded():
                self._draft_goes_on(event)
            case ToolUse():
                self._calls.announced(event.call)
            case ToolExecutionStart():
                self._calls.started(event)
            case ToolExecutionUpdate():
                self._calls.updated(event.call_id)
            case ToolExecutionEnd():
                self._calls.ended(event, refused=event.result.status in _REFUSED)
            case _:
                pass

    def _deliver(self, queued_id: str) -> None:
        if queued_id in self._delivered:
            broken_rule(f"message {queued_id!r} was delivered twice")
        if self._whole and queued_id not in self._queued:
            broken_rule(f"message {queued_id!r} was delivered and never queued")
        self._delivered.add(queued_id)

    def _message_begins(self, message_id: str) -> None:
        self._use_id(message_id)
        self._calls.check_complete("another message")
        self._draft = _Draft(message_id)

    def _use_id(self, message_id: str) -> None:
        if not message_id or message_id in self._message_ids:
            broken_rule(f"the message id {message_id!r} is {'used again' if message_id else 'blank'}")
        self._message_ids.add(message_id)

    def _draft_goes_on(self, event: TextDelta | ReasoningDelta | ToolCallDelta | MessageDiscarded) -> None:
        draft = self._draft
        if draft is None or draft.id != event.message_id:
            broken_rule(f"{event.kind} of message {event.message_id!r}, open is {draft and draft.id!r}")
        match event:
            case TextDelta():
                draft.text.append(event.text)
            case ReasoningDelta():
                draft.reasoning.append(event.text)
            case ToolCallDelta():
                pass  # the arguments of a call that was cut, or has a blank for {}, differ from what was shown
            case MessageDiscarded():
                self._draft = None

    def _message_ends(self, event: MessageEnd) -> None:
        message = event.message
        reason = message.finish_reason
        if self._facts_only:
            self._use_id(message.id)
            self._calls.check_complete("another message")
        else:
            draft, self._draft = self._draft, None
            if draft is None or draft.id != message.id:
                broken_rule(f"message_end of message {message.id!r}, open is {draft and draft.id!r}")
            # A codec that buffers shows nothing; what is shown at all is shown whole.
            if draft.text and "".join(draft.text) != message.text:
                broken_rule(
                    f"the deltas of message {message.id!r} say {''.join(draft.text)!r}, it says {message.text!r}"
                )
            whole = reason not in ("interrupted", "error", "malformed")
            if whole and draft.reasoning and "".join(draft.reasoning) != message.reasoning:
                broken_rule(f"the reasoning deltas of message {message.id!r} do not add up to its reasoning")
        if message.calls and reason in ("error", "malformed"):
            broken_rule(f"a message with finish reason {reason} asks for calls")
        self._calls.asked(message.calls)


def _path_of(event: Event) -> tuple[str, ...]:
    try:
        return event.path
    except AttributeError:
        broken_rule(f"{event.kind} has no stamp")


def _names(states: Iterable[str]) -> str:
    return " or ".join(repr(state) for state in sorted(states))


def check_order(events: Iterable[Event], *, facts_only: bool = False, session: bool = False) -> None:
    """Check a whole run, or with ``session`` all runs of a session; the arguments are :class:`EventOrder`'s.

    Raises:
      AssertionError: the order is broken, or the last run has not ended.
    """
    order = EventOrder(facts_only=facts_only, session=session)
    for event in events:
        order.feed(event)
    order.done()
