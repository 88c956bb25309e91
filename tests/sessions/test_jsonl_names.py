"""The name of a session's file can be read, and is another one for each session, on every file system."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.sessions.jsonl_stage import files_in, fill, opened
from trio_agent.sessions._file_names import file_name, session_in
from trio_agent.testing._contracts._logbook import NAMES


@pytest.mark.parametrize(
    ("session", "name"),
    [
        ("invoice-42", "invoice-42.jsonl"),
        ("v1.2_final", "v1.2_final.jsonl"),
        ("Invoice 42", "%49nvoice%2042.jsonl"),
        ("a/b", "a%2fb.jsonl"),
        ("100%", "100%25.jsonl"),
        ("é", "%c3%a9.jsonl"),
        ("..", "%2e..jsonl"),
        ("-rf", "%2drf.jsonl"),
        ("nul", "%6eul.jsonl"),
        ("com1.log", "%63om1.log.jsonl"),
        ("console", "console.jsonl"),
        ("\ud83d", "%ed%a0%bd.jsonl"),
        ("", "%.jsonl"),
    ],
)
def test_a_files_name_can_be_read(session: str, name: str) -> None:
    assert file_name(session) == name
    assert session_in(name) == session


def test_a_name_that_is_too_long_keeps_its_beginning() -> None:
    name = file_name("Grüße " * 60)
    assert name.startswith("%47r%c3%bc%c3%9fe%20%47r")
    assert len(name) < 200
    assert session_in(name) is None
    assert "%" not in name.partition("~")[0][-2:], "a byte is not cut in half"


@given(st.one_of(st.text(), st.text("aA%.~-_\ud83d", max_size=8), st.text(min_size=60, max_size=400)))
def test_a_files_name_suits_every_file_system(session: str) -> None:
    name = file_name(session)
    assert name.isascii()
    assert name == name.casefold() == unicodedata.normalize("NFKD", name)
    assert 7 <= len(name) <= 250 - len(".torn")
    assert not set(name) & set('/\\:*?"<>|\0 ')
    assert name[0] not in ".-"
    assert session_in(name) in ([session] if "~" not in name else [None])


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_sessions_never_have_one_file(one: str, other: str) -> None:
    assert (file_name(one) == file_name(other)) == (one == other)


@given(st.text("abA%.~0123456789", max_size=12))
def test_what_is_no_name_of_ours_is_no_session(stem: str) -> None:
    session = session_in(f"{stem}.jsonl")
    assert session is None or file_name(session) == f"{stem}.jsonl"


async def test_names_of_all_kinds_are_listed_as_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for name in NAMES:
            await fill(store, name, 1)
    assert {info.session for info in await opened(tmp_path).list()} == set(NAMES)
    assert len(files_in(tmp_path)) == len(NAMES)


async def test_two_halves_of_a_pair_are_not_the_whole(tmp_path: Path) -> None:
    """JSON cannot tell them apart; the files' names can."""
    store = opened(tmp_path)
    halves, whole = "\ud83d\udc4b", "👋"
    await fill(store, halves, 1)
    await fill(store, whole, 2)
    assert {info.session: info.head for info in await store.list()} == {halves: 1, whole: 2}
    assert [len(await store.read(name)) for name in (halves, whole)] == [1, 2]
