"""A store in memory, of small methods each of which can be got wrong; and what its contract says of one that is."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import trio

from trio_agent import Fact, SessionConflict, write_fact
from trio_agent._ports import SessionInfo
from trio_agent.testing._contracts._store import store_contract


class Plain:
    """Logs in memory; what subclasses do wrong stands in one of the small methods."""

    def __init__(self) -> None:
        self.logs: defaultdict[str, list[Fact]] = defaultdict(list)
        self.order: list[str] = []
        """The sessions, the one written to last at the end."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.lowlevel.checkpoint()
        log = self.logs[self.key(session)]
        new = self.check(log, facts, expected_head)
        if new:
            await self.write(log, new)
            self.touch(session)
        return expected_head + len(facts)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        await trio.lowlevel.checkpoint()
        return self.logs[self.key(session)][after:][:limit]

    async def head(self, session: str) -> int:
        await trio.lowlevel.checkpoint()
        return len(self.logs[self.key(session)])

    async def list(self) -> Sequence[SessionInfo]:
        await trio.lowlevel.checkpoint()
        return [self.info(session, len(self.logs[session])) for session in self.order[::-1]]

    async def delete(self, session: str) -> bool:
        await trio.lowlevel.checkpoint()
        return self.drop(session)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await trio.lowlevel.checkpoint()
        log = self.logs[self.key(session)]
        self.check_at(log, at)
        self.check_new(to)
        self.logs[self.key(to)] = await self.copy(log, at)
        self.touch(to)

    # --- what may be got wrong ---

    def key(self, session: str) -> str:
        return session

    def check(self, log: list[Fact], facts: Sequence[Fact], expected_head: int) -> Sequence[Fact]:
        """Those that are new."""
        known = len(log) - expected_head
        conflict = SessionConflict(f"expected the head {expected_head}, it is {len(log)}")
        if expected_head < 0 or not 0 <= known <= len(facts):
            raise conflict
        if not all(self.same(a, b) for a, b in zip(log[expected_head:], facts, strict=False)):
            raise conflict
        return facts[known:]

    def same(self, there: Fact, given: Fact) -> bool:
        return write_fact(there) == write_fact(given)

    async def write(self, log: list[Fact], facts: Sequence[Fact]) -> None:
        log.extend(facts)

    def touch(self, session: str) -> None:
        key = self.key(session)
        self.order = [*(name for name in self.order if name != key), key]

    def info(self, session: str, head: int) -> SessionInfo:
        # All were written to in the same second, as far as anybody can tell.
        return SessionInfo(session, head, float(int(time.time())))

    def drop(self, session: str) -> bool:
        key = self.key(session)
        there = bool(self.logs.pop(key, []))
        self.order = [name for name in self.order if name != key]
        return there

    def check_at(self, log: list[Fact], at: int) -> None:
        if not 1 <= at <= len(log):
            raise ValueError(f"expected at to be between 1 and {len(log)}, got {at}")

    def check_new(self, to: str) -> None:
        if self.logs[self.key(to)]:
            raise SessionConflict(f"session {to!r} has facts already")

    async def copy(self, log: list[Fact], at: int) -> list[Fact]:
        return log[:at]


def convicted(make: Callable[[], object]) -> set[str]:
    """The names of the cases that fail."""
    failed: set[str] = set()
    for case in store_contract(make):  # type: ignore[arg-type]
        try:
            case()
        except Exception:
            failed.add(case.name)
    return failed
