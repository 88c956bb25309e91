"""The single writer of a session: stamps, folds, commits and shows, in one order.  Runs borrow it.

``post`` and ``emit`` are synchronous.  With a store, a *writer* task commits what has queued up, and what
is committed is shown; it never waits for an observer.  Without one, all this happens inline, with no task.

The writer lives behind a shield from its start, so no cancellation cuts a commit in half; a commit gets the
settle deadline when a settlement begins.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import cast, final

import attrs
import trio

from .._core._state import State, fold, state_of
from .._errors import AgentError, Failure, StoreFailed, describe
from .._events import Diagnostic, DiagnosticCode, Event, Observation
from .._facts import AgentEnd, AgentResume, AgentStart, Fact, MessageEnd, Place, TurnStart, stamp
from .._ports import Listener, SessionStore
from ._announcer import Announcer, OnListenerError
from ._claims import claim, release
from ._subscription import Subscription

__all__ = ["Journal"]


@final
@attrs.define(eq=False)
class Journal:
    """The log, the state and the observers of one session.

    Args:
      session: its id.
      store: where the log is kept; ``None``: here.
      name: the journal's own id, which tells its facts from those of other writers.
    """

    session: str
    _store: SessionStore | None
    _name: str

    state: State = attrs.field(init=False, factory=State)
    """The fold of everything posted.  Read it; only ``post`` changes it."""
    log: list[Fact] = attrs.field(init=False, factory=list[Fact])
    """The facts of a volatile session, in order; empty if there is a store."""
    watched: bool = attrs.field(init=False, default=False)
    """Whether somebody looks.  Observations need not be made if nobody does."""
    failed: StoreFailed | None = attrs.field(init=False, default=None)
    """Why nothing is logged any more."""
    now: Callable[[], float] = attrs.field(init=False, default=trio.current_time)
    """The clock, in seconds; what stamps are taken from."""

    _nursery: trio.Nursery | None = attrs.field(init=False, default=None)
    _on_failure: Callable[[AgentError], None] | None = attrs.field(init=False, default=None)
    """What ends the run that is under way."""
    _place: Place = attrs.field(init=False)
    run_from: int = attrs.field(init=False, default=0)
    """Where in the log the run begins."""
    _run_after: int = attrs.field(init=False, default=0)
    """The seq of the last fact before the run, which may not be shown yet: its readers and listeners are shown none."""
    _run_until: float = attrs.field(init=False, default=math.inf)
    """The seq of the run's last fact, once it is known: its readers and listeners are shown nothing behind it."""
    _hidden: range = attrs.field(init=False, default=range(1))
    """The seqs of the facts that settled an earlier run: nobody is shown these as part of a later one."""
    _begun: bool = attrs.field(init=False, default=False)
    """The run has taken its first step: a reader begins with what comes next."""
    _readers: list[Subscription] = attrs.field(init=False, factory=list[Subscription])
    _announcer: Announcer | None = attrs.field(init=False, default=None)
    _deadline: float = attrs.field(init=False, default=math.inf)
    _closing: bool = attrs.field(init=False, default=False)

    # the writer, if there is a store
    _queueing: bool = attrs.field(init=False)
    """What is said waits for the writer; otherwise it is shown at once."""
    _queue: deque[tuple[Event, bool]] = attrs.field(init=False, factory=deque[tuple[Event, bool]])
    """What is not committed yet, and whether it is a fact."""
    _committed: int = attrs.field(init=False, default=0)
    _demanded: int = attrs.field(init=False, default=0)
    """Up to where somebody waits for durability."""
    _scope: trio.CancelScope | None = attrs.field(init=False, default=None)
    _wake: trio.Event = attrs.field(init=False, factory=trio.Event)
    _progress: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __attrs_post_init__(self) -> None:
        self._queueing = self._store is not None
        self._place = self._between_runs()

    # --- opening and closing -------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the session's log and fold it.  A checkpoint if there is a store.

        Raises:
          SessionBusy: the session is open in this process.
          StoreFailed: the log cannot be read.
          SessionCorrupt: a fact of it cannot have happened after those before it.
        """
        if self._store is None:
            return
        opened = False
        claim(self._store, self.session, self)
        try:
            self.state = state_of(await self._store.read(self.session), self.session)
            self._committed, self._place, opened = self.state.head, self._between_runs(), True
        except StoreFailed:
            raise
        except Exception as error:
            raise StoreFailed(f"session {self.session!r} cannot be read: {describe(error)}") from error
        finally:
            if not opened:
                release(self._store, self.session, self)

    def start(self, nursery: trio.Nursery) -> None:
        """Give the journal a nursery for its tasks."""
        self._nursery = nursery
        self.now = trio.lowlevel.current_clock().current_time  # a third of the price of trio.current_time
        if self._store is not None:
            nursery.start_soon(self._write)

    def settle_earlier(self, facts: Sequence[Fact]) -> None:
        """Post what an earlier run is still owed; nobody is shown it."""
        if facts:  # what came before them, and waits to be shown, is shown
            self._hidden = range(self.state.head + 1, self.state.head + 1 + len(facts))
        self._place = Place(self.state.latest_run, self.state.turn, (), self._name)
        self.post(*facts)
        self._place = self._between_runs()

    def begin_run(self, run_id: str, on_failure: Callable[[AgentError], None], path: tuple[str, ...] = ()) -> None:
        """The facts that come belong to this run.

        Args:
          on_failure: what ends the run when the log or a listener fails.
        """
        self._place = Place(run_id, self.state.turn, path, "" if run_id == self._name else self._name)
        self._on_failure = on_failure
        self.run_from = len(self.log)
        self._run_after = self.state.head
        self._run_until = math.inf
        self._begun = False

    def begin(self) -> None:
        """The run's first step: from now on a new reader begins with what comes next."""
        self._begun = True

    def seal_run(self) -> None:
        """The run's last fact was posted: what comes is part of the session only."""
        self._run_until = self.state.head
        self._place = self._between_runs()

    def end_run(self) -> None:
        """The run is over, or settled as far as its time allowed: let its readers and listeners end."""
        if self._store is not None and self._committed < min(self._run_until, self.state.head):
            self._give_up()
        self._on_failure = None
        while self._readers:
            self._readers.pop().close()
        self._deadline = math.inf
        if self._scope is not None and self.failed is None:
            self._scope.deadline = math.inf
        self.watched = self._announcer is not None and self._announcer.end_run()

    def settle_by(self, deadline: float) -> None:
        """A settlement has begun: nothing of ours waits longer than until ``deadline``."""
        self._deadline = min(self._deadline, deadline)
        if self._scope is not None:
            self._scope.deadline = self._deadline
        if self._announcer is not None:
            self._announcer.settle_by(self._deadline)

    def close(self) -> None:
        """Let the tasks end when they have done what is queued; the session may be opened again."""
        if self._store is not None and self._committed < self.state.head:
            self._give_up()
        self._closing = True
        self._wake.set()
        if self._announcer is not None:
            self._announcer.close()
        if self._store is not None:
            release(self._store, self.session, self)

    # --- saying --------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    def post(self, *facts: Fact) -> None:
        """Let these have happened: stamp, fold and queue, in one step."""
        now = self.now()
        state = self.state
        for fact in facts:
            if type(fact) is TurnStart:
                place = self._place
                self._place = Place(place.run_id, fact.number, place.path, place.journal)
            stamp(fact, state.head + 1, now, self._place)
            fold(state, fact)
            if self._queueing:
                self._queue.append((fact, True))
                continue
            if self._store is None:
                self.log.append(fact)
            if self.watched:
                self._show(fact)
        if self._queueing:
            self._stir()

    @trio.lowlevel.enable_ki_protection
    def emit(self, observation: Observation | MessageEnd) -> None:
        """Show something that is not logged, in the same order."""
        stamp(observation, self.state.head, self.now(), self._place)
        if self._queueing:
            self._queue.append((observation, False))
            self._stir()
        else:
            self._show(observation)

    def _between_runs(self) -> Place:
        return Place("", self.state.turn, (), self._name)

    @trio.lowlevel.enable_ki_protection
    def diagnose(self, code: DiagnosticCode, text: str) -> bool:
        """Emit a diagnostic if somebody looks.  Returns whether the run is open: nothing follows its end."""
        is_open = self.state.run_id is not None
        if is_open and self.watched:
            self.emit(Diagnostic(code, text))
        return is_open

    def _stir(self) -> None:
        if self.watched or self._demanded > self._committed:
            self._wake.set()

    def _show(self, event: Event) -> None:
        if event.seq in self._hidden:
            return
        of_run = self._run_after < event.seq <= self._run_until
        if of_run:
            for reader in self._readers:
                reader.put(event)
        if self._announcer is not None:
            self._announcer.show(event, of_run=of_run)

    # --- observers -----------------------------------------------------------------------------------

    def read(self) -> Subscription:
        """A new reader: from the run's first event if the run has not taken its first step, else from now."""
        reader = Subscription()
        for fact in self._missed():
            reader.put(fact)
        self._readers.append(reader)
        self._look()
        return reader

    def listen(
        self, listener: Listener, kinds: Collection[str] | None, on_error: OnListenerError, *, of_run: bool
    ) -> Callable[[], None]:
        """A new listener, with the same rule as :meth:`read`.  Returns what detaches it.

        Args:
          of_run: it hears the run that is under way, and is let go at its end.
        """
        assert self._nursery is not None
        if self._announcer is None:
            self._announcer = Announcer(self._fail_run, self.diagnose)
            self._announcer.settle_by(self._deadline)
            if self._closing:
                self._announcer.close()
        missed = self._missed() if of_run else ()
        detach = self._announcer.listen(listener, kinds, on_error, missed, self._nursery, of_run=of_run)
        self._look()
        return detach

    def _missed(self) -> list[Fact]:
        # With a store nothing has been shown before the writer's first step, so nobody has missed anything.
        return [] if self._begun else self.log[self.run_from :]

    def _look(self) -> None:
        self.watched = True
        if self._queue:
            self._wake.set()

    @property
    def in_listener(self) -> bool:
        """Whether the current task is the announcer's: it must not wait for itself."""
        return self._announcer is not None and self._announcer.is_current_task

    # --- waiting -------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether a commit takes time, so that a barrier means something."""
        return self._store is not None

    async def committed(self) -> None:
        """Wait until everything posted so far is durable.  A checkpoint only if it has to wait.

        Raises:
          StoreFailed: it never will be.
        """
        if self._store is None:
            return
        target = self.state.head
        self._demanded = max(self._demanded, target)
        while self._committed < target and self.failed is None:
            self._wake.set()
            await self._progress.wait()
        if self.failed is not None:
            raise self.failed

    async def flush(self) -> None:
        """Wait until everything posted so far is durable and every listener has handled it.

        Inside a listener it waits for the commit only.  After a failed commit it waits for the listeners.
        """
        if self.failed is None and self._store is not None:
            with contextlib.suppress(StoreFailed):  # whoever ends the run has been told
                await self.committed()
        if self._announcer is not None and not self.in_listener:
            await self._announcer.flush()

    # --- the writer's task ---------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection  # an interrupt in the store's code would leave nobody to write the end
    async def _write(self) -> None:
        try:
            with trio.CancelScope(shield=True):
                while self._queue or not self._closing:
                    if self._queue and (self.watched or self._demanded > self._committed or self._closing):
                        with trio.CancelScope(deadline=self._deadline) as self._scope:
                            await self._commit()
                        if self._scope.cancelled_caught:
                            break
                    else:
                        self._wake = trio.Event()
                        await self._wake.wait()
        finally:
            if self._committed < self.state.head:
                self._give_up()

    def _give_up(self) -> None:
        """A commit was cut, by the settle deadline or by the store itself: whether it took effect is unknown."""
        self._fail(StoreFailed(f"session {self.session!r}: a commit was still open at the settle deadline"))

    async def _commit(self) -> None:
        """Write everything that has queued up, then show it."""
        assert self._store is not None
        batch = list(self._queue)
        facts = [cast("Fact", event) for event, is_fact in batch if is_fact]
        if facts:
            try:
                await self._store.append(self.session, facts, expected_head=self._committed)
            except StoreFailed as error:
                self._fail(error)
            except Exception as error:
                failure = StoreFailed(f"session {self.session!r} cannot be written: {describe(error)}")
                failure.__cause__ = error
                self._fail(failure)
        if self.failed is not None:
            return
        for event, _ in batch:
            self._queue.popleft()
            if self.watched:
                self._show(event)
        self._committed += len(facts)
        self._tell_waiters()

    def _fail(self, error: StoreFailed) -> None:
        """Nothing is logged any more.  What waits and what comes is shown, so that observers see the run's end."""
        if self.failed is not None:
            return
        self.failed = error
        self._queueing = False
        self._fail_run(error)
        self._tell_waiters()
        waiting = [event for event, _ in self._queue if event.seq not in self._hidden]
        self._queue.clear()
        if not self.watched:
            return
        # Nothing stands before a run's first event; what was said between runs may, and readers of it are not shown that.
        first = next((n for n, event in enumerate(waiting, 1) if isinstance(event, AgentStart | AgentResume)), 0)
        diagnostic = Diagnostic("STORE_FAILED", error.message)
        stamp(diagnostic, self.state.head, self.now(), waiting[first].place if waiting[first:] else self._place)
        for event in (*waiting[:first], diagnostic, *waiting[first:]):
            self._show(self._unwritten(event, error) if isinstance(event, AgentEnd) else event)

    def _fail_run(self, error: AgentError) -> None:
        if self._on_failure is not None:
            self._on_failure(error)

    def _unwritten(self, end: AgentEnd, error: StoreFailed) -> AgentEnd:
        """How a run ends whose end could not be written."""
        shown = attrs.evolve(end, reason="error", error=Failure.of(error))
        stamp(shown, end.seq, end.time, end.place)
        return shown

    def _tell_waiters(self) -> None:
        self._progress.set()
        self._progress = trio.Event()
