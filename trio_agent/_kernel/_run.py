"""One run is one nursery: what the caller holds of it.

Nothing of ours runs in the caller's task but ``__aenter__``, ``__anext__`` and ``__aexit__``.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Final, final

import attrs
import trio

from .._errors import RunEnded
from .._events import Event, Phase
from .._facts import Fact
from .._messages import Message, Origin, ToolCall
from .._middleware import Snapshot
from .._ports import Listener
from ._announcer import OnListenerError, checked
from ._asking import Asking
from ._chain import Chain, RunContext
from ._changes import remembered
from ._config import KernelConfig
from ._control import Control
from ._host import Host
from ._leaving import leave
from ._loop import Loop
from ._model_phase import ModelPhase
from ._opening import Opening
from ._queueing import queued
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

    def __init__(self, config: KernelConfig, run_id: str, opening: Opening, host: Host) -> None:
        self._config = config
        self._run_id = run_id
        self._opening = opening
        self._host = host
        self._journal = host.journal
        self._control = Control(config.settle_timeout)
        self._control.attach(self._journal)
        self._nursery_manager: AbstractAsyncContextManager[trio.Nursery] | None = None
        self._nursery: trio.Nursery | None = None
        self._loop: Loop | None = None
        self._models: ModelPhase | None = None
        self._done: trio.Event | None = None
        self._watching: trio.CancelScope | None = None
        self._over = False
        self._finishing = False
        self._reader: Subscription | None = None
        self._result: RunResult | None = None
        self._last: Snapshot | None = None
        self._log_from = 0
        self._log_to: int | None = None

    # --- the block -----------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Run:
        """Begin the run.  A checkpoint only if there is a store, or if it has to wait for its turn.

        Raises:
          SessionBusy: the session has a run, or is open elsewhere in this process.
          SessionClosed: the session takes no more runs.
          StoreFailed: the session's log cannot be read.
          NotResumable, InvalidAnswer: it should have gone on with what is there, and cannot.
          RuntimeError: the run was entered before, or no Trio task is running (under asyncio, for example).
        """
        if not trio.lowlevel.in_trio_task():  # else Trio would fail on an attribute that it has not
            raise RuntimeError("a run needs Trio: start the program with trio.run(main), not with asyncio.run(main())")
        if self._nursery_manager is not None:
            raise RuntimeError("a run is entered once; make another with agent.run(...)")
        self._nursery_manager = manager = trio.open_nursery()
        await self._host.admit()
        try:
            context = self._assemble()
        except BaseException:
            self._host.over()
            raise
        self._nursery = nursery = await manager.__aenter__()
        # From here on nothing waits until the body runs.
        self._host.begin(nursery)
        self._opening.begin(self._journal, self._config, self._control.fail)
        self._log_from = self._journal.run_from  # behind what an earlier run was owed
        nursery.start_soon(self._main, context)
        return self

    def _assemble(self) -> RunContext:
        """Put together what performs the run; foreign code may raise here, where no nursery is open."""
        journal, control = self._journal, self._control
        self._config = config = remembered(self._config, journal.state)
        run_id = self._opening.check(journal.state, config, self._run_id)
        asking = Asking(journal, control, config.input)
        context = RunContext(journal, run_id, asking)
        chain = Chain.compose(config.middleware, context, journal)
        self._models = models = ModelPhase(config, chain, control, journal)
        context.attach(models.ask)
        tools = ToolPhase(config.dispatcher, chain, asking, control, journal, context, config.max_parallel_tools)
        self._loop = Loop(journal, control, chain, models, tools)
        return context

    @trio.lowlevel.enable_ki_protection
    async def _main(self, context: RunContext) -> None:
        assert self._loop is not None
        try:
            await self._loop.run()
        finally:
            self._over = True
            journal, output = self._journal, self._config.output
            self._result = result_of(journal, self._control.cause, keep_queue=self._host.keeps, output=output)
            self._last = self._journal.state.snapshot()
            self._log_to = len(self._journal.log)
            self._loop = self._models = None
            context.detach()
            self._control.detach()
            self._host.over()
            if self._done is not None:
                self._done.set()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        manager, nursery = self._nursery_manager, self._nursery
        if manager is None or nursery is None or nursery not in trio.lowlevel.current_task().child_nurseries:
            # Trio's own scopes would break at this, somewhere else and with an internal error.
            raise RuntimeError("a run must be left once, and by the task that entered it")
        if not self._over and not (self._finishing and error is None):
            self.cut()
        return await leave(manager, kind, error, traceback, "the run")  # noqa: ASYNC102  # a nursery waits, always

    def cut(self) -> None:
        """Cut the run, as leaving its block does."""
        self._control.leave()
        if self._control.ended:  # else settlement begins when the loop has left what cannot be cut
            self._journal.settle_by(self._control.settle_deadline())
        self._watch_settlement()

    # --- reading -------------------------------------------------------------------------------------

    def __aiter__(self) -> Subscription:
        """The run's own reader, always the same: iteration goes on where it stopped."""
        if self._reader is None:
            self._reader = self.events()
        return self._reader

    async def __anext__(self) -> Event:
        """The next event of the run's own reader, as of any :class:`Subscription`; :meth:`events` makes one more."""
        return await aiter(self).__anext__()

    @trio.lowlevel.enable_ki_protection
    def events(self) -> Subscription:
        """One more reader.  From ``agent_start`` on, if made before the first ``await`` in the block; else from now."""
        self._check_entered()
        if not self._over:
            return self._journal.read()
        reader = Subscription()
        reader.close()
        return reader

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
        self._check_entered()
        wanted = checked(listener, kinds, on_error)
        if self._over:
            return lambda: None
        return self._journal.listen(listener, wanted, on_error, of_run=True)

    async def wait(self) -> RunResult:
        """Wait, without reading, until the run is done; then leaving the block cuts nothing.  A checkpoint.

        Raises:
          RuntimeError: called inside a tool, a hook or a listener, also in a nursery of its own: the run
            itself waits for that.
        """
        self._check_entered()
        if self.waits_for_this_task:
            raise RuntimeError("the run would wait for itself: a tool, hook or listener must not wait for its own run")
        await self.done.wait()
        return self.result

    @property
    def done(self) -> trio.Event:
        """Set when the run is over.  For its session: it does not ask who waits."""
        if self._done is None:
            self._done = trio.Event()
            if self._over:
                self._done.set()
        return self._done

    def drain(self, *, reachable: bool = False) -> None:
        """Leaving the block means to wait for the run's own end.  For ``send`` and ``prompt``.

        Args:
          reachable: somebody may cut single calls of it, as an answer that comes later does.
        """
        self._finishing = True
        self._control.reachable = reachable or self._config.input is not None

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
        """A frozen snapshot of what the run has come to; of a run that is over, what it came to."""
        return self._journal.state.snapshot() if self._last is None else self._last

    @property
    def log(self) -> Sequence[Fact]:
        """The facts so far, if the run has no store; with one, read them there."""
        return tuple(self._journal.log[self._log_from : self._log_to])

    @property
    def session_id(self) -> str:
        """The session whose log the run is written to."""
        return self._journal.session

    @property
    def phase(self) -> Phase:
        """What the run is busy with."""
        return self._control.phase

    @property
    def streaming_message(self) -> Message | None:
        """What has come so far of the answer that the model is writing; calls are not in it before it is whole."""
        attempt = None if self._models is None else self._models.attempt
        return None if attempt is None else attempt.assembler.cut()

    @property
    def running_calls(self) -> tuple[ToolCall, ...]:
        """The calls that were started and have not ended."""
        tools = self._control.tools
        return () if tools is None else tools.running()

    # --- verbs ---------------------------------------------------------------------------------------

    async def steer(self, message: str | Message, *, interrupt: bool = False) -> None:
        """Tell the model something at the start of the next turn, always after the results.

        Durable when it returns: a checkpoint if there is a store.  Cancelled, the message may or may not be accepted;
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
        self._check_entered()
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._control.ended:
            raise RunEnded("the run is over: the message was not accepted")
        fact = queued(self._config.ids, origin, message, interrupt=interrupt)
        tools = self._control.tools
        if tools is not None:
            tools.drain()  # what calls have said was said before this
        self._journal.post(fact)
        if interrupt and tools is not None:
            tools.interrupt()
        await self._journal.committed()

    @property
    def ended(self) -> bool:
        """The run's last event was posted: it takes no more messages."""
        return self._control.ended

    def configure(self, config: KernelConfig) -> None:
        """Go by ``config`` from the next turn on, but for the run's own options.  For its session."""
        config = attrs.evolve(config, limits=self._config.limits, output=self._config.output)
        if self._nursery is None:
            self._config = config
        elif self._loop is not None:
            self._loop.configure(config)

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
        self._check_entered()
        if self._control.abort(grace, reason) and grace < math.inf:
            self._watch_settlement()

    @trio.lowlevel.enable_ki_protection
    def cancel_call(self, call_id: str) -> bool:
        """Cut one call of the turn; its siblings and the run go on.

        A running call gets the result ``interrupted``, one that has not started ``not_run``.

        Returns:
          Whether there was such a call without a result.
        """
        self._check_entered()
        tools = self._control.tools
        return tools is not None and tools.cancel(call_id)

    # --- within --------------------------------------------------------------------------------------

    def _check_entered(self) -> None:
        if self._nursery is None:
            raise RuntimeError("the run has not begun: use it inside `async with agent.run(...) as run`")

    @property
    def waits_for_this_task(self) -> bool:
        """Whether the run waits for the current task: one in its nursery, at whatever depth, or a listener."""
        if self._journal.in_listener:
            return True
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
