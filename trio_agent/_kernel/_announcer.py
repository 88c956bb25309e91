"""Shows events to listeners, in order, and awaits them.

A slow or hung listener delays what is shown and nothing else.  The announcer's task lives behind a shield,
so no cancellation cuts a listener in half; a listener gets the settle deadline when a settlement begins.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Final, Literal, TypeAlias, cast, final, get_args

import attrs
import trio

from .._errors import AgentError, ConfigError, ListenerFailed, describe, failure_in, leaf
from .._events import Diagnostic, DiagnosticCode, Event
from .._facts import AgentEnd, kind_of, stamp
from .._ports import Listener
from ._interrupts import foreign

__all__ = ["Announcer", "OnListenerError", "checked"]

OnListenerError: TypeAlias = Literal["fail", "detach"]
"""What a listener that raises does: end the run with ``LISTENER_FAILED``, or only lose its place."""

_KINDS: Final = frozenset(map(kind_of, get_args(Event)))


@attrs.define(eq=False)
class _Listening:
    listener: Listener
    kinds: frozenset[str] | None
    on_error: OnListenerError
    of_run: bool
    attached: bool = True


@final
@attrs.define(eq=False)
class Announcer:
    """The listeners of one session, and the events that they have not handled yet."""

    _on_failure: Callable[[AgentError], None]
    _diagnose: Callable[[DiagnosticCode, str], bool]
    """Show a diagnostic to all observers; false if it is too late for that."""
    _listening: list[_Listening] = attrs.field(init=False, factory=list[_Listening])
    _audience: tuple[_Listening, ...] = attrs.field(init=False, default=())
    """The listeners as they are now: whoever comes later is not shown what came before."""
    _queue: deque[tuple[Event | None, tuple[_Listening, ...]]] = attrs.field(
        init=False, factory=deque[tuple[Event | None, tuple[_Listening, ...]]]
    )
    """``None``: a run is over, and lets these go."""
    _own: deque[Event] = attrs.field(init=False, factory=deque[Event])
    """Diagnostics that only listeners can still be shown: the run's end waits for them in the queue."""
    _put: int = attrs.field(init=False, default=0)
    _handled: int = attrs.field(init=False, default=0)
    _running: bool = attrs.field(init=False, default=False)
    _closing: bool = attrs.field(init=False, default=False)
    _task: trio.lowlevel.Task | None = attrs.field(init=False, default=None)
    _busy: trio.CancelScope | None = attrs.field(init=False, default=None)
    _deadline: float = attrs.field(init=False, default=math.inf)
    _ending: bool = attrs.field(init=False, default=False)
    """The deadline is that of a run which is over, and nobody has set a later one."""
    _wake: trio.Event = attrs.field(init=False, factory=trio.Event)
    _progress: trio.Event = attrs.field(init=False, factory=trio.Event)

    @property
    def is_current_task(self) -> bool:
        """Whether the caller is a listener, or a task in a nursery of one: it must not wait for itself."""
        if self._task is None:
            return False
        task = trio.lowlevel.current_task()
        while task is not self._task and task.parent_nursery is not None:
            task = task.parent_nursery.parent_task
        return task is self._task

    def listen(
        self,
        listener: Listener,
        kinds: Collection[str] | None,
        on_error: OnListenerError,
        missed: Iterable[Event],
        nursery: trio.Nursery,
        *,
        of_run: bool,
    ) -> Callable[[], None]:
        """Add a listener; it alone is shown ``missed`` first.  Returns what detaches it."""
        listening = _Listening(listener, None if kinds is None else frozenset(kinds), on_error, of_run)
        self._listening.append(listening)
        self._audience = (*self._audience, listening)
        for event in missed:
            self._add(event, (listening,))
        if not self._running and not self._closing:
            self._running = True
            nursery.start_soon(self._announce)
        return lambda: self._detach(listening)

    def show(self, event: Event, *, of_run: bool) -> None:
        """Queue an event for all listeners, if there are any left; one behind the run for the session's only."""
        audience = self._audience if of_run else tuple(each for each in self._audience if not each.of_run)
        if audience:
            self._add(event, audience)

    def end_run(self) -> bool:
        """Let the run's listeners go when they have handled all of it.  Returns whether others are left."""
        own = tuple(each for each in self._listening if each.of_run)
        self._audience = tuple(each for each in self._listening if not each.of_run)
        self._ending = True
        if self._running:
            self._add(None, own)
        return bool(self._audience)

    def _add(self, event: Event | None, audience: tuple[_Listening, ...]) -> None:
        self._put += 1
        self._queue.append((event, audience))
        self._wake.set()

    def _detach(self, listening: _Listening) -> None:
        listening.attached = False
        if listening in self._listening:
            self._listening.remove(listening)
            self._audience = tuple(each for each in self._audience if each is not listening)

    async def flush(self) -> None:
        """Wait until every listener has handled what was shown so far.  A checkpoint only if it has to wait."""
        target = self._put
        while self._handled < target and self._running:
            await self._progress.wait()

    def settle_by(self, deadline: float) -> None:
        """From now on no listener is waited for longer than until ``deadline``."""
        self._deadline = deadline
        self._ending = False
        if self._busy is not None:
            self._busy.deadline = deadline

    def close(self) -> None:
        """Let the task end when it has shown what is queued."""
        self._closing = True
        self._wake.set()

    # --- the announcer's task ------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def _announce(self) -> None:
        self._task = trio.lowlevel.current_task()
        try:
            with trio.CancelScope(shield=True):
                while self._queue or not self._closing:
                    if not self._queue:
                        self._wake = trio.Event()
                        await self._wake.wait()
                        continue
                    event, audience = self._queue.popleft()
                    if event is None:
                        self._run_over(audience)
                    else:
                        await self._tell_all(audience, event)
                    while self._own:
                        await self._tell_all(audience, self._own.popleft())
                    self._handled += 1
                    self._tell_waiters()
        finally:
            self._running = False
            self._tell_waiters()

    def _run_over(self, its_own: tuple[_Listening, ...]) -> None:
        for listening in its_own:
            self._detach(listening)
        if self._ending:
            self._deadline = math.inf

    def _tell_waiters(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def _tell_all(self, audience: tuple[_Listening, ...], event: Event) -> None:
        for listening in audience:
            if listening.attached and (listening.kinds is None or event.kind in listening.kinds):
                await self._tell(listening, event)

    async def _tell(self, listening: _Listening, event: Event) -> None:
        """Let one listener handle one event; whatever it does, the others get theirs."""
        raised: Exception | None = None
        with trio.CancelScope(deadline=self._deadline) as self._busy:
            try:
                await foreign(listening.listener, event)
            except Exception as error:
                raised = leaf(error)
            except BaseExceptionGroup as group:
                raised = failure_in(group)
        timed_out = self._busy.cancelled_caught
        self._busy = None
        if timed_out:
            text = f"a listener was still busy with {event.kind} at the settle deadline"
            self._dismiss(listening, event, "LISTENER_TIMED_OUT", text)
        elif raised is not None:
            text = f"a listener raised at {event.kind}: {describe(raised)}"
            self._dismiss(listening, event, "LISTENER_FAILED", text)
            if listening.on_error == "fail":
                failure = ListenerFailed(text)
                failure.__cause__ = raised
                self._on_failure(failure)

    def _dismiss(self, listening: _Listening, event: Event, code: DiagnosticCode, text: str) -> None:
        self._detach(listening)
        if not self._diagnose(code, text) and type(event) is not AgentEnd:
            diagnostic = Diagnostic(code, text)
            stamp(diagnostic, event.seq, trio.current_time(), event.place)
            self._own.append(diagnostic)


# --- what a subscription asks for ---------------------------------------------------------------------


def checked(listener: object, kinds: object, on_error: object) -> frozenset[str] | None:
    """The kinds that the listener wants, if it can be called with them at all; ``None``: all.

    Raises:
      ConfigError: it would never be called; the message names the argument.
    """
    if not callable(listener):
        raise ConfigError(f"listener: expected an async callable, got {listener!r:.200}")
    if on_error not in get_args(OnListenerError):
        raise ConfigError(f"on_error: expected 'fail' or 'detach', got {on_error!r:.200}")
    if kinds is None:
        return None
    if isinstance(kinds, str | bytes) or not isinstance(kinds, Iterable):  # a text is a collection of letters
        raise ConfigError(f"kinds: expected a collection of kinds, such as ['turn_end'], got {kinds!r:.200}")
    return frozenset(_known(kind) for kind in cast("Iterable[object]", kinds))


def _known(kind: object) -> str:
    if isinstance(kind, str) and kind in _KINDS:
        return kind
    import difflib  # most programs never come here

    wanted = str(getattr(kind, "__name__", kind))  # of a class, too
    close = difflib.get_close_matches(wanted[:100].lower(), sorted(_KINDS), cutoff=0.5)
    hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"there are: {', '.join(sorted(_KINDS))}"
    raise ConfigError(f"kinds: no event has the kind {kind!r:.200}; {hint}")
