"""Many tasks, one thread: what they ask for while it works is its next batch.

The end of a batch starts the next one, from Trio's own queue of callbacks: there is no task that could be cancelled in
the middle of leading the others, and no nursery.  Knows nothing of databases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, final

import attrs
import outcome
import trio

from .._errors import StoreFailed

__all__ = ["GroupCommit", "Inline", "Worker"]

T = TypeVar("T")
I_contra = TypeVar("I_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)
I = TypeVar("I")  # noqa: E741  # it stands for an item, as T does for a type
R = TypeVar("R")


class Worker(Protocol[I_contra, R_co]):
    """Does what tasks ask for, one thing at a time."""

    async def together(self, item: I_contra) -> R_co:
        """Have ``item`` committed, with others if there are any, and return its own result.

        A checkpoint.  Cancelled, nothing was done.
        """
        ...

    async def alone(self, function: Callable[[], T], *, uncut: bool = False) -> T:
        """Call ``function`` and return what it returns.  A checkpoint.  Cancelled, it was not called.

        Args:
          uncut: call it even if the task is cancelled, and then return; for closing.
        """
        ...


@final
class Inline(Generic[I, R]):
    """Works in the caller's task, after a checkpoint: no threads, and the same course each time."""

    def __init__(self, commit: Callable[[Sequence[I]], Sequence[outcome.Outcome[R]]]) -> None:
        self._commit = commit

    async def together(self, item: I) -> R:
        """See :class:`Worker`."""
        await trio.lowlevel.checkpoint()
        return self._commit([item])[0].unwrap()

    async def alone(self, function: Callable[[], T], *, uncut: bool = False) -> T:
        """See :class:`Worker`."""
        if uncut:
            await trio.lowlevel.cancel_shielded_checkpoint()
        else:
            await trio.lowlevel.checkpoint()
        return function()


@final
@attrs.define(eq=False)
class _Waiter(Generic[I]):
    """One thing that was asked for: an item, or a function to call alone."""

    item: I | None = None
    function: Callable[[], object] | None = None
    uncut: bool = False
    task: trio.lowlevel.Task | None = None
    """Who waits, from the moment in which it does."""
    result: outcome.Outcome[Any] | None = None  # Any: what the function or the commit gave


@final
class GroupCommit(Generic[I, R]):
    """Works in one thread at a time; items that have come by then are committed together.

    A task that is cancelled while what it asked for is still queued takes it back; once that has begun, the task waits
    for the end of it and returns.  For one Trio run at a time.

    Args:
      commit: called in the thread with all items that are waiting; gives the outcome of each, in their order.
    """

    def __init__(self, commit: Callable[[Sequence[I]], Sequence[outcome.Outcome[R]]]) -> None:
        self._commit = commit
        self._queue: Final[deque[_Waiter[I]]] = deque()
        self._working = False
        self._token: trio.lowlevel.TrioToken | None = None

    async def together(self, item: I) -> R:
        """See :class:`Worker`."""
        result: R = await self._wait(_Waiter(item))
        return result

    async def alone(self, function: Callable[[], T], *, uncut: bool = False) -> T:
        """See :class:`Worker`."""
        result: T = await self._wait(_Waiter(None, function, uncut))
        return result

    @trio.lowlevel.enable_ki_protection
    async def _wait(self, waiter: _Waiter[I]) -> Any:  # Any: the result has the type that the callers say
        if not waiter.uncut:
            await trio.lowlevel.checkpoint_if_cancelled()
        token = trio.lowlevel.current_trio_token()
        if self._working and self._token is not token:
            raise StoreFailed("the store is in use by another Trio run; each needs a store of its own")
        self._token = token
        self._queue.append(waiter)
        if not self._working:
            self._begin(token)
        if waiter.result is None:
            waiter.task = trio.lowlevel.current_task()
            await trio.lowlevel.wait_task_rescheduled(partial(self._take_back, waiter))
        else:  # no thread could be had
            await trio.lowlevel.cancel_shielded_checkpoint()
        result, waiter.result = waiter.result, None  # an error that is kept by the frame that it names is a circle
        try:
            assert result is not None
            return result.unwrap()
        finally:
            del result

    def _take_back(self, waiter: _Waiter[I], raise_cancel: object) -> trio.lowlevel.Abort:
        if waiter.uncut or waiter not in self._queue:
            return trio.lowlevel.Abort.FAILED
        self._queue.remove(waiter)
        return trio.lowlevel.Abort.SUCCEEDED

    # --- in Trio's thread, between two steps of its tasks -------------------------------------------------------------

    def _begin(self, token: trio.lowlevel.TrioToken) -> None:
        """Hand the next batch to a thread; the queue is not empty."""
        batch = self._next_batch()
        self._working = True
        try:
            # Not `to_thread.run_sync`: it costs half as much again, and has checkpoints at which a batch could be lost.
            trio.lowlevel.start_thread_soon(partial(self._work, batch), partial(self._deliver, token, batch))
        except Exception as error:  # there are as many threads as there may be
            self._end(token, batch, outcome.Error(StoreFailed(f"no thread can be started to work in: {error}")))

    def _next_batch(self) -> Sequence[_Waiter[I]]:
        # What waits longest is next, so that nothing waits for ever; items do not mind company.
        if self._queue[0].function is not None:
            return [self._queue.popleft()]
        batch = [waiter for waiter in self._queue if waiter.function is None]
        others = [waiter for waiter in self._queue if waiter.function is not None]
        self._queue.clear()
        self._queue.extend(others)
        return batch

    def _end(
        self,
        token: trio.lowlevel.TrioToken,
        batch: Sequence[_Waiter[I]],
        results: outcome.Outcome[Sequence[outcome.Outcome[Any]]],
    ) -> None:
        self._working = False
        if isinstance(results, outcome.Error):
            each: Sequence[outcome.Outcome[Any]] = [outcome.Error(results.error) for _ in batch]
        else:
            each = results.unwrap()
        for waiter, result in zip(batch, each, strict=True):
            waiter.result = result
            if waiter.task is not None:
                trio.lowlevel.reschedule(waiter.task)
        if self._queue:
            self._begin(token)

    # --- in the other thread ------------------------------------------------------------------------------------------

    def _work(self, batch: Sequence[_Waiter[I]]) -> Sequence[outcome.Outcome[Any]]:
        function = batch[0].function
        if function is not None:
            return [outcome.capture(function)]
        return self._commit([waiter.item for waiter in batch if waiter.item is not None])

    def _deliver(
        self,
        token: trio.lowlevel.TrioToken,
        batch: Sequence[_Waiter[I]],
        results: outcome.Outcome[Sequence[outcome.Outcome[Any]]],
    ) -> None:
        try:
            token.run_sync_soon(self._end, token, batch, results)
        except trio.RunFinishedError:
            self._working = False  # the run has crashed, and its tasks with it
            self._queue.clear()
