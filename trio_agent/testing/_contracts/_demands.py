"""What the cases of a store ask of it again and again: this log, a conflict, nothing left behind.

Knows nothing of the promises that they are asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, TypeAlias

import attrs
import trio

from ..._errors import SessionConflict
from ..._facts import Fact
from ..._ports import SessionStore
from ._logbook import told

__all__ = [
    "AT_ONCE",
    "MOMENT",
    "Make",
    "Rival",
    "compete",
    "demand",
    "demand_conflict",
    "demand_heads",
    "demand_log",
]

Make: TypeAlias = Callable[[], AbstractAsyncContextManager[SessionStore] | SessionStore]
"""Gives a store with nothing in it."""

MOMENT: Final = 0.01
"""Seconds in which a write that outlived its call would show."""
AT_ONCE: Final = 8
"""How many compete."""


def demand(truth: bool, complaint: str) -> None:
    """See that it is true."""
    if not truth:
        raise AssertionError(complaint)


async def demand_log(
    store: SessionStore, expected: Sequence[Fact], session: str = "s", place: str = "", *, after: int = 0
) -> None:
    """See that the log is this; ``after`` is asked for only where it is the point."""
    read = await store.read(session, after=after) if after else await store.read(session)
    found, wanted = told(read), told(expected)
    if found == wanted:
        return
    place = place or f"session {session!r}" + (f" after {after}" if after else "")
    if len(found) != len(wanted):
        raise AssertionError(f"{place}: expected {len(wanted)} facts, got {len(found)}")
    number = next(index for index, pair in enumerate(zip(found, wanted, strict=True)) if pair[0] != pair[1])
    raise AssertionError(f"{place}: fact {number} of what was read is {found[number]}, not {wanted[number]}")


async def demand_heads(store: SessionStore, expected: dict[str, int], place: str = "") -> None:
    """See that the list names these sessions, in any order, with these heads."""
    found = {info.session: info.head for info in await store.list()}
    missing, strange = expected.keys() - found.keys(), found.keys() - expected.keys()
    place = f"{place}: " if place else ""
    demand(not missing, f"{place}the list misses {sorted(missing)}")
    demand(not strange, f"{place}the list has {sorted(strange)}, which nobody has written to")
    demand(found == expected, f"{place}expected the heads {expected} in the list, got {found}")


async def demand_conflict(call: Callable[[], Awaitable[object]], what: str) -> None:
    """See that it is refused as a conflict."""
    try:
        given = await call()
    except SessionConflict:
        return
    raise AssertionError(f"{what} returned {given}; expected SessionConflict")


@attrs.define(eq=False)
class Rival:
    """One call among several at once, and what came of it."""

    call: Callable[[], Awaitable[object]]
    won: bool | None = None
    value: object = None
    """What it returned; ``None``: it lost."""

    async def try_it(self) -> None:
        """Make the call."""
        try:
            self.value = await self.call()
            self.won = True
        except SessionConflict:
            self.won = False


async def compete(rivals: Sequence[Rival], later: Sequence[Rival] = (), steps: int = 0) -> list[Rival]:
    """Let them all try at once, some of them so many steps later; those that won."""
    async with trio.open_nursery() as nursery:
        for rival in rivals:
            nursery.start_soon(rival.try_it)
        for _ in range(steps):
            await trio.lowlevel.checkpoint()
        for rival in later:
            nursery.start_soon(rival.try_it)
    return [rival for rival in (*rivals, *later) if rival.won]
