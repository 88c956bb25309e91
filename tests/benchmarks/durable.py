"""W6, a durable turn over SQLite, beside what the disk takes for the least that could be written of it.

Both sides write the same rows, in the same transactions, to files in one folder; a turn of one call is one transaction.
"""

from __future__ import annotations

import gc
import sqlite3
import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

import attrs

from trio_agent import Agent, Fact, write_fact
from trio_agent.sessions import SQLiteStore

from . import kernel
from .script import CURSOR, FINAL, Ran, loop

Durability = Literal["power", "process"]
Batches = Sequence[Sequence[str]]
"""What each transaction writes."""

SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}


@attrs.frozen
class Spent:
    """Microseconds a turn: on the wall's clock, and of CPU time in all threads."""

    wall: float
    cpu: float


@attrs.frozen
class Durable:
    """The medians of some rounds."""

    turns: int
    ours: Spent
    """A turn."""
    commit: float
    """Microseconds on the wall's clock that a bare commit of a turn's rows takes."""
    ratio: float
    """Of a turn to that commit, on the wall's clock: the median of the rounds' ratios."""


class Kept:
    """A store that remembers in which transactions it was written."""

    def __init__(self, store: SQLiteStore) -> None:
        self.read, self.head, self.list = store.read, store.head, store.list
        self.delete, self.fork = store.delete, store.fork
        self._append = store.append
        self.facts: list[Sequence[Fact]] = []

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        self.facts.append(facts)
        return await self._append(session, facts, expected_head=expected_head)


async def _ours(path: Path, durability: Durability, turns: int) -> tuple[Spent, Batches]:
    """A run of so many turns of one ``once`` call, with nobody looking."""
    async with SQLiteStore(path, durability=durability) as store:
        kept = Kept(store)
        agent = kernel.AGENT.replace(store=kept)
        gc.collect()
        CURSOR.set(iter(loop(turns)))
        Ran.count = 0
        spent = await _timed_run(agent, turns)
    return spent, [[write_fact(fact) for fact in facts] for facts in kept.facts]


async def _timed_run(agent: Agent, turns: int) -> Spent:
    wall, cpu = time.perf_counter(), time.process_time()
    result = await agent.send("go", session="s")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    if FINAL not in result.text or Ran.count != turns:
        raise RuntimeError(f"the run did not do its work: {result.error or result.text!r:.80}, {Ran.count} calls")
    return Spent(wall / turns * 1e6, cpu / turns * 1e6)


def _bare(path: Path, durability: Durability, batches: Batches) -> float:
    """Microseconds a commit of the same rows in the same transactions, by SQLite alone and in this thread."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        db.execute("CREATE TABLE facts (seq INTEGER PRIMARY KEY, fact TEXT NOT NULL)")
        gc.collect()
        began = time.perf_counter()
        for batch in batches:
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO facts (fact) VALUES (?)", [(text,) for text in batch])
            db.execute("COMMIT")
        return (time.perf_counter() - began) / len(batches) * 1e6


async def durable(folder: Path, durability: Durability, turns: int, rounds: int) -> Durable:
    """Rounds of both sides, interleaved; each in a new file."""
    await _ours(folder / f"{durability}-{turns}-warm.db", durability, 10)
    pairs: list[tuple[Spent, float]] = []
    for number in range(rounds):
        name = f"{durability}-{turns}-{number}"
        ours, batches = await _ours(folder / f"{name}.db", durability, turns)
        pairs.append((ours, _bare(folder / f"{name}-bare.db", durability, batches)))
    return Durable(
        turns,
        Spent(statistics.median(ours.wall for ours, _ in pairs), statistics.median(ours.cpu for ours, _ in pairs)),
        statistics.median(commit for _, commit in pairs),
        statistics.median(ours.wall / commit for ours, commit in pairs),
    )
