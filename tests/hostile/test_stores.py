"""Whatever happens to the file that a session is kept in: a clear error in the right place, and nothing is lost.

The stores' own tests tell what each of them says; here it is what a run and a session make of it.
"""

from __future__ import annotations

import fcntl
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.hostile.shop import DOORS, REAL, SESSION, STORES, Disk, Door, Shop, StoreName, goes_on
from trio_agent import (
    Fact,
    RunResult,
    SessionClosed,
    SessionConflict,
    SessionCorrupt,
    SessionStore,
    StoreFailed,
    ToolExecutionStart,
    read_fact,
)
from trio_agent.testing import call, calls, say

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="files are locked and restricted otherwise")

ROOT = Path(__file__).parents[2]

BOTH_DOORS = pytest.mark.parametrize("door", DOORS)
BOTH_STORES = pytest.mark.parametrize("kind", STORES)


@pytest.fixture
def disk(tmp_path: Path, kind: StoreName) -> Disk:
    return Disk(tmp_path, kind)


@pytest.fixture
def sqlite(tmp_path: Path) -> Disk:
    return Disk(tmp_path, "sqlite")


@pytest.fixture
def jsonl(tmp_path: Path) -> Disk:
    return Disk(tmp_path, "jsonl")


async def paid_before(disk: Disk) -> Sequence[str]:
    """A session that has had a run, on a disk that nobody uses; its log."""
    shop = Shop(disk)
    await shop.go("session")
    await shop.store.aclose()
    return await disk.log()


async def not_entered(disk: Disk, door: Door, error: type[StoreFailed], complaint: str) -> None:
    """The block is not entered, and whoever wanted to is told why; asked again, the answer is the same."""
    shop = Shop(disk)
    for _ in range(2):
        with pytest.raises(StoreFailed, match=complaint) as caught:
            await shop.go(door)
        assert type(caught.value) is error
        assert caught.value.code == error.code
    await shop.store.aclose()
    assert shop.paid == []
    assert shop.model.requests == []


def failed(result: RunResult, error: type[StoreFailed], complaint: str) -> None:
    """The run has ended with it."""
    assert result.stop_reason == "error"
    assert type(result.error) is error
    assert result.error.code == error.code
    assert complaint in result.error.message


# ------------------------------------------------------------------------------------- a stale writer


class Late:
    """A store whose appends wait until they may go on: somebody else may be quicker."""

    def __init__(self, store: SessionStore, first: int = 1) -> None:
        self._store, self._first, self._appends = store, first, 0
        self.read, self.head, self.list = store.read, store.head, store.list
        self.delete, self.fork = store.delete, store.fork
        self.waits, self.may = trio.Event(), trio.Event()

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        self._appends += 1
        if self._appends >= self._first:
            self.waits.set()
            await self.may.wait()
        return await self._store.append(session, facts, expected_head=expected_head)


@BOTH_DOORS
@BOTH_STORES
async def test_of_two_programs_the_second_is_refused_before_any_effect(disk: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        late = Late(disk.store())
        first, second = Shop(disk), Shop(disk, store=late)
        results: list[RunResult] = []

        async def come_second() -> None:
            results.append(await second.go(door))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(come_second)
            await late.waits.wait()
            assert (await first.go(door)).text == "It is paid."
            before = await disk.log()
            late.may.set()
        failed(results[0], SessionConflict, "expected the head 0")
        assert (len(first.paid), second.paid, second.shown) == (1, [], [])
        assert await disk.log() == before
        await first.kept()
        await goes_on(disk, before=before)


@BOTH_DOORS
@BOTH_STORES
async def test_a_run_that_another_program_has_settled_ends_before_its_next_effect(disk: Disk, door: Door) -> None:
    """As if the program had been taken for dead, and were not."""
    with trio.fail_after(REAL):
        taken_over = trio.Event()
        asked = trio.Event()

        async def answer_later(_: object) -> Any:
            asked.set()
            await taken_over.wait()
            return calls(call("pay"))

        slow = Shop(disk, calls(call("pay")), answer_later, say("All is paid."))
        results: list[RunResult] = []

        async def go() -> None:
            results.append(await slow.go(door))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await asked.wait()
            while not any(fact.kind == "turn_end" for fact in slow.shown):  # a thread writes it
                await trio.sleep(0.001)
            other = Shop(disk, say("I have taken over."))
            assert (await other.go(door)).stop_reason == "stop"
            before = await disk.log()
            taken_over.set()
        failed(results[0], SessionConflict, "expected the head")
        assert len(slow.paid) == 1
        assert await disk.log() == before
        await slow.kept()
        await other.kept()
        await goes_on(disk, before=before)


@BOTH_STORES
async def test_a_session_that_was_overtaken_is_closed_and_opened_again_it_knows_all(disk: Disk) -> None:
    with trio.fail_after(REAL):
        await paid_before(disk)
        stale = Shop(disk)
        async with stale.agent.session(SESSION) as session:
            await Shop(disk, say("I was quicker.")).go("run", "Hello.")
            with pytest.raises(SessionConflict) as caught:
                await session.steer("Too late.")
            assert caught.value.code == "SESSION_CONFLICT"
            for verb in (session.prompt("Pay."), session.steer("Again."), session.resume(), session.configure()):
                with pytest.raises(SessionClosed, match="opened again, it reads what was written") as closed:
                    await verb
                assert closed.value.code == "SESSION_CLOSED"
                assert closed.value.__cause__ is caught.value
        assert stale.paid == []
        async with Shop(disk).agent.session(SESSION) as session:
            assert [message.text for message in session.history()][-2:] == ["Hello.", "I was quicker."]
            assert session.state.queued == ()


# --------------------------------------------------------------------------------------- a newer file


@BOTH_DOORS
async def test_a_newer_database_is_not_entered(sqlite: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(sqlite)
        sqlite.execute("PRAGMA user_version = 99")
        content = sqlite.file.read_bytes()
        await not_entered(sqlite, door, StoreFailed, r"s\.db: its schema has version 99; this version .* knows \d+")
        assert sqlite.file.read_bytes() == content
        sqlite.execute("PRAGMA user_version = 1")
        await goes_on(sqlite, before=before)


@BOTH_DOORS
async def test_a_database_that_becomes_newer_ends_the_run(sqlite: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(sqlite)
        late = Late(sqlite.store())
        shop = Shop(sqlite, store=late)
        results: list[RunResult] = []

        async def go() -> None:
            results.append(await shop.go(door))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await late.waits.wait()
            sqlite.execute("PRAGMA user_version = 99")
            late.may.set()
        failed(results[0], StoreFailed, "its schema has version 99")
        assert (shop.paid, shop.shown) == ([], [])
        sqlite.execute("PRAGMA user_version = 1")
        await goes_on(sqlite, before=before)


@BOTH_DOORS
@BOTH_STORES
async def test_a_record_of_a_newer_version_is_not_entered(disk: Disk, door: Door) -> None:
    """Nor is it damage."""
    with trio.fail_after(REAL):
        before = await paid_before(disk)
        content = disk.file.read_bytes()
        if disk.kind == "sqlite":
            disk.execute("UPDATE facts SET fact = replace(fact, '\"v\":2', '\"v\":9') WHERE seq = 3")
        else:
            lines = content.split(b"\n")
            lines[3] = lines[3].replace(b'"v":2', b'"v":9')
            disk.file.write_bytes(b"\n".join(lines))
        await not_entered(disk, door, StoreFailed, r"a record was written by a newer version: its schema is 9")
        disk.file.write_bytes(content)
        await goes_on(disk, before=before)


# -------------------------------------------------------------------------------------------- damage


def damaged(disk: Disk) -> None:
    """A page, or a line, in the middle of the log is noise."""
    content = disk.file.read_bytes()
    at = content.index(b'"kind":"turn_start"')
    size, noise = (4096, b"\xff") if disk.kind == "sqlite" else (30, b"#")
    at -= at % size
    disk.file.write_bytes(content[:at] + noise * size + content[at + size :])


@BOTH_DOORS
@BOTH_STORES
async def test_a_damaged_log_is_not_entered(disk: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(disk)
        content = disk.file.read_bytes()
        damaged(disk)
        await not_entered(disk, door, SessionCorrupt, str(disk.file))
        disk.file.write_bytes(content)  # from a backup
        await goes_on(disk, before=before)


@BOTH_DOORS
async def test_every_page_of_a_database_is_overwritten_in_turn(sqlite: Disk, door: Door) -> None:
    """A run either does not begin, or ends with an error, or has its whole history and a log that can be read."""
    with trio.fail_after(REAL):
        before = await paid_before(sqlite)
        content = sqlite.file.read_bytes()
        met: set[str] = set()
        for page in range(len(content) // 4096):
            sqlite.file.write_bytes(content[: page * 4096] + b"\xff" * 4096 + content[(page + 1) * 4096 :])
            shop = Shop(sqlite)
            error: BaseException | None = None
            try:
                result = await shop.go(door)
                error = result.error
                met.add(result.stop_reason)
            except StoreFailed as not_entered:
                error = not_entered
                met.add("not entered")
            await shop.store.aclose()
            if error is None:
                assert len(shop.model.requests[0].messages) == 5, "its history was forgotten"
            else:
                assert isinstance(error, StoreFailed)
                assert str(sqlite.file) in error.message
                assert shop.paid == []
            for name in ("s.db-wal", "s.db-shm"):
                sqlite.file.with_name(name).unlink(missing_ok=True)
        assert "not entered" in met
        sqlite.file.write_bytes(content)
        await goes_on(sqlite, before=before)


# ------------------------------------------------------------------------------------------ a full disk


class Fails:
    """A store that fails from its ``first`` append on, as on a full disk."""

    def __init__(self, store: SessionStore, first: int, error: type[StoreFailed] = StoreFailed) -> None:
        self._store, self._first, self._error, self.appends = store, first, error, 0
        self.read, self.head, self.list = store.read, store.head, store.list
        self.delete, self.fork = store.delete, store.fork

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        self.appends += 1
        if self.appends >= self._first:
            raise self._error(f"session {session!r}: it cannot be written")
        return await self._store.append(session, facts, expected_head=expected_head)


@BOTH_DOORS
@BOTH_STORES
@pytest.mark.parametrize("error", [StoreFailed, SessionConflict, SessionCorrupt])
async def test_what_a_store_says_while_a_run_is_under_way_is_the_runs_error(
    disk: Disk, door: Door, error: type[StoreFailed]
) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(disk)
        shop = Shop(disk, store=Fails(disk.store(), 1, error))
        failed(await shop.go(door), error, "it cannot be written")
        assert (shop.paid, shop.shown) == ([], [])
        await goes_on(disk, before=before)


@BOTH_DOORS
@BOTH_STORES
async def test_a_disk_that_is_full_at_any_append_loses_nothing_that_was_shown(
    tmp_path: Path, kind: StoreName, door: Door
) -> None:
    whole = 0
    with trio.fail_after(REAL):
        for first in range(1, 100):
            disk = Disk(tmp_path / str(first), kind)
            disk.folder.mkdir()
            store = Fails(disk.store(), first)
            shop = Shop(disk, calls(call("pay"), call("pay")), calls(call("pay")), say("It is paid."), store=store)
            result = await shop.go(door)
            if result.stop_reason == "stop":
                whole = first
                break
            failed(result, StoreFailed, "it cannot be written")
            assert store.appends == first, "nothing more is written"
            before = await disk.log()
            starts = [fact for fact in map(read_fact, before) if isinstance(fact, ToolExecutionStart)]
            assert {fact.idempotency_key for fact in starts} >= set(shop.paid)
            await shop.kept()
            if before:
                await goes_on(disk, before=before, resumes=True)
    assert whole > 4


@BOTH_STORES
async def test_what_was_accepted_before_the_disk_was_full_is_delivered_and_what_was_refused_is_not(disk: Disk) -> None:
    with trio.fail_after(REAL):
        await paid_before(disk)
        store = Fails(disk.store(), 2)
        async with Shop(disk, store=store).agent.session(SESSION) as session:
            await session.steer("This was accepted.")
            with pytest.raises(StoreFailed, match="it cannot be written"):
                await session.steer("This was not.")
            with pytest.raises(SessionClosed):
                await session.prompt("Pay.")
        again = await goes_on(disk, before=await disk.log())
        asked = [message.text for message in again.model.requests[0].messages]
        assert "This was accepted." in asked[-1]
        assert not any("This was not." in text for text in asked)


@BOTH_DOORS
async def test_a_database_that_may_not_grow_ends_the_run(
    sqlite: Disk, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, opened = sqlite3.connect, list[sqlite3.Connection]()

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        opened.append(connect(*args, **options))
        opened[-1].execute("PRAGMA max_page_count = 20")  # SQLite's own SQLITE_FULL, from where it takes its pages
        return opened[-1]

    with trio.fail_after(REAL):
        await paid_before(sqlite)
        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", small)
            shop = Shop(sqlite, calls(call("pay")), calls(call("pay")), say("It is paid."), bill=40_000)
            result = await shop.go(door)
            failed(result, StoreFailed, "the disk is full: database or disk is full (SQLITE_FULL)")
            assert 1 <= len(shop.paid) <= 2
            await shop.store.aclose()
        before = await sqlite.log()
        await shop.kept()
        await goes_on(sqlite, before=before, resumes=True)


# -------------------------------------------------------------------- refused by the operating system


def told(role: str, disk: Disk) -> list[str]:
    """All that a program of its own tells; what it tells first are the facts that it has shown."""
    command = [sys.executable, "-m", "tests.hostile.refused", role, str(disk.folder), disk.kind]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=REAL)
    return done.stdout.splitlines()


@BOTH_STORES
def test_a_program_whose_files_may_not_grow_ends_its_run_and_goes_on_when_they_may(disk: Disk) -> None:
    first, second, third, last = told("starve", disk)
    complaint = {"sqlite": "disk I/O error", "jsonl": "File too large"}[disk.kind]
    assert first.startswith("error STORE_FAILED, paid 1, lost 0: STORE_FAILED: ")
    assert complaint in first
    assert second == "closed SESSION_CLOSED"
    assert third.startswith("error STORE_FAILED, paid 1, lost 0: STORE_FAILED: "), "there is still no room"
    assert last == "stop None, paid 2, lost 0: "


@pytest.fixture
def public(kind: StoreName) -> Iterator[Disk]:
    """A disk in a folder that every user gets to."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield Disk(folder, kind)
        folder.chmod(0o755)


@BOTH_STORES
def test_a_folder_that_may_only_be_read_is_an_error_of_whoever_writes(public: Disk) -> None:
    before = trio.run(paid_before, public)
    public.file.chmod(0o444)
    public.folder.chmod(0o555)
    content = {each.name: each.read_bytes() for each in public.folder.iterdir()}
    lines = told("unprivileged", public)
    assert {each.name: each.read_bytes() for each in public.folder.iterdir()} == content
    if public.kind == "sqlite":  # to read it, it would have to write beside it
        complaint = f"not entered STORE_FAILED: {public.file}: the file or its folder is read-only"
    else:
        complaint = f"error STORE_FAILED, paid 0, lost 0: STORE_FAILED: session 's' in {public.file}: Permission denied"
    assert len(lines) == 2
    assert all(line.startswith(complaint) for line in lines)
    public.folder.chmod(0o755)
    public.file.chmod(0o644)
    trio.run(lambda: goes_on(public, before=before))


# ---------------------------------------------------------------------------------------- a locked file


@contextmanager
def locked(disk: Disk) -> Iterator[None]:
    """Another program has the file for itself."""
    if disk.kind == "sqlite":
        other = sqlite3.connect(disk.file, isolation_level=None)
        try:
            other.execute("BEGIN EXCLUSIVE")
            yield
        finally:
            other.close()
    else:
        with disk.file.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


@BOTH_DOORS
@BOTH_STORES
async def test_a_file_that_stays_locked_ends_the_run(disk: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(disk)
        late = Late(disk.store())
        shop = Shop(disk, store=late)
        results: list[RunResult] = []

        async def go() -> None:
            results.append(await shop.go(door))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await late.waits.wait()
            with locked(disk):
                late.may.set()
                while not results:  # a thread waits for the lock
                    await trio.sleep(0.001)
        failed(results[0], StoreFailed, "locked")
        assert (shop.paid, shop.shown) == ([], [])
        assert await disk.log() == before
        await goes_on(disk, before=before)


@BOTH_DOORS
@BOTH_STORES
async def test_a_file_that_is_locked_for_a_while_is_waited_for(disk: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        before = await paid_before(disk)
        late = Late(disk.store(busy_timeout=REAL))
        shop = Shop(disk, store=late)
        results: list[RunResult] = []

        async def go() -> None:
            results.append(await shop.go(door))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(go)
            await late.waits.wait()
            with locked(disk):
                late.may.set()
                for _ in range(100):
                    await trio.lowlevel.checkpoint()
                assert (shop.paid, shop.shown) == ([], [])
        assert results[0].text == "It is paid."
        await shop.kept()
        await goes_on(disk, before=before)


@BOTH_DOORS
@BOTH_STORES
async def test_a_new_file_that_is_locked_is_not_entered(disk: Disk, door: Door) -> None:
    with trio.fail_after(REAL):
        disk.file.touch()
        with locked(disk):
            await not_entered(disk, door, StoreFailed, rf"{disk.file}.* locked .*0\.05 s")
        assert (await Shop(disk).go(door)).text == "It is paid."
