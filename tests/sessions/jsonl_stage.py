"""What the tests of the JSONL store share: facts, a folder with one session in it, its bytes, programs of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from trio_agent import Fact, SessionStore, write_fact
from trio_agent.sessions import JSONLStore, TornTail
from trio_agent.testing._contracts._logbook import notes

__all__ = ["LIMIT", "ROOT", "Heard", "child", "files_in", "fill", "line", "log_of", "notes", "opened", "texts"]

ROOT = Path(__file__).parents[2]
LIMIT = 60
"""Seconds after which something hangs."""


class Heard(list[TornTail]):
    """The torn tails that a store has told of."""

    def __call__(self, tail: TornTail) -> None:
        self.append(tail)


def opened(folder: Path, **options: Any) -> JSONLStore:
    """A store without threads; torn tails are an error unless somebody listens."""

    def never(tail: TornTail) -> None:
        raise AssertionError(str(tail))

    options.setdefault("durability", "process")
    return JSONLStore(folder, inline=True, **{"on_torn_tail": never, **options})


def texts(facts: Sequence[Fact]) -> list[str]:
    return [write_fact(fact) for fact in facts]


async def log_of(store: SessionStore, session: str = "s", after: int = 0) -> list[str]:
    return texts(await store.read(session, after=after))


async def fill(store: SessionStore, session: str = "s", count: int = 3) -> int:
    """Append some notes; the head."""
    head = await store.head(session)
    return await store.append(session, notes(head + 1, count), expected_head=head)


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file in the folder, byte for byte."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@contextmanager
def child(role: str, folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A program; whatever happens, it does not outlive the block."""
    command = [sys.executable, "-m", "tests.sessions.jsonl_child", role, str(folder), *words]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    """What it tells next; empty if it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def run(main: Any) -> Any:
    """In a Trio run of its own."""

    async def limited() -> Any:
        with trio.fail_after(LIMIT):
            return await main()

    return trio.run(limited)
