"""Where sessions are kept is found by name, and a wrong name is told so, with what is there instead."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
import trio

from tests.cli.stores import ended, made
from trio_agent import ConfigError
from trio_agent.cli.__main__ import main
from trio_agent.cli._store import DEFAULT, STORE, demand_session, store_at
from trio_agent.sessions import JSONLStore, MemoryStore, SQLiteStore


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(STORE, raising=False)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("a.db", SQLiteStore),
        ("a.SQLITE3", SQLiteStore),
        ("folder", JSONLStore),
        ("dir.db", JSONLStore),
        ("file", SQLiteStore),
    ],
)
def test_the_name_or_what_is_there_says_what_it_is(path: str, kind: type, tmp_path: Path) -> None:
    (tmp_path / "dir.db").mkdir()
    (tmp_path / "file").write_text("")
    assert isinstance(store_at(path, create=True), kind)


async def test_the_option_comes_before_the_environment_and_that_before_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async with store_at(None, create=True) as store:
        await ended(store)
    assert (tmp_path / DEFAULT).is_file()
    monkeypatch.setenv(STORE, "env.db")
    assert repr(store_at(None, create=True)) == repr(SQLiteStore("env.db"))
    assert repr(store_at("option.db", create=True)) == repr(SQLiteStore("option.db"))
    monkeypatch.setenv(STORE, "")
    assert repr(store_at(None, create=False)) == repr(SQLiteStore(DEFAULT))


@pytest.mark.parametrize("verb", [["sessions"], ["inspect", "a"], ["tail", "a"], ["resume", "a"]])
def test_a_store_that_is_not_there_is_not_made(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*verb, "--store", "absent.db"]) == 2
    assert capsys.readouterr().err.startswith("trio-agent: there is no store at absent.db; trio-agent run --session")
    assert main(verb) == 2
    assert f"there is no store at {DEFAULT}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def newer(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()


@pytest.mark.parametrize("verb", [["sessions"], ["inspect", "ended"], ["tail", "ended"], ["resume", "ended"]])
def test_a_file_that_is_no_store_or_a_newer_one_is_left_as_it_is(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = tmp_path / "notes.db"
    foreign.write_text("Dear diary, " * 20)
    trio.run(made, tmp_path / "newer.db", "ended")
    newer(tmp_path / "newer.db")
    for name, problem in (("notes.db", "not a SQLite database"), ("newer.db", "its schema has version 999")):
        assert main([*verb, "--store", name]) == 2
        error = capsys.readouterr().err
        assert error.startswith("trio-agent: ")
        assert problem in error
        assert name in error
    assert foreign.read_text() == "Dear diary, " * 20


@pytest.mark.parametrize("path", ["", "  ", "x" * 5_000])
def test_a_name_that_is_none_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match="--store"):
        store_at(path, create=True)


async def test_an_unknown_session_is_told_with_those_that_are_close() -> None:
    store = MemoryStore()
    with pytest.raises(ConfigError, match="no session 'a': the store has none yet"):
        await demand_session(store, "a")
    for name in ("invoice-42", "invoice-43", "offsite", "x1", "x2", "x3"):
        await ended(store, name)
    await demand_session(store, "offsite")
    with pytest.raises(ConfigError, match=r"no session 'invoice-4'; did you mean 'invoice-4\d' or 'invoice-4\d'\?"):
        await demand_session(store, "invoice-4")
    with pytest.raises(
        ConfigError, match=r"no session '': |no session ''; there are 'x3', .*, 'invoice-43' and 1 more"
    ):
        await demand_session(store, "")
    with pytest.raises(ConfigError, match=r"no session '\\u001b\[2J'; there are 'x3'"):
        await demand_session(store, "\x1b[2J")
