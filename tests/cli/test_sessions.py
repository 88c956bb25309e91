"""Sessions from the outside: which there are, what happened in one, and how one grows."""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import pytest
import trio
import trio.testing

from tests.cli.children import PATIENCE, Child, run_child
from tests.cli.stores import add, agent, ended, made, waiting
from trio_agent import Agent, ConfigError, MessageDelivered, Place, SessionCorrupt, Usage, tool
from trio_agent._facts import stamp
from trio_agent._model import Finish, ModelChunk, TextChunk, UsageReport
from trio_agent._written import read_fact, write_fact
from trio_agent.cli._inspect import CALLS, inspect_session
from trio_agent.cli._sessions import list_sessions
from trio_agent.cli._tail import follow, tail_session
from trio_agent.sessions import JSONLStore, MemoryStore, SQLiteStore
from trio_agent.testing import ScriptedModel, call, calls, chunks, say


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "sessions.db")


# ------------------------------------------------------------------------------------------ sessions


async def test_each_session_is_a_line_with_its_state(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "ended", "failed", "waiting", "crashed")
    assert await list_sessions(store=path) == 0
    lines = [re.sub(r"\d+ s ago", "N s ago", line).split(maxsplit=5) for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        ["SESSION", "STATE", "RUNS", "TURNS", "CALLS", "TOKENS       LAST EVENT".replace("       ", "  ")],
        ["crashed", "running", "1", "1", "3", "-       N s ago"],
        ["waiting", "suspended", "1", "1", "3", "-       N s ago"],
        ["failed", "error", "1", "1", "0", "-       N s ago"],
        ["ended", "stop", "1", "2", "1", "-       N s ago"],
    ]


async def test_a_run_that_is_silent_for_long_is_told_as_crashed(
    path: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    await made(Path(path), "crashed")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 7_200)
    assert await list_sessions(store=path) == 0
    line = capsys.readouterr().out.splitlines()[1]
    assert "crashed?" in line
    assert line.endswith("2 h ago")


async def test_as_json_each_is_an_object(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "ended", "waiting")
    assert await list_sessions(store=path, json=True) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["session"], first["state"], first["waiting"]) == ("waiting", "suspended", ["c1", "c3"])
    assert (second["session"], second["state"], second["facts"]) == ("ended", "stop", 10)
    assert (second["runs"], second["turns"], second["calls"], second["statuses"]) == (1, 2, 1, {"ok": 1})
    assert second["usage"]["input"] is None


async def test_tokens_are_those_of_all_runs(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    used = chunks(UsageReport(Usage(1_000, 5)), *say_chunks("Yes."))
    async with SQLiteStore(path) as store:
        async with Agent(ScriptedModel(used, used), store=store).session("a") as session:
            await session.prompt("One.")
            await session.prompt("Two.")
    assert await list_sessions(store=path) == 0
    assert "2,000 in, 10 out" in capsys.readouterr().out


def say_chunks(text: str) -> tuple[ModelChunk, ...]:
    return TextChunk(text), Finish("stop")


async def test_a_folder_of_json_lines_is_a_store_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "logs"
    async with JSONLStore(folder) as store:
        await ended(store, "one")
        await ended(store, "two")
    assert await list_sessions(store=str(folder)) == 0
    assert await inspect_session("one", store=str(folder)) == 0
    assert capsys.readouterr().out.count("two ") == 1
    (damaged,) = folder.glob("one*")
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text("".join([*lines[:3], "{}\n", *lines[4:]]))
    assert await list_sessions(store=str(folder)) == 1
    told = capsys.readouterr()
    assert "two" in told.out
    assert told.err.startswith("one: ")
    assert "line 4" in told.err


async def test_a_log_that_contradicts_itself_is_refused_by_its_place(
    path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each record is whole, and what they tell cannot have happened."""
    place = r"fact 1 of session 'odd': a message_delivered cannot stand after those before it"
    delivered = MessageDelivered("never queued")
    stamp(delivered, 1, 0.0, Place("r", 0))
    async with SQLiteStore(path) as store:
        await ended(store, "one")
        await store.append("odd", [delivered], expected_head=0)
    assert await list_sessions(store=path) == 1
    told = capsys.readouterr()
    assert "one " in told.out
    assert told.err.startswith(f"odd: {place}")
    for verb in (inspect_session, functools.partial(tail_session, until_end=True)):
        with pytest.raises(SessionCorrupt, match=place):
            await verb("odd", store=path)


async def test_an_empty_store_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "logs").mkdir()
    assert await list_sessions(store=str(tmp_path / "logs")) == 0
    assert capsys.readouterr() == ("", "there are no sessions yet\n")


# ------------------------------------------------------------------------------------------- inspect


async def inspected(name: str, path: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    assert await inspect_session(name, store=path) == 0
    out = capsys.readouterr().out
    return re.sub(r"\b\d+ ms|\d+ s ago", "N", re.sub(r"\b[0-9a-f]{32}\b", "ID", out)).splitlines()


async def test_a_session_is_told_from_its_log(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "ended", "failed")
    assert await inspected("ended", path, capsys) == [
        "session ended: stop, written to N",
        "10 facts, 1 run, 2 turns, 1 call; calls: 1 ok",
        "      1  run ID begins; user: What is 1 + 2?",
        "      2    turn 1",
        "      3      assistant: Let me see.; asks for 1 call of add",
        '      5      add {"a": 1, "b": 2}: ok in N (once): 3',
        "      6    turn 1 ends: tool_use",
        "      7    turn 2",
        "      8      assistant: Three.",
        "      9    turn 2 ends: stop",
        "     10  the run ends: stop",
    ]
    assert (await inspected("failed", path, capsys))[
        -1
    ] == "      5  the run ends: error; INVALID_REQUEST: no such luck"


async def test_what_has_no_end_and_what_is_waited_for_is_told(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "waiting", "crashed")
    assert (await inspected("crashed", path, capsys))[-2:] == [
        "             wait {}: has started, and has no end",
        '             add {"a": 3, "b": 4}: has not started',
    ]
    lines = await inspected("waiting", path, capsys)
    assert '      4      pay {"amount": 20}: may it run? (pay requires approval)' in lines
    assert "order {}: asks: Which dish?" in [line[7:].strip() for line in lines]
    assert lines[-8:] == [
        '             pay {"amount": 20}: has not started, and waits for an answer',
        "             order {}: has started, and has no end, and waits for an answer",
        "It waits for answers:",
        '  may pay {"amount": 20} run? (pay requires approval)',
        "    --allow c1, or --deny c1=REASON",
        "  Which dish?",
        "    --answer c3=TEXT",
        f"Give them with: trio-agent resume waiting --store {path} -m MODEL -t TOOL ...",
    ]


async def test_a_turn_of_many_calls_is_a_few_lines(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with SQLiteStore(path) as store:
        many = calls(*(call("add", a=n, b=n) for n in range(CALLS + 30)))
        async with agent(ScriptedModel(many, say("Done.")), store).session("many") as session:
            await session.prompt("Go.")
    lines = await inspected("many", path, capsys)
    assert sum(" add {" in line for line in lines) == CALLS
    assert "             and 30 more calls: 30 ok" in lines


async def test_calls_without_an_end_are_a_few_lines(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    async with SQLiteStore(path) as store:
        many = calls(*(call("pay", amount=n) for n in range(CALLS + 30)))
        async with agent(ScriptedModel(many), store).session("many") as session:
            await session.prompt("Go.")
    lines = await inspected("many", path, capsys)
    assert "             and 30 more calls without an end" in lines


async def test_as_json_the_facts_are_whole(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "waiting")
    async with SQLiteStore(path) as store:
        facts = await store.read("waiting")
    assert await inspect_session("waiting", store=path, json=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [read_fact(line) for line in lines] == list(facts)
    assert lines == [write_fact(fact) for fact in facts]


async def test_what_a_model_says_cannot_move_the_cursor(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "evil\x1b[2J"

    @tool
    async def echo(text: str) -> str:
        """Echo."""
        return text

    evil = "\x1b[1A\r\u202eok"
    async with SQLiteStore(path) as store:
        model = ScriptedModel(calls(call("echo", text=evil), text=evil), say(evil))
        async with Agent(model, tools=[echo], store=store).session(name) as session:
            await session.prompt(evil)
    assert await inspect_session(name, store=path) == 0
    assert await list_sessions(store=path) == 0
    assert await tail_session(name, store=path, until_end=True) == 0
    out = capsys.readouterr().out
    assert not {"\x1b", "\r", "\u202e"} & set(out)
    assert "\\u001b[1A \\u202eok" in out


# ---------------------------------------------------------------------------------------------- tail


async def test_facts_are_told_as_they_are_committed(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    told: list[str] = []
    await ended(store, "a")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(functools.partial(follow, store, "a", told.append, lines=2, interval=1.0))
        await trio.sleep(0.5)
        assert told == ["      9  turn 2 ends: stop", "     10  the run ends: stop"]
        async with Agent(ScriptedModel(call("add", a=1, b=1), say("Two.")), tools=[add], store=store).session(
            "a"
        ) as session:
            await session.prompt("And 1 + 1?")
        assert len(told) == 2
        await trio.sleep(1)
        assert told[-1].endswith("the run ends: stop")
        assert any(line.endswith(": ok (once): 2") for line in told)
        assert len(told) == 2 + await store.head("a") - 10
        nursery.cancel_scope.cancel()


async def test_until_end_ends_when_no_run_is_under_way(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    told: list[str] = []
    await waiting(store, "a")
    with trio.fail_after(10):
        await follow(store, "a", told.append, until_end=True)
    assert told[-1].endswith("the run ends: suspended")

    @tool
    async def nap() -> str:
        """Sleep."""
        await trio.sleep(100)
        return "slept"

    async def run() -> None:
        async with Agent(ScriptedModel(call("nap"), say("Done.")), tools=[nap], store=store).session("b") as session:
            await session.prompt("Go.")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await trio.sleep(1)
        told.clear()
        await follow(store, "b", told.append, until_end=True)
    assert told[-1].endswith("the run ends: stop")
    assert trio.current_time() < 110


async def test_tail_as_json_gives_the_facts_as_they_are_kept(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    await made(Path(path), "ended")
    async with SQLiteStore(path) as store:
        facts = await store.read("ended")
    assert await tail_session("ended", store=path, until_end=True, json=True, lines=3) == 0
    assert capsys.readouterr().out.splitlines() == [write_fact(fact) for fact in facts[-3:]]


@pytest.mark.parametrize(
    ("lines", "interval", "problem"), [(-1, 1.0, "--lines"), (1, 0.0, "--interval"), (1, float("nan"), "--interval")]
)
async def test_a_number_that_cannot_be_used_is_refused(lines: int, interval: float, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await tail_session("a", lines=lines, interval=interval)


@pytest.mark.skipif(os.name != "posix", reason="Ctrl-C cannot be sent to one process there")
async def test_ctrl_c_ends_it(path: str, tmp_path: Path) -> None:
    await made(Path(path), "crashed")
    with trio.fail_after(PATIENCE):
        async with Child("tail", "crashed", "--store", path, cwd=tmp_path) as child:
            await child.out.until("wait {}: starts (once)")
            child.interrupt()
            code, _, err = await child.end()
    assert (code, err) == (130, [])


async def test_the_verbs_are_there(path: str, tmp_path: Path) -> None:
    await made(Path(path), "ended")
    for words in (["sessions"], ["inspect", "ended"], ["inspect", "ended", "--json"], ["tail", "ended", "--until-end"]):
        code, out, err = await run_child(*words, cwd=tmp_path, env={"TRIO_AGENT_STORE": path})
        assert (code, err) == (0, [])
        assert out
    code, out, err = await run_child("inspect", "endet", "--store", path, cwd=tmp_path)
    assert (code, out, err) == (2, [], ["trio-agent: there is no session 'endet'; did you mean 'ended'?"])
