"""Several programs on one file, programs that are killed, and systems that refuse: what was acknowledged is there."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from tests.sessions.sqlite_stage import REAL, fill, log_of, notes, outside, texts
from trio_agent import SessionConflict, SessionStore
from trio_agent.sessions import SQLiteStore

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its programs are killed and restricted otherwise")

ROOT = Path(__file__).parents[2]


@contextmanager
def child(role: str, path: Path, name: str = "") -> Iterator[subprocess.Popen[str]]:
    """A program; whatever happens, it does not outlive the block."""
    command = [sys.executable, "-m", "tests.sessions.sqlite_child", role, str(path), name]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def lines(role: str, path: Path) -> list[str]:
    """All that a program tells."""
    with child(role, path) as process:
        told, _ = process.communicate(timeout=REAL)
        assert process.returncode == 0
    return told.splitlines()


async def whole(store: SessionStore, session: str, mark: str, size: int = 0) -> int:
    """See that the log has every position, and what belongs there; its head."""
    log = await store.read(session)
    assert texts(log) == texts(notes(1, len(log), mark, size))
    return len(log)


# --- several programs -------------------------------------------------------------------------------------------------


def test_programs_that_open_a_new_file_at_once_share_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    names = ["a", "b", "c", "d"]
    with child("compete", path, "a") as a, child("compete", path, "b") as b:
        with child("compete", path, "c") as c, child("compete", path, "d") as d:
            programs = [a, b, c, d]
            assert [line(each) for each in programs] == ["ready"] * 4
            for each in programs:
                go(each)
            assert [line(each).split()[0] for each in programs] == ["done"] * 4
            assert [each.wait(REAL) for each in programs] == [0] * 4

    async def look() -> None:
        async with SQLiteStore(path) as store:
            await store.check()
            assert [await whole(store, name, name) for name in names] == [60] * 4
            assert {each.session for each in await store.list()} == {*names, "all"}
            shared = await store.read("all")
            assert [fact.seq for fact in shared] == list(range(1, 81))
            assert Counter(fact.data["mark"] for fact in shared if fact.kind == "custom") == dict.fromkeys(names, 20)

    trio.run(look)


def test_a_writer_that_has_not_seen_another_programs_facts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with child("once", path, "first") as first, child("once", path, "second") as second:
        assert [line(first), line(second)] == ["ready"] * 2
        go(first)
        assert line(first) == "2"
        go(second)
        assert line(second) == f"SESSION_CONFLICT: session 's' in {path}: expected the head 0, it is 2"
        assert [first.wait(REAL), second.wait(REAL)] == [0, 0]


async def test_stores_in_one_program_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    conflicts = 0
    waiting = 3
    all_have_read = trio.Event()

    async def write(store: SQLiteStore, name: str) -> None:
        nonlocal conflicts, waiting
        for _ in range(10):
            await fill(store, name)
            while True:
                head = await store.head("all")
                waiting -= 1
                if not waiting:
                    all_have_read.set()
                await all_have_read.wait()  # so that of the first three appends two are stale
                try:
                    await store.append("all", notes(head + 1, 1, name), expected_head=head)
                    break
                except SessionConflict:
                    conflicts += 1
        await store.aclose()

    with trio.fail_after(REAL):
        async with trio.open_nursery() as nursery:
            for name in ("a", "b", "c"):
                nursery.start_soon(write, SQLiteStore(path, durability="process", busy_timeout=REAL), name)
        async with SQLiteStore(path) as store:
            assert [await whole(store, name, name) for name in ("a", "b", "c")] == [30] * 3
            assert [fact.seq for fact in await store.read("all")] == list(range(1, 31))
            await store.check()
    assert conflicts >= 2


# --- killed -----------------------------------------------------------------------------------------------------------


def test_of_a_program_that_is_killed_every_acknowledged_fact_is_there(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    rng = random.Random(4)
    acknowledged: Counter[str] = Counter()

    async def look() -> None:
        async with SQLiteStore(path) as store:
            await store.check()
            for session, head in acknowledged.items():
                assert await whole(store, session, session, 300) >= head
                assert await store.head(session) >= head

    for _ in range(5):
        with child("append", path) as process:
            told = [line(process) for _ in range(rng.randrange(5, 60))]
            process.kill()
            assert process.stdout is not None
            told += process.stdout.read().splitlines()
        for session, head in map(str.split, told):
            assert int(head) > acknowledged[session]
            acknowledged[session] = int(head)
        trio.run(look)
    assert len(acknowledged) == 3


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory, where there is such a thing: the disk's own pace is not the point."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield Path(name)


def test_what_was_written_ahead_and_is_torn_anywhere_is_a_prefix_of_the_commits(quick: Path) -> None:
    """As after the machine has lost its power: the last writes are there, in part, or not."""
    path, copy = quick / "s.db", quick / "copy.db"
    wal, torn = quick / "s.db-wal", quick / "copy.db-wal"
    expected = texts(notes(1, 12, "s", 900))
    lengths: set[int] = set()

    async def reopened(content: bytes, heads: set[int]) -> None:
        shutil.copy(path, copy)
        torn.write_bytes(content)
        async with SQLiteStore(copy, durability="process", inline=True) as store:
            found = await log_of(store)
            assert found == expected[: len(found)]
            assert len(found) in heads
            lengths.add(len(found))
            await store.check()
            assert await fill(store, size=900) == len(found) + 3

    async def main() -> None:
        ends = [0]
        async with SQLiteStore(path, durability="process", inline=True) as store:
            for _ in range(4):
                await fill(store, size=900)
                ends.append(wal.stat().st_size)
            data = wal.read_bytes()
            assert ends == sorted({*ends})
            assert len(data) == ends[-1]
            last = ends[-2]
            frames = range(32, len(data) + 1, 24 + 4096)
            edges = {cut for end in (*frames, *ends) for cut in range(end - 1, end + 2) if 0 <= cut <= len(data)}
            for cut in sorted({*range(last, len(data), 37), *range(0, last, 1_009), *edges}):
                whole_commits = sum(end <= cut for end in ends[1:])
                await reopened(data[:cut], {3 * whole_commits})
            assert lengths == {0, 3, 6, 9, 12}
            rng = random.Random(0)
            for _ in range(60):  # a sector that was never written, or written wrongly
                at = rng.randrange(32, len(data))
                commits = sum(end <= at for end in ends[1:])
                await reopened(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :], {3 * commits})

    trio.run(main)


# --- refused by the system --------------------------------------------------------------------------------------------


def test_of_what_the_system_refuses_to_write_nothing_is_there_and_the_store_works_on(tmp_path: Path) -> None:
    told = lines("starve", tmp_path / "s.db")
    failed = (
        f"STORE_FAILED: {tmp_path / 's.db'}: the disk or the file system fails: disk I/O error (SQLITE_IOERR_WRITE)"
    )
    assert told == [failed, failed, "3", "53"]


@pytest.fixture
def public() -> Iterator[Path]:
    """A folder that every user may look into."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


@pytest.mark.parametrize("there", [False, True], ids=["new", "there"])
def test_a_folder_that_may_not_be_written_is_named(public: Path, there: bool) -> None:
    path = public / "s.db"
    if there:
        trio.run(made, path)
        path.chmod(0o666)
    public.chmod(0o555)
    before = {each.name: each.read_bytes() for each in public.iterdir()}
    told = lines("unprivileged", path)
    why = (
        "the file or its folder is read-only"
        if there
        else "the file, or one that SQLite keeps beside it, cannot be opened"
    )
    assert len(told) == 2
    for each in told:
        assert each.startswith(f"STORE_FAILED: {path}: {why}: ")
    assert {each.name: each.read_bytes() for each in public.iterdir()} == before


def test_a_file_that_may_not_be_written_is_named(public: Path) -> None:
    path = public / "s.db"
    trio.run(made, path)
    path.chmod(0o444)
    public.chmod(0o777)
    before = path.read_bytes()
    told = lines("unprivileged", path)
    assert len(told) == 2
    for each in told:
        assert each.startswith(f"STORE_FAILED: {path}: the file or its folder is read-only: ")
    assert path.read_bytes() == before


async def made(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await fill(store)
    with outside(path) as db:
        assert db.execute("SELECT count(*) FROM facts").fetchone() == (3,)
    assert os.listdir(path.parent) == ["s.db"]
