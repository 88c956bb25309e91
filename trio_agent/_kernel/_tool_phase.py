"""One turn's tools: run in parallel, told in completion order, returned in input order.

Knows nothing of schemas or permissions; preparation has seen to those.  Workers pull calls from one
iterator, so ten thousand calls cost ten tasks; what they say goes, in the order in which it happens,
onto the run's one memory channel, and the loop's task drains it and posts.  The post is the slot:
completion order is the order of posts, input order that of the calls, and the first end of a call counts.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Iterator
from typing import Final, final

import attrs
import outcome
import trio

from .._errors import FatalToolError, StoreFailed, leaves
from .._events import ToolExecutionUpdate
from .._facts import Custom, InputRequest, InputResolved, ToolExecutionEnd, ToolExecutionStart
from .._messages import NEVER_STARTED, ResultStatus, ToolCall, ToolResult
from .._ports import Dispatcher, PreparedCall
from ._asking import Asking
from ._chain import Chain, RunContext
from ._control import Control
from ._guard import Guard, error_result
from ._journal import Journal
from ._lanes import Lanes, needs_lanes
from ._late import LateUpdates
from ._prepare import Preparation, after_result
from ._tool_context import CallContext, Said

__all__ = ["ToolPhase"]

BREATH: Final = 8
"""How many calls that never wait a worker runs before it lets other tasks run."""


@final
class ToolPhase:
    """The second half of the tool phase, and what of it can be cut from outside."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        chain: Chain,
        asking: Asking,
        control: Control,
        journal: Journal,
        context: RunContext,
        max_parallel: int,
    ) -> None:
        self.asking = asking
        self.journal = journal
        self.control = control
        self.context = context
        self.late = LateUpdates(journal)
        self.limiter = trio.CapacityLimiter(max_parallel)
        self._width = max_parallel
        self._chain = chain
        self._preparation = Preparation(dispatcher, chain, asking, control, journal)
        self._guard = Guard(dispatcher, chain)
        self._send: trio.MemorySendChannel[Said] | None = None
        self._receive: trio.MemoryReceiveChannel[Said] | None = None
        context.after(self.drain)
        self._queue: Iterator[CallContext] = iter(())
        self._lanes: Lanes | None = None
        self._running: dict[str, CallContext] = {}
        self._waiting: dict[str, trio.CancelScope] = {}  # by call id: the turn's waits for a token
        self._places: dict[str, int] = {}  # by call id: its index in the turn; made when the first call is cut
        self._before: list[ToolExecutionStart | None] = []  # starts that a crash or a suspension has cut
        self._interrupted = False
        self._alone = False
        self._rounds = 0
        self._done = 0
        self._wake: trio.Event | None = None

    def configure(self, dispatcher: Dispatcher) -> None:
        """Run the calls of ``dispatcher`` from now on; between turns."""
        self._preparation.dispatcher = dispatcher
        self._guard = Guard(dispatcher, self._chain)

    # --- the phase, in the loop's task ---------------------------------------------------------------

    async def perform(self) -> None:
        """Prepare and run the calls of the open turn.  A checkpoint only if a tool or hook is one.

        Cancelled: what has ended is posted; settlement answers the rest.
        """
        self._interrupted = False
        self._waiting.clear()
        self._places.clear()
        self._before = self.journal.state.started.copy()
        self.control.tools = self
        try:
            await self._execute(await self._preparation.prepare())
        finally:
            self.control.tools = None

    async def _execute(self, ready: deque[tuple[int, PreparedCall]]) -> None:
        count = len(ready)
        self._queue = self._contexts(ready)
        self._lanes = Lanes(self._queue) if count > 1 and needs_lanes(prepared for _, prepared in ready) else None
        if count == 1:
            self._alone = True
            try:
                await self._run_alone(next(self._queue))
            finally:
                self._alone = False
        elif count:
            await self._execute_many(min(self._width, count))

    def _contexts(self, ready: deque[tuple[int, PreparedCall]]) -> Iterator[CallContext]:
        """The calls in input order: each is made when it is taken, and nothing keeps it after its end."""
        prefix = f"{self.journal.state.run_id}.{self.journal.state.turn}"
        while ready:
            index, prepared = ready.popleft()
            before = self._before[index]
            yield CallContext(self, index, prepared, before.idempotency_key if before else f"{prefix}.{index}")

    async def _run_alone(self, call: CallContext) -> None:
        """A single call, in the loop's own task: nothing to pull, and what it says is posted at once."""
        if not self._may_run(call):
            return
        if not self.control.reachable:
            await self._run_call(call, None)
            return
        with trio.CancelScope() as scope:
            await self._run_call(call, scope)

    async def _execute_many(self, width: int) -> None:
        self._done = 0
        if self._send is None:
            self._send, self._receive = trio.open_memory_channel[Said](math.inf)
        try:
            async with trio.open_nursery() as nursery:
                for _ in range(width):
                    nursery.start_soon(self._worker)
                while self._done < width:
                    self._wake = trio.Event()
                    await self._wake.wait()
                    self._rounds += 1
                    self.drain()
        finally:
            self.drain()

    def drain(self) -> None:
        """Post all that the workers have said so far; whoever posts something of its own does it first.

        The loop waits for an event and not in ``receive``: a channel hands its item to a task that waits
        there before the task runs, and draining past that item would turn the order around.
        """
        if self._receive is None:
            return
        with contextlib.suppress(trio.WouldBlock):
            while True:
                self._post(self._receive.receive_nowait())

    def _post(self, said: Said) -> None:
        match said:
            case ToolExecutionEnd():
                if self.journal.state.results[said.index] is None:
                    self.journal.post(said)
            case ToolExecutionStart() | Custom() | InputRequest() | InputResolved():
                self.journal.post(said)
            case ToolExecutionUpdate():
                self.journal.emit(said)
            case trio.Event():
                said.set()
            case None:
                self._done += 1

    # --- a worker ------------------------------------------------------------------------------------

    def say(self, said: Said) -> None:
        """Say it in order: at once if the loop's own task runs the call, else by the channel."""
        if self._alone:
            self._post(said)
        else:
            self._tell(said)

    async def posted(self) -> None:
        """Wait until what was said so far is posted.  A checkpoint only if it has to wait."""
        if not self._alone:
            event = trio.Event()
            self.say(event)
            await event.wait()

    def _tell(self, said: Said) -> None:
        assert self._send is not None
        self._send.send_nowait(said)
        if self._wake is not None:
            self._wake.set()
            self._wake = None

    @trio.lowlevel.enable_ki_protection
    async def _worker(self) -> None:
        try:
            await self._work()
        finally:
            self._tell(None)

    async def _work(self) -> None:
        """Pull calls until none is left; a cut of one call ends its scope, and a new one pulls on."""
        call = await self._next()
        while call is not None:
            if not self.control.reachable:
                call = await self._pull(call, None)
                continue
            scope = trio.CancelScope()
            with scope:
                call = await self._pull(call, scope)
            if scope.cancelled_caught:
                call = await self._next()

    async def _pull(self, call: CallContext, scope: trio.CancelScope | None) -> CallContext | None:
        """Run calls one after the other.  Returns the next one if the scope was cut and none is left in it."""
        streak, rounds = 0, self._rounds
        while True:
            await self._run_call(call, scope)
            streak = streak + 1 if rounds == self._rounds else 0
            rounds = self._rounds
            if streak == BREATH:  # with no call in hand: others may leave out any that has not started
                streak = 0
                await trio.lowlevel.cancel_shielded_checkpoint()
            following = await self._next()
            if following is None or call.cut:
                return following
            call = following

    async def _next(self) -> CallContext | None:
        while True:
            call = next(self._queue, None) if self._lanes is None else await self._lanes.take()
            if call is None or self._may_run(call):
                return call
            if not self.control.may_start or self._interrupted:
                break
            self._let_others_run(call)  # it was cancelled before it could start
        if self._lanes is not None:
            self._lanes.stop()
        return None

    def _may_run(self, call: CallContext) -> bool:
        """Whether the call may start, and was not left out meanwhile."""
        return self.journal.state.results[call.index] is None and self.control.may_start and not self._interrupted

    async def _run_call(self, call: CallContext, scope: trio.CancelScope | None) -> None:
        """One call under its token, from its start to its end."""
        await trio.lowlevel.checkpoint_if_cancelled()  # nothing starts after a cut, also if a tool swallowed it
        limiter = self.limiter
        try:
            limiter.acquire_on_behalf_of_nowait(call)
        except trio.WouldBlock:  # threads that were abandoned hold tokens
            if not await self._wait_for_token(call):
                self._let_others_run(call)
                return
        prepared = call.prepared
        call_id = prepared.call.id
        call.scope = scope
        self._running[call_id] = call
        call.began = self.journal.now()
        result: ToolResult | None = None
        try:
            name, effect, terminal = prepared.call.name, prepared.effect, prepared.terminal
            self.say(ToolExecutionStart(call_id, call.index, name, effect, call.idempotency_key, terminal))
            # An idempotent call waits, too: else a crash could take its answer with it, and give its key to another call.
            if effect != "pure" and self.journal.durable and not await self._accepted(call):
                return
            got = await self._guard.run(call)
            result = got if isinstance(got, ToolResult) else self._failed(call, got)
            if call.suspended and not isinstance(got, ToolResult):
                result = None  # it runs again from its start: what it raised when it was cut is no result
                return
            if self._chain.after_tool_result:
                call.held = result
                result = None
                result = await after_result(self._chain, call.held)
        finally:
            if result is None:
                result = call.held  # what the tool returned is not lost by a cut in what follows it
            if result is None and call.cut and not call.closed and not call.suspended:
                result = ToolResult.of(call_id, "interrupted")
            if result is not None:
                self._end(call, result)
            elif call.suspended:
                self._let_others_run(call)
            call.close()  # also if its result is settlement's
            del self._running[call_id]
            if not call.abandoned:
                limiter.release_on_behalf_of(call)

    async def _wait_for_token(self, call: CallContext) -> bool:
        """Whether the call has a token; not if it was left out, or no further call may start, while it waited."""
        with trio.CancelScope() as self._waiting[call.call_id]:
            await self.limiter.acquire_on_behalf_of(call)
            if self._may_run(call):
                return True
            self.limiter.release_on_behalf_of(call)
        return False

    async def _accepted(self, call: CallContext) -> bool:
        """Wait until the start is durable.  Cut here, before its effect, the call is ``not_run``, or as it was."""
        accepted = False
        try:
            await self.posted()
            await self.journal.committed()
            await trio.lowlevel.checkpoint_if_cancelled()  # the cut may have come while this task was being woken
            accepted = self.control.may_start and not self._interrupted
        except StoreFailed:
            pass  # it has ended the run, and says so itself
        finally:
            if not accepted:
                self._end(call, ToolResult.of(call.call_id, self._unstarted(call.index)))
        return accepted

    def _end(self, call: CallContext, result: ToolResult) -> None:
        """Say the end, and close the call's context in the same step."""
        call.close()
        if result.call_id != call.call_id:
            result = attrs.evolve(result, call_id=call.call_id)
        if call.invoked and result.status in NEVER_STARTED:  # what has run must not seem to have not
            result = attrs.evolve(result, status="error")
        self.say(ToolExecutionEnd(result, call.index, self.journal.now() - call.began))
        self._let_others_run(call)

    def _let_others_run(self, call: CallContext) -> None:
        if self._lanes is not None:
            self._lanes.ended(call)

    def _failed(self, call: CallContext, got: outcome.Error) -> ToolResult:
        """The result of a call that raised; one that raised a FatalToolError ends the run."""
        fatal = next((each for each in leaves(got.error) if isinstance(each, FatalToolError)), None)
        if fatal is not None:
            self.control.fail(fatal)
        return error_result(call, got.error)

    # --- cut from outside ----------------------------------------------------------------------------

    def cancel(self, call_id: str) -> bool:
        """Cut one call of the turn: a running one is ``interrupted``, a waiting one ``not_run``."""
        self.drain()
        running = self._running.get(call_id)
        if running is not None:
            running.cut_short()
            return True
        calls = self.journal.state.calls
        if not self._places:
            self._places.update((call.id, index) for index, call in enumerate(calls))
        index = self._places.get(call_id)
        return index is not None and self._leave_out(index, calls[index])

    def interrupt(self) -> None:
        """Cut all running calls, and start no other of this turn; those are ``not_run``."""
        self.drain()
        self._interrupted = True
        for running in self._running.values():
            running.cut_short()
        for index, call in enumerate(self.journal.state.calls):
            if call.id not in self._running:
                self._leave_out(index, call)

    def _leave_out(self, index: int, call: ToolCall) -> bool:
        """Give its result to a call that has not started since the run goes on; returns whether it was one."""
        state = self.journal.state
        start = state.started[index]
        if state.results[index] is not None or start is not self._before[index]:
            return False  # one that has started and runs no more was cut with the run: settlement answers it
        self.journal.post(ToolExecutionEnd(ToolResult.of(call.id, self._unstarted(index)), index))
        self.asking.leave_out(index)
        if call.id in self._waiting:
            self._waiting[call.id].cancel()
        return True

    def _unstarted(self, index: int) -> ResultStatus:
        """What a call is told as that has not run since the run goes on; a crash may have cut it before."""
        return "not_run" if self._before[index] is None else "interrupted"

    def stop_waiting(self) -> None:
        """No further call starts: end the waits for a token."""
        for scope in self._waiting.values():
            scope.cancel()

    def still_running(self) -> tuple[str, ...]:
        """The calls that were started and have not ended, as ``name (id)``."""
        return tuple(f"{call.prepared.call.name} ({call.call_id})" for call in self._running.values())

    def running(self) -> tuple[ToolCall, ...]:
        """The calls that were started and have not ended."""
        return tuple(call.prepared.call for call in self._running.values())

    def cut_deadline(self, call: CallContext) -> float:
        """Until when what a cut call cannot stop is waited for.  A cut of one call is no settlement."""
        if call.cut and not self.control.cut:
            return self.journal.now() + self.control.settle_timeout
        return self.control.foreign_deadline()
