"""Files of JSON lines that were not written to their end, were damaged, or cannot be written: what is whole is kept."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

import hypothesis.strategies as st
import pytest
import trio
from hypothesis import given

from tests.sessions.jsonl_stage import Heard, files_in, fill, log_of, notes, opened, run, texts
from trio_agent import Fact, SessionCorrupt, StoreFailed, write_fact
from trio_agent.sessions import JSONLStore, TornTail
from trio_agent.sessions._session_lines import header_line
from trio_agent.testing._contracts._logbook import every_kind, wild

# --------------------------------------------------------------------------------------- torn tails


def file_of(session: str, facts: Sequence[Fact]) -> bytes:
    """A whole file, made without a store."""
    return header_line(session) + "".join(f"{text}\n" for text in texts(facts)).encode()


def whole_in(data: bytes, facts: Sequence[Fact]) -> int:
    """How many facts are whole in the beginning of a file: a record needs all but its line end."""
    records, end = 0, len(header_line("s"))
    for text in texts(facts):
        end += len(text)
        if end > len(data):
            break
        records, end = records + 1, end + 1
    return records


async def go_on_from(folder: Path, data: bytes, facts: Sequence[Fact], *, read_first: bool) -> None:
    """See what a store makes of the beginning of a file, and that it goes on from there."""
    path = folder / "s.jsonl"
    path.write_bytes(data)
    (folder / "s.jsonl.torn").unlink(missing_ok=True)
    whole = whole_in(data, facts)
    end = len(file_of("s", facts[:whole]))
    torn = data[end:] if len(data) > len(header_line("s")) else b""
    heard = Heard()
    store = opened(folder, on_torn_tail=heard)
    if read_first:
        assert await log_of(store) == await log_of(store) == texts(facts[:whole])
        assert await store.head("s") == whole
        assert [info.head for info in await store.list()] == [whole] * bool(whole)
        assert path.read_bytes() == data, "a read changes nothing"
        assert [(tail.offset, tail.size, tail.kept) for tail in heard] == [(end, len(torn), None)] * bool(torn)
        heard.clear()
    new = notes(whole + 1, 2)
    assert await store.append("s", new, expected_head=whole) == whole + 2
    assert path.read_bytes() == file_of("s", [*facts[:whole], *new])
    kept = str(folder / "s.jsonl.torn")
    assert list(heard) == [TornTail("s", str(path), whole + 2, end, len(torn), kept)] * bool(torn)
    assert files_in(folder).get("s.jsonl.torn") == (torn + b"\n" if torn else None)
    assert await log_of(opened(folder)) == texts([*facts[:whole], *new])


@pytest.mark.parametrize("read_first", [True, False])
async def test_a_file_that_is_cut_at_any_byte_keeps_what_is_whole_and_goes_on(tmp_path: Path, read_first: bool) -> None:
    """Of the header, of the last record, of any record of a batch: those before the cut stay, and the rest is told."""
    facts = notes(1, 4)
    data = file_of("s", facts)
    for length in range(len(data) + 1):
        await go_on_from(tmp_path, data[:length], facts, read_first=read_first)


@given(st.data())
def test_wherever_a_log_is_cut_what_is_whole_is_kept(data: st.DataObject) -> None:
    facts = data.draw(st.sampled_from([every_kind(), wild()[:18]]))
    log = file_of("s", facts)
    length = data.draw(st.integers(0, len(log)))
    filler = data.draw(st.sampled_from([b"", b"\0", b"\0" * 5_000, b"\xff", b"\x80{"]))  # as a lost page may look
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "s.jsonl")
        path.write_bytes(log[:length] + (filler if length > len(header_line("s")) else b""))
        whole = whole_in(log[:length], facts)

        async def main() -> None:
            store = opened(Path(folder), on_torn_tail=Heard())
            # A record is whole without its line end, but not with something else in the place of that.
            kept = whole - (length < len(log) and log[length : length + 1] == b"\n" and filler != b"")
            kept = max(kept, 0)
            assert await log_of(store) == texts(facts[:kept])
            await store.append("s", facts[kept:], expected_head=kept)
            assert await log_of(opened(Path(folder))) == texts(facts)

        run(main)


async def test_the_facts_of_an_append_that_were_written_can_be_appended_again(tmp_path: Path) -> None:
    """A crash cut the batch: whoever still has it appends it, and what is there counts."""
    facts = every_kind()
    data = file_of("s", facts)
    for length in range(len(header_line("s")), len(data), 97):
        (tmp_path / "s.jsonl").write_bytes(data[:length])
        store = opened(tmp_path, on_torn_tail=Heard())
        assert await store.append("s", facts, expected_head=0) == len(facts)
        assert (tmp_path / "s.jsonl").read_bytes() == data


async def test_all_tails_are_kept_one_behind_the_other(tmp_path: Path) -> None:
    heard = Heard()
    store = opened(tmp_path, on_torn_tail=heard, durability="power")
    for tail in (b'{"v":1,"ki', b'{"v":1,"kind":"custom"', b"\0\0\0"):
        await fill(store, "s", 1)
        with (tmp_path / "s.jsonl").open("ab") as file:
            file.write(tail)
    await fill(store, "s", 1)
    assert (tmp_path / "s.jsonl.torn").read_bytes() == b'{"v":1,"ki\n{"v":1,"kind":"custom"\n\0\0\0\n'
    assert [tail.line for tail in heard] == [3, 4, 5]
    assert [info.session for info in await store.list()] == ["s"], "they are no session"


async def test_a_tail_that_nobody_asked_to_hear_of_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.jsonl"
    store = JSONLStore(tmp_path, inline=True)
    await fill(store)
    end = path.stat().st_size
    with path.open("ab") as file:
        file.write(b'{"v":1')
    await store.read("s")
    await store.read("s")
    await fill(store)
    what = f"session 's': {path}, line 5: a record was not written to its end (6 bytes from byte {end} on)"
    assert [(record.levelno, record.name, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "trio_agent.sessions", f"{what}; it is left out"),
        (logging.WARNING, "trio_agent.sessions", f"{what}; it was moved to {path}.torn"),
    ]


async def test_a_listener_that_fails_is_logged_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(tail: TornTail) -> None:
        raise LookupError("boom")

    store = opened(tmp_path, on_torn_tail=fail)
    await fill(store)
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b"{")
    assert await store.head("s") == 3
    assert len(await store.read("s")) == 3
    assert await fill(store) == 6
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "boom" in caplog.text


async def test_a_tail_is_told_of_in_the_task_that_has_found_it(tmp_path: Path) -> None:
    told: list[trio.lowlevel.Task] = []
    store = JSONLStore(tmp_path, on_torn_tail=lambda tail: told.append(trio.lowlevel.current_task()))
    with trio.fail_after(60):
        await fill(store)
        with (tmp_path / "s.jsonl").open("ab") as file:
            file.write(b"{")
        await store.read("s")
    assert told == [trio.lowlevel.current_task()]


# ------------------------------------------------------------------------------------------- damage


def spoiled(path: Path, number: int, text: bytes | None) -> int:
    """Replace one line, or leave it out; where it begins."""
    lines = path.read_bytes().splitlines(keepends=True)
    offset = sum(map(len, lines[: number - 1]))
    lines[number - 1 : number] = [] if text is None else [text + b"\n"]
    path.write_bytes(b"".join(lines))
    return offset


def variant(**changes: object) -> bytes:
    return json.dumps({**json.loads(write_fact(notes(2, 1)[0])), **changes}).encode()


NEWER = "a record was written by a newer version: its schema is 99"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b'{"v":1,"kin', "a record cannot be read: JSONDecodeError"),
        (b"", "a record cannot be read: JSONDecodeError"),
        (b"\xff\xfe", "a record is no text: 'utf-8' codec can't decode byte 0xff"),
        (b"[" * 100_000, "a record cannot be read: RecursionError"),
        (b"{}", "a record cannot be read: KeyError: 'v'"),
        (b"[1]", "a record cannot be read: TypeError"),
        (variant(v=99), NEWER),
        (variant(kind="unheard_of"), "a record has the unknown kind 'unheard_of'"),
        (variant(data={}), "a record cannot be read"),
        (variant(seq=7), "expected fact 2, found fact 7"),
        (None, "expected fact 2, found fact 3"),
    ],
)
async def test_a_bad_record_in_the_middle_is_refused_by_its_place(
    tmp_path: Path, text: bytes | None, complaint: str
) -> None:
    error = StoreFailed if complaint == NEWER else SessionCorrupt
    await fill(opened(tmp_path), "s", 4)
    path = tmp_path / "s.jsonl"
    offset = spoiled(path, 3, text)
    before = files_in(tmp_path)
    place = f"session 's': {path}, line 3 (byte {offset}): {complaint}"
    for store in (opened(tmp_path), JSONLStore(tmp_path)):
        with trio.fail_after(60), pytest.raises(error) as caught:
            await store.read("s")
        assert type(caught.value) is error
        assert caught.value.message.startswith(place)
    store = opened(tmp_path)
    with pytest.raises(error):
        await store.fork("s", "t", at=3)
    with pytest.raises(error):
        await store.append("s", notes(2, 4), expected_head=1)
    assert len(await store.read("s", limit=1)) == 1, "what stands before it can be read"
    assert len(await store.read("s", after=2)) == 2 if text is not None else True, "and what stands behind it"
    assert [info.session for info in await store.list()] == ["s"]
    assert files_in(tmp_path) == before
    assert await store.delete("s")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (variant(v=99, seq=4), NEWER),
        (variant(kind="unheard_of", seq=4), "a record has the unknown kind 'unheard_of'"),
        (variant(data={}, seq=4), "a record cannot be read"),
    ],
)
async def test_what_a_newer_version_has_written_last_is_no_torn_tail(
    tmp_path: Path, text: bytes, complaint: str
) -> None:
    """It is whole, and somebody needs it: nothing is read, and nothing is written."""
    store = opened(tmp_path)
    await fill(store, "s", 4)
    path = tmp_path / "s.jsonl"
    offset = spoiled(path, 5, text)
    for data in (path.read_bytes(), path.read_bytes().rstrip(b"\n")):
        path.write_bytes(data)
        for verb in (
            lambda: store.read("s"),
            lambda: store.head("s"),
            lambda: store.append("s", notes(5, 1), expected_head=4),
            lambda: store.append("s", notes(4, 1), expected_head=3),
            lambda: store.fork("s", "t", at=1),
        ):
            with pytest.raises(StoreFailed) as caught:
                await verb()
            assert type(caught.value) is (StoreFailed if complaint == NEWER else SessionCorrupt)
            assert caught.value.message.startswith(f"session 's': {path}, line 5 (byte {offset}): {complaint}")
        assert files_in(tmp_path) == {"s.jsonl": data}
        assert [(info.session, info.head) for info in await store.list()] == [("s", 4)]
    assert await store.delete("s")


async def test_two_bad_records_at_the_end_are_damage_and_not_a_torn_tail(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store, "s", 4)
    path = tmp_path / "s.jsonl"
    spoiled(path, 5, b"{")
    offset = spoiled(path, 4, b'{"v":')
    before = files_in(tmp_path)
    for verb in (
        lambda: store.read("s"),
        lambda: store.head("s"),
        lambda: store.append("s", notes(3, 1), expected_head=2),
        lambda: store.fork("s", "t", at=1),
    ):
        with pytest.raises(SessionCorrupt, match=rf"line 4 \(byte {offset}\): .* it is not the last"):
            await verb()
    assert [(info.session, info.head) for info in await store.list()] == [("s", 4)]
    assert files_in(tmp_path) == before
    assert await store.delete("s"), "what cannot be read can be deleted"


async def test_lines_of_any_length_are_found_from_behind(tmp_path: Path) -> None:
    store = opened(tmp_path)
    sizes = (1, 65_000, 65_535, 65_536, 65_537, 200_000, 3, 131_072)
    for number, size in enumerate(sizes, 1):
        await store.append("s", notes(number, 1, "x" * size), expected_head=number - 1)
        assert await opened(tmp_path).head("s") == number
        assert [info.head for info in await opened(tmp_path).list()] == [number]
    assert len(await opened(tmp_path).read("s")) == len(sizes)
