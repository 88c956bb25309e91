"""Sessions as files of JSON lines: what a user of the store sees, in the folder and from it."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.sessions.jsonl_stage import files_in, fill, log_of, notes, opened, texts
from trio_agent import Agent, ConfigError, SessionConflict, read_fact, tool, write_fact
from trio_agent.sessions import JSONLStore
from trio_agent.testing import (
    RUN_LAWS,
    Case,
    RunWorld,
    ScriptedModel,
    call,
    explore_cancellation,
    explore_crashes,
    say,
    store_contract,
)
from trio_agent.testing._contracts._logbook import every_kind, wild

# ------------------------------------------------------------------------------------- the contract


def fresh(tmp_path_factory: pytest.TempPathFactory, **options: Any) -> Callable[[], JSONLStore]:
    return lambda: JSONLStore(tmp_path_factory.mktemp("store"), **options)


COUNT = len(store_contract(lambda: JSONLStore("never"), virtual=True))


@pytest.mark.parametrize("number", range(COUNT))
def test_it_keeps_the_contract_without_threads(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    store_contract(fresh(tmp_path_factory, inline=True, durability="process"))[number]()


@pytest.mark.parametrize("number", range(COUNT))
def test_it_keeps_the_contract_with_threads(number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    case: Case = store_contract(fresh(tmp_path_factory), virtual=False)[number]
    case()


@tool
async def look(path: str) -> str:
    """Look at a file."""
    await trio.sleep(1)
    return "nothing"


def world(folder: Path) -> Callable[[], RunWorld]:
    numbers = itertools.count()

    def make() -> RunWorld:
        model = ScriptedModel(call(look, path="a"), say("Nothing."))
        return RunWorld(Agent(model, tools=[look], store=opened(folder / str(next(numbers)))))

    return make


def test_a_run_on_it_may_be_cut_anywhere(tmp_path: Path) -> None:
    report = explore_cancellation(world(tmp_path), RunWorld.play, laws=RUN_LAWS).raise_for_findings()
    assert report.tried == report.met > 20


def test_a_run_on_it_may_crash_behind_any_fact(tmp_path: Path) -> None:
    explore_crashes(world(tmp_path)).raise_for_findings()


# -------------------------------------------------------------------------------------- the files


async def test_a_session_is_a_file_of_one_header_and_a_line_a_fact(tmp_path: Path) -> None:
    facts = every_kind()
    async with opened(tmp_path) as store:
        await store.append("invoice-42", facts[:3], expected_head=0)
        await store.append("invoice-42", facts[3:], expected_head=3)
    assert list(files_in(tmp_path)) == ["invoice-42.jsonl"]
    header, *lines = (tmp_path / "invoice-42.jsonl").read_text().splitlines()
    assert json.loads(header) == {"trio_agent": "session", "v": 1, "session": "invoice-42"}
    assert lines == texts(facts)
    assert [json.loads(line)["seq"] for line in lines] == list(range(1, len(facts) + 1))


async def test_a_file_is_ascii_and_has_a_line_a_fact_whatever_they_say(tmp_path: Path) -> None:
    facts = wild()
    async with opened(tmp_path) as store:
        await store.append("s", facts, expected_head=0)
    data = (tmp_path / "s.jsonl").read_bytes()
    assert data.isascii()
    assert data.count(b"\n") == len(facts) + 1


async def test_what_one_store_has_written_another_goes_on_with(tmp_path: Path) -> None:
    facts = every_kind()
    for number, fact in enumerate(facts):
        async with opened(tmp_path) as store:
            assert await store.head("s") == number
            assert await store.append("s", [fact], expected_head=number) == number + 1
    assert await log_of(opened(tmp_path)) == texts(facts)


async def test_two_stores_on_one_folder_see_each_other(tmp_path: Path) -> None:
    one, other = opened(tmp_path), JSONLStore(str(tmp_path), durability="process")
    with trio.fail_after(60):
        for head in range(0, 12, 2):
            assert await one.append("s", notes(head + 1, 1), expected_head=head) == head + 1
            with pytest.raises(SessionConflict, match=f"expected the head {head}, it is {head + 1}"):
                await other.append("s", notes(head + 1, 1, "mine"), expected_head=head)
            assert await other.append("s", notes(head + 2, 1), expected_head=head + 1) == head + 2
            assert await one.head("s") == await other.head("s") == head + 2
            assert await one.read("s", after=head) == await other.read("s", after=head)
        assert [info.head for info in await one.list()] == [12]
        await other.delete("s")
        assert await one.head("s") == 0
        assert await one.append("s", notes(1, 1, "anew"), expected_head=0) == 1
        assert await log_of(other) == texts(notes(1, 1, "anew"))


async def test_a_session_that_was_begun_anew_elsewhere_is_noticed(tmp_path: Path) -> None:
    """With as many facts, as many bytes, and perhaps the same place on the disk."""
    one, other = opened(tmp_path), opened(tmp_path)
    for mark in "abcdef":
        await one.append("s", notes(1, 2, mark), expected_head=0)
        assert await log_of(other) == texts(notes(1, 2, mark))
        assert await other.append("s", notes(3, 1, mark), expected_head=2) == 3
        assert await log_of(one, after=2) == texts(notes(3, 1, mark))
        await one.delete("s")


async def test_the_folder_is_made_at_the_first_append(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    store = opened(folder, durability="power")
    assert (await store.list(), await store.read("s"), await store.head("s")) == ((), (), 0)
    assert await store.delete("s") is False
    assert not folder.exists()
    await fill(store)
    assert list(files_in(folder)) == ["s.jsonl"]


async def test_a_folder_stays_where_it_was_when_the_program_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = opened(Path("here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await fill(store)
    assert list(files_in(tmp_path / "here")) == ["s.jsonl"]


async def test_nothing_is_left_of_what_was_deleted(tmp_path: Path) -> None:
    store = opened(tmp_path, on_torn_tail=lambda tail: None)
    await fill(store)
    with (tmp_path / "s.jsonl").open("ab") as file:
        file.write(b'{"v":1,')
    await fill(store)
    assert sorted(files_in(tmp_path)) == ["s.jsonl", "s.jsonl.torn"]
    await store.delete("s")
    assert files_in(tmp_path) == {}


async def test_a_fork_is_a_file_of_its_own_with_the_same_lines(tmp_path: Path) -> None:
    store = opened(tmp_path, durability="power")
    await fill(store, "s", 5)
    await store.fork("s", "t", at=3)
    source, fork = ((tmp_path / f"{name}.jsonl").read_bytes().splitlines()[1:] for name in "st")
    assert fork == source[:3]
    assert sorted(files_in(tmp_path)) == ["s.jsonl", "t.jsonl"]
    mask = os.umask(0)
    os.umask(mask)
    assert {path.stat().st_mode & 0o777 for path in map(tmp_path.joinpath, files_in(tmp_path))} == {0o666 & ~mask}


async def test_a_fork_takes_the_place_of_a_file_that_came_to_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store)
    header = (tmp_path / "s.jsonl").read_bytes().splitlines(keepends=True)[0].replace(b'"s"', b'"t"')
    for leftover in (b"", header[:9], header):
        (tmp_path / "t.jsonl").write_bytes(leftover)
        await store.fork("s", "t", at=2)
        assert await log_of(store, "t") == texts(notes(1, 2))
        await store.delete("t")


async def test_a_list_is_in_the_order_of_what_was_written_by_whichever_store(tmp_path: Path) -> None:
    stores = [opened(tmp_path), opened(tmp_path)]
    for number in range(40):
        await fill(stores[number % 2], f"s{number % 7}")
        newest = [f"s{n % 7}" for n in range(number, max(number - 7, -1), -1)]
        assert [info.session for info in await stores[0].list()] == newest


async def test_whole_numbers_of_seconds_are_not_all_that_a_list_tells(tmp_path: Path) -> None:
    store = opened(tmp_path)
    await fill(store)
    (info,) = await store.list()
    assert info.updated == (tmp_path / "s.jsonl").stat().st_mtime_ns / 1e9


async def test_every_line_is_read_by_the_function_that_reads_facts(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = opened(tmp_path)
    agent = Agent(ScriptedModel(call(look, path="a"), say("Done.")), tools=[look], store=store)
    with trio.fail_after(60):
        await agent.send("go", session="s")
    lines = (tmp_path / "s.jsonl").read_text().splitlines()[1:]
    assert [write_fact(read_fact(line)) for line in lines] == lines == await log_of(store)


# ------------------------------------------------------------------------------------- the store


async def test_it_remembers_where_so_many_sessions_end_and_no_more(tmp_path: Path) -> None:
    store = opened(tmp_path)
    for number in range(1_030):
        await fill(store, f"s{number}", 1)
    assert len(store._known) == 1_024
    assert await fill(store, "s0", 1) == 2


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"durability": "always"}, "expected durability to be one of power, process, got 'always'"),
        ({"busy_timeout": -1}, "expected busy_timeout to be between 0 and 86400 s, got -1"),
        ({"busy_timeout": float("nan")}, "expected busy_timeout to be between 0 and 86400 s, got nan"),
        ({"folder": ""}, "keeps its sessions in a folder, not in ''"),
    ],
)
def test_an_argument_that_cannot_be_used_is_refused(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        JSONLStore(**{"folder": "x", **options})


def test_it_says_where_it_is(tmp_path: Path) -> None:
    assert repr(JSONLStore(tmp_path)) == f"JSONLStore({str(tmp_path)!r})"
