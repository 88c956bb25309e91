"""Ctrl-C as a cancellation, so that it cuts a run at a checkpoint and never in the middle of a line.

Knows nothing of runs.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Awaitable, Callable
from types import FrameType, TracebackType
from typing import Final, final

import trio

__all__ = ["Interrupts"]

STUCK: Final = 1.0
"""Seconds after which a Ctrl-C that Trio has not come to is known to wait for code that does not await."""


@final
class Interrupts:
    """Takes Ctrl-C for the length of a ``with`` block, in Trio's main task.

    The first one cuts :attr:`scope`; further ones are counted.  If code that does not await keeps Trio from
    seeing it, the next one is Trio's own again: a ``KeyboardInterrupt`` in that code.

    Attributes:
      scope: what is cut.
      times: how often Ctrl-C was pressed.
      told: gets that number each time.
    """

    def __init__(self) -> None:
        self.scope = trio.CancelScope()
        self.times = 0
        self._tell, self.told = trio.open_memory_channel[int](math.inf)
        self._unseen_since: float | None = None
        self._over = False

    def __enter__(self) -> Interrupts:
        self._token = trio.lowlevel.current_trio_token()
        self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._over = True
        self._tell.close()
        self.told.close()

    async def cut(self, work: Callable[[], Awaitable[None]]) -> bool:
        """Do the work, once, inside the scope.  Returns whether Ctrl-C was pressed meanwhile."""
        try:
            with self.scope:
                await work()
        except KeyboardInterrupt:
            # Code that did not await was stuck, and this is what got it out.
            self.times = max(self.times, 1)
        return self.times > 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._unseen_since is None:
            self._unseen_since = now
            self._token.run_sync_soon(self._seen)
        elif now - self._unseen_since >= STUCK and callable(self._before):
            self._before(number, frame)

    def _seen(self) -> None:
        if self._over:
            return  # it came in the block's last moment, and there is nobody left to tell
        self._unseen_since = None
        self.times += 1
        self.scope.cancel()
        self._tell.send_nowait(self.times)
