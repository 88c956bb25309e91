"""Whatever file is met, whole or not, ours or not: a clear error that names it, and nothing lost or changed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.sessions.sqlite_stage import REAL, change, fill, folder_of, log_of, notes, outside, texts, until_blocked
from trio_agent import SessionConflict, SessionCorrupt, StoreFailed
from trio_agent.sessions import SQLiteStore, _sqlite_file


async def made(path: Path, sessions: int = 1, batches: int = 1, size: int = 0) -> None:
    """A file of ours, closed."""
    async with SQLiteStore(path, durability="process", inline=True) as store:
        for _ in range(batches):
            for number in range(sessions):
                await fill(store, "s" if number == 0 else f"s{number}", size=size)


async def refused(path: Path, complaint: str) -> None:
    """It is refused by name, and nothing in its folder has changed."""
    before = folder_of(path)
    store = SQLiteStore(path, busy_timeout=0.05, inline=True)
    for _ in range(2):
        with pytest.raises(StoreFailed, match=complaint) as caught:
            await store.append("s", notes(1, 1), expected_head=0)
        assert str(path) in caught.value.message
        assert not isinstance(caught.value, SessionConflict | SessionCorrupt)
    await store.aclose()
    assert folder_of(path) == before


# --- whose it is ------------------------------------------------------------------------------------------------------


def foreign(path: Path, *statements: str) -> None:
    change(path, "CREATE TABLE things (thing)", "INSERT INTO things VALUES (1)", *statements)


def killed(path: Path, *statements: str) -> None:
    """As a program leaves it that was killed: what it has written ahead is in no table yet."""
    alive = path.with_name("alive.db")
    with outside(alive) as owner:
        for statement in statements:
            owner.execute(statement)
        for each in folder_of(alive):
            shutil.copy(alive.with_name(each), alive.with_name(each.replace("alive", "s")))
    alive.unlink()
    path.with_name("s.db-shm").unlink()
    assert path.with_name("s.db-wal").stat().st_size > 0


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a text": (lambda path: path.write_text("Dear diary,\n" * 100), "this is not a SQLite database"),
    "noise": (lambda path: path.write_bytes(bytes(range(256)) * 64), "this is not a SQLite database"),
    "a few bytes": (lambda path: path.write_bytes(b"SQLite format 3\0" + bytes(60)), "this is not a SQLite database"),
    "a folder": (lambda path: path.mkdir(), "Is a directory"),
    "tables": (foreign, "this database is another program's"),
    "an application": (lambda path: change(path, "PRAGMA application_id = 7"), "its application id is 0x7, not 0x7472"),
    "both": (lambda path: foreign(path, "PRAGMA application_id = 7"), "another program's"),
    "a killed program's": (
        lambda path: killed(path, "CREATE TABLE t (t)", "PRAGMA journal_mode = WAL", "INSERT INTO t VALUES (1)"),
        "another program's",
    ),
    "a newer one, killed": (
        lambda path: killed(
            path,
            f"PRAGMA application_id = {_sqlite_file.APPLICATION_ID}",
            "PRAGMA user_version = 9",
            "PRAGMA journal_mode = WAL",
            "CREATE TABLE sessions (session)",
        ),
        "its schema has version 9",
    ),
    "tables written ahead": (lambda path: foreign(path, "PRAGMA journal_mode = WAL"), "another program's"),
}


@pytest.mark.parametrize(("make", "complaint"), FOREIGN.values(), ids=list(FOREIGN))
async def test_a_foreign_file_is_refused_and_left_as_it_is(
    tmp_path: Path, make: Callable[[Path], object], complaint: str
) -> None:
    path = tmp_path / "s.db"
    make(path)
    with trio.fail_after(REAL):
        if path.is_dir():
            path.rmdir()
            (path / "inside").mkdir(parents=True)
            with pytest.raises(StoreFailed, match=complaint):
                await SQLiteStore(path, inline=True).head("s")
        else:
            await refused(path, complaint)


async def test_a_foreign_file_is_refused_while_its_owner_writes_to_it(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL), outside(path) as owner:
        for statement in ("PRAGMA journal_mode = WAL", "CREATE TABLE things (thing)"):
            owner.execute(statement)
        # What says whose it is stands in the write-ahead log alone.
        assert b"things" not in path.read_bytes()
        store = SQLiteStore(path, inline=True)
        with pytest.raises(StoreFailed, match="another program's"):
            await store.head("s")
        assert owner.execute("PRAGMA user_version").fetchone() == (0,)
        assert owner.execute("SELECT name FROM sqlite_master").fetchall() == [("things",)]


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: change(path, "VACUUM")])
async def test_an_empty_file_is_used(tmp_path: Path, make: Callable[[Path], object]) -> None:
    path = tmp_path / "s.db"
    make(path)
    with trio.fail_after(REAL):
        await made(path)
        async with SQLiteStore(path) as store:
            assert await log_of(store) == texts(notes(1, 3, "s"))


@pytest.mark.parametrize("path", ["missing/s.db", "a file/s.db", "s\0.db"])
async def test_a_folder_that_is_not_there_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "a file").touch()
    with trio.fail_after(REAL), pytest.raises(StoreFailed, match=r"there is no folder .*/(missing|a file);|null"):
        await SQLiteStore(tmp_path / path).list()
    assert [*folder_of(tmp_path / "a file")] == ["a file"]


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes this program one of a later version, or the present one again."""
    present = list(_sqlite_file._MIGRATIONS)
    later = [*present, ("ALTER TABLE sessions ADD COLUMN title TEXT", "CREATE TABLE titles (title)")]

    def become(newer: bool) -> None:
        monkeypatch.setattr(_sqlite_file, "_MIGRATIONS", later if newer else present)

    return become


async def test_a_newer_file_is_refused_and_left_as_it_is(tmp_path: Path, newer: Callable[[bool], None]) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        newer(True)
        await made(path)
        newer(False)
        await refused(path, "its schema has version 2; this version of the program knows 1")
        newer(True)
        async with SQLiteStore(path) as store:
            assert await log_of(store) == texts(notes(1, 3, "s"))


async def test_an_older_file_is_brought_to_this_version(tmp_path: Path, newer: Callable[[bool], None]) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path)
        newer(True)
        async with SQLiteStore(path) as store:
            assert await log_of(store) == texts(notes(1, 3, "s"))
            assert await fill(store) == 6
    with outside(path) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        assert db.execute("SELECT title FROM sessions").fetchall() == [(None,)]


async def test_a_migration_that_fails_has_changed_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path)
        before = path.read_bytes()
        with monkeypatch.context() as patch:
            broken = [*_sqlite_file._MIGRATIONS, ("DELETE FROM facts", "ALTER TABLE nowhere ADD COLUMN title")]
            patch.setattr(_sqlite_file, "_MIGRATIONS", broken)
            with pytest.raises(StoreFailed, match=r"s\.db: no such table: nowhere"):
                await SQLiteStore(path).head("s")
        assert path.read_bytes() == before
        async with SQLiteStore(path) as store:
            assert await log_of(store) == texts(notes(1, 3, "s"))


async def test_a_file_that_became_newer_while_it_was_open_is_left_alone(
    tmp_path: Path, newer: Callable[[bool], None]
) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        async with SQLiteStore(path) as old:
            head = await fill(old)
            newer(True)
            async with SQLiteStore(path) as new:
                newer(True)
                assert await new.head("s") == head
                newer(False)
                for call in (lambda: fill(old), lambda: old.read("s"), lambda: old.delete("s")):
                    with pytest.raises(StoreFailed, match="its schema has version 2"):
                        await call()
                newer(True)
                assert await log_of(new) == texts(notes(1, 3, "s"))
                assert await new.append("s", notes(4, 1), expected_head=3) == 4


# --- damage -----------------------------------------------------------------------------------------------------------

ROWS = {
    "half a record": ("""UPDATE facts SET fact = '{"v":1,' WHERE seq = 2""", "a record cannot be read"),
    "no UTF-8": ("UPDATE facts SET fact = CAST(x'22ff22' AS TEXT) WHERE seq = 2", "no ASCII"),
    "no text": ("UPDATE facts SET fact = x'00' WHERE seq = 2", "a record cannot be read"),
    "a number": ("UPDATE facts SET fact = 7 WHERE seq = 2", "a record cannot be read"),
}


@pytest.mark.parametrize(("statement", "complaint"), ROWS.values(), ids=list(ROWS))
async def test_a_record_that_cannot_be_read_is_named(tmp_path: Path, statement: str, complaint: str) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path)
        change(path, statement)
        async with SQLiteStore(path) as store:
            with pytest.raises(SessionCorrupt, match=rf"s\.db: session 's', position 2: .*{complaint}"):
                await store.read("s")
            assert texts(await store.read("s", limit=1)) == texts(notes(1, 1, "s"))
            assert await log_of(store, after=2) == texts(notes(3, 1, "s"))
            assert await fill(store) == 6


async def test_a_record_of_a_later_version_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path)
        change(path, """UPDATE facts SET fact = '{"v":99}' WHERE seq = 2""")
        async with SQLiteStore(path) as store:
            with pytest.raises(StoreFailed, match=r"s\.db: session 's', position 2: .*newer.* 99") as caught:
                await store.read("s")
            assert not isinstance(caught.value, SessionCorrupt)


GAPS = {
    "the first": ("DELETE FROM facts WHERE seq = 1", "position 1 is missing", "found 2 up to 3"),
    "in the middle": ("DELETE FROM facts WHERE seq = 2", "position 2 is missing", "found 2 up to 3"),
    "the last": ("DELETE FROM facts WHERE seq = 3", "position 3 is missing", "found 2 up to 2"),
    "all": ("DELETE FROM facts", "position 1 is missing", "found 0 up to 0"),
}


@pytest.mark.parametrize(("statement", "told", "found"), GAPS.values(), ids=list(GAPS))
async def test_a_gap_is_named(tmp_path: Path, statement: str, told: str, found: str) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path, sessions=2)
        change(path, f"{statement} {'AND' if 'WHERE' in statement else 'WHERE'} session = 1")
        async with SQLiteStore(path) as store:
            with pytest.raises(SessionCorrupt, match=rf"s\.db: session 's': {told}"):
                await store.read("s")
            with pytest.raises(SessionCorrupt, match=rf"session 's': expected 3 facts up to position 3, {found}$"):
                await store.check()
            with pytest.raises(SessionCorrupt, match=r"session 's': some of its first 3 facts are missing"):
                await store.fork("s", "t", at=3)
            assert await store.head("t") == 0
            assert await log_of(store, "s1") == texts(notes(1, 3, "s1"))


async def test_a_check_names_facts_that_belong_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path, sessions=2)
        change(path, "DELETE FROM sessions WHERE id = 1", "DELETE FROM facts WHERE session = 2 AND seq = 2")
        async with SQLiteStore(path) as store:
            with pytest.raises(SessionCorrupt, match=r"session 's1': .* \(and 1 more\)$"):
                await store.check()
            await store.delete("s1")
            with pytest.raises(SessionCorrupt, match="3 facts belong to a session that is not there"):
                await store.check()


async def test_a_damaged_name_or_head_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(path, sessions=2)
        change(path, "UPDATE sessions SET name = x'ff' WHERE id = 1", "UPDATE sessions SET head = 'x' WHERE id = 2")
        async with SQLiteStore(path) as store:
            with pytest.raises(SessionCorrupt, match=r"expected the name of a session, found b'\\xff'"):
                await store.list()
            with pytest.raises(SessionCorrupt, match="session 's1': expected its head to be a number, found b'x'"):
                await store.head("s1")


async def told_or_right(path: Path, sessions: int, logs: dict[str, list[str]]) -> list[StoreFailed]:
    """Ask for everything: what is told is right, and what is not told is an error that names the file."""
    complaints: list[StoreFailed] = []

    async def ask(call: Callable[[], Any]) -> object:
        try:
            return await call()
        except StoreFailed as error:
            complaints.append(error)
            return None

    store = SQLiteStore(path, durability="process", inline=True)
    for session, log in logs.items():
        assert await ask(partial(log_of, store, session)) in (None, log)
        assert await ask(partial(store.head, session)) in (None, len(log))
        await ask(partial(store.append, session, notes(len(log) + 1, 1), expected_head=len(log)))
    listed = await ask(store.list)
    assert listed is None or len(listed) == sessions  # type: ignore[arg-type]
    await ask(store.check)
    await store.aclose()
    assert all(str(path) in each.message and not isinstance(each, SessionConflict) for each in complaints)
    return complaints


async def test_every_page_is_overwritten_in_turn(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(whole, sessions=3, batches=6, size=400)
        async with SQLiteStore(whole, inline=True) as store:
            logs = {name: await log_of(store, name) for name in ("s", "s1", "s2")}
        data = whole.read_bytes()
        size = int.from_bytes(data[16:18], "big")
        pages = len(data) // size
        assert pages > 10
        for noise in (b"\xff" * size, bytes(size), data[size // 2 :][:size][::-1]):
            for page in range(pages):
                path.write_bytes(data[: page * size] + noise + data[(page + 1) * size :])
                assert await told_or_right(path, 3, logs), f"page {page}: nothing was noticed"
                for name in ("s.db-wal", "s.db-shm"):
                    assert not (tmp_path / name).exists()


async def test_damage_to_one_session_leaves_the_others_at_work(tmp_path: Path) -> None:
    """Also where their appends are committed together."""
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        async with SQLiteStore(path, inline=True) as store:
            for session in ("s", "t"):
                await fill(store, session, batches=10, size=1_000)
        data = path.read_bytes()
        at = data.index(b'"number":15,"mark":"s"') // 4096 * 4096
        path.write_bytes(data[:at] + b"\xff" * 4096 + data[at + 4096 :])
        async with SQLiteStore(path, busy_timeout=REAL) as store:
            with pytest.raises(SessionCorrupt, match=r"s\.db: the file is damaged: database disk image is malformed"):
                await store.read("s")
            with pytest.raises(SessionCorrupt, match=r"s\.db: "):
                await store.check()
            heads: dict[str, int | type[Exception]] = {}
            with outside(path) as other:
                other.execute("BEGIN IMMEDIATE")

                async def append(session: str, head: int) -> None:
                    try:
                        # What is known already is compared, and the page with it read.
                        heads[session] = await store.append(session, notes(head + 1, 60, session), expected_head=head)
                    except StoreFailed as error:
                        heads[session] = type(error)

                async with trio.open_nursery() as nursery:
                    for session, head in (("u", 0), ("t", 30), ("s", 3), ("v", 0)):
                        nursery.start_soon(append, session, head)
                        await until_blocked()
                    other.execute("ROLLBACK")
            assert heads == {"u": 60, "t": 90, "s": SessionCorrupt, "v": 60}
            assert len(await store.read("t")) == 90


async def test_a_file_that_was_cut_short_is_noticed(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.db", tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(whole, sessions=3, batches=3, size=400)
        async with SQLiteStore(whole, inline=True) as store:
            logs = {name: await log_of(store, name) for name in ("s", "s1", "s2")}
        data = whole.read_bytes()
        for length in {*range(1, len(data), 1009), *range(4096, len(data), 4096), 99, 100, 101, len(data) - 1}:
            path.write_bytes(data[:length])
            assert await told_or_right(path, 3, logs), f"cut at {length} of {len(data)}: nothing was noticed"


async def test_a_file_that_is_taken_away_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL):
        await made(tmp_path / "other.db", batches=3)
        store = SQLiteStore(path)
        await fill(store)
        path.rename(tmp_path / "away.db")
        for replaced in (False, True):
            if replaced:
                shutil.copy(tmp_path / "other.db", path)
            for call in (lambda: fill(store), lambda: store.read("s"), lambda: store.fork("s", "t", at=1)):
                with pytest.raises(StoreFailed, match=r"s\.db: the file was removed or replaced while it was in use"):
                    await call()
            assert path.exists() == replaced
        assert path.read_bytes() == (tmp_path / "other.db").read_bytes()
        (tmp_path / "away.db").rename(path)
        assert await fill(store) == 6
        await store.aclose()
        async with SQLiteStore(path) as store:
            assert await log_of(store) == texts([*notes(1, 3, "s"), *notes(4, 3, "s")])


# --- locks ------------------------------------------------------------------------------------------------------------


async def test_a_locked_file_is_waited_for_so_long_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    told: list[StoreFailed] = []
    with trio.fail_after(REAL), outside(path) as other:
        async with SQLiteStore(path, busy_timeout=0.05) as store:
            await fill(store)

            async def append(session: str) -> None:
                with pytest.raises(StoreFailed, match=r"s\.db: it is locked by another program for 0.05 s$") as caught:
                    await store.append(session, notes(4, 1), expected_head=3)
                told.append(caught.value)

            other.execute("BEGIN EXCLUSIVE")
            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(append, "s")
            assert len({id(error) for error in told}) == 4
            for call in (lambda: store.delete("s"), lambda: store.fork("s", "t", at=1)):
                with pytest.raises(StoreFailed, match="locked by another program"):
                    await call()
            assert await log_of(store) == texts(notes(1, 3, "s"))  # readers do not mind
            other.execute("ROLLBACK")
            assert await fill(store) == 6
            assert [each.session for each in await store.list()] == ["s"]


@pytest.mark.parametrize("lock", ["BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"])
async def test_a_new_file_that_is_locked_is_waited_for(tmp_path: Path, lock: str) -> None:
    path = tmp_path / "s.db"
    with trio.fail_after(REAL), outside(path) as other:
        other.execute(lock)
        async with trio.open_nursery() as nursery:
            store = SQLiteStore(path, busy_timeout=0.05)
            with pytest.raises(StoreFailed, match=r"s\.db: it is locked by another program for 0.05 s$"):
                await store.head("s")
            patient = SQLiteStore(path, busy_timeout=REAL)
            nursery.start_soon(fill, patient)
            await until_blocked()
            other.execute("ROLLBACK")
        assert await store.head("s") == 3
        await patient.aclose()
        await store.aclose()


@pytest.mark.parametrize("lock", [("BEGIN", "SELECT * FROM facts"), ("BEGIN IMMEDIATE",)], ids=["reader", "writer"])
async def test_who_hinders_writing_ahead_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lock: tuple[str, ...]
) -> None:
    path = tmp_path / "s.db"
    asked: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.set_trace_callback(asked.append)
        return db

    with trio.fail_after(REAL):
        await made(path)
        with outside(path) as other:
            other.execute("PRAGMA journal_mode = DELETE")
            for statement in lock:
                other.execute(statement).fetchone()
            monkeypatch.setattr(sqlite3, "connect", traced)
            store = SQLiteStore(path, busy_timeout=0.05)
            with pytest.raises(StoreFailed, match=r"s\.db: it is locked by another program for 0.05 s$"):
                await store.head("s")
            # For a reader SQLite waits; for a writer it does not.
            assert (asked.count("PRAGMA journal_mode = WAL") == 1) == (len(lock) == 2)
            async with trio.open_nursery() as nursery:
                patient = SQLiteStore(path, busy_timeout=REAL)
                nursery.start_soon(fill, patient)
                await until_blocked()
                other.execute("ROLLBACK")
            assert await store.head("s") == 6
            await patient.aclose()
            await store.aclose()


# --- what the disk cannot do ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
async def test_of_an_append_that_the_disk_has_no_room_for_nothing_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    path = tmp_path / "s.db"
    connect, made = sqlite3.connect, list[sqlite3.Connection]()

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        made.append(connect(*args, **options))
        made[-1].execute("PRAGMA max_page_count = 20")  # SQLite's own SQLITE_FULL, from its own page allocation
        return made[-1]

    monkeypatch.setattr(sqlite3, "connect", small)
    with trio.fail_after(REAL):
        async with SQLiteStore(path, inline=inline) as store:
            await fill(store)
            for session, head in (("s", 3), ("new", 0)):
                with pytest.raises(StoreFailed, match=r"s\.db: the disk is full: .*\(SQLITE_FULL\)"):
                    await store.append(session, notes(head + 1, 100, size=1_000), expected_head=head)
            assert await log_of(store) == texts(notes(1, 3, "s"))
            assert await store.head("new") == 0
            await store.check()
            assert await fill(store) == 6  # there is room for a small one
            made[-1].execute("PRAGMA max_page_count = 2000")
            assert await store.append("new", notes(1, 100, size=1_000), expected_head=0) == 100
            await store.check()


async def test_one_append_that_has_no_room_does_not_spoil_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    fates: dict[str, int | str] = {}
    connect = sqlite3.connect

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.execute("PRAGMA max_page_count = 20")
        return db

    with trio.fail_after(REAL), outside(path) as other:
        monkeypatch.setattr(sqlite3, "connect", small)
        async with SQLiteStore(path, busy_timeout=REAL) as store:
            await fill(store)
            other.execute("BEGIN IMMEDIATE")

            async def append(session: str, size: int) -> None:
                try:
                    fates[session] = await store.append(session, notes(1, 30, size=size), expected_head=0)
                except StoreFailed as error:
                    fates[session] = error.message.partition(": ")[2]

            async with trio.open_nursery() as nursery:
                for each in (("a", 1), ("b", 5_000), ("c", 1)):
                    nursery.start_soon(append, *each)
                    await until_blocked()
                other.execute("ROLLBACK")
            assert fates == {"a": 30, "b": "the disk is full: database or disk is full (SQLITE_FULL)", "c": 30}
            assert {each.session for each in await store.list()} == {"s", "a", "c"}


async def test_where_nothing_can_be_written_ahead_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network's file system, which has no memory to share."""
    path = tmp_path / "s.db"
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda name, **options: connect(f"file:{name}?vfs=unix-dotfile", uri=True, **options)
    )
    with trio.fail_after(REAL):
        for _ in range(2):
            with pytest.raises(StoreFailed, match=r"s\.db: SQLite cannot write ahead here .* stays 'delete'\)"):
                await SQLiteStore(path).head("s")
        monkeypatch.setattr(sqlite3, "connect", connect)
        async with SQLiteStore(path) as store:
            assert await fill(store) == 3


async def test_a_copy_of_a_closed_file_is_a_store(tmp_path: Path) -> None:
    with trio.fail_after(REAL):
        await made(tmp_path / "s.db")
        shutil.copy(tmp_path / "s.db", tmp_path / "copy.db")
        async with SQLiteStore(tmp_path / "copy.db") as store:
            assert await log_of(store) == texts(notes(1, 3, "s"))
