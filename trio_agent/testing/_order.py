"""Does a run tell its events in the promised order?  A checker to feed, to listen with, or to hold a list against.

The order itself is the tables ``ORDER`` and ``GOES_ON`` beside the events; here is their reader, which also keeps
the books of runs, turns and messages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, get_args

from .._events import (
    GOES_ON,
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
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    InputRequest,
    InputResolved,
    MessageDelivered,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallFailed,
    Rewind,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
    kind_of,
)
from .._messages import ResultStatus
from ._calls import CallBook
from ._message_book import MessageBook
from ._questions import broken_rule

__all__ = ["EventOrder", "check_order"]

_Table: TypeAlias = Mapping[str, Mapping[str, frozenset[str]]]

_REFUSED: Final[frozenset[ResultStatus]] = frozenset({"invalid", "unknown_tool", "denied", "truncated"})
_OBSERVED: Final = frozenset(kind_of(cls) for cls in get_args(Observation)) | {"message_end:tool"}
_ORDERED: Final = frozenset(key.partition(":")[0] for row in ORDER.values() for key in row)
_BETWEEN_RUNS: Final = frozenset({"outside", "over", "pending"})
_FREE_BETWEEN_RUNS: Final = frozenset({"message_queued", "config_change", "diagnostic"})
_SEEN: Final = 20
"""How many of the last kinds a complaint tells."""


def _key(event: Event, calls: CallBook) -> str:
    """What the table calls the event."""
    match event:
        case AgentStart(resumes=str()):
            return "agent_start:resumes"
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
            if result.status == "interrupted" and calls.was_cut(result.call_id):
                return "tool_execution_end:cut"
            return "tool_execution_end:not_run" if result.status == "not_run" else "tool_execution_end:ran"
        case TurnEnd(reason="suspended") | AgentEnd(reason="suspended"):
            return f"{event.kind}:suspended"
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
            if facts_only and "message_draft" in ORDER[before]:  # a crash may cut it here, and a prompt settle it
                row["message_draft"] = reach[before] | {"ended"}
            if facts_only and before in GOES_ON:  # observers of a run that a crash cuts are gone with it
                row["agent_resume"] = row.get("agent_resume", frozenset()) | reach[GOES_ON[before]]
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


class EventOrder:
    """Checks that events come in the promised order, one :meth:`feed` at a time.

    An instance is also a listener, so ``run.subscribe(order)`` checks a run while it goes; call
    :meth:`done` when it is over, which raises again what a listener could only tell the run.

    Events of a sub-agent's run, told by their longer path, are checked on their own.  What is fed may begin with a
    run that goes on after a crash or a suspension; of what was before that, only what is told again is checked.

    Args:
      facts_only: what is fed is a log, so no observation is in it and none is missed.  Otherwise all
        observations must be there, from the run's first event on.
      session: several runs of one session may follow one another, and between them messages that are queued,
        changes of the configuration, rewinds, and, in a log, the ends of calls that were suspended.
    """

    def __init__(self, *, facts_only: bool = False, session: bool = False) -> None:
        self._facts_only = facts_only
        self._session = session
        self._table = _LOGGED if facts_only else _SHOWN
        self._states: frozenset[str] = frozenset({"outside"})
        self._recent: deque[str] = deque(maxlen=_SEEN)
        self._count = 0
        self._runs = 0
        self._run = ""
        self._boundaries: set[int] = set()
        self._path: tuple[str, ...] | None = None
        self._children: dict[str, EventOrder] = {}
        self._broken: AssertionError | None = None
        self._seq = 0
        self._whole = False
        self._turn = 0
        self._queued: set[str] = set()
        self._delivered: set[str] = set()
        self._messages = MessageBook(shown=not facts_only)
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
        if not self._states <= _BETWEEN_RUNS:
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
        key = _key(event, self._calls)
        self._count += 1
        self._recent.append(key)
        if self._facts_only and _is_observed(key):
            broken_rule(f"{key} is an observation, and a log holds none")
        self._check_seq(event, key)
        before = self._states
        self._step(key, event.kind)
        self._check_run(event, before)
        self._check(event, key)

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
        if self._states <= _BETWEEN_RUNS:
            if self._runs and not self._session:
                broken_rule(f"{key} after agent_end")
            if self._session and kind in _FREE_BETWEEN_RUNS:
                return
            if kind == "tool_execution_end" and not self._facts_only:
                broken_rule(f"{key} between runs, where it is shown to nobody")
        elif kind not in _ORDERED:
            return
        reached = frozenset[str]().union(*(self._table[s].get(key, frozenset()) for s in self._states))
        if not reached:
            allowed = sorted({k for s in self._states for k in self._table[s]})
            broken_rule(f"{key} cannot stand here: the run is {_names(self._states)}, expected {' or '.join(allowed)}")
        self._states = reached

    def _check_run(self, event: Event, before: frozenset[str]) -> None:
        """The rules of the runs of a session, beyond the kinds."""
        between = before <= _BETWEEN_RUNS
        match event:
            case AgentStart():
                self._run_begins(event, before)
            case AgentResume():
                if not between and event.run_id != self._run:
                    broken_rule(f"agent_resume of run {event.run_id!r}, open is {self._run!r}")
                self._runs += between
                self._run = event.run_id
                self._turn = max(self._turn, event.turn)
                self._messages.is_lost()
                self._calls.go_on(unseen=between)
            case ToolExecutionEnd() if between and not event.recovered:
                broken_rule(f"the end of call {event.result.call_id!r} between runs does not say that it is recovered")
            case TurnEnd() if event.reason != "suspended":
                self._boundaries.add(event.seq)
            case AgentEnd() if "over" in self._states:
                self._boundaries.add(event.seq)
            case Rewind():
                self._rewinds(event)
            case _:
                pass

    def _run_begins(self, event: AgentStart, before: frozenset[str]) -> None:
        self._runs += 1
        unseen = "outside" in before
        if event.resumes is not None:
            if unseen and self._whole:
                broken_rule(f"agent_start resumes run {event.resumes!r}, which the log does not have")
            if not unseen and event.resumes != self._run:
                broken_rule(f"agent_start resumes run {event.resumes!r}, the one before it is {self._run!r}")
            self._calls.reopen(unseen=unseen)
        elif self._facts_only and not unseen:
            self._calls.check_ended("another run")
        self._run = event.run_id

    def _rewinds(self, event: Rewind) -> None:
        if self._facts_only:
            self._calls.check_ended("rewind")
            if event.to >= event.seq or (self._whole and event.to and event.to not in self._boundaries):
                broken_rule(f"a rewind to fact {event.to}, where something was under way")
        self._boundaries = {seq for seq in self._boundaries if seq <= event.to} | {event.seq}
        self._calls.clear()

    def _check(self, event: Event, key: str) -> None:
        """The rules of turns, messages and calls, beyond the kinds."""
        match event:
            case AgentStart():
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
                if "opened" in self._states:  # else it goes on with the calls of another
                    self._calls.clear()
            case TurnEnd():
                if event.number != self._turn:
                    broken_rule(f"the end of turn {event.number} in turn {self._turn}")
                self._messages.is_lost()
                if event.reason == "suspended":
                    self._calls.check_suspended()
                    self._calls.go_on()
                else:
                    self._calls.check_complete("turn_end")
            case MessageStart(role="tool"):
                self._calls.pair_begins(event)
            case MessageStart():
                self._calls.check_complete("another message")
                self._messages.begins(event.message_id)
            case MessageEnd(message=message) if message.role == "tool":
                self._calls.pair_ends(message)
            case MessageEnd():
                self._calls.check_complete("another message")
                self._messages.ends(event)
                self._calls.asked(event.message.calls)
            case MessageDraft():
                self._messages.logged(event)
            case ModelCallFailed():
                self._messages.is_lost()
            case TextDelta() | ReasoningDelta() | ToolCallDelta() | MessageDiscarded():
                self._messages.goes_on(event)
            case ToolUse():
                self._calls.announced(event.call)
            case ToolExecutionStart():
                self._calls.started(event)
            case ToolExecutionUpdate():
                self._calls.updated(event.call_id)
            case ToolExecutionEnd():
                self._calls.ended(event, cut=key == "tool_execution_end:cut")
            case ApprovalRequest() | InputRequest():
                self._calls.requested(event)
            case ApprovalResolved() | InputResolved():
                self._calls.resolved(event)
            case _:
                pass

    def _deliver(self, queued_id: str) -> None:
        if queued_id in self._delivered:
            broken_rule(f"message {queued_id!r} was delivered twice")
        if self._whole and queued_id not in self._queued:
            broken_rule(f"message {queued_id!r} was delivered and never queued")
        self._delivered.add(queued_id)


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
