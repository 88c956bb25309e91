"""``trio-agent tail SESSION``: a log as it grows, told while another process writes it."""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from .._core._state import State, fold_read
from .._errors import ConfigError
from .._facts import Fact
from .._ports import SessionStore
from .._written import write_fact
from ._codes import DONE, INTERRUPTED
from ._interrupt import Interrupts
from ._store import demand_session, read_all, store_at
from ._telling import Telling

__all__ = ["INTERVAL", "LINES", "follow", "tail_session"]

INTERVAL: Final = 0.2
"""Seconds between two looks at the store."""

LINES: Final = 10
"""Facts that are shown of what was there before."""


async def tail_session(
    session: str,
    *,
    store: str | None = None,
    lines: int = LINES,
    interval: float = INTERVAL,
    until_end: bool = False,
    json: bool = False,
) -> int:
    """Print the facts of a session as they are committed, until Ctrl-C.

    Args:
      session: its name.
      store: where it is kept; see :func:`store_at`.
      lines: how many of the facts that are there already are printed.
      interval: seconds between two looks.
      until_end: stop as soon as no run is under way.
      json: print the facts as the store keeps them.

    Returns:
      The exit code: 130 after Ctrl-C.

    Raises:
      ConfigError: there is no such store or session, or a number cannot be used.
      StoreFailed: the log cannot be read.
    """
    if lines < 0:
        raise ConfigError(f"--lines: expected a number >= 0, got {lines}")
    if not 0 < interval < math.inf:
        raise ConfigError(f"--interval: expected a number of seconds > 0, got {interval}")
    async with store_at(store, create=False) as opened:
        await demand_session(opened, session)
        say = functools.partial(print, flush=True)
        work = functools.partial(
            follow, opened, session, say, lines=lines, interval=interval, until_end=until_end, json=json
        )
        with Interrupts() as interrupts:
            return INTERRUPTED if await interrupts.cut(work) else DONE


async def follow(
    store: SessionStore,
    session: str,
    say: Callable[[str], None],
    *,
    lines: int = LINES,
    interval: float = INTERVAL,
    until_end: bool = False,
    json: bool = False,
) -> None:
    """Say each fact of a log, those that come later within ``interval`` seconds of Trio's clock.  A checkpoint."""
    telling, state = Telling(), State()
    recent = deque[str](maxlen=lines)

    def line(fact: Fact) -> str:
        fold_read(state, fact, session)
        told = telling.line(fact)
        return write_fact(fact) if json else f"{fact.seq:>7,}  {told}"

    head = await read_all(store, session, lambda fact: recent.append(line(fact)))
    for each in recent:
        say(each)
    while not (until_end and state.run_id is None):
        await trio.sleep(interval)
        head = await read_all(store, session, lambda fact: say(line(fact)), head)
