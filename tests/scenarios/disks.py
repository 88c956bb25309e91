"""Where the sessions of the scenarios are kept: a disk that one process after the other opens, or several at once.

Knows nothing of what a scenario is about, nor of what processes do.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import TypeAlias

import attrs
import trio

from tests.one_log import Passing
from trio_agent import Fact, SessionStore, read_fact, write_fact
from trio_agent.sessions import JSONLStore, MemoryStore, SQLiteStore
from trio_agent.testing import check_order

__all__ = ["KINDS", "SESSION", "Disk", "Passing", "Slow", "texts"]

KINDS = ["memory", "sqlite", "jsonl"]

SESSION = "s"

_Closing: TypeAlias = SQLiteStore | JSONLStore


class _Shared(MemoryStore):
    """Logs in memory that several stores have, as several processes have a disk: each reads what was written."""

    def __init__(self, other: MemoryStore) -> None:
        super().__init__()
        self._logs = other._logs

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return [read_fact(write_fact(fact)) for fact in await super().read(session, after=after, limit=limit)]


@attrs.define(eq=False)
class Disk:
    """One place for logs, of one kind of store."""

    kind: str
    folder: Path
    _memory: MemoryStore = attrs.field(init=False, factory=MemoryStore)
    _opened: list[_Closing] = attrs.field(init=False, factory=list)

    def open(self) -> SessionStore:
        """Another store on what is there, as another process would have it; :meth:`aclose` closes it."""
        if self.kind == "memory":
            return _Shared(self._memory)
        if self.kind == "sqlite":
            store: _Closing = SQLiteStore(self.folder / "sessions.db", durability="process", inline=True)
        else:
            store = JSONLStore(self.folder / "sessions", durability="process", inline=True)
        self._opened.append(store)
        return store

    async def aclose(self) -> None:
        """Close all that was opened."""
        while self._opened:
            await self._opened.pop().aclose()

    @contextlib.asynccontextmanager
    async def store(self) -> AsyncGenerator[SessionStore]:
        """One more store, for a moment."""
        store = self.open()
        try:
            yield store
        finally:
            with trio.CancelScope(shield=True):
                if isinstance(store, SQLiteStore | JSONLStore):
                    self._opened.remove(store)
                    await store.aclose()

    async def facts(self, session: str = SESSION) -> list[Fact]:
        """What is there now."""
        async with self.store() as store:
            return list(await store.read(session))

    async def crashed(self, facts: Sequence[Fact], session: str) -> None:
        """Have these facts there as ``session``: what a crash has left of another one."""
        async with self.store() as store:
            await store.append(session, facts, expected_head=0)

    async def log(self, session: str = SESSION) -> list[Fact]:
        """What is there now, and stands in the promised order: every run has ended."""
        facts = await self.facts(session)
        check_order(facts, facts_only=True, session=True)
        return facts


def texts(facts: Sequence[Fact]) -> list[str]:
    """Facts in their written form, by which the same fact is known again."""
    return [write_fact(fact) for fact in facts]


@attrs.define(eq=False)
class Slow(Passing):
    """A store that takes its time for each append."""

    delay: float

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.sleep(self.delay)
        return await self.behind.append(session, facts, expected_head=expected_head)
