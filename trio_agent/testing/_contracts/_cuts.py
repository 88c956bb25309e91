"""A call is cut at one of its scheduler steps, the 1st, the 2nd, ..., so that no place is left out.

For contracts, whose cases hold an open provider or store between the cuts: it works inside of a Trio run, on
any clock, where the explorers (:mod:`.._trial`) make a run and a world of its own for each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, Generic, Literal, TypeAlias, TypeVar, final

import attrs
import trio

__all__ = ["CutCall", "When", "cut_at", "cut_everywhere"]

T = TypeVar("T")

When: TypeAlias = Literal["before", "after"]
"""Before a step, what the task waited for has happened, and it does not know of it yet; after one, it waits."""

_MOST: Final = 200
"""Steps of one call that are tried."""


@final
@attrs.frozen
class CutCall(Generic[T]):
    """What became of a call that was to be cut."""

    reached: bool
    """It had so many steps, and was cancelled at that one."""
    returned: bool
    """It returned; otherwise the cancellation came out of it."""
    value: T | None = None


async def cut_at(step: int, when: When, call: Callable[[], Awaitable[T]]) -> CutCall[T]:
    """Make a call and cancel it at its ``step``-th scheduler step, those of its child tasks included.

    Args:
      step: from 1; 0 is before the call.

    Raises:
      Exception: whatever the call raised.
    """
    scope = trio.CancelScope()
    probe = _Probe(trio.lowlevel.current_task(), step, when, scope)
    trio.lowlevel.add_instrument(probe)
    done: CutCall[T] | None = None
    try:
        if step == 0:
            scope.cancel()
        with scope:
            value = await call()
            done = CutCall(scope.cancel_called, True, value)
    finally:
        trio.lowlevel.remove_instrument(probe)
    return CutCall(True, False) if done is None else done


async def cut_everywhere(attempt: Callable[[int, When], Awaitable[bool]]) -> None:
    """Call ``attempt(step, when)`` for each step, until it says that the call had none such.

    Raises:
      AssertionError: a call takes more than 200 steps.
    """
    for when in _WHENS:
        for step in range(_MOST + 1):
            if not await attempt(step, when):
                break
        else:
            raise AssertionError(f"a small call took more than {_MOST} steps: it cannot be cut at each of them")


_WHENS: Final[tuple[When, ...]] = ("before", "after")


class _Probe(trio.abc.Instrument):
    def __init__(self, task: trio.lowlevel.Task, step: int, when: When, scope: trio.CancelScope) -> None:
        self._tasks = {task}
        self._steps_left = step
        self._when = when
        self._scope = scope

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        if task.parent_nursery is not None and task.parent_nursery.parent_task in self._tasks:
            self._tasks.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "before")

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._step(task, "after")

    def _step(self, task: trio.lowlevel.Task, when: When) -> None:
        if when == self._when and task in self._tasks:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._scope.cancel()
