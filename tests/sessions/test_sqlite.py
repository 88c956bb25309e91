"""The SQLite store keeps the contract of stores, in a thread and without, closes its file, and says what it cannot do."""

from __future__ import annotations

import gc
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import trio
import trio.testing

from tests.sessions.sqlite_stage import REAL, fill, folder_of, log_of, notes, outside, texts
from trio_agent import ConfigError, Fact, SessionStore, StoreFailed
from trio_agent._ports import SessionInfo
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import Case, store_contract


@asynccontextmanager
async def fresh(inline: bool, durability: Literal["power", "process"] = "process") -> AsyncIterator[SessionStore]:
    with tempfile.TemporaryDirectory() as folder:
        async with SQLiteStore(Path(folder) / "s.db", durability=durability, inline=inline) as store:
            yield store


class Several:
    """Stores that take turns on one file, as several programs would."""

    def __init__(self, path: Path) -> None:
        self.stores = [SQLiteStore(path, durability="process", inline=True) for _ in range(3)]

    def next(self) -> SQLiteStore:
        self.stores.append(self.stores.pop(0))
        return self.stores[0]

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        return await self.next().append(session, facts, expected_head=expected_head)

    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        return await self.next().read(session, after=after, limit=limit)

    async def head(self, session: str) -> int:
        return await self.next().head(session)

    async def delete(self, session: str) -> bool:
        return await self.next().delete(session)

    async def fork(self, session: str, to: str, *, at: int) -> None:
        await self.next().fork(session, to, at=at)

    async def list(self) -> Sequence[SessionInfo]:
        return await self.next().list()


@asynccontextmanager
async def several() -> AsyncIterator[SessionStore]:
    with tempfile.TemporaryDirectory() as folder:
        shared = Several(Path(folder) / "s.db")
        try:
            yield shared
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + REAL):
                for store in shared.stores:
                    await store.check()
                    await store.aclose()


@pytest.mark.parametrize("case", store_contract(lambda: fresh(True)), ids=str)
def test_inline(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", store_contract(lambda: fresh(False), virtual=False), ids=str)
def test_in_a_thread(case: Case) -> None:
    case()


@pytest.mark.parametrize("case", store_contract(several), ids=str)
def test_several_stores_on_one_file(case: Case) -> None:
    case()


# --- what is kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_log_is_there_when_the_file_is_opened_again(
    tmp_path: Path, durability: Literal["power", "process"], inline: bool
) -> None:
    with trio.fail_after(REAL):
        for first in (1, 4):
            async with SQLiteStore(tmp_path / "s.db", durability=durability, inline=inline) as store:
                assert await store.append("s", notes(first, 3), expected_head=first - 1) == first + 2
        async with SQLiteStore(tmp_path / "s.db") as store:
            assert await log_of(store) == texts(notes(1, 6))
            await store.check()


async def test_the_list_tells_when_a_session_was_written_to(tmp_path: Path) -> None:
    with trio.fail_after(REAL):
        async with SQLiteStore(tmp_path / "s.db", inline=True) as store:
            before = time.time()
            await fill(store, "a")
            await fill(store, "b")
            after = time.time()
            await fill(store, "a")
            [first, second] = await store.list()
    assert (first.session, first.head, second.session, second.head) == ("a", 6, "b", 3)
    assert before <= second.updated <= after <= first.updated


async def test_the_order_of_the_list_does_not_hang_on_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([9.0, 8.0, 7.0, 7.0])
    monkeypatch.setattr("time.time", lambda: next(times))
    with trio.fail_after(REAL):
        async with SQLiteStore(tmp_path / "s.db", inline=True) as store:
            for name in ("a", "b", "c", "a"):
                await fill(store, name)
            assert [(each.session, each.updated) for each in await store.list()] == [("a", 7.0), ("c", 7.0), ("b", 8.0)]


@pytest.mark.parametrize(("durability", "synchronous"), [("power", 2), ("process", 1)])
async def test_durability_is_what_sqlite_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Literal["power", "process"], synchronous: int
) -> None:
    made = connections_of(monkeypatch)
    with trio.fail_after(REAL):
        async with SQLiteStore(tmp_path / "s.db", durability=durability) as store:
            await fill(store)
            [db] = made
            assert db.execute("PRAGMA synchronous").fetchone() == (synchronous,)
            assert db.execute("PRAGMA journal_mode").fetchone() == (b"wal",)


def connections_of(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    made: list[sqlite3.Connection] = []
    connect = sqlite3.connect

    def watched(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*args, **options))
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", watched)
    return made


async def test_positions_that_no_log_has_are_asked_for_in_vain(tmp_path: Path) -> None:
    with trio.fail_after(REAL):
        async with SQLiteStore(tmp_path / "s.db", inline=True) as store:
            await fill(store)
            assert await log_of(store, after=2**80) == []
            assert await log_of(store, after=-(2**80)) == texts(notes(1, 3, "s"))
            assert texts(await store.read("s", after=1, limit=2**80)) == texts(notes(2, 2, "s"))
            assert await store.read("s", limit=0) == ()
            for session, there in (("s", 3), ("new", 0)):
                for head in (-1, -(2**80), 2**80):
                    with pytest.raises(StoreFailed, match=f"expected the head {head}, it is {there}"):
                        await store.append(session, notes(1, 9, session), expected_head=head)
            assert await log_of(store) == texts(notes(1, 3, "s"))
            assert len(await store.list()) == 1


# --- opening and closing ----------------------------------------------------------------------------------------------

CALLS: dict[str, Callable[[SQLiteStore], Awaitable[object]]] = {
    "open": SQLiteStore.__aenter__,
    "append": lambda store: store.append("s", notes(1, 1), expected_head=0),
    "append nothing": lambda store: store.append("s", [], expected_head=0),
    "read": lambda store: store.read("s"),
    "head": lambda store: store.head("s"),
    "list": lambda store: store.list(),
    "delete": lambda store: store.delete("s"),
    "fork": lambda store: store.fork("s", "t", at=1),
    "check": lambda store: store.check(),
}


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("call", CALLS.values(), ids=list(CALLS))
async def test_after_closing_every_call_says_so(
    tmp_path: Path, call: Callable[[SQLiteStore], Awaitable[object]], inline: bool
) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        store = SQLiteStore(path, inline=inline)
        await store.aclose()
        assert not path.exists()
        with pytest.raises(StoreFailed, match=r"s\.db: the store is closed"):
            await call(store)
        await store.aclose()
    assert not path.exists()


@pytest.mark.parametrize("inline", [True, False])
async def test_a_store_opens_at_its_first_use(tmp_path: Path, inline: bool) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        store = SQLiteStore(str(path), inline=inline)
        assert not path.exists()
        assert await store.list() == ()
        assert path.exists()
        await store.aclose()
        async with SQLiteStore(path, inline=inline):
            assert path.with_name("s.db-shm").exists()
    assert [*folder_of(path)] == ["s.db"]


@pytest.mark.parametrize("inline", [True, False])
async def test_a_store_is_closed_although_its_task_is_cancelled(tmp_path: Path, inline: bool) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        store = SQLiteStore(path, inline=inline)
        await fill(store)
        with trio.CancelScope() as scope:
            scope.cancel()
            await store.aclose()
        assert scope.cancelled_caught
    assert [*folder_of(path)] == ["s.db"]


async def test_a_store_that_is_forgotten_leaves_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        store = SQLiteStore(path)
        await fill(store)
        assert "s.db-wal" in folder_of(path)
        del store
        while [*folder_of(path)] != ["s.db"]:  # the thread that worked last may hold it for a moment
            gc.collect()
            await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("inline", [True, False])
def test_a_store_serves_one_trio_run_after_another(tmp_path: Path, inline: bool) -> None:
    store = SQLiteStore(tmp_path / "s.db", inline=inline)
    for first in (1, 4):
        assert trio.run(partial(store.append, "s", notes(first, 3), expected_head=first - 1)) == first + 2
    trio.run(store.aclose)


async def test_a_store_refuses_a_second_trio_run_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        async with SQLiteStore(path, busy_timeout=REAL) as store, trio.open_nursery() as nursery:
            await fill(store)
            with outside(path) as other:
                other.execute("BEGIN IMMEDIATE")
                # An append and nothing before it: what works now works until the lock is gone.
                nursery.start_soon(partial(store.append, "s", notes(4, 3), expected_head=3))
                while not store._worker._working:  # type: ignore[attr-defined]
                    await trio.lowlevel.checkpoint()
                with pytest.raises(StoreFailed, match="in use by another Trio run"):
                    await trio.to_thread.run_sync(trio.run, partial(store.append, "t", notes(1, 1), expected_head=0))
                other.execute("ROLLBACK")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"path": ":memory:"}, "not in ':memory:'; for memory use MemoryStore"),
        ({"path": ""}, "not in ''"),
        ({"durability": "none"}, "expected durability to be one of power, process, got 'none'"),
        ({"busy_timeout": -1}, "expected busy_timeout to be between 0 and 86400 s, got -1"),
        ({"busy_timeout": float("inf")}, "got inf"),
        ({"busy_timeout": float("nan")}, "got nan"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint.replace("(", r"\(")):
        SQLiteStore(**{"path": "s.db", **options})


def test_a_store_says_which_file_is_its(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("s.db")
    assert repr(store) == f"SQLiteStore({str(tmp_path / 's.db')!r})"


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform == "win32", reason="Windows interrupts otherwise")
@pytest.mark.parametrize("queued", [False, True], ids=["running", "queued"])
def test_an_interrupt_takes_back_what_is_queued_and_waits_for_what_runs(tmp_path: Path, queued: bool) -> None:
    path = tmp_path / "s.db"
    store = SQLiteStore(path, busy_timeout=REAL)
    returned: list[int] = []

    @trio.lowlevel.enable_ki_protection  # the signal is for the main task
    async def interrupt(other: sqlite3.Connection) -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)
        signal.raise_signal(signal.SIGINT)
        try:
            for _ in range(5):
                await trio.lowlevel.checkpoint()
        finally:
            other.execute("ROLLBACK")

    async def main() -> None:
        with outside(path) as other, trio.fail_after(REAL):
            await fill(store, "t")
            async with trio.open_nursery() as nursery:
                other.execute("BEGIN IMMEDIATE")
                if queued:
                    nursery.start_soon(fill, store, "t")
                    await trio.testing.wait_all_tasks_blocked(0.01)
                nursery.start_soon(interrupt, other)
                returned.append(await store.append("s", notes(1, 2), expected_head=0))
                await trio.lowlevel.checkpoint()

    with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
        trio.run(main)
    assert returned == ([] if queued else [2])
    assert trio.run(store.head, "s") == len(returned) * 2
    assert trio.run(partial(store.append, "u", notes(1, 1), expected_head=0)) == 1
    trio.run(store.aclose)
