"""A store in memory: it outlives its sessions, and dies with the program.

Knows nothing of files, threads or formats: facts are kept as they are.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import attrs
import trio

from .._errors import SessionConflict
from .._facts import Fact
from .._ports import SessionInfo
from .._written import write_fact

__all__ = ["MemoryStore"]


@attrs.define(eq=False)
class _Log:
    facts: list[Fact] = attrs.field(factory=list[Fact])
    updated: float = 0.0
    number: int = 0
    """Of its latest append among all of the store: clocks are too coarse for an order."""


@attrs.define(eq=False)
class MemoryStore:
    """A :class:`~trio_agent.SessionStore` in memory, for tests and for programs that need no disk."""

    _logs: dict[str, _Log] = attrs.field(init=False, factory=dict[str, _Log])
    _appends: int = attrs.field(init=False, default=0)

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """Write ``facts`` after ``expected_head``: see :class:`~trio_agent.SessionStore`.  A checkpoint.

        Raises:
          SessionConflict: someone else wrote meanwhile.  Nothing was written.
        """
        await trio.lowlevel.checkpoint()
        log = self._logs.get(session)
        there = [] if log is None else log.facts
        known = len(there) - expected_head
        if expected_head < 0 or not 0 <= known <= len(facts):
            raise SessionConflict(f"session {session!r}: expected the head {expected_head}, it is {len(there)}")
        if any(write_fact(a) != write_fact(b) for a, b in zip(there[expected_head:], facts, strict=False)):
            raise SessionConflict(f"session {session!r}: expected the head {expected_head}, it is {len(there)}")
        if len(facts) > known:
            self._write(session, facts[known:])
        return expected_head + len(facts)

    def _write(self, session: str, facts: Sequence[Fact]) -> None:
        log = self._logs.setdefault(session, _Log())
        self._appends += 1
        log.number, log.updated = self._appends, time.time()
        log.facts.extend(facts)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        """The facts after position ``after``, in order.  A checkpoint."""
        await trio.lowlevel.checkpoint()
        log = self._logs.get(session)
        return () if log is None else tuple(log.facts[after : None if limit is None else after + limit])

    async def head(self, session: str) -> int:
        """The position of the last fact; 0 for an unknown session.  A checkpoint."""
        await trio.lowlevel.checkpoint()
        log = self._logs.get(session)
        return 0 if log is None else len(log.facts)

    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the one written to last first.  A checkpoint."""
        await trio.lowlevel.checkpoint()
        newest = sorted(self._logs.items(), key=lambda item: -item[1].number)
        return tuple(SessionInfo(session, len(log.facts), log.updated) for session, log in newest)

    async def delete(self, session: str) -> bool:
        """Forget a session.  A checkpoint.  Returns whether there was one."""
        await trio.lowlevel.checkpoint()
        return self._logs.pop(session, None) is not None

    async def fork(self, session: str, to: str, *, at: int) -> None:
        """Begin the session ``to`` with the first ``at`` facts of ``session``.  A checkpoint.

        Raises:
          SessionConflict: ``to`` has facts already.
          ValueError: ``session`` has fewer facts than ``at``, or ``at`` is less than 1.
        """
        await trio.lowlevel.checkpoint()
        log = self._logs.get(session)
        head = 0 if log is None else len(log.facts)
        if log is None or not 1 <= at <= head:
            raise ValueError(f"session {session!r} has {head} facts; expected at to be between 1 and that, got {at}")
        if to in self._logs:
            raise SessionConflict(f"session {to!r} has facts already; a fork begins a new session")
        self._write(to, log.facts[:at])
