"""What the tests of the SQLite store share: small facts, a file looked at from outside, its bytes."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import trio

from trio_agent import Custom, Fact, SessionStore, write_fact
from trio_agent._facts import Place, stamp

REAL = 60
"""Seconds on the real clock; nothing waits for it."""


def notes(first: int, count: int, mark: str = "", size: int = 0) -> list[Fact]:
    """``count`` facts from position ``first`` on, with ``size`` characters more than a small one has."""
    facts: list[Fact] = []
    for seq in range(first, first + count):
        fact = Custom("note", {"number": seq, "mark": mark, "text": "x" * size})
        stamp(fact, seq, 1.5 * seq, Place("r1", 1, journal="j1"))
        facts.append(fact)
    return facts


def texts(facts: Sequence[Fact]) -> list[str]:
    return [write_fact(fact) for fact in facts]


async def log_of(store: SessionStore, session: str = "s", after: int = 0) -> list[str]:
    return texts(await store.read(session, after=after))


async def fill(store: SessionStore, session: str = "s", batches: int = 1, size: int = 0, each: int = 3) -> int:
    """Append some batches of three; the head."""
    head = await store.head(session)
    for _ in range(batches):
        head = await store.append(session, notes(head + 1, each, session, size), expected_head=head)
    return head


@contextmanager
def outside(path: Path) -> Iterator[sqlite3.Connection]:
    """The file as another program sees it, which waits for nothing."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0, check_same_thread=False)) as db:
        yield db


def change(path: Path, *statements: str) -> None:
    with outside(path) as db:
        for statement in statements:
            db.execute(statement)


def folder_of(path: Path) -> dict[str, bytes]:
    """Every file in the folder of ``path``, byte for byte."""
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


async def until_blocked() -> None:
    """Let every other task go as far as it can without a thread or a clock."""
    await trio.testing.wait_all_tasks_blocked()
