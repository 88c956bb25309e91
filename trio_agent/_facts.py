"""What a session remembers: each class is something that happened, and its log is a list of them.

A fact is shown to observers only after it is durable.  State is a fold over facts and nothing else,
so whatever decides what a run does next must stand in one of these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, TypeAlias

import attrs

from ._errors import Failure
from ._messages import Message, Origin, ToolCall, ToolResult
from ._model import NO_USAGE, Usage
from ._options import Effect, Limits

__all__ = [
    "AbortRequested",
    "AgentEnd",
    "AgentResume",
    "AgentStart",
    "ApprovalRequest",
    "ApprovalResolved",
    "ConfigChange",
    "Custom",
    "Fact",
    "InputRequest",
    "InputResolved",
    "MessageDelivered",
    "MessageDraft",
    "MessageEnd",
    "MessageQueued",
    "ModelCallEnd",
    "ModelCallFailed",
    "Place",
    "Request",
    "Rewind",
    "Stamped",
    "StopReason",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "TurnEnd",
    "TurnEndReason",
    "TurnStart",
    "Verdict",
    "kind_of",
    "stamp",
]

TurnEndReason: TypeAlias = Literal[
    "stop", "tool_use", "length", "refusal", "error", "aborted", "cancelled", "interrupted", "suspended"
]
"""Why a turn ended.  ``aborted``, ``cancelled``, ``interrupted`` only if something of it was cut or not run;
``suspended``: calls of it wait for a person's answer, and have no result yet."""

StopReason: TypeAlias = Literal[
    "stop", "length", "refusal", "max_turns", "aborted", "cancelled", "interrupted", "suspended", "error"
]
"""Why a run ended.  ``interrupted``: a crash cut it, and a later prompt settled it.  ``suspended``: it waits
for answers, and ``resume`` goes on with them."""

Verdict: TypeAlias = Literal["allow", "deny", "suspend"]
"""How an approval was answered.  ``suspend``: later, and perhaps to another process."""


@attrs.frozen
class Place:
    """Where an event belongs: its run, its turn, and the calls above a sub-agent's run."""

    run_id: str
    """Empty for what stands between two runs of a session."""
    turn: int
    path: tuple[str, ...] = ()
    journal: str = ""
    """Who wrote it: with its place in the log this is a fact's id.  Empty: a journal of the run's own, and name."""


class Stamped:
    """The stamp that the journal puts on every event that it takes, once.

    Attributes:
      seq: the place in the session's log, from 1; of an observation, that of the last fact before it.
      time: seconds on the clock of the run's ``trio``; differences mean something, the value does not.
    """

    __slots__ = ("place", "seq", "time")
    kind: ClassVar[str] = ""
    seq: int
    time: float
    place: Place

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.kind = kind_of(cls)

    @property
    def run_id(self) -> str:
        """The run it belongs to."""
        return self.place.run_id

    @property
    def turn(self) -> int:
        """The number of the turn; 0 before a session's first."""
        return self.place.turn

    @property
    def path(self) -> tuple[str, ...]:
        """The run ids and call ids above a sub-agent's run; empty for a run of its own."""
        return self.place.path


_set_seq: Final = Stamped.__dict__["seq"].__set__
_set_time: Final = Stamped.__dict__["time"].__set__
_set_place: Final = Stamped.__dict__["place"].__set__


def stamp(event: Stamped, seq: int, time: float, place: Place) -> None:
    """Put the stamp on a frozen event.  Only the journal and the reader of a log do this."""
    _set_seq(event, seq)
    _set_time(event, time)
    _set_place(event, place)


def kind_of(cls: type) -> str:
    """The wire name of an event class: its name in snake case."""
    return "".join("_" + c.lower() if c.isupper() else c for c in cls.__name__).lstrip("_")


@attrs.frozen
class AgentStart(Stamped):
    """A run begins; the first event of it."""

    messages: tuple[Message, ...]
    """The input, in order; a history that came with it is settled and whole."""
    limits: Limits = Limits()
    context_window: int | None = None
    delivered: tuple[str, ...] = ()
    """Ids of queued messages that an earlier run left; they stand before the input."""
    resumes: str | None = None
    """The suspended run whose calls this one runs, with the ledger of that one."""


@attrs.frozen
class AgentResume(Stamped):
    """A run that a crash had cut goes on, under its id.

    Calls that had started and have no end are settled now, or start again if their effect allows it.
    """


@attrs.frozen
class TurnStart(Stamped):
    """A turn begins.  Numbers increase strictly in a session."""

    number: int


@attrs.frozen
class ModelCallFailed(Stamped):
    """An attempt failed and nothing of it is kept.  Spent is spent: its usage counts."""

    attempt: int
    error: Failure
    usage: Usage = NO_USAGE


@attrs.frozen
class ModelCallEnd(Stamped):
    """A model call of a hook ended; its answer is no message of the conversation, its usage counts."""

    purpose: str
    usage: Usage = NO_USAGE
    error: Failure | None = None


@attrs.frozen
class MessageEnd(Stamped):
    """A message is whole.

    Of assistant messages it is a fact.  Of tool results (role ``tool``) it is an observation: there
    the fact is :class:`ToolExecutionEnd`, and the history gets one message at the turn's end.
    """

    message: Message
    usage: Usage = NO_USAGE
    """What the call that made it used."""
    error: Failure | None = None
    """The cause, if the finish reason is ``error`` or ``malformed``."""


@attrs.frozen
class MessageDraft(Stamped):
    """More of an answer that is being written, only the new part; logged if the agent has ``log_stream``.

    A retry throws the drafts of its message away, as it does what was shown.
    """

    message_id: str
    text: str
    reasoning: str = ""


@attrs.frozen
class ToolExecutionStart(Stamped):
    """A call is accepted.  Durable before the effect of a call begins, unless that is ``pure``."""

    call_id: str
    index: int
    """Place of the call in its message."""
    name: str
    effect: Effect
    idempotency_key: str
    terminal: bool = False


@attrs.frozen
class ToolExecutionEnd(Stamped):
    """A call has its result: exactly one a call, in completion order."""

    result: ToolResult
    index: int
    duration: float = 0.0
    """Seconds from its start; 0 if it never started."""
    recovered: bool = False
    """Settled later, on behalf of a run that could not."""


@attrs.frozen
class ApprovalRequest(Stamped):
    """A call waits for a person's permission."""

    call_id: str
    index: int
    """Place of the call in its message."""
    name: str
    """Of the tool."""
    arguments: str
    """The input that would be run, as JSON text: an answer holds for this input only."""
    reason: str = ""
    """Why somebody must be asked."""

    @property
    def input(self) -> dict[str, Any]:  # Any: JSON
        """A fresh copy of the input."""
        return ToolCall(self.call_id, self.name, self.arguments).input


@attrs.frozen
class ApprovalResolved(Stamped):
    """The wait for a permission is over."""

    call_id: str
    index: int
    verdict: Verdict
    reason: str = ""


@attrs.frozen
class InputRequest(Stamped):
    """A running call asks a person something."""

    call_id: str
    index: int
    """Place of the call in its message."""
    number: int
    """Of the question among those of its call, from 1."""
    question: str


@attrs.frozen
class InputResolved(Stamped):
    """The wait for an answer is over."""

    call_id: str
    index: int
    number: int
    answer: str | None
    """``None``: it will come later, and the call was cut; it runs again from its start."""


@attrs.frozen
class ConfigChange(Stamped):
    """A session was configured anew, from the next turn on; these hold then."""

    model: str
    """The model's name."""
    system: str | None
    tools: tuple[str, ...]
    """The tools' names."""
    reasoning: str | None


@attrs.frozen
class Rewind(Stamped):
    """The conversation goes on from where it was behind fact ``to``.  The log is never cut."""

    to: int


@attrs.frozen
class Custom(Stamped):
    """What a tool or a middleware wants to be remembered or seen."""

    name: str
    data: Mapping[str, Any]  # Any: JSON
    call_id: str | None = None


@attrs.frozen
class MessageQueued(Stamped):
    """A steer, a follow-up or a repair is accepted; it will be delivered once."""

    id: str
    origin: Origin
    message: Message
    interrupt: bool = False
    """It asks to cut the calls that are running."""


@attrs.frozen
class MessageDelivered(Stamped):
    """A queued message takes its place in the history."""

    id: str


@attrs.frozen
class AbortRequested(Stamped):
    """Someone asked the run to end; again only for a stronger wish."""

    grace: float = math.inf
    """Seconds that running work is given; infinite: to the end of the turn, and its calls run."""
    reason: str | None = None


@attrs.frozen
class TurnEnd(Stamped):
    """A turn is complete: every call of it has its result."""

    number: int
    reason: TurnEndReason
    stop: bool = False
    """What ``should_stop_after_turn`` said."""


@attrs.frozen
class AgentEnd(Stamped):
    """The run is over: exactly once, last, whatever happened."""

    reason: StopReason
    usage: Usage = NO_USAGE
    error: Failure | None = None


Request: TypeAlias = ApprovalRequest | InputRequest
"""What a person is asked."""

Fact: TypeAlias = (
    AgentStart
    | AgentResume
    | TurnStart
    | ModelCallFailed
    | ModelCallEnd
    | MessageEnd
    | MessageDraft
    | ToolExecutionStart
    | ToolExecutionEnd
    | ApprovalRequest
    | ApprovalResolved
    | InputRequest
    | InputResolved
    | ConfigChange
    | Rewind
    | Custom
    | MessageQueued
    | MessageDelivered
    | AbortRequested
    | TurnEnd
    | AgentEnd
)
"""What a session remembers."""
