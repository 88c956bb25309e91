"""Where a scenario meets the outside world: each crossing is counted, timed, and may be made to fail or to wait.

Knows nothing of agents; :mod:`._watched` puts an agent's ports behind it.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar, final

import attrs
import trio

from ._plan import Plan, When

__all__ = ["InjectedFault", "Seams"]

T = TypeVar("T")

_MOST_WAITS: Final = 3
"""Extra checkpoints at one crossing."""


class InjectedFault(Exception):
    """What a seam raises when an explorer tells it to."""


@final
@attrs.define(eq=False)
class Seams:
    """The crossings of one trial.  A world that has one as its attribute ``seams`` can be explored for faults.

    Put whatever your scenario calls in the outside world behind :meth:`cross`.
    """

    crossings: Counter[str] = attrs.field(init=False, factory=Counter[str])
    """How often each seam was crossed."""
    in_flight: Counter[str] = attrs.field(init=False, factory=Counter[str])
    """What is out there now, by seam."""
    idle: list[tuple[float, float]] = attrs.field(init=False, factory=list[tuple[float, float]])
    """When nothing was out there but waits, from and until: the time that the scenario could have spared."""
    raised: Exception | None = attrs.field(init=False, default=None)
    """The fault that was injected, once it was."""
    _plan: Plan = attrs.field(init=False, factory=Plan)
    _rng: random.Random | None = attrs.field(init=False, default=None)
    _error: Callable[[], Exception] = attrs.field(init=False, default=InjectedFault)
    _busy: int = attrs.field(init=False, default=0)
    _idle_since: float | None = attrs.field(init=False, default=None)

    def follow(self, plan: Plan, error: Callable[[], Exception] = InjectedFault) -> None:
        """Fail and wait as the plan says.  For explorers.

        Args:
          error: makes what the fault raises.
        """
        self._plan = plan
        self._error = error
        self._rng = random.Random(plan.seed) if plan.jitter else None

    async def cross(self, seam: str, call: Callable[[], Awaitable[T]], *, waiting: bool = False) -> T:
        """Await ``call()`` as a crossing of the seam.

        A checkpoint only if the call is one, or if the plan has it wait.  A cancellation goes through it
        as through the call alone.

        Args:
          waiting: nothing is done out there; whoever calls waits for somebody, and may be asked not to.

        Raises:
          InjectedFault: or whatever the plan wants.
        """
        with self._out(seam, waiting):
            self.crossings[seam] += 1
            number = self.crossings[seam]
            await self._wait(trio.lowlevel.checkpoint)
            self._fail(seam, "before", number)
            answer = await call()
            self._fail(seam, "after", number)
            await self._wait(trio.lowlevel.cancel_shielded_checkpoint)  # what has happened is told
            return answer

    @contextmanager
    def _out(self, seam: str, waiting: bool) -> Generator[None, None, None]:
        self.in_flight[seam] += 1
        if not waiting:
            self._begin()
        try:
            yield
        finally:
            self.in_flight[seam] -= 1
            if not waiting:
                self._end()

    def _begin(self) -> None:
        now = trio.current_time()
        if self._idle_since is not None and now > self._idle_since:
            self.idle.append((self._idle_since, now))
        self._idle_since = None
        self._busy += 1

    def _end(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._idle_since = trio.current_time()

    async def _wait(self, checkpoint: Callable[[], Awaitable[None]]) -> None:
        if self._rng is not None:
            for _ in range(self._rng.randint(0, _MOST_WAITS)):
                await checkpoint()

    def _fail(self, seam: str, when: When, number: int) -> None:
        fault = self._plan.fault
        if fault is not None and (fault.seam, fault.when, fault.crossing) == (seam, when, number):
            self.raised = self._error()
            raise self.raised

    def idle_between(self, start: float, end: float) -> float:
        """Seconds between two moments in which nothing was out there."""
        spans = list(self.idle)
        if self._idle_since is not None:
            spans.append((self._idle_since, end))
        return sum(max(0.0, min(b, end) - max(a, start)) for a, b in spans)
