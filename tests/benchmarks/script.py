"""What all sides of a benchmark share: scripts, the cursor of a run, and tools that do nothing.

A script is a list of turns; each run has a cursor of its own, in a context variable, so that one agent
serves many runs and the fake model never reads the history that it is given.
"""

from __future__ import annotations

import contextvars
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
import trio

DELTA = "abcd"
FINAL = "done"


@attrs.frozen
class Call:
    id: str
    name: str
    arguments: dict[str, Any]


@attrs.frozen
class Turn:
    calls: tuple[Call, ...] = ()
    text: str = ""
    deltas: int = 0


CURSOR: contextvars.ContextVar[Iterator[Turn]] = contextvars.ContextVar("cursor")


def next_turn() -> Turn:
    """The next turn of the current run's script."""
    return next(CURSOR.get())


class Ran:
    """How many tools really ran."""

    count = 0


async def noop(i: int) -> str:
    """Do nothing."""
    Ran.count += 1
    return "ok"


async def nap(i: int, ms: float) -> str:
    """Sleep."""
    await trio.sleep(ms / 1000)
    Ran.count += 1
    return "ok"


TOOLS: dict[str, Callable[..., Awaitable[str]]] = {"noop": noop, "nap": nap}


def fanout(calls: int) -> list[Turn]:
    """One turn of so many calls, then the end."""
    return [Turn(tuple(Call(f"call_0_{i}", "noop", {"i": i}) for i in range(calls))), Turn(text=FINAL)]


def loop(turns: int) -> list[Turn]:
    """So many turns of one call, then the end."""
    return [*(Turn((Call(f"call_{k}_0", "noop", {"i": k}),)) for k in range(turns)), Turn(text=FINAL)]


def deltas(count: int) -> list[Turn]:
    """One message of so many text deltas."""
    return [Turn(text=FINAL, deltas=count)]


def three_turns() -> list[Turn]:
    """Two turns of two calls of 10 ms, then the end: three model calls."""
    naps = [tuple(Call(f"call_{k}_{i}", "nap", {"i": i, "ms": 10.0}) for i in range(2)) for k in range(2)]
    return [*map(Turn, naps), Turn(text=FINAL)]
