"""Who may begin a call now: one queue, first come, first served, before all that must be free for it.

Knows no models: it is told what a call will cost and what it has cost.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, final

import attrs
import trio

from .._errors import ProviderError
from ._allowance import Allowance, Taken

__all__ = ["Admission"]

PULSE: Final = 1.0
"""Seconds between two signs of life of a call that waits: the kernel shall not take its wait for a stall."""

AT_ONCE: Final = 1e-6
"""Seconds that are not waited for: a deadline so near may be no other number than the time, and never pass."""


@attrs.define(eq=False)
class _Place:
    """Of a call that waits, in the queue."""

    called: trio.Event = attrs.field(factory=trio.Event)
    """Something has changed, and it is the first."""


@final
class Admission:
    """Lets calls begin.  To be used in one ``trio.run``.

    Args:
      room: calls that may be under way at once.
      longest_pause: seconds of a pause that are waited for; while more are left, calls fail at once.
    """

    def __init__(self, room: float, requests: Allowance | None, tokens: Allowance | None, longest_pause: float) -> None:
        self._room = room
        self._requests = requests
        self._tokens = tokens
        self._longest_pause = longest_pause
        self._under_way = 0
        self._paused_until = -math.inf
        self._queue: OrderedDict[_Place, None] = OrderedDict()

    async def enter(self, tokens: float, alive: Callable[[], None]) -> Taken | None:
        """Begin a call; it must :meth:`leave`.  A checkpoint only if it waits.

        If it raises, nothing was taken.

        Args:
          tokens: what the call will take, as far as one knows.
          alive: called now and then while it waits.

        Returns:
          What :meth:`leave` is told.

        Raises:
          ProviderError: ``RATE_LIMIT``: the pause is too long to wait for.
        """
        self._refuse_if_paused_for_long()
        if self._queue or self._delay(tokens) > AT_ONCE:
            await self._wait(tokens, alive)
        now = trio.current_time()
        self._under_way += 1
        if self._requests is not None:
            self._requests.take(1, now)
        return None if self._tokens is None else self._tokens.take(tokens, now)

    def leave(self, taken: Taken | None, used: float | None) -> None:
        """A call has ended.

        Args:
          taken: what :meth:`enter` gave.
          used: tokens that it has really used; ``None``: that is not known.
        """
        self._under_way -= 1
        if taken is not None and self._tokens is not None and used is not None:
            self._tokens.correct(taken, used, trio.current_time())
        self._wake()

    def pause(self, seconds: float) -> None:
        """Let no call begin for so long."""
        if math.isfinite(seconds):
            self._paused_until = max(self._paused_until, trio.current_time() + seconds)

    async def _wait(self, tokens: float, alive: Callable[[], None]) -> None:
        """Wait until all who came before have begun, and all is free."""
        place = _Place()
        self._queue[place] = None
        try:
            while True:
                delay = self._delay(tokens) if next(iter(self._queue)) is place else math.inf
                if delay <= AT_ONCE:
                    return
                alive()
                with trio.move_on_after(min(delay, PULSE)):
                    await place.called.wait()
                place.called = trio.Event()
                self._refuse_if_paused_for_long()
        finally:
            del self._queue[place]
            self._wake()

    def _wake(self) -> None:
        if self._queue:
            next(iter(self._queue)).called.set()

    def _delay(self, tokens: float) -> float:
        if self._under_way >= self._room:
            return math.inf
        now = trio.current_time()
        delay = self._paused_until - now
        if self._requests is not None:
            delay = max(delay, self._requests.delay(1, now))
        if self._tokens is not None:
            delay = max(delay, self._tokens.delay(tokens, now))
        return delay

    def _refuse_if_paused_for_long(self) -> None:
        left = self._paused_until - trio.current_time()
        if left > self._longest_pause:
            told = f"the provider has asked to wait {left:.0f} s more; only {self._longest_pause:g} s are waited for"
            raise ProviderError(told, code="RATE_LIMIT", retry_after=left)
