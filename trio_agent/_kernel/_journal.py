"""The single writer of a session: stamps, folds, commits and announces, in one order.

``post`` and ``emit`` are synchronous.  A *writer* task commits what has queued up and never waits for an
observer; an *announcer* task shows what is committed to the listeners, and waits for them: a slow or hung
listener delays what is shown and never what is written.  Without a store and without listeners both happen
inline, with no task.

Both tasks live behind a shield from their start, so no cancellation cuts a commit or a listener in half;
the shield gets the settle deadline when a settlement begins.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection
from typing import Literal, TypeAlias, cast, final

import attrs
import trio

from .._core._state import State, fold
from .._errors import AgentError, ListenerFailed, StoreFailed, describe, failure_in, leaf
from .._events import Diagnostic, DiagnosticCode, Event, Observation
from .._facts import AgentStart, Fact, MessageEnd, Place, TurnStart, stamp
from .._ports import Listener, SessionStore
from ._subscription import Subscription

__all__ = ["Journal", "OnListenerError"]

OnListenerError: TypeAlias = Literal["fail", "detach"]


@attrs.define(eq=False)
class _Listening:
    listener: Listener
    kinds: frozenset[str] | None
    on_error: OnListenerError
    attached: bool = True


@final
class Journal:
    """The log, the state and the observers of one session; a run borrows it.

    Attributes:
      now: the clock, in seconds; what stamps are taken from.
      state: the fold of everything posted.  Read it; only ``post`` changes it.
      log: the facts of a volatile session, in order; empty if there is a store.
      watched: whether somebody looks.  Observations need not be made if nobody does.
      failed: why nothing is logged any more.
    """

    __slots__ = (
        "_announced",
        "_announcements",
        "_announcer",
        "_announcing",
        "_begun",
        "_busy",
        "_closing",
        "_committed",
        "_deadline",
        "_demanded",
        "_disclosed",
        "_facts_from",
        "_keeping",
        "_listening",
        "_on_failure",
        "_place",
        "_queueing",
        "_readers",
        "_session",
        "_shield",
        "_spawn",
        "_store",
        "_to_announce",
        "_to_commit",
        "_wake_announcer",
        "_wake_waiters",
        "_wake_writer",
        "failed",
        "log",
        "now",
        "state",
        "watched",
    )

    def __init__(self, session: str, store: SessionStore | None, on_failure: Callable[[AgentError], None]) -> None:
        self.state = State()
        self.now: Callable[[], float] = trio.current_time
        self.log: list[Fact] = []
        self.watched = False
        self.failed: StoreFailed | None = None
        self._session = session
        self._store = store
        self._on_failure = on_failure
        self._place = Place("", 0)
        self._queueing = store is not None
        self._keeping = store is None
        self._disclosed = True  # the failure, if there was one, has been shown
        self._begun = False
        self._facts_from = 0
        self._readers: list[Subscription] = []
        self._listening: list[_Listening] = []
        self._spawn: trio.Nursery | None = None
        self._deadline = math.inf
        self._closing = False
        # the writer: what is not committed yet, and up to where somebody waits for it
        self._to_commit: deque[tuple[Event, bool]] = deque()
        self._committed = 0
        self._demanded = 0
        self._wake_writer = trio.Event()
        self._shield: trio.CancelScope | None = None
        # the announcer: what is committed and not shown to the listeners yet
        self._announcements: deque[tuple[Event, _Listening | None]] = deque()
        self._to_announce = 0
        self._announced = 0
        self._announcing = False
        self._announcer: trio.lowlevel.Task | None = None
        self._wake_announcer = trio.Event()
        self._busy: trio.CancelScope | None = None
        # whoever waits for either
        self._wake_waiters = trio.Event()

    # --- opening and closing -------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the session's log and fold it.  A checkpoint if there is a store.

        Raises:
          StoreFailed: the log cannot be read.
        """
        if self._store is None:
            return
        try:
            facts = await self._store.read(self._session)
        except AgentError:
            raise
        except Exception as error:
            raise StoreFailed(f"session {self._session!r} cannot be read: {describe(error)}") from error
        for fact in facts:
            fold(self.state, fact)
            self._place = fact.place
        self._committed = self.state.head

    def start(self, nursery: trio.Nursery) -> None:
        """Give the journal a nursery for its tasks."""
        self._spawn = nursery
        self.now = trio.lowlevel.current_clock().current_time  # a third of the price of trio.current_time
        if self._store is not None:
            nursery.start_soon(self._write)

    def settle_by(self, deadline: float) -> None:
        """A settlement has begun: nothing of ours waits longer than until ``deadline``."""
        self._deadline = min(self._deadline, deadline)
        if self._shield is not None:
            self._shield.deadline = self._deadline
        if self._busy is not None:
            self._busy.deadline = self._deadline

    def close(self) -> None:
        """Let both tasks end when they have done what is queued, and let the readers end."""
        self._closing = True
        self._wake_writer.set()
        self._wake_announcer.set()
        for reader in self._readers:
            reader.close()

    # --- saying --------------------------------------------------------------------------------------

    def begin_run(self, run_id: str, path: tuple[str, ...] = ()) -> None:
        """The facts that come belong to this run."""
        self._place = Place(run_id, self.state.turn, path)
        self._facts_from = len(self.log)
        self._begun = False

    def begin(self) -> None:
        """The run's first step: from now on a new reader begins with what comes next."""
        self._begun = True

    def post(self, *facts: Fact) -> None:
        """Let these have happened: stamp, fold and queue, in one step."""
        now = self.now()
        state = self.state
        for fact in facts:
            if type(fact) is TurnStart:
                place = self._place
                self._place = Place(place.run_id, fact.number, place.path)
            stamp(fact, state.head + 1, now, self._place)
            fold(state, fact)
            if self._queueing:
                self._to_commit.append((fact, True))
                continue
            if self._keeping:
                self.log.append(fact)
            if self.watched:
                self._show(fact)
        if self._queueing:
            self._stir()

    def emit(self, observation: Observation | MessageEnd) -> None:
        """Show something that is not logged, in the same order."""
        stamp(observation, self.state.head, self.now(), self._place)
        if self._queueing:
            self._to_commit.append((observation, False))
            self._stir()
        else:
            self._show(observation)

    def diagnose(self, code: DiagnosticCode, text: str) -> None:
        """Emit a diagnostic if somebody looks and the run is open: nothing follows its end."""
        if self.watched and self.state.run_id is not None:
            self.emit(Diagnostic(code, text))

    def _stir(self) -> None:
        if self.watched or self._demanded > self._committed:
            self._wake_writer.set()

    def _show(self, event: Event) -> None:
        for reader in self._readers:
            reader.put(event)
        if self._listening:
            self._to_announce += 1
            self._announcements.append((event, None))
            self._wake_announcer.set()

    # --- waiting -------------------------------------------------------------------------------------

    @property
    def durable(self) -> bool:
        """Whether a commit takes time, so that a barrier means something."""
        return self._store is not None

    @property
    def in_listener(self) -> bool:
        """Whether the current task is the announcer: it must not wait for itself."""
        return self._announcer is not None and trio.lowlevel.current_task() is self._announcer

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
            self._wake_writer.set()
            await self._wake_waiters.wait()
        if self.failed is not None:
            raise self.failed

    async def flush(self) -> None:
        """Wait until everything posted so far is durable and every listener has handled it.

        Inside a listener it waits for the commit only.  After a failed commit it waits for the listeners.
        """
        if self.failed is None and self._store is not None:
            with contextlib.suppress(StoreFailed):  # whoever ends the run has been told
                await self.committed()
        if self._listening and not self.in_listener:
            while self._announced < self._to_announce and self._announcing:
                await self._wake_waiters.wait()

    def _tell_waiters(self) -> None:
        self._wake_waiters.set()
        self._wake_waiters = trio.Event()

    # --- the writer ----------------------------------------------------------------------------------

    async def _write(self) -> None:
        with trio.CancelScope(shield=True, deadline=self._deadline) as self._shield:
            while not (self._closing and not self._to_commit):
                self._wake_writer = trio.Event()
                if self._to_commit and (self.watched or self._demanded > self._committed or self._closing):
                    await self._commit()
                else:
                    await self._wake_writer.wait()
        if self._shield.cancelled_caught:
            self._queueing = False
            self._fail(StoreFailed(f"session {self._session!r}: a commit was still open at the settle deadline"))
            self._show_all(list(self._to_commit))

    async def _commit(self) -> None:
        """Write everything that has queued up, then show it."""
        batch = list(self._to_commit)
        facts = [cast(Fact, event) for event, durable in batch if durable]
        store = self._store
        if facts and self.failed is None and store is not None:
            try:
                await store.append(self._session, facts, expected_head=self._committed)
            except StoreFailed as error:
                self._fail(error)
            except Exception as error:
                failure = StoreFailed(f"session {self._session!r} cannot be written: {describe(error)}")
                failure.__cause__ = error
                self._fail(failure)
        self._show_all(batch)
        self._committed += len(facts)
        self._tell_waiters()

    def _show_all(self, batch: list[tuple[Event, bool]]) -> None:
        for event, _ in batch:
            self._to_commit.popleft()
            if type(event) is not AgentStart:  # nothing stands before a run's first event
                self._disclose()
            if self.watched:
                self._show(event)

    def _fail(self, error: StoreFailed) -> None:
        """Nothing is logged any more.  What comes is shown, so that observers see the run's end."""
        self.failed = error
        self._disclosed = False
        self._on_failure(error)
        self._tell_waiters()

    def _disclose(self) -> None:
        if self.failed is None or self._disclosed:
            return
        self._disclosed = True
        if self.watched:
            diagnostic = Diagnostic("STORE_FAILED", self.failed.message)
            stamp(diagnostic, self.state.head, self.now(), self._place)
            self._show(diagnostic)

    # --- observers -----------------------------------------------------------------------------------

    def read(self) -> Subscription:
        """A new reader: from the run's first event if the run has not taken its first step, else from now."""
        reader = Subscription()
        if self._keeping and not self._begun:
            for fact in self.log[self._facts_from :]:
                reader.put(fact)
        self._readers.append(reader)
        if self._closing:
            reader.close()
        self._look()
        return reader

    def listen(
        self, listener: Listener, kinds: Collection[str] | None, on_error: OnListenerError
    ) -> Callable[[], None]:
        """A new listener, with the same rule as :meth:`read`.  Returns what detaches it."""
        listening = _Listening(listener, None if kinds is None else frozenset(kinds), on_error)
        if self._keeping and not self._begun:
            for fact in self.log[self._facts_from :]:
                self._to_announce += 1
                self._announcements.append((fact, listening))
        self._listening.append(listening)
        self._look()
        if not self._announcing and self._spawn is not None and not self._closing:
            self._announcing = True
            self._spawn.start_soon(self._announce)
        self._wake_announcer.set()
        return lambda: self._detach(listening)

    def _look(self) -> None:
        self.watched = bool(self._readers or self._listening)
        if self._to_commit:
            self._wake_writer.set()

    def _detach(self, listening: _Listening) -> None:
        listening.attached = False
        if listening in self._listening:
            self._listening.remove(listening)
        self._look()

    # --- the announcer -------------------------------------------------------------------------------

    async def _announce(self) -> None:
        self._announcer = trio.lowlevel.current_task()
        try:
            with trio.CancelScope(shield=True):
                while self._announcements or not self._closing:
                    self._wake_announcer = trio.Event()
                    if not self._announcements:
                        await self._wake_announcer.wait()
                        continue
                    event, only = self._announcements.popleft()
                    for listening in tuple(self._listening) if only is None else (only,):
                        if listening.attached and (listening.kinds is None or event.kind in listening.kinds):
                            await self._tell(listening, event)
                    self._announced += 1
                    self._tell_waiters()
        finally:
            self._announcing = False
            self._tell_waiters()

    async def _tell(self, listening: _Listening, event: Event) -> None:
        """Let one listener handle one event; whatever it does, the others get theirs."""
        raised: Exception | None = None
        with trio.CancelScope(deadline=self._deadline) as self._busy:
            try:
                await listening.listener(event)
            except Exception as error:
                raised = leaf(error)
            except BaseExceptionGroup as group:
                raised = failure_in(group)
        timed_out = self._busy.cancelled_caught
        self._busy = None
        if timed_out:
            self._detach(listening)
            self.diagnose("LISTENER_TIMED_OUT", f"a listener was still busy with {event.kind} at the settle deadline")
        elif raised is not None:
            self._detach(listening)
            text = f"a listener raised at {event.kind}: {describe(raised)}"
            self.diagnose("LISTENER_FAILED", text)
            if listening.on_error == "fail":
                failure = ListenerFailed(text)
                failure.__cause__ = raised
                self._on_failure(failure)
