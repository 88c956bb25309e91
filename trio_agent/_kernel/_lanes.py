"""Which call may run next, when some must wait for others.

A call runs when it is the first, in input order, of each of its lanes.  An exclusive call runs when all
before it have ended, and none behind it starts until it has.  Waiting is always for an earlier call, so
there is no deadlock; a call that waits holds neither worker nor token.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import final

import trio

from .._ports import PreparedCall
from ._tool_context import CallContext

__all__ = ["Lanes", "needs_lanes"]


def needs_lanes(calls: Iterable[PreparedCall]) -> bool:
    """Whether any of the calls may have to wait for another."""
    return any(call.lanes or call.exclusive for call in calls)


@final
class Lanes:
    """The calls of one turn, handed out in input order as they become free."""

    __slots__ = ("_blocks", "_free", "_left", "_lot", "_waits_for")

    def __init__(self, calls: Iterable[CallContext]) -> None:
        self._free: list[tuple[int, CallContext]] = []
        self._blocks: dict[int, list[CallContext]] = {}
        """By index: the calls that wait for it."""
        self._waits_for: dict[int, int] = {}
        """By index: how many calls it still waits for."""
        self._lot = trio.lowlevel.ParkingLot()
        self._left = 0
        last_of_lane: dict[str, int] = {}
        barrier: int | None = None
        since_barrier: list[int] = []
        for call in calls:
            self._left += 1
            before = {last_of_lane[lane] for lane in call.prepared.lanes if lane in last_of_lane}
            if call.prepared.exclusive:
                before.update(since_barrier)
            if barrier is not None:
                before.add(barrier)
            for index in before:
                self._blocks.setdefault(index, []).append(call)
            self._waits_for[call.index] = len(before)
            if not before:
                self._free.append((call.index, call))
            if call.prepared.exclusive:
                barrier = call.index
                since_barrier = []
            else:
                since_barrier.append(call.index)
            last_of_lane.update(dict.fromkeys(call.prepared.lanes, call.index))

    async def take(self) -> CallContext | None:
        """The next call that may run, or ``None`` when none is left.  A checkpoint if it has to wait."""
        while not self._free:
            if not self._left:
                return None
            await self._lot.park()
        self._left -= 1
        call = heapq.heappop(self._free)[1]
        if not self._left:
            self._lot.unpark_all()
        return call

    def ended(self, call: CallContext) -> None:
        """``call`` has ended: whoever waited only for it may run."""
        for waiting in self._blocks.pop(call.index, ()):
            self._waits_for[waiting.index] -= 1
            if not self._waits_for[waiting.index]:
                heapq.heappush(self._free, (waiting.index, waiting))
                self._lot.unpark()

    def stop(self) -> None:
        """Hand out nothing more."""
        self._left = 0
        self._free.clear()
        self._lot.unpark_all()
