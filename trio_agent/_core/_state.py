"""What the facts so far add up to: State, and the fold that makes it.

``fold`` is deterministic, costs O(1) a fact, looks at nothing else, and changes the state that it is
given in place.  Only the journal calls it, and only the journal's state exists; everyone else gets a
:class:`Snapshot`.  A law: folding the same facts gives equal states.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import assert_never

import attrs

from .._errors import Failure, SessionCorrupt
from .._facts import (
    AbortRequested,
    AgentEnd,
    AgentResume,
    AgentStart,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageDelivered,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ModelCallFailed,
    Request,
    Rewind,
    StopReason,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
    TurnStart,
)
from .._messages import Message, Origin, ToolCall, ToolResult
from .._middleware import Snapshot
from .._model import NO_USAGE, Usage
from .._options import Limits
from ._transcript import Transcript

__all__ = ["State", "fold", "fold_read", "state_of"]


@attrs.define
class State:
    """The fold of a log.  Read it freely, and leave the writing to :func:`fold`."""

    head: int = 0
    """How many facts were folded."""
    transcript: Transcript = attrs.field(factory=Transcript)
    queue: dict[str, MessageQueued] = attrs.field(factory=dict[str, MessageQueued])
    """Messages accepted and not yet delivered, in order of arrival."""
    call_ids: set[str] = attrs.field(factory=set[str])
    """The ids of all calls that the session has seen."""
    boundaries: dict[int, int] = attrs.field(factory=dict[int, int])
    """Behind which facts nothing was under way, and how long the history was there."""
    answered: dict[str, tuple[str, str]] = attrs.field(factory=dict[str, tuple[str, str]])
    """By call id: the last answer of a person, and its text."""
    config: ConfigChange | None = None
    """What the session was configured to last."""

    # --- the run
    run_id: str | None = None
    latest_run: str = ""
    """The id of the latest run, also when it is over."""
    resumed: int = 0
    """How often the run has gone on after a crash."""
    limits: Limits = Limits()
    run_began: int = 0
    """Length of the transcript when the run began."""
    turns: int = 0
    """Turns that the run has begun."""
    answers: int = 0
    """Assistant messages that the run's model calls have ended with."""
    usage: Usage = NO_USAGE
    abort: AbortRequested | None = None
    failure: Failure | None = None
    """Why the run fails, if it does."""
    last: TurnEnd | None = None
    """The end of the run's latest complete turn."""
    goes_on: bool = False
    """The latest complete turn had calls, so a model must see their results."""
    terminal: bool = False
    """A terminal call ended ok."""
    stop_reason: StopReason | None = None
    """Of the latest run that ended."""

    # --- the turn
    turn: int = 0
    """The number of the latest turn."""
    turn_open: bool = False
    attempts: int = 0
    """Model calls of the turn that have ended, well or badly."""
    repairs: int = 0
    pauses: int = 0
    answer: Message | None = None
    """The latest assistant message of the turn, unless a repair asks for another."""
    calls: tuple[ToolCall, ...] = ()
    """The calls of the answer, in input order."""
    started: list[ToolExecutionStart | None] = attrs.field(factory=list[ToolExecutionStart | None])
    results: list[ToolResult | None] = attrs.field(factory=list[ToolResult | None])
    """One place a call."""
    missing: int = 0
    """How many calls have no result yet; also between runs, if they are suspended."""
    reopens: bool = False
    """The run's first turn goes on with the calls of the one that was suspended."""
    lost: set[int] = attrs.field(factory=set[int])
    """Calls that a crash has cut, and that may not run again."""
    asked: dict[int, Request] = attrs.field(factory=dict[int, Request])
    """By place of the call: what a person was asked last."""
    permissions: dict[int, ApprovalRequest] = attrs.field(factory=dict[int, ApprovalRequest])
    """By place of the call: the permission that was asked for last."""
    verdicts: dict[int, ApprovalResolved] = attrs.field(factory=dict[int, ApprovalResolved])
    """By place of the call: whether it may run."""
    replies: dict[tuple[int, int], tuple[str, str]] = attrs.field(factory=dict[tuple[int, int], tuple[str, str]])
    """By place of the call and number of its question: the question, and its answer."""
    suspended: set[int] = attrs.field(factory=set[int])
    """Places of the calls whose answer will come later."""

    @property
    def no_more_calls(self) -> bool:
        """An abort with a finite grace was asked for: no further call starts."""
        return self.abort is not None and self.abort.grace < math.inf

    @property
    def requests(self) -> tuple[Request, ...]:
        """What a person was asked and has not answered, in the order of the calls."""
        return tuple(
            request
            for index, request in sorted(self.asked.items())
            if self.results[index] is None
            and (
                (index, request.number) not in self.replies
                if isinstance(request, InputRequest)
                else index not in self.verdicts
            )
        )

    def queued(self, origin: Origin) -> list[str]:
        """Ids of the queued messages of one kind, in order of arrival."""
        return [queued.id for queued in self.queue.values() if queued.origin == origin]

    def snapshot(self) -> Snapshot:
        """A frozen view; nothing of the history is copied."""
        waiting = sorted(self.queue.values(), key=lambda queued: queued.origin != "steer")
        return Snapshot(
            run_id=self.run_id,
            turn=self.turn,
            messages=self.transcript.view(),
            pending=tuple(c for c, r in zip(self.calls, self.results, strict=True) if r is None),
            queued=tuple(queued.message for queued in waiting),
            usage=self.usage,
            abort=self.abort,
            stop_reason=self.stop_reason,
            requests=self.requests if self.asked else (),
        )


def fold(state: State, fact: Fact) -> None:
    """Let ``fact`` have happened."""
    state.head += 1
    match fact:
        case ToolExecutionStart():
            state.started[_place(state, fact.index, fact.call_id)] = fact
        case ToolExecutionEnd():
            _call_ended(state, fact)
        case MessageEnd():
            _answered(state, fact)
        case TurnStart():
            state.turns += 1
            state.turn = fact.number
            state.turn_open = True
            state.reopens = False
            if not state.missing:  # else it goes on with the calls of the one that was suspended
                _clear_turn(state)
        case TurnEnd():
            state.turn_open = False
            state.last = fact
            if fact.reason != "suspended":
                _place_results(state)
                state.boundaries[state.head] = len(state.transcript)
        case MessageQueued():
            state.queue[fact.id] = fact
        case MessageDelivered():
            _deliver(state, fact.id)
        case ModelCallFailed():
            state.attempts += 1
            state.usage += fact.usage
        case ModelCallEnd():
            state.usage += fact.usage
        case AbortRequested():
            state.abort = fact
        case AgentStart():
            _run_began(state, fact)
        case AgentEnd():
            state.run_id = None
            state.stop_reason = fact.reason
            state.failure = fact.error
            if not state.missing:
                state.boundaries[state.head] = len(state.transcript)
        case ApprovalRequest() | InputRequest():
            _asked(state, fact)
        case ApprovalResolved() | InputResolved():
            _resolved(state, fact)
        case AgentResume():
            _go_on(state)
        case ConfigChange():
            state.config = fact
        case Rewind():
            _rewind(state, fact.to)
        case Custom() | MessageDraft():
            pass
        case _:
            assert_never(fact)


def fold_read(state: State, fact: Fact, session: str) -> None:
    """Let a fact that was read from a log have happened.

    Raises:
      SessionCorrupt: it cannot have, after those before it; the message names its place.
    """
    try:
        fold(state, fact)
    except LookupError as error:
        place = f"fact {state.head} of session {session!r}"
        raise SessionCorrupt(f"{place}: a {fact.kind} cannot stand after those before it") from error


def state_of(facts: Iterable[Fact], session: str) -> State:
    """What the log of a session adds up to.  Raises as :func:`fold_read` does."""
    state = State()
    for fact in facts:
        fold_read(state, fact, session)
    return state


def _run_began(state: State, fact: AgentStart) -> None:
    state.run_id = state.latest_run = fact.place.run_id
    state.limits = fact.limits
    state.abort = state.failure = state.last = None
    state.resumed = 0
    state.goes_on = state.turn_open = False
    state.reopens = fact.resumes is not None
    if state.reopens:  # the ledger and the turn are those of the suspended run
        state.suspended.clear()
    else:
        state.terminal = False
        _place_results(state)  # of a suspended turn that nobody resumed
        state.turns = state.answers = 0
        state.usage = NO_USAGE
        _clear_turn(state)
    state.run_began = len(state.transcript)
    for queued_id in fact.delivered:
        _deliver(state, queued_id)
    for queued_id in state.queued("repair"):  # one that its run did not deliver repairs nothing in another
        del state.queue[queued_id]
    for message in fact.messages:
        state.transcript.append(message)
        state.call_ids.update(call.id for call in message.calls)


def _clear_turn(state: State) -> None:
    state.attempts = state.repairs = state.pauses = 0
    state.answer = None
    _clear_calls(state)


def _clear_calls(state: State) -> None:
    state.calls = ()
    state.started = []
    state.results = []
    state.missing = 0
    if state.lost:
        state.lost = set()
    if state.asked:
        state.asked, state.permissions, state.verdicts, state.replies, state.suspended = {}, {}, {}, {}, set()


def _answered(state: State, fact: MessageEnd) -> None:
    """An assistant message is whole."""
    _place_results(state)  # the message of an error stands behind the results of its turn
    message = fact.message
    state.transcript.append(message)
    state.attempts += 1
    state.answers += 1
    state.usage += fact.usage
    state.answer = message
    if fact.error is not None:
        state.failure = fact.error
    if message.finish_reason == "pause":
        state.pauses += 1
    calls = message.calls
    if state.asked or state.lost:
        _clear_calls(state)
    state.calls = calls
    state.call_ids.update([call.id for call in calls])
    state.missing = len(calls)
    state.started = [None] * len(calls)
    state.results = [None] * len(calls)


def _place(state: State, index: int, call_id: str) -> int:
    """The place of a call in the turn.

    Raises:
      LookupError: no such call is there, as in a log that was made by hand.
    """
    if index < 0 or state.calls[index].id != call_id:
        raise LookupError(f"call {call_id!r} is not at place {index}")
    return index


def _call_ended(state: State, fact: ToolExecutionEnd) -> None:
    index = _place(state, fact.index, fact.result.call_id)
    if state.results[index] is None:
        state.missing -= 1
    state.results[index] = fact.result
    if state.lost:
        state.lost.discard(index)
    if state.suspended:
        state.suspended.discard(index)
    start = state.started[index]
    if start is not None and start.terminal and fact.result.status == "ok":
        state.terminal = True


def _place_results(state: State) -> None:
    """Give the history the one message with all results of the turn."""
    state.goes_on = bool(state.calls)
    if state.calls:
        state.transcript.append(Message("tool", tuple(r for r in state.results if r is not None)))
        _clear_calls(state)


def _asked(state: State, fact: Request) -> None:
    index = _place(state, fact.index, fact.call_id)
    state.asked[index] = fact
    state.suspended.discard(index)
    if isinstance(fact, ApprovalRequest):
        state.permissions[index] = fact
        state.verdicts.pop(index, None)  # what was answered to another request holds no more
    else:
        state.replies.pop((index, fact.number), None)  # nor to another question


def _resolved(state: State, fact: ApprovalResolved | InputResolved) -> None:
    index = _place(state, fact.index, fact.call_id)
    if isinstance(fact, ApprovalResolved):
        if index not in state.permissions:
            raise LookupError(f"nobody asked about call {fact.call_id!r}")
        later = fact.verdict == "suspend"
        if not later:
            state.verdicts[index] = fact
            state.answered[fact.call_id] = (fact.verdict, fact.reason)
    else:
        later = fact.answer is None
        asked = state.asked[index]
        if fact.answer is not None and isinstance(asked, InputRequest):
            state.replies[index, fact.number] = (asked.question, fact.answer)
            state.answered[fact.call_id] = ("text", fact.answer)
    if later:
        state.suspended.add(index)
    else:
        state.suspended.discard(index)


def _go_on(state: State) -> None:
    """The process that ran the run is gone: what it had started and not ended is cut."""
    state.resumed += 1
    for index, start in enumerate(state.started):
        if start is not None and start.effect == "once" and state.results[index] is None:
            state.lost.add(index)


def _rewind(state: State, to: int) -> None:
    length = state.boundaries[to] if to else 0
    state.transcript = Transcript(state.transcript[:length])  # a new one: views of the old may be about
    state.boundaries = {seq: kept for seq, kept in state.boundaries.items() if seq <= to}
    state.boundaries[state.head] = length
    state.stop_reason = state.failure = state.last = None
    _clear_turn(state)


def _deliver(state: State, queued_id: str) -> None:
    queued = state.queue.pop(queued_id)
    state.transcript.append(queued.message)
    if queued.origin == "repair":
        state.repairs += 1
        state.answer = None
        state.failure = None
