"""One run is one nursery: what the caller holds of it.

Nothing of ours runs in the caller's task but ``__aenter__``, ``__anext__`` and ``__aexit__``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, cast, final

import attrs
import trio

from .._core._settle import close_run, close_turn
from .._core._transcript import project
from .._errors import (
    RequestError,
    RunEnded,
    describe,
)
from .._events import Event
from .._facts import AgentStart, Fact, MessageQueued
from .._messages import Message, Origin
from .._middleware import Snapshot
from .._ports import Listener
from ._announcer import OnListenerError, checked
from ._chain import Chain, RunContext
from ._config import KernelConfig
from ._control import Control
from ._journal import Journal
from ._leaving import what_leaves
from ._loop import Loop
from ._model_phase import ModelPhase
from ._result import RunResult, result_of
from ._subscription import Subscription
from ._tool_phase import ToolPhase

__all__ = ["Run"]

_LOG: Final = logging.getLogger("trio_agent")


@final
class Run:
    """A run; made by ``agent.run(...)``, entered once.

    Leaving the block early cancels the run and waits for its settlement; after the block nothing of the
    run is left behind, and :attr:`result` is set.  An exception of the body leaves as that very object.
    """

    def __init__(self, config: KernelConfig, messages: tuple[Message, ...], session: str | None) -> None:
        self._config = config
        self._messages = messages
        self._borrowed = session is not None
        self._run_id = config.ids()
        self._session_id = self._run_id if session is None else session  # a session for one run has its name
        self._control = Control(config.settle_timeout)
        self._journal = Journal(self._session_id, config.store, self._control.fail)
        self._control.attach(self._journal)
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._done: trio.Event | None = None
        self._watching: trio.CancelScope | None = None
        self._over = False
        self._finishing = False
        self._reader: Subscription | None = None
        self._result: RunResult | None = None

    # --- the block -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Run:
        """Begin the run.  A checkpoint only if there is a store.

        Raises:
          StoreFailed: the session's log cannot be read.
          RuntimeError: the run was entered before, or no Trio task is running (under asyncio, for example).
        """
        if not trio.lowlevel.in_trio_task():  # else Trio would fail on an attribute that it has not
            raise RuntimeError("a run needs Trio: start the program with trio.run(main), not with asyncio.run(main())")
        if self._nursery_manager is not None:
            raise RuntimeError("a run is entered once; make another with agent.run(...)")
        self._nursery_manager = manager = trio.open_nursery()
        journal, config = self._journal, self._config
        await journal.open()
        run_id = self._run_id
        context = RunContext(journal, self._session_id, run_id)
        chain = Chain.compose(config.middleware, context, journal)
        models = ModelPhase(config, chain, self._control, journal)
        context.attach(models.ask)
        tools = ToolPhase(config.dispatcher, chain, self._control, journal, context, config.max_parallel_tools)
        loop = Loop(journal, self._control, chain, models, tools)
        window = config.model.context_window  # foreign code: it may raise here, where no nursery is open
        self._nursery = nursery = await manager.__aenter__()
        # From here on nothing waits until the body runs.
        journal.start(nursery)
        for listener in config.listeners:
            journal.listen(listener, None, "fail")
        if journal.state.run_id is not None:
            self._settle_crashed()
        left = tuple(q.id for q in journal.state.queue.values() if q.origin != "repair")
        journal.begin_run(run_id)
        journal.post(AgentStart(self._messages, config.limits, window, left))
        nursery.start_soon(self._main, loop, context)
        return self

    def _settle_crashed(self) -> None:
        """The log stops in mid-run: settle that run, as it would have settled itself."""
        journal = self._journal
        journal.post(*close_turn(journal.state, "interrupted", recovered=True))
        journal.post(*close_run(journal.state, "interrupted"))

    @trio.lowlevel.enable_ki_protection
    async def _main(self, loop: Loop, context: RunContext) -> None:
        try:
            await loop.run()
        finally:
            self._over = True
            self._result = result_of(self._journal, self._control.cause, keep_queue=self._borrowed)
            context.detach()
            self._control.detach()
            if self._done is not None:
                self._done.set()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        manager, nursery = self._nursery_manager, self._nursery
        if manager is None or nursery is None or nursery not in trio.lowlevel.current_task().child_nurseries:
            # Trio's own scopes would break at this, somewhere else and with an internal error.
            raise RuntimeError("a run must be left once, and by the task that entered it")
        if not self._over and not (self._finishing and error is None):
            self._control.leave()
            if self._control.ended:  # else settlement begins when the loop has left what cannot be cut
                self._journal.settle_by(self._control.settle_deadline())
            self._watch_settlement()
        try:
            swallowed = await manager.__aexit__(kind, error, traceback)  # noqa: ASYNC102  # a nursery waits, always
        except BaseException as raised:
            leaving, beside = what_leaves(raised, error)
            for each in beside:
                leaving.add_note(f"while leaving the run: {describe(each)}")
            if leaving is error:
                return False  # noqa: ASYNC104  # Python raises the body's own again
            raise leaving from None  # noqa: ASYNC104
        return bool(swallowed)

    # --- reading -------------------------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        """The run's own reader, always the same: iteration goes on where it stopped."""
        if self._reader is None:
            self._reader = self._entered().read()
        return self._reader

    async def __anext__(self) -> Event:
        """The next event of the run's own reader.  A checkpoint; a cut loses no event.

        Raises:
          StopAsyncIteration: the run is over and everything was read.
          trio.BusyResourceError: another task waits for the run's own reader; :meth:`events` makes one more.
        """
        return await aiter(self).__anext__()

    @trio.lowlevel.enable_ki_protection
    def events(self) -> Subscription:
        """One more reader.  From ``agent_start`` on, if made before the first ``await`` in the block; else from now."""
        return self._entered().read()

    @trio.lowlevel.enable_ki_protection
    def subscribe(
        self, listener: Listener, kinds: Collection[str] | None = None, on_error: OnListenerError = "fail"
    ) -> Callable[[], None]:
        """Have ``listener`` awaited with each event, in order; when the run is done it has handled the last.

        Args:
          kinds: wire names of the events that it wants, such as ``"turn_end"``; all by default.
          on_error: what a raise does: end the run with ``LISTENER_FAILED``, or only detach the listener.

        Returns:
          What unsubscribes it.

        Raises:
          ConfigError: an argument cannot be used, such as a kind that no event has; the message names it.
        """
        journal = self._entered()
        return journal.listen(listener, checked(listener, kinds, on_error), on_error)

    async def wait(self) -> RunResult:
        """Wait, without reading, until the run is done; then leaving the block cuts nothing.  A checkpoint.

        Raises:
          RuntimeError: called inside a tool, a hook or a listener, also in a nursery of its own: the run
            itself waits for that.
        """
        self._entered()
        if self._waits_for_this_task():
            raise RuntimeError("the run would wait for itself: a tool, hook or listener must not wait for its own run")
        if self._done is None:
            self._done = trio.Event()
            if self._over:
                self._done.set()
        await self._done.wait()
        return self.result

    def drain(self) -> None:
        """Nobody will hold the run: leaving the block means to wait for its own end.  For ``send``."""
        self._finishing = True
        self._control.reachable = False

    @property
    def result(self) -> RunResult:
        """What the run came to; always set after the block.

        Raises:
          RuntimeError: the run is not done yet.
        """
        if self._result is None:
            raise RuntimeError("the run is not done: wait for it, or leave the block")
        return self._result

    @property
    def state(self) -> Snapshot:
        """A frozen snapshot of what the run has come to."""
        return self._journal.state.snapshot()

    @property
    def log(self) -> Sequence[Fact]:
        """The facts so far, if the run has no store; with one, read them there."""
        return tuple(self._journal.log)

    @property
    def session_id(self) -> str:
        """The session whose log the run is written to."""
        return self._session_id

    # --- verbs ---------------------------------------------------------------------------------------

    async def steer(self, message: str | Message, *, interrupt: bool = False) -> None:
        """Tell the model something at the start of the next turn, always after the results.

        A checkpoint; durable when it returns.  Cancelled, the message may or may not have been accepted;
        accepted means delivered once, or in ``result.undelivered``.

        Args:
          interrupt: first cut the calls that are running; while the model streams it changes nothing.

        Raises:
          RunEnded: the run is over; nothing was accepted.
          StoreFailed: the message is accepted and not durable; the run ends.
        """
        await self._queue("steer", message, interrupt)

    async def follow_up(self, message: str | Message) -> None:
        """Tell the model something when the run would otherwise stop.  The rest as with :meth:`steer`."""
        await self._queue("follow_up", message, False)

    @trio.lowlevel.enable_ki_protection
    async def _queue(self, origin: Origin, message: str | Message, interrupt: bool) -> None:
        journal = self._entered()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._control.ended:
            raise RunEnded("the run is over: the message was not accepted")
        if isinstance(message, str):
            message = Message("user", message)
        if not isinstance(cast("object", message), Message) or message.role != "user" or not project((message,)):
            raise RequestError(f"expected a user message that says something, got {message!r}"[:500])
        queued = MessageQueued(self._config.ids(), origin, attrs.evolve(message, origin=origin), interrupt)
        tools = self._control.tools
        if tools is not None:
            tools.drain()  # what calls have said was said before this
        journal.post(queued)
        if interrupt and tools is not None:
            tools.interrupt()
        await journal.committed()

    @trio.lowlevel.enable_ki_protection
    def abort(self, grace: float = math.inf, reason: str | None = None) -> None:
        """Ask the run to end at a turn boundary.  Idempotent; a later, stronger abort overrides.

        Args:
          grace: seconds for what is under way.  Infinite: the turn goes on to its end, tools included.
            Finite: the stream and the calls that run have that long, and no further call starts.  0: now.
          reason: for the log.

        Raises:
          ValueError: ``grace`` is negative or not a number.
        """
        if not grace >= 0:
            raise ValueError(f"grace must be a number of seconds >= 0, got {grace!r}")
        self._entered()
        if self._control.abort(grace, reason) and grace < math.inf:
            self._watch_settlement()

    @trio.lowlevel.enable_ki_protection
    def cancel_call(self, call_id: str) -> bool:
        """Cut one call of the turn; its siblings and the run go on.

        A running call gets the result ``interrupted``, one that has not started ``not_run``.

        Returns:
          Whether there was such a call without a result.
        """
        self._entered()
        tools = self._control.tools
        return tools is not None and tools.cancel(call_id)

    # --- within --------------------------------------------------------------------------------------

    def _entered(self) -> Journal:
        if self._nursery is None:
            raise RuntimeError("the run has not begun: use it inside `async with agent.run(...) as run`")
        return self._journal

    def _waits_for_this_task(self) -> bool:
        """Whether the current task is inside the run's nursery, at whatever depth."""
        nursery = trio.lowlevel.current_task().parent_nursery
        while nursery is not None and nursery is not self._nursery:
            nursery = nursery.parent_task.parent_nursery
        return nursery is not None

    def _watch_settlement(self) -> None:
        """Have it said once, after the settle time, which calls will not stop."""
        if self._nursery is None or self._over:
            return
        abort = self._journal.state.abort
        grace = 0.0 if abort is None or self._control.left else abort.grace
        deadline = trio.current_time() + grace + self._config.settle_timeout
        if self._watching is None:
            self._watching = trio.CancelScope(shield=True, deadline=deadline)
            self._nursery.start_soon(self._watch, self._watching)
        else:
            self._watching.deadline = min(self._watching.deadline, deadline)

    @trio.lowlevel.enable_ki_protection
    async def _watch(self, scope: trio.CancelScope) -> None:
        # What a tool shields, nothing can stop: the block waits for it, and somebody should know why.
        if self._over:  # before the event is made: whoever sets it has been here
            return
        done = self._done
        if done is None:
            done = self._done = trio.Event()
        with scope:
            await done.wait()
        if scope.cancelled_caught and self._control.tools is not None:
            for call in self._control.tools.still_running():
                text = f"{call} was cut and is still running after {self._config.settle_timeout:g} s"
                self._journal.diagnose("CALL_WILL_NOT_STOP", text)
                _LOG.warning("%s; leaving the run waits for it", text)
