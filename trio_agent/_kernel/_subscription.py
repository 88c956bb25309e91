"""One reader's queue of events.  Putting never blocks; unread neighbouring deltas are merged without loss.

Knows nothing of facts, stores or runs.
"""

from __future__ import annotations

from collections import deque
from typing import Final, TypeAlias, cast, final

import attrs
import trio

from .._events import Event, ReasoningDelta, TextDelta, ToolCallDelta
from .._facts import stamp

__all__ = ["Subscription"]

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta

_DELTAS: Final = frozenset({TextDelta, ReasoningDelta, ToolCallDelta})

_BREATH: Final = 64
"""How many events a reader takes from a backlog before it lets other tasks run."""


@attrs.define(eq=False)
class _Merged:
    """Neighbouring deltas of one text.  A list of parts: joining at each would be quadratic."""

    first: Delta
    parts: list[str]
    last: Delta

    def join(self) -> Delta:
        merged = attrs.evolve(self.first, text="".join(self.parts))
        stamp(merged, self.last.seq, self.last.time, self.last.place)
        return merged


def _continues(first: Delta, delta: Delta) -> bool:
    """Whether ``delta`` is more of the text that ``first`` began."""
    if type(first) is not type(delta) or first.message_id != delta.message_id:
        return False
    if isinstance(first, ToolCallDelta) and isinstance(delta, ToolCallDelta):
        return first.index == delta.index and first.name == delta.name
    return True


@final
class Subscription:
    """An async iterator over a run's events; made by ``run.events()`` or by iterating over the run.

    It ends after ``agent_end``.  A deadline or cancellation around one receive loses no event, and the
    iteration may go on.  Leaving the loop leaves it open: what comes is kept, deltas merged, until the
    run is over.
    """

    __slots__ = ("_closed", "_items", "_streak", "_waiting")

    def __init__(self) -> None:
        self._items: deque[Event | _Merged] = deque()
        self._closed = False
        self._streak = 0
        self._waiting: trio.Event | None = None

    def put(self, event: Event) -> None:
        """Hand over one event.  For the journal."""
        items = self._items
        if items and type(event) in _DELTAS and self._merged(cast("Delta", event)):
            return
        items.append(event)
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def _merged(self, delta: Delta) -> bool:
        """Whether the delta could be joined to the last event, which is unread."""
        items = self._items
        tail = items[-1]
        if isinstance(tail, _Merged):
            if _continues(tail.first, delta):
                tail.parts.append(delta.text)
                tail.last = delta
                return True
        elif isinstance(tail, TextDelta | ReasoningDelta | ToolCallDelta) and _continues(tail, delta):
            items[-1] = _Merged(tail, [tail.text, delta.text], delta)
            return True
        return False

    def close(self) -> None:
        """Nothing more comes.  For the journal."""
        self._closed = True
        if self._waiting is not None:
            self._waiting.set()
            self._waiting = None

    def __aiter__(self) -> Subscription:
        return self

    @trio.lowlevel.enable_ki_protection
    async def __anext__(self) -> Event:
        """The next event.  A checkpoint.

        Raises:
          StopAsyncIteration: the run is over and everything was read.
          trio.BusyResourceError: another task is waiting for an event of this subscription.
        """
        items = self._items
        if items:
            self._streak += 1
            if self._streak < _BREATH:
                await trio.lowlevel.checkpoint_if_cancelled()
            else:
                self._streak = 0
                await trio.lowlevel.checkpoint()
        elif self._closed:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait()
        if not items:
            if self._closed:
                raise StopAsyncIteration
            raise trio.BusyResourceError("another task reads from this subscription, and took the event")
        item = items.popleft()
        return item.join() if isinstance(item, _Merged) else item

    @trio.lowlevel.enable_ki_protection
    def drain(self) -> list[Event]:
        """Everything that can be read without waiting; after the run's block, all that is left."""
        found = [item.join() if isinstance(item, _Merged) else item for item in self._items]
        self._items.clear()
        return found

    async def _wait(self) -> None:
        if self._waiting is not None:
            raise trio.BusyResourceError("another task is waiting for an event of this subscription")
        self._streak = 0
        self._waiting = waiting = trio.Event()
        try:
            await waiting.wait()
        finally:
            if self._waiting is waiting:  # woken and not yet run, it may find that another task waits already
                self._waiting = None
