"""Shows events to listeners, in order, and awaits them.

A slow or hung listener delays what is shown and nothing else.  The announcer's task lives behind a shield,
so no cancellation cuts a listener in half; a listener gets the settle deadline when a settlement begins.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Literal, TypeAlias, final

import attrs
import trio

from .._errors import AgentError, ListenerFailed, describe, failure_in, leaf
from .._events import DiagnosticCode, Event
from .._ports import Listener

__all__ = ["Announcer", "OnListenerError"]

OnListenerError: TypeAlias = Literal["fail", "detach"]


@attrs.define(eq=False)
class _Listening:
    listener: Listener
    kinds: frozenset[str] | None
    on_error: OnListenerError
    attached: bool = True


@final
@attrs.define(eq=False)
class Announcer:
    """The listeners of one session, and the events that they have not handled yet."""

    _on_failure: Callable[[AgentError], None]
    _diagnose: Callable[[DiagnosticCode, str], None]
    _listening: list[_Listening] = attrs.field(init=False, factory=list[_Listening])
    _queue: deque[tuple[Event, _Listening | None]] = attrs.field(
        init=False, factory=deque[tuple[Event, _Listening | None]]
    )
    _put: int = attrs.field(init=False, default=0)
    _handled: int = attrs.field(init=False, default=0)
    _running: bool = attrs.field(init=False, default=False)
    _closing: bool = attrs.field(init=False, default=False)
    _task: trio.lowlevel.Task | None = attrs.field(init=False, default=None)
    _busy: trio.CancelScope | None = attrs.field(init=False, default=None)
    _deadline: float = attrs.field(init=False, default=math.inf)
    _wake: trio.Event = attrs.field(init=False, factory=trio.Event)
    _progress: trio.Event = attrs.field(init=False, factory=trio.Event)

    def __bool__(self) -> bool:
        """Whether somebody listens."""
        return bool(self._listening)

    @property
    def is_current_task(self) -> bool:
        """Whether the caller is a listener: it must not wait for itself."""
        return self._task is not None and trio.lowlevel.current_task() is self._task

    def listen(
        self,
        listener: Listener,
        kinds: Collection[str] | None,
        on_error: OnListenerError,
        missed: Iterable[Event],
        nursery: trio.Nursery,
    ) -> Callable[[], None]:
        """Add a listener; it alone is shown ``missed`` first.  Returns what detaches it."""
        listening = _Listening(listener, None if kinds is None else frozenset(kinds), on_error)
        self._listening.append(listening)
        for event in missed:
            self._add(event, listening)
        if not self._running and not self._closing:
            self._running = True
            nursery.start_soon(self._announce)
        return lambda: self._detach(listening)

    def show(self, event: Event) -> None:
        """Queue an event for all listeners."""
        self._add(event, None)

    def _add(self, event: Event, only: _Listening | None) -> None:
        self._put += 1
        self._queue.append((event, only))
        self._wake.set()

    def _detach(self, listening: _Listening) -> None:
        listening.attached = False
        if listening in self._listening:
            self._listening.remove(listening)

    async def flush(self) -> None:
        """Wait until every listener has handled what was shown so far.  A checkpoint only if it has to wait."""
        target = self._put
        while self._handled < target and self._running:
            await self._progress.wait()

    def settle_by(self, deadline: float) -> None:
        """From now on no listener is waited for longer than until ``deadline``."""
        self._deadline = deadline
        if self._busy is not None:
            self._busy.deadline = deadline

    def close(self) -> None:
        """Let the task end when it has shown what is queued."""
        self._closing = True
        self._wake.set()

    # --- the announcer's task ------------------------------------------------------------------------

    async def _announce(self) -> None:
        self._task = trio.lowlevel.current_task()
        try:
            with trio.CancelScope(shield=True):
                while self._queue or not self._closing:
                    if not self._queue:
                        self._wake = trio.Event()
                        await self._wake.wait()
                        continue
                    event, only = self._queue.popleft()
                    for listening in tuple(self._listening) if only is None else (only,):
                        if listening.attached and (listening.kinds is None or event.kind in listening.kinds):
                            await self._tell(listening, event)
                    self._handled += 1
                    self._tell_waiters()
        finally:
            self._running = False
            self._tell_waiters()

    def _tell_waiters(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

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
            self._diagnose("LISTENER_TIMED_OUT", f"a listener was still busy with {event.kind} at the settle deadline")
        elif raised is not None:
            self._detach(listening)
            text = f"a listener raised at {event.kind}: {describe(raised)}"
            self._diagnose("LISTENER_FAILED", text)
            if listening.on_error == "fail":
                failure = ListenerFailed(text)
                failure.__cause__ = raised
                self._on_failure(failure)
