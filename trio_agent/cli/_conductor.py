"""Leads a run along the log of an earlier one: what came from outside comes again, at its logged place.

The kernel decides what is next; whatever it waits for, a model, a tool, a person, waits here until the log says that it
is its turn.  Needs a clock that jumps when every task waits: then the kernel can do nothing more by itself.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, final

import attrs
import trio

from .._errors import AgentError
from .._facts import (
    AbortRequested,
    AgentEnd,
    ApprovalRequest,
    ApprovalResolved,
    ConfigChange,
    Custom,
    Fact,
    InputRequest,
    InputResolved,
    MessageDraft,
    MessageEnd,
    MessageQueued,
    ModelCallEnd,
    ModelCallFailed,
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnEnd,
)
from .._kernel._journal import Journal
from .._kernel._run import Run
from .._messages import NEVER_STARTED, ToolResult

__all__ = ["Conductor", "is_copied", "is_cut_short"]

TICK: Final = 1e-7
"""Seconds of the jumping clock between two looks; less than any grace that an abort is given."""

CUT_CALL: Final = "the model call was cut before any text"
"""What the kernel says of a model call that was cut and left nothing; no provider says it."""


def is_cut_short(fact: Fact) -> bool:
    """Whether it tells that a model call was cut."""
    if isinstance(fact, MessageEnd):
        return fact.message.finish_reason == "interrupted"
    return isinstance(fact, ModelCallFailed) and fact.error.code == "CANCELLED" and fact.error.message == CUT_CALL


def _owed_in(facts: Sequence[Fact]) -> set[int]:
    """Where calls ended that had no result when their turn was settled: in input order, right before its end."""
    owed: set[int] = set()
    for place, fact in enumerate(facts):
        if not isinstance(fact, TurnEnd) or fact.reason not in ("aborted", "cancelled", "error", "interrupted"):
            continue
        last = facts[place - 1]
        if isinstance(last, MessageEnd) and last.message.finish_reason == "error":
            place -= 1
        after = math.inf
        while isinstance(end := facts[place - 1], ToolExecutionEnd) and _is_of_settlement(end) and end.index < after:
            after = end.index
            place -= 1
            owed.add(place)
    return owed


def _is_of_settlement(end: ToolExecutionEnd) -> bool:
    status = end.result.status
    told = status in ("not_run", "interrupted") and end.result == ToolResult.of(end.result.call_id, status)
    return told and not end.duration


def is_copied(fact: Fact) -> bool:
    """Whether it tells of what hooks or the caller did, which no log lets anybody do again."""
    if isinstance(fact, Custom):
        return fact.call_id is None
    return isinstance(fact, ModelCallEnd | MessageDraft | ConfigChange)


def _is_from_outside(fact: Fact) -> bool:
    """Whether the kernel would not have posted it by itself."""
    if isinstance(fact, MessageQueued):
        return fact.origin != "repair"
    return isinstance(fact, AbortRequested) or is_copied(fact)


@final
class Conductor:
    """Knows the facts of one part of a log, and how far the run that is led along them has come.

    Args:
      facts: of the run that is played again.
      start: how many facts stand before them.
      journal: of the new run.

    Attributes:
      run: what is led; set before it begins.
      fail: what ends it with an error; set when it begins.
      stuck: it waits, and the log does not say for what.
      of_call: by call id, the facts that are about a call, and their places.
      owed: the places of ends that a settlement gave to calls.
    """

    def __init__(self, facts: Sequence[Fact], start: int, journal: Journal) -> None:
        self._facts = facts
        self._start = start
        self._journal = journal
        self._waiting: dict[int, trio.Event] = {}
        self._called: int | None = None  # where the run was when somebody's turn had come last
        self._over = False
        self._cut = False
        self.run: Run | None = None
        self.fail: Callable[[AgentError], None] | None = None
        self.stuck = False
        self.of_call: dict[str, list[tuple[int, Fact]]] = defaultdict(list)
        for place, fact in enumerate(facts):
            call_id = _call_of(fact)
            if call_id is not None:
                self.of_call[call_id].append((place, fact))
        self.owed = _owed_in(facts)
        self._held = {call_id: trio.Event() for call_id, about in self.of_call.items() if _was_held(about)}
        last = facts[-1]
        self._end = last if isinstance(last, AgentEnd) else None
        self._settled_from = len(facts) if self._end is None else self._settlement()

    def _settlement(self) -> int:
        """The place from which on the run was settled, if it was cut or failed."""
        facts = self._facts
        place = len(facts) - 1
        while isinstance(facts[place - 1], Custom):  # of after_agent hooks
            place -= 1
        if isinstance(facts[place - 1], TurnEnd):
            place -= 1
            last = facts[place - 1]
            if isinstance(last, MessageEnd) and last.message.finish_reason == "error":
                place -= 1
            while place - 1 in self.owed or self._was_held_up(facts[place - 1]):
                place -= 1
            if is_cut_short(facts[place - 1]):
                place -= 1
        return place

    def _was_held_up(self, fact: Fact) -> bool:
        return isinstance(fact, ToolExecutionEnd) and fact.result.call_id in self._held

    # --- where it is ---------------------------------------------------------------------------------

    @property
    def place(self) -> int:
        """How many of the facts the new run has."""
        return self._journal.state.head - self._start

    @property
    def due(self) -> Fact | None:
        """The fact that comes next; ``None`` if that was all."""
        place = self.place
        return self._facts[place] if place < len(self._facts) else None

    def next_id(self) -> str:
        """The id of the message that is queued next: the kernel asks for it right before."""
        due = self.due
        return due.id if isinstance(due, MessageQueued) else "an id that is not in the log"

    async def reach(self, place: int) -> bool:
        """Wait until the new run has come to ``place``, and waits itself.  A checkpoint.  Returns whether it has."""
        if not self._over:
            event = self._waiting[place] = trio.Event()
            await event.wait()
        return not self._over

    # --- in the caller's task ------------------------------------------------------------------------

    async def conduct(self, run: Run) -> None:
        """Lead the run to its end, or to where the log ends, or to where it cannot be led on.  A checkpoint."""
        while not run.done.is_set():
            await trio.sleep(max(TICK, trio.current_time() * 1e-12))
            if not run.done.is_set() and not await self._go_on(run):
                break
        self._over = True
        for event in (*self._waiting.values(), *self._held.values()):
            event.set()

    async def _go_on(self, run: Run) -> bool:
        """Every task waits: do what the log says.  Returns whether there was something to do."""
        if self._release():
            return True
        fact = self.due
        if fact is None:
            return False
        # What calls say when the run is cut is posted when all of them have ended: then the next one's turn has come.
        next_one = min(self._waiting, default=None) if self._called == self.place else self.place
        if next_one in self._waiting:
            self._called = self.place
            self._waiting.pop(next_one).set()
        elif _is_from_outside(fact):
            while fact is not None and _is_from_outside(fact) and not self.stuck:  # all of it before anybody is cut
                await self._inject(fact)
                fact = self.due
        elif self.place >= self._settled_from or is_cut_short(fact):
            await self._cut_waiting(run)
        elif isinstance(fact, ToolExecutionEnd) and fact.result.status in NEVER_STARTED:
            self.stuck = not run.cancel_call(fact.result.call_id)
        else:
            self.stuck = True
        return not self.stuck

    def _release(self) -> bool:
        """Let those starts be written whose calls have ended.  Returns whether there were some."""
        ended = [
            call_id
            for call_id in self._held
            if any(isinstance(fact, ToolExecutionEnd) and place < self.place for place, fact in self.of_call[call_id])
        ]
        for call_id in ended:
            self._held.pop(call_id).set()
        return bool(ended)

    async def _cut_waiting(self, run: Run) -> None:
        """Cut the run as it was cut: by an abort whose time is up, or by what :meth:`cut` does."""
        abort = self._journal.state.abort
        if self.cut():
            return
        before = self.place
        if abort is not None and abort.grace < math.inf:
            await trio.sleep(abort.grace + TICK)
        self.stuck = self.place == before

    # --- in the run's own tasks ----------------------------------------------------------------------

    async def pass_by(self, *, before_call: bool = False, may_be_cut: bool = True) -> Fact:
        """Let that come which came from outside at this place.

        Args:
          before_call: a model is called next; what came during its call waits for that.
          may_be_cut: if what comes cuts the run, be cut here.

        Returns:
          The fact that comes next.  If there is none it does not return.
        """
        while True:  # noqa: ASYNC913  # each turn of it is a fact that has come, and the log has an end
            fact = self.due
            if fact is None or self._over or self.stuck:
                await trio.sleep_forever()
            elif _is_from_outside(fact) and not (before_call and self.next_outcome() is not None):
                with trio.CancelScope(shield=True):  # also what came between an abort and the cut that it made
                    await self._inject(fact)
            else:
                if may_be_cut:
                    await trio.lowlevel.checkpoint_if_cancelled()
                return fact

    def next_outcome(self) -> MessageEnd | ModelCallFailed | None:
        """How a model call ends, if that comes next, when what comes from outside has come."""
        for fact in self._facts[self.place :]:
            if not _is_from_outside(fact):
                return fact if isinstance(fact, MessageEnd | ModelCallFailed) else None
        return None

    async def _inject(self, fact: Fact) -> None:
        run, before = self.run, self.place
        assert run is not None
        try:
            match fact:
                case MessageQueued():
                    with trio.move_on_after(TICK):  # it is posted at once; nobody needs to wait until it is durable
                        if fact.origin == "steer":
                            await run.steer(fact.message, interrupt=fact.interrupt)
                        else:
                            await run.follow_up(fact.message)
                case AbortRequested():
                    run.abort(fact.grace, fact.reason)
                case _:
                    self._journal.post(attrs.evolve(fact))  # a copy: the log's own has its stamp
        except AgentError:  # the run is over, or would not take it: the logs differ here
            self.stuck = True
        self.stuck = self.stuck or self.place == before

    async def may_be_written(self, facts: Sequence[Fact]) -> None:
        """Wait until these may become durable: a call that was cut before it could run was cut before its start was."""
        for fact in facts:
            if isinstance(fact, ToolExecutionStart) and fact.call_id in self._held:
                await self._held[fact.call_id].wait()

    def turn_ends_from(self, place: int) -> int:
        """Where what a turn is owed begins, or its end."""
        for later in range(place, len(self._facts)):
            if isinstance(self._facts[later], TurnEnd) or later in self.owed:
                return later
        return len(self._facts)

    def is_settled_after(self, place: int) -> bool:
        """Whether the settlement of a run that was cut or failed begins right behind this place."""
        return place + 1 == self._settled_from

    def cut(self) -> bool:
        """Cut the run if it was left or has failed.  Returns whether it did; only once, and not for an abort."""
        end, run = self._end, self.run
        if self._cut or end is None or run is None or end.reason not in ("cancelled", "error"):
            return False
        self._cut = True
        if end.reason == "cancelled":
            run.cut()
        elif self.fail is not None and end.error is not None:
            self.fail(AgentError(end.error.message, code=end.error.code))
        return True

    async def cut_here(self) -> None:
        """Cut the run if its settlement comes next, and be cut by that.  A checkpoint if it does."""
        if self.place >= self._settled_from and self.cut():
            await trio.lowlevel.checkpoint()

    @property
    def fails_by_itself(self) -> bool:
        """Whether the model call that was cut had failed: an abort was pending, and gave it all the time it wanted."""
        abort = self._journal.state.abort
        aborted = self._end is not None and self._end.reason == "aborted"
        return aborted and abort is not None and abort.grace == math.inf

    @property
    def is_aborting(self) -> bool:
        """Whether an abort is pending."""
        return self._journal.state.abort is not None

    def asked_before(self, request: InputRequest, asked: int) -> list[str]:
        """The questions of a call between its first ``asked`` ones and this one: their answers are in the log."""
        replies = self._journal.state.replies
        return [replies[request.index, n][0] for n in range(asked + 1, request.number) if (request.index, n) in replies]


def _was_held(about: Sequence[tuple[int, Fact]]) -> bool:
    """Whether a call was cut between its start and its effect."""
    started = any(isinstance(fact, ToolExecutionStart) for _, fact in about)
    return started and any(isinstance(f, ToolExecutionEnd) and f.result.status in NEVER_STARTED for _, f in about)


def _call_of(fact: Fact) -> str | None:
    match fact:
        case ToolExecutionEnd():
            return fact.result.call_id
        case (
            ToolExecutionStart() | ApprovalRequest() | ApprovalResolved() | InputRequest() | InputResolved() | Custom()
        ):
            return fact.call_id
        case _:
            return None
