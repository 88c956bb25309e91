"""``trio-agent replay SESSION``: a session told again as it ran; or run again, to see whether the same comes of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Awaitable, Callable, Sequence

import trio

from .._errors import ConfigError
from .._facts import AgentEnd, AgentStart, Fact, MessageDelivered, MessageQueued
from .._messages import Message
from ..testing._trial import virtual_clock
from ._codes import DONE, FAILED, INTERRUPTED
from ._interrupt import Interrupts
from ._replay_check import check_log
from ._store import demand_session, read_all, store_at
from ._talk import JsonLines, Talk, note
from ._tally import Tally
from ._words import printable

__all__ = ["replay_session"]


def replay_session(
    session: str,
    *,
    store: str | None = None,
    check: bool = False,
    speed: float | None = None,
    json: bool = False,
) -> int:
    """Tell it again, or check it.  Synchronous, since a check runs on a clock of its own.

    Args:
      session: its name.
      store: where it is kept; see :func:`store_at`.
      check: run it again, and say where what comes of it differs.
      speed: how much faster than it happened it is told; ``None``: without pauses.
      json: tell it as lines of JSON.

    Returns:
      The exit code: 1 if the check has found a difference, 130 after Ctrl-C.

    Raises:
      ConfigError: there is no such store or session, or an option cannot be used.
      StoreFailed: the log cannot be read.
    """
    if check and (json or speed is not None):
        raise ConfigError("--check: it tells nothing again, and takes neither --json nor --speed")
    if speed is not None and not 0 < speed < math.inf:
        raise ConfigError(f"--speed: expected a number > 0, got {speed}")
    facts = trio.run(_read, session, store)
    if check:
        return trio.run(_unless_interrupted, functools.partial(_check, facts, session), clock=virtual_clock())
    return trio.run(_unless_interrupted, functools.partial(_tell, facts, speed, json))


async def _read(session: str, store: str | None) -> list[Fact]:
    facts: list[Fact] = []
    async with store_at(store, create=False) as opened:
        await demand_session(opened, session)
        await read_all(opened, session, facts.append)
    return facts


async def _unless_interrupted(work: Callable[[], Awaitable[int]]) -> int:
    code = DONE

    async def act() -> None:
        nonlocal code
        code = await work()

    with Interrupts() as interrupts:
        return INTERRUPTED if await interrupts.cut(act) else code


async def _check(facts: Sequence[Fact], session: str) -> int:
    checked = await check_log(facts, session)
    for line in checked.lines():
        print(printable(line))
    return DONE if checked.is_same else FAILED


# ------------------------------------------------------------------------------------------- telling


async def _tell(facts: Sequence[Fact], speed: float | None, json: bool) -> int:
    """Tell what happened as ``run`` does while it happens.  A checkpoint if it pauses."""
    tally = Tally()
    view = JsonLines() if json else Talk(tally, live=False)
    queued: dict[str, Message] = {}
    before: Fact | None = None
    for fact in facts:
        if speed is not None and before is not None and _same_clock(before, fact):
            await trio.sleep(max(0.0, fact.time - before.time) / speed)
        before = fact
        if isinstance(fact, MessageQueued):
            queued[fact.id] = fact.message
        tally.see(fact)
        view.see(fact)
        if not json:
            _tell_frame(fact, queued)
    return DONE


def _same_clock(before: Fact, fact: Fact) -> bool:
    """Whether the two times can be compared: each process has a clock of its own."""
    return before.run_id == fact.run_id and before.place.journal == fact.place.journal


def _tell_frame(fact: Fact, queued: dict[str, Message]) -> None:
    """What is not told while a session runs, since whoever runs it knows: what was said to it, and how runs ended."""
    match fact:
        case AgentStart():
            said = [*(queued[each] for each in fact.delivered if each in queued), *fact.messages]
        case MessageDelivered():
            said = [queued[fact.id]] if fact.id in queued else []
        case AgentEnd():
            if fact.error is not None:
                note(f"error {fact.error.code}: {printable(fact.error.message)}")
            elif fact.reason != "stop":
                note(f"the run did not stop by itself: {fact.reason}")
            return
        case _:
            return
    for message in said:
        if message.role == "user":
            note(f"> {printable(message.text)}")
