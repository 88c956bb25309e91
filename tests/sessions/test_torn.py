"""The files of a session are cut in the middle of a record, opened again, and the session prompted or resumed.

By default at every edge and at some bytes between; ``TRIO_AGENT_TORN_STEP=1`` cuts a file of JSON lines at every byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs
import pytest
import trio

from tests.testing.conversed import conversed
from trio_agent import Fact, SessionStore, write_fact
from trio_agent.sessions import JSONLStore, SQLiteStore
from trio_agent.testing import CRASH_LAWS, Plan, SessionWorld
from trio_agent.testing._trial import run_trial

STEP = int(os.environ.get("TRIO_AGENT_TORN_STEP", "41"))
"""Bytes between two cuts."""
FRAME = 24 + 4_096
"""Bytes of a page in a write-ahead log of SQLite's, whose header has 32."""


@attrs.define(eq=False)
class Measured:
    """A store, and how long its file was when it had taken how many facts."""

    inner: SessionStore
    file: Path
    taken: dict[int, int] = attrs.field(factory=dict)
    """By length: the head of the session that the file is about."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        head = await self.inner.append(session, facts, expected_head=expected_head)
        if session == "explored":
            self.taken[self.file.stat().st_size] = head
        return head

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await self.inner.read(session, after=after, limit=limit)

    async def head(self, session: str) -> int:
        return await self.inner.head(session)

    async def list(self) -> Sequence[object]:
        return await self.inner.list()

    async def delete(self, session: str) -> bool:
        return await self.inner.delete(session)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await self.inner.fork(session, to, at=at)

    def acknowledged(self, size: int) -> int:
        """How many facts an append had returned for when the file was so long."""
        return max((head for length, head in self.taken.items() if length <= size), default=0)


def played(store: Measured) -> list[str]:
    """Play the session; its log."""
    world = conversed(store=store)
    assert run_trial(world, SessionWorld.play, Plan()).error is None
    assert [each.result.stop_reason for each in world.runs] == ["suspended", "stop", "stop"]
    return [write_fact(fact) for fact in world.log]


def recovered(make_store: Callable[[], SessionStore], *, resume: bool) -> list[str]:
    """What has survived, in its written form, after a recovery that keeps every law."""
    world = conversed(store=make_store())
    world.survived = tuple(trio.run(lambda: make_store().read("explored")))
    scenario = SessionWorld.go_on if resume else SessionWorld.recover
    trial = run_trial(world, scenario, Plan(crash=len(world.survived), resume=resume))
    for law in CRASH_LAWS:
        law(trial)
    return [write_fact(fact) for fact in world.survived]


def cuts(size: int, edges: Sequence[int], step: int) -> Iterator[tuple[int, bool]]:
    """Where to cut, and whether to resume: both at the edges, the one or the other between them."""
    for edge in edges:
        yield edge, False
        yield edge, True
    for number, cut in enumerate(range(1, size, step)):
        if cut not in edges:
            yield cut, bool(number % 2)


def test_a_file_of_lines_may_end_at_any_byte(tmp_path: Path) -> None:
    file = tmp_path / "whole" / "explored.jsonl"
    store = Measured(JSONLStore(file.parent, durability="process", inline=True), file)
    log = played(store)
    whole = file.read_bytes()
    edges = [number + 1 for number, byte in enumerate(whole) if byte == ord("\n")]
    assert len(edges) == len(log) + 1
    seen = set[int]()
    for number, (cut, resume) in enumerate(cuts(len(whole), edges, STEP)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / file.name).write_bytes(whole[:cut])

        def make_store(folder: Path = folder) -> SessionStore:
            return JSONLStore(folder, durability="process", on_torn_tail=lambda _: None, inline=True)

        survived = recovered(make_store, resume=resume)
        assert survived == log[: len(survived)]
        assert len(survived) >= store.acknowledged(cut)
        seen.add(len(survived))
        shutil.rmtree(folder)
    assert seen == set(range(len(log) + 1))


def test_a_write_ahead_log_may_end_at_any_byte(tmp_path: Path) -> None:
    file = tmp_path / "whole.db"
    wal = tmp_path / "whole.db-wal"
    store = Measured(SQLiteStore(file, durability="process", inline=True), wal)
    log = played(store)
    database, whole = file.read_bytes(), wal.read_bytes()  # the store is still open: nothing was moved to the database
    edges = list(range(32, len(whole) + 1, FRAME))
    assert set(store.taken) <= set(edges)
    seen = set[int]()
    for number, (cut, resume) in enumerate(cuts(len(whole), edges, STEP * 61)):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cut.db").write_bytes(database)
        (folder / "cut.db-wal").write_bytes(whole[:cut])

        def make_store(folder: Path = folder) -> SessionStore:
            return SQLiteStore(folder / "cut.db", durability="process", inline=True)

        survived = recovered(make_store, resume=resume)
        assert survived == log[: len(survived)]
        assert len(survived) == store.acknowledged(cut), "a commit is there or not"
        seen.add(len(survived))
        shutil.rmtree(folder)
    assert seen == {0, *store.taken.values()}


@pytest.mark.parametrize("resume", [False, True])
def test_a_record_that_was_not_written_to_its_end_is_told(resume: bool, tmp_path: Path) -> None:
    file = tmp_path / "explored.jsonl"
    log = played(Measured(JSONLStore(tmp_path, durability="process", inline=True), file))
    whole = file.read_bytes()
    file.write_bytes(whole[:-7])
    told: list[str] = []

    def make_store() -> SessionStore:
        return JSONLStore(tmp_path, durability="process", on_torn_tail=lambda tail: told.append(str(tail)), inline=True)

    assert recovered(make_store, resume=resume) == log[:-1]
    assert "a record was not written to its end" in told[0]
    assert "explored.jsonl.torn" in told[-1]
