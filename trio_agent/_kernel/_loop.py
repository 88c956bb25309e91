"""Decide, perform, until Finish; then the way out.

    log --fold--> State --decide--> Step --perform--> facts --append--> log

The loop is a child task of the run's nursery, so that Ctrl-C, which lands in the main task and pierces
shields, cannot break it.  All steps are performed inside the run's one cancel scope; settlement happens
outside it, under one absolute deadline, and posts what ``close_turn`` and ``close_run`` say.
"""

from __future__ import annotations

from typing import assert_never, final

import trio

from .._core._decide import CallModel, Deliver, Finish, Recover, Reopen, Repair, RunTools, Settle, Step, decide
from .._core._settle import close_run, close_turn
from .._errors import AgentError, Failure, InternalError, failure_in, leaf
from .._events import MessageStart, PhaseChange
from .._facts import (
    Fact,
    MessageDelivered,
    MessageEnd,
    StopReason,
    ToolExecutionEnd,
    TurnEnd,
    TurnEndReason,
    TurnStart,
)
from .._messages import Message, ToolResult
from ._chain import Chain
from ._config import KernelConfig
from ._control import Control
from ._journal import Journal
from ._model_phase import ModelPhase
from ._tool_phase import ToolPhase

__all__ = ["Loop"]


@final
class Loop:
    """One run, from its first step to its last event."""

    __slots__ = ("_after_agent_ran", "_chain", "_control", "_finished", "_journal", "_models", "_next", "_tools")

    def __init__(self, journal: Journal, control: Control, chain: Chain, models: ModelPhase, tools: ToolPhase) -> None:
        self._journal = journal
        self._control = control
        self._chain = chain
        self._models = models
        self._tools = tools
        self._finished = False
        self._after_agent_ran = False
        self._next: KernelConfig | None = None

    def configure(self, config: KernelConfig) -> None:
        """Go by ``config`` from the next turn on: its model, tools, system prompt and reasoning."""
        self._next = config

    async def run(self) -> None:
        """Run to the end.  Whatever happens, the log is settled and every listener has been told.

        Raises only what is not an ``Exception``: the host's cancellation, ``KeyboardInterrupt``,
        ``SystemExit``; all else is the run's error.
        """
        journal = self._journal
        flushed = False
        try:
            journal.begin()
            self._control.phase = "turn"
            if journal.watched:
                journal.emit(PhaseChange("turn"))
            with self._control.scope:
                await self._until_finish()
            if self._finished:
                await journal.flush()
                flushed = True
        finally:
            try:
                if not flushed:
                    with trio.CancelScope(shield=True, deadline=self._settle_deadline()):
                        try:
                            if not self._finished:
                                await self._settle()
                        finally:
                            await journal.flush()  # noqa: ASYNC102  # the scope around it is shielded and ends
            finally:
                journal.end_run()

    async def _until_finish(self) -> None:
        try:
            await self._chain.run(self._chain.before_agent)
            while True:  # noqa: ASYNC913  # each step leaves a fact behind, and turns are limited
                step = decide(self._journal.state)
                if not isinstance(step, Finish):
                    await self._perform(step)
                elif self._chain.after_agent and not self._after_agent_ran:
                    await self._after_agent()
                else:
                    self._finish(step.reason)
                    return
        except Exception as error:
            self._fail(leaf(error))
        except BaseExceptionGroup as group:
            self._fail(failure_in(group))

    def _fail(self, error: Exception) -> None:
        if self._control.cause is None:
            self._control.cause = error

    # --- performing ----------------------------------------------------------------------------------

    async def _perform(self, step: Step) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()  # no step is taken after a cut, also if the last one saw nothing
        journal = self._journal
        before = journal.state.head
        match step:
            case RunTools():
                await self._tools.perform()
            case CallModel():
                if not journal.state.turn_open:
                    self._open_turn()
                await self._models.call_model()
            case Settle(reason, failure):
                complete = failure is None and reason not in ("aborted", "suspended")
                stop = complete and bool(self._chain.should_stop) and await self._chain.stops()
                self._close_turn(reason, failure, stop)
            case Deliver(ids):
                delivered = map(MessageDelivered, ids)
                if journal.state.turn_open:
                    journal.post(*delivered)
                else:
                    self._open_turn(*delivered)
            case Reopen():
                self._open_turn()
            case Recover(indexes):
                calls = journal.state.calls
                cut = [ToolResult.of(calls[index].id, "interrupted") for index in indexes]
                journal.post(*(ToolExecutionEnd(r, i, recovered=True) for i, r in zip(indexes, cut, strict=True)))
            case Repair():
                self._models.repair()
            case Finish():
                pass
            case _:
                assert_never(step)
        if journal.state.head == before:
            await trio.lowlevel.checkpoint_if_cancelled()  # foreign code swallowed its cancellation: it goes on here
            raise InternalError(f"the step {step!r} left no fact behind")

    def _open_turn(self, *delivered: MessageDelivered) -> None:
        if self._next is not None:
            self._models.configure(self._next)
            self._tools.configure(self._next.dispatcher)
            self._next = None
        self._journal.post(TurnStart(self._journal.state.turn + 1), *delivered)

    def _close_turn(self, reason: TurnEndReason, failure: Failure | None, stop: bool = False) -> None:
        """Post what the turn is owed, with the result pairs and the pair of an error message around it."""
        journal = self._journal
        for fact in close_turn(journal.state, reason, failure, stop=stop):
            if journal.watched:
                self._announce(fact)
            journal.post(fact)

    def _announce(self, fact: Fact) -> None:
        """The observations that stand before a fact of settlement."""
        journal = self._journal
        if isinstance(fact, TurnEnd) and fact.reason == "suspended":
            return  # the turn goes on in another run, and its results are told together
        if isinstance(fact, TurnEnd | MessageEnd):
            state = journal.state
            for call, result in zip(state.calls, state.results, strict=True):
                if result is not None:
                    journal.emit(MessageStart("", "tool", call.id))
                    journal.emit(MessageEnd(Message("tool", (result,))))
        if isinstance(fact, MessageEnd):
            journal.emit(MessageStart(fact.message.id, "assistant"))

    def _finish(self, reason: StopReason) -> None:
        """Post the run's end.  Between the decision and this there is no checkpoint, and the queues close."""
        journal = self._journal
        failure = None
        if reason == "error":
            cause = self._control.cause
            failure = journal.state.failure or Failure.of(cause or InternalError("the run failed without a cause"))
        self._tools.late.tell()
        self._control.ended = True
        self._finished = True
        self._control.phase = "idle"
        if journal.watched:
            journal.emit(PhaseChange("idle"))
        journal.post(*close_run(journal.state, reason, failure))
        journal.seal_run()

    # --- the way out ---------------------------------------------------------------------------------

    def _settle_deadline(self) -> float:
        deadline = self._control.settle_deadline()
        self._journal.settle_by(deadline)
        return deadline

    async def _settle(self) -> None:
        """Something cut the run or broke it: complete the turn, tell after_agent, end the run."""
        control = self._control
        turn_reason: TurnEndReason = "cancelled"
        reason: StopReason = "cancelled"
        failure: Failure | None = None
        if control.cause is not None:
            turn_reason = reason = "error"
            failure = Failure.of(control.cause)
        elif self._journal.state.abort is not None and not control.left and control.scope.cancelled_caught:
            turn_reason = reason = "aborted"
        self._close_turn(turn_reason, failure)
        try:
            if self._chain.after_agent and not self._after_agent_ran:
                # A scope of its own: if the deadline cuts the hook, the run's end is posted all the same.
                with trio.CancelScope(shield=True, deadline=self._control.foreign_deadline()):
                    await self._after_agent()
        except AgentError as error:
            self._fail(error)
        finally:  # also if the hook was interrupted
            if control.cause is not None and reason != "error":  # after the turn was closed for another reason
                reason = "error"
                self._close_turn("error", Failure.of(control.cause))
            self._finish(reason)

    async def _after_agent(self) -> None:
        self._after_agent_ran = True
        await self._chain.run(self._chain.after_agent)
