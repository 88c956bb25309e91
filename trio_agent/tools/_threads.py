"""One synchronous call in a thread, which a cancellation waits for, but not for ever.

Knows nothing of tools.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Generic, TypeVar, final

import outcome
import trio

from .._errors import ToolFailed
from .._ports import ToolContext

__all__ = ["run_in_thread"]

T = TypeVar("T")


@final
class _CutWatch:
    """Sees that its surroundings are cancelled, and does not take the cancellation itself.

    So what was awaited meanwhile may still return: a nursery whose task was cancelled could not.
    """

    def __init__(self, on_cut: Callable[[], None]) -> None:
        self._on_cut = on_cut
        self._task: trio.lowlevel.Task | None = None
        self._over = False

    async def watch(self) -> None:
        """Call ``on_cut`` once if a cancellation comes; return when :meth:`end` was called."""
        if not self._over:
            self._task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, raise_cancel: object) -> trio.lowlevel.Abort:
        self._on_cut()
        return trio.lowlevel.Abort.FAILED

    def end(self) -> None:
        self._over = True
        if self._task is not None:
            trio.lowlevel.reschedule(self._task)


@final
class _Work(Generic[T]):
    """What a thread does, and who must be told when it has done it."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._token = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._ended: Callable[[], None] | None = None
        self.result: outcome.Outcome[T] | None = None

    def run(self) -> None:
        """In the thread."""
        result = outcome.capture(self._function)
        with self._lock:
            self.result = result
            ended = self._ended
        if ended is not None:
            try:
                self._token.run_sync_soon(ended)
            except trio.RunFinishedError:
                pass  # whoever counted the thread is gone

    def abandon(self, context: ToolContext) -> bool:
        """In Trio's thread: leave it to itself; false if it has ended already, and has its result."""
        with self._lock:
            if self.result is None:
                self._ended = context.abandon()
            return self.result is None


async def run_in_thread(function: Callable[[], T], context: ToolContext) -> T:
    """Run ``function`` in a thread, with the context variables, and return what it returns.

    A checkpoint before it starts.  When a cancellation comes, the thread is waited for until
    ``context.thread_deadline()``, which is asked in that moment.  What it has returned by then is
    returned in spite of the cancellation; otherwise it is abandoned (``context.abandon()``), and
    :exc:`trio.Cancelled` is raised.  What ``function`` raises goes through as it is.
    """
    await trio.lowlevel.checkpoint_if_cancelled()
    work = _Work(function)
    shield = trio.CancelScope(shield=True)

    def on_cut() -> None:
        shield.deadline = context.thread_deadline()

    watch = _CutWatch(on_cut)
    abandoned = False
    not_started: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch.watch)
        try:
            with shield:
                # A limiter of its own: the number of calls is the kernel's business, and whoever needs
                # one of Trio's default threads must not wait for tools.
                await trio.to_thread.run_sync(work.run, limiter=trio.CapacityLimiter(math.inf), abandon_on_cancel=True)
        except Exception as error:  # not the function's, which is in the result: no thread could be had
            not_started = error
        finally:
            watch.end()
            if not_started is None:
                abandoned = work.abandon(context)
    try:
        if not_started is not None:
            raise not_started
        if not abandoned and work.result is not None:
            return work.result.unwrap()
    finally:
        del work, not_started  # an exception that is kept by the frame that it names is a circle
    await trio.lowlevel.checkpoint_if_cancelled()
    raise ToolFailed("a thread was abandoned although nothing was cancelled")
