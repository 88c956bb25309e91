"""Lets one run at a time into a session: the next is refused, or waits for its turn, first come, first served."""

from __future__ import annotations

from collections.abc import Callable
from typing import final

import trio

__all__ = ["Turnstile"]


@final
class Turnstile:
    """Whose turn it is."""

    def __init__(self, *, queues: bool) -> None:
        self._queues = queues
        self._free = trio.Semaphore(1, max_value=1)
        self._waiting: set[trio.CancelScope] = set()
        self._claims = 0
        self._idle = trio.Event()

    @property
    def busy(self) -> bool:
        """Whether somebody is inside, or waits."""
        return self._claims > 0

    async def enter(self, check: Callable[[], None]) -> None:
        """Go in.  A checkpoint if it has to wait.

        Args:
          check: raises if nobody may go in any more; asked again after a wait.

        Raises:
          trio.WouldBlock: somebody is inside, and nobody may wait.
        """
        check()
        await trio.lowlevel.checkpoint_if_cancelled()
        self._claims += 1
        try:
            self._free.acquire_nowait()
            return
        except trio.WouldBlock:
            if not self._queues:
                self._claims -= 1
                raise
        came, inside = False, False
        try:
            came = await self._wait()
            check()
            inside = True
        finally:
            if came and not inside:
                self.leave()
            elif not inside:
                self._drop()

    async def _wait(self) -> bool:
        """Whether its turn has come; not if those who wait were sent away."""
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                await self._free.acquire()
                return True
            finally:
                self._waiting.discard(scope)
        return False

    def leave(self) -> None:
        """Let the next one in."""
        self._free.release()
        self._drop()

    def _drop(self) -> None:
        self._claims -= 1
        if not self._claims:
            self._idle.set()
            self._idle = trio.Event()

    def close(self) -> None:
        """Wake all who wait: their ``check`` raises."""
        for scope in self._waiting:
            scope.cancel()

    async def idle(self) -> None:
        """Wait until nobody is inside or waits.  A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self._claims:
            await self._idle.wait()
