"""Stores that tests build on: one in memory that has one log, and one that hands everything on to another.

Knows nothing of what makes a store slow or fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from trio_agent import Fact, SessionInfo, SessionStore
from trio_agent.sessions import MemoryStore

_THE_LOG: Final = "the log"


@attrs.define(eq=False)
class OneLog(MemoryStore):
    """Has one log, whatever its session is called: ``facts``, which may be given, read and set."""

    _given: Iterable[Fact] = attrs.field(default=(), alias="facts")

    def __attrs_post_init__(self) -> None:
        self.facts = list(self._given)

    @property
    def facts(self) -> list[Fact]:
        log = self._logs.get(_THE_LOG)
        return [] if log is None else list(log.facts)

    @facts.setter
    def facts(self, facts: Iterable[Fact]) -> None:
        self._logs.clear()
        if found := list(facts):
            self._write(_THE_LOG, found)

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        return await super().append(_THE_LOG, facts, expected_head=expected_head)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await super().read(_THE_LOG, after=after, limit=limit)

    async def head(self, session: str) -> int:
        return await super().head(_THE_LOG)

    async def delete(self, session: str) -> bool:
        return await super().delete(_THE_LOG)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await super().fork(_THE_LOG, _THE_LOG, at=at)


@attrs.define(eq=False)
class Passing:
    """A store that hands everything on to the one behind it."""

    behind: SessionStore

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        return await self.behind.append(session, facts, expected_head=expected_head)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await self.behind.read(session, after=after, limit=limit)

    async def head(self, session: str) -> int:
        return await self.behind.head(session)

    async def list(self) -> Sequence[SessionInfo]:
        return await self.behind.list()

    async def delete(self, session: str) -> bool:
        return await self.behind.delete(session)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await self.behind.fork(session, to, at=at)
