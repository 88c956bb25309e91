"""A folder of JSON lines in which others have a hand too: foreign files, files edited by hand, files that are locked."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.sessions.jsonl_stage import files_in, fill, log_of, notes, opened, texts
from trio_agent import SessionConflict, SessionCorrupt, StoreFailed, write_fact

# ------------------------------------------------------------------------------ what is not ours


async def test_foreign_files_are_left_alone_and_not_listed(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store)
    fact = write_fact(notes(1, 1)[0])
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "empty.jsonl").touch()
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    (tmp_path / "facts.jsonl").write_text(f"{fact}\n")
    (tmp_path / "binary.jsonl").write_bytes(b"\xff\xfe\0")
    (tmp_path / "list.jsonl").write_text("[1]\n")
    (tmp_path / "half.jsonl").write_text('{"trio_agent":"session","v":1}\n')
    (tmp_path / "Capital.jsonl").write_text(f'{{"trio_agent":"session","v":1,"session":"Capital"}}\n{fact}\n')
    (tmp_path / "copy.jsonl").write_bytes((tmp_path / "s.jsonl").read_bytes())
    (tmp_path / "folder.jsonl").mkdir()
    assert [info.session for info in await store.list()] == ["s"]


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "line 1: expected the header of a session; this is no file of a store"),
        (b"hello", "line 1: expected the header of a session"),
        (b'{"trio_agent":"session","v":1,"session":"other', "line 1: expected the header of a session"),
        (b"\xff\xfe\n", "line 1: expected the header of a session"),
        (b'{"trio_agent":"session","v":1,"session":"s"}\n', "line 1: it is of session 's', not 'mine'"),
        (b'{"trio_agent":"session","v":2,"session":"mine"}\n', "line 1: a newer version has written the file"),
    ],
)
async def test_a_foreign_file_in_a_sessions_place_is_refused_and_kept(
    tmp_path: Path, data: bytes, complaint: str
) -> None:
    store = opened(tmp_path)
    await fill(store)
    path = tmp_path / "mine.jsonl"
    path.write_bytes(data)
    for verb in (
        lambda: store.read("mine"),
        lambda: store.head("mine"),
        lambda: store.append("mine", notes(1, 1), expected_head=0),
        lambda: store.delete("mine"),
        lambda: store.fork("mine", "new", at=1),
        lambda: store.fork("s", "mine", at=1),
    ):
        with pytest.raises(StoreFailed) as caught:
            await verb()
        assert isinstance(caught.value, SessionCorrupt) == ("newer" not in complaint)
        assert f"{path}, {complaint}" in caught.value.message
    assert path.read_bytes() == data
    assert sorted(files_in(tmp_path)) == ["mine.jsonl", "s.jsonl"]


async def test_a_file_may_be_formatted_by_hand(tmp_path: Path) -> None:
    """Spaces, another order of keys, no line end at the last: the facts are the same."""
    facts = notes(1, 3)
    store = opened(tmp_path)
    await store.append("s", facts, expected_head=0)
    path = tmp_path / "s.jsonl"
    header, *lines = map(json.loads, path.read_text().splitlines())
    turned = [json.dumps(dict(reversed(line.items())), ensure_ascii=False) for line in lines]
    path.write_text("\n".join([json.dumps(header), *turned]))
    assert await log_of(store) == texts(facts)
    assert await store.append("s", facts, expected_head=0) == 3, "they count as written"
    assert await store.append("s", notes(4, 2), expected_head=3) == 5
    assert await log_of(opened(tmp_path)) == texts(notes(1, 5))
    await store.fork("s", "t", at=3)
    assert await log_of(store, "t") == texts(facts)


async def test_a_file_that_is_edited_in_place_is_read_anew(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await store.append("s", notes(1, 3, "before"), expected_head=0)
    await store.read("s")
    path = tmp_path / "s.jsonl"
    data = path.read_bytes().replace(b"before", b"afterwards") + write_fact(notes(4, 1)[0]).encode() + b"\n"
    with path.open("r+b") as file:
        file.write(data)
    assert await log_of(store, after=3) == texts(notes(4, 1))
    assert await log_of(store) == [*texts(notes(1, 3, "afterwards")), *texts(notes(4, 1))]


async def test_a_fact_that_is_stamped_for_another_place_is_not_written(tmp_path: Path) -> None:
    """A reader would take the file for damaged."""
    store = opened(tmp_path)
    for facts, head, place in ((notes(2, 1), 0, "as fact 2; expected 1"), (notes(1, 2)[::-1], 0, "as fact 2; expect")):
        with pytest.raises(ValueError, match=f"session 's': a custom is stamped {place}"):
            await store.append("s", facts, expected_head=head)
    assert files_in(tmp_path) == {}


# ---------------------------------------------------------------------------------- locks and ends


@pytest.mark.parametrize("verb", ["read", "head", "append", "delete", "fork", "fork to"])
async def test_a_file_that_stays_locked_is_given_up(
    tmp_path: Path, verb: str, autojump_clock: trio.testing.MockClock
) -> None:
    store = opened(tmp_path, busy_timeout=3)
    await fill(store, "s")
    await fill(store, "t")
    before = files_in(tmp_path)
    calls: dict[str, Callable[[], Any]] = {
        "read": lambda: store.read("s"),
        "head": lambda: store.head("s"),
        "append": lambda: store.append("s", notes(4, 1), expected_head=3),
        "delete": lambda: store.delete("s"),
        "fork": lambda: store.fork("s", "new", at=1),
        "fork to": lambda: store.fork("t", "s", at=1),
    }
    with trio.fail_after(60), (tmp_path / "s.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        began = trio.current_time()
        with pytest.raises(StoreFailed, match=r"session 's' in .*s\.jsonl: it is locked by another program for 3 s"):
            await calls[verb]()
        assert 3 <= trio.current_time() - began <= 3.1
        assert [info.head for info in await store.list()] == [3, 3], "a list waits for nobody"
        assert await store.append("t", notes(4, 1), expected_head=3) == 4, "others are not held up"
    assert files_in(tmp_path)["s.jsonl"] == before["s.jsonl"]
    assert await store.append("s", notes(4, 1), expected_head=3) == 4


async def test_a_lock_is_waited_for_and_the_wait_can_be_cancelled(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = opened(tmp_path, busy_timeout=10)
    await fill(store)
    with trio.fail_after(60), (tmp_path / "s.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert await store.head("s") == 3, "readers do not exclude each other"
        with trio.move_on_after(2) as scope:
            await store.append("s", notes(4, 1), expected_head=3)
        assert scope.cancelled_caught
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: store.append("s", notes(4, 1, "later"), expected_head=3))
            await trio.sleep(5)
            fcntl.flock(file, fcntl.LOCK_UN)
    assert await log_of(store) == texts([*notes(1, 3), *notes(4, 1, "later")])


async def test_appends_to_one_session_are_made_in_the_order_in_which_they_were_asked_for(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = opened(tmp_path)
    await fill(store, "s", 1)
    with trio.fail_after(60), (tmp_path / "s.jsonl").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        async with trio.open_nursery() as nursery:
            for head in range(1, 6):
                nursery.start_soon(lambda head=head: store.append("s", notes(head + 1, 1), expected_head=head))
                await trio.sleep(0.1)
            fcntl.flock(file, fcntl.LOCK_UN)
    assert await store.head("s") == 6


async def test_a_store_that_is_closed_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
    await store.aclose()
    for verb in (
        lambda: store.append("s", notes(4, 1), expected_head=3),
        lambda: store.read("s"),
        lambda: store.head("s"),
        store.list,
        lambda: store.delete("s"),
        lambda: store.fork("s", "t", at=1),
        store.__aenter__,
    ):
        with pytest.raises(StoreFailed, match=f"the store in {tmp_path} is closed"):
            await verb()
    assert list(files_in(tmp_path)) == ["s.jsonl"]


async def test_closing_is_a_checkpoint_and_closes_even_if_it_is_cancelled(tmp_path: Path) -> None:
    store = opened(tmp_path)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.aclose()
    assert scope.cancelled_caught
    with pytest.raises(StoreFailed):
        await store.head("s")


@pytest.mark.parametrize("begun_anew", [False, True])
async def test_a_file_that_is_deleted_while_its_lock_is_waited_for_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_anew: bool
) -> None:
    """What was opened is no session's any more; what stands in its place now counts."""
    store, path = opened(tmp_path), tmp_path / "s.jsonl"
    await fill(store)
    header = path.read_bytes().splitlines(keepends=True)[0]
    flock = fcntl.flock

    def late(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        path.unlink()
        if begun_anew:
            path.write_bytes(header + write_fact(notes(1, 1, "anew")[0]).encode() + b"\n")
        flock(fd, how)

    head = 1 if begun_anew else 0
    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(SessionConflict, match=f"expected the head 3, it is {head}"):
        await store.append("s", notes(4, 1), expected_head=3)
    assert await store.head("s") == head
    assert path.exists() is begun_anew
