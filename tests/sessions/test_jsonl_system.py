"""Disks and systems that refuse, and programs that compete or are killed: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import random
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sessions.jsonl_stage import Heard, child, files_in, fill, line, log_of, notes, opened, run, texts
from trio_agent import SessionConflict, StoreFailed

# ------------------------------------------------------------------------------- refused by the system


async def test_a_folder_that_is_a_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = opened(tmp_path / "file")
    for verb in (
        lambda: store.read("s"),
        lambda: store.append("s", notes(1, 1), expected_head=0),
        lambda: store.delete("s"),
        store.list,
    ):
        with pytest.raises(StoreFailed, match=rf"{tmp_path}/file.*: Not a directory"):
            await verb()


async def test_a_folder_is_not_made_in_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match=r"session 's' in .*/nowhere/here/s\.jsonl: No such file or directory"):
        await fill(opened(tmp_path / "nowhere" / "here"))


async def test_a_folder_in_a_files_place_says_so(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").mkdir()
    store = opened(tmp_path)
    with pytest.raises(StoreFailed, match=r"s\.jsonl: Is a directory"):
        await store.append("s", notes(1, 1), expected_head=0)
    with pytest.raises(StoreFailed, match=r"s\.jsonl: Is a directory"):
        await store.read("s")


@pytest.mark.parametrize("durability", ["power", "process"])
async def test_a_disk_that_fails_when_it_is_asked_to_keep_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: str
) -> None:
    store = opened(tmp_path, durability=durability)
    await fill(store)
    before = files_in(tmp_path)

    def broken(fd: int) -> None:
        raise OSError(5, "Input/output error")

    if durability == "process":
        monkeypatch.setattr(os, "utime", lambda *args, **options: broken(0))
    monkeypatch.setattr(os, "fsync", broken)
    for session, head in (("s", 3), ("new", 0)):
        with pytest.raises(StoreFailed, match=f"session '{session}' in .*: Input/output error"):
            await store.append(session, notes(head + 1, 2), expected_head=head)
        assert files_in(tmp_path) == before
    with pytest.raises(StoreFailed, match=r"session 't' in .*: Input/output error"):
        await store.fork("s", "t", at=1)
    assert files_in(tmp_path) == before
    monkeypatch.undo()
    assert await fill(store) == 6


async def test_a_folder_that_does_not_keep_a_new_file_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened(tmp_path, durability="power")
    await fill(store)
    before = files_in(tmp_path)
    fsync = os.fsync

    def broken(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(5, "Input/output error")
        fsync(fd)

    monkeypatch.setattr(os, "fsync", broken)
    for verb in (lambda: fill(store, "new"), lambda: store.fork("s", "new", at=1)):
        with pytest.raises(StoreFailed, match=r"session 'new' in .*: Input/output error"):
            await verb()
        assert files_in(tmp_path) == before


async def test_only_what_must_outlive_the_power_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []

    def fsync(fd: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))

    monkeypatch.setattr(os, "fsync", fsync)
    power, process = opened(tmp_path / "power", durability="power"), opened(tmp_path / "process")
    await fill(process, "s")
    await process.fork("s", "t", at=1)
    await process.delete("t")
    assert synced == []
    await fill(power, "s")
    assert synced == [tmp_path.name, "s.jsonl", "power"], "a new file, and that it is there"
    synced.clear()
    await fill(power, "s")
    assert synced == ["s.jsonl"]
    synced.clear()
    await power.fork("s", "t", at=1)
    await power.delete("t")
    assert (synced[0][-4:], synced[1:]) == (".tmp", ["power", "power"])


def told(role: str, folder: Path) -> list[str]:
    """All that a program tells."""
    with child(role, folder) as process:
        lines, _ = process.communicate(timeout=60)
        assert process.returncode == 0
    return lines.splitlines()


def test_a_full_disk_leaves_each_file_as_it_was(tmp_path: Path) -> None:
    append, grown, new, fork, other, files, again = told("starve", tmp_path)
    assert append == f"STORE_FAILED: session 's' in {tmp_path}/s.jsonl: File too large"
    assert grown == "0"
    assert new == f"STORE_FAILED: session 'new' in {tmp_path}/new.jsonl: File too large"
    assert fork == "None", "it is small enough"
    assert other == f"STORE_FAILED: session 'other' in {tmp_path}/other.jsonl: File too large"
    assert files == "fork.jsonl s.jsonl"
    assert again == "53", "when there is room, it goes on"
    assert run(lambda: log_of(opened(tmp_path))) == texts(notes(1, 53))


@contextmanager
def for_all_to_read() -> Iterator[Path]:
    """A folder that any user gets to."""
    folder = Path(tempfile.mkdtemp())
    try:
        folder.chmod(0o755)
        yield folder
    finally:
        folder.chmod(0o700)
        shutil.rmtree(folder)


def test_a_folder_that_may_only_be_read_is_read() -> None:
    with for_all_to_read() as folder:
        run(lambda: fill(opened(folder)))
        (folder / "s.jsonl").chmod(0o444)
        folder.chmod(0o555)
        before = files_in(folder)
        *refused, head, read = told("unprivileged", folder)
        assert refused == [
            f"STORE_FAILED: session {name!r} in {folder}/{name}.jsonl: Permission denied"
            for name in ("s", "new", "fork", "s")
        ]
        assert (head, read) == ("3", "3 s")
        assert files_in(folder) == before


# ----------------------------------------------------------------------------------- other programs


def test_programs_on_one_folder_do_not_lose_each_others_facts(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    marks = ["a", "b", "c"]
    with child("compete", folder, "a") as a, child("compete", folder, "b") as b, child("compete", folder, "c") as c:
        programs = [a, b, c]
        assert [line(each) for each in programs] == ["ready"] * 3
        for each in programs:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        assert [line(each).split()[0] for each in programs] == ["done"] * 3

    async def look() -> None:
        store = opened(folder)
        for mark in marks:
            assert await log_of(store, mark) == texts(notes(1, 75))
        log = await store.read("all")
        batches = [texts(log[at : at + 2]) for at in range(0, len(log), 2)]
        possible = [[texts(notes(at + 1, 2, mark)) for mark in marks] for at in range(0, len(log), 2)]
        assert len(batches) == 75, "each batch is there once"
        assert all(batch in batches_at for batch, batches_at in zip(batches, possible, strict=True)), "and whole"
        written = [next(m for m in marks if batch == texts(notes(2 * n + 1, 2, m))) for n, batch in enumerate(batches)]
        assert {mark: written.count(mark) for mark in marks} == dict.fromkeys(marks, 25)

    run(look)
    assert sorted(files_in(folder)) == ["a.jsonl", "all.jsonl", "b.jsonl", "c.jsonl"]


def test_a_program_that_is_killed_has_written_what_was_acknowledged(tmp_path: Path) -> None:
    rng = random.Random(0)
    before = 0
    for _ in range(3):
        with child("write", tmp_path) as process:
            acknowledged = [line(process) for _ in range(rng.randint(2, 40))]
            process.kill()
            assert process.stdout is not None
            acknowledged += process.stdout.read().split()
        heard = Heard()
        head = len(run(lambda heard=heard: log_of(opened(tmp_path, on_torn_tail=heard))))
        assert int(acknowledged[-1]) <= head <= int(acknowledged[-1]) + 4
        assert head > before
        before = head
    assert run(lambda: log_of(opened(tmp_path, on_torn_tail=Heard()))) == texts(notes(1, before, "x" * 2_000))


async def test_a_stale_writer_is_refused_and_its_facts_are_not_there(tmp_path: Path) -> None:
    """Though it has seen the log, and nothing of the file's length tells."""
    stale, other = opened(tmp_path), opened(tmp_path)
    await fill(stale)
    await other.append("s", notes(4, 1, "a"), expected_head=3)
    data = (tmp_path / "s.jsonl").read_bytes()
    with pytest.raises(SessionConflict, match=r"session 's' in .*: expected the head 3, it is 4"):
        await stale.append("s", notes(4, 1, "b"), expected_head=3)
    assert (tmp_path / "s.jsonl").read_bytes() == data
