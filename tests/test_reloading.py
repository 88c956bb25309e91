"""What holds every run's log against its state would notice: each test here plants a difference."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.reloading import Reloading, written_history
from trio_agent import (
    Agent,
    AgentEnd,
    Event,
    Fact,
    Message,
    MessageEnd,
    MessageQueued,
    Place,
    Run,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    read_fact,
    tool,
)
from trio_agent._core._state import State
from trio_agent._facts import stamp
from trio_agent._kernel._journal import Journal
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls

ROOT = Path(__file__).parent.parent
STORES = pytest.mark.parametrize("store", [None, MemoryStore], ids=["volatile", "durable"])


def journal_of(run: Run) -> Journal:
    return run._journal


async def play(store: Callable[[], MemoryStore] | None, plant: Callable[[Journal], object]) -> None:
    """A run with calls, in whose last moment something is changed."""

    @tool(effect="pure")
    async def look() -> str:
        return "looked"

    async def listen(event: Event) -> None:
        if isinstance(event, AgentEnd):
            plant(journal_of(run))

    model = ScriptedModel(calls(call(look, id="a"), call(look, id="b")), "Done.")
    with trio.fail_after(100):
        async with Agent(model, tools=[look], store=store and store()).run("go") as run:
            run.subscribe(listen)
            await run.wait()


@STORES
async def test_a_run_that_is_what_its_log_says_is_looked_at_and_nothing_is_found(
    autojump_clock: MockClock, store: Callable[[], MemoryStore] | None, reloading: Reloading
) -> None:
    looks = reloading.looks
    await play(store, lambda journal: None)
    assert reloading.looks > looks
    assert reloading.found == []


def _queue(state: State) -> None:
    state.queue["q"] = MessageQueued("q", "steer", Message("user", "Psst."))
    stamp(state.queue["q"], 1, 0, Place("r", 1))


def _forget(state: State) -> None:
    state.call_ids.discard("b")


def _say_more(state: State) -> None:
    state.transcript._items.append(Message("user", "Psst."))


def _say_otherwise(state: State) -> None:
    answer = state.transcript[-1]
    state.transcript._items[-1] = Message("assistant", (Text("Done. "),), answer.finish_reason, None, answer.id)


def _stamp(state: State) -> None:
    assert state.last is not None
    last = attrs.evolve(state.last)
    stamp(last, state.last.seq, state.last.time + 1, state.last.place)
    state.last = last


def _answer(state: State) -> None:
    asked = state.transcript[2]
    state.transcript._items[2] = Message("tool", tuple(reversed(asked.content)))


def _show(state: State) -> None:
    state.transcript._projection._shown.append(Message("user", "Psst."))


PLANTED: dict[str, tuple[str, Callable[[State], object]]] = {
    "a message more": ("transcript", _say_more),
    "another text": ("transcript", _say_otherwise),
    "results in another order": ("transcript", _answer),
    "a message that only models see": ("visible", _show),
    "usage": ("usage", lambda state: setattr(state, "usage", state.usage + Usage(input=1))),
    "a whole number that is none": ("usage", lambda state: setattr(state, "usage", Usage(input=0.0))),  # type: ignore[arg-type]  # planted
    "the number of the turn": ("turn", lambda state: setattr(state, "turn", 7)),
    "turns": ("turns", lambda state: setattr(state, "turns", 7)),
    "a queued message": ("queue", _queue),
    "a call's id": ("call_ids", _forget),
    "the stop reason": ("stop_reason", lambda state: setattr(state, "stop_reason", "aborted")),
    "a place to go back to": ("boundaries", lambda state: state.boundaries.popitem()),
    "a stamp": ("last", _stamp),
    "a fact that is not in the log": ("head", lambda state: setattr(state, "head", state.head + 1)),
}
"""What is wrong, and how it is made."""


@STORES
@pytest.mark.parametrize("what", PLANTED)
async def test_a_state_that_is_not_what_the_log_adds_up_to_is_found(
    autojump_clock: MockClock, what: str, store: Callable[[], MemoryStore] | None, reloading: Reloading
) -> None:
    name, plant = PLANTED[what]
    await play(store, lambda journal: plant(journal.state))
    (found, *others) = reloading.take()
    assert others == []
    assert f": {name}, from character " in found


@STORES
async def test_what_reads_otherwise_than_it_was_written_is_found(
    autojump_clock: MockClock,
    store: Callable[[], MemoryStore] | None,
    reloading: Reloading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reloading, "read", lambda text: read_fact(text.replace('"looked"', '"locked"')))
    await play(store, lambda journal: None)
    found, visible = reloading.take()
    assert ": transcript, from character " in found
    assert ": visible, from character " in visible
    assert "looked" in found
    assert "locked" in found


@STORES
async def test_a_log_that_cannot_be_read_again_is_found(
    autojump_clock: MockClock,
    store: Callable[[], MemoryStore] | None,
    reloading: Reloading,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reloading, "read", lambda text: read_fact(text[:-1]))
    await play(store, lambda journal: None)
    (found,) = reloading.take()
    assert "the log cannot be reloaded: SessionCorrupt: " in found


async def test_a_fact_that_is_not_in_a_volatile_log_is_found(autojump_clock: MockClock, reloading: Reloading) -> None:
    await play(None, lambda journal: journal.log.pop())
    assert any("stop_reason" in each for each in reloading.take())


async def test_facts_that_a_store_is_given_in_another_order_are_found(
    autojump_clock: MockClock, reloading: Reloading
) -> None:
    @tool(effect="pure")
    async def meddle() -> None:
        queue = journal_of(run)._queue
        queue[0], queue[1] = queue[1], queue[0]

    agent = Agent(ScriptedModel(call(meddle), "Done."), tools=[meddle], store=MemoryStore())
    with trio.fail_after(100):
        async with agent.run("go") as run:
            await run.wait()
    (found,) = reloading.take()
    assert "behind 0 came ['agent_start', 'turn_start'," in found
    assert "the store was given ['turn_start', 'agent_start'," in found


async def test_a_fact_that_a_store_is_not_given_is_found(
    autojump_clock: MockClock, reloading: Reloading, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Journal._commit

    async def forgetful(journal: Journal) -> None:
        if isinstance(journal._queue[-1][0], AgentEnd):
            journal._queue.pop()
            await commit(journal)
            journal._committed += 1
            journal._tell_waiters()
        else:
            await commit(journal)

    monkeypatch.setattr(Journal, "_commit", forgetful)
    await play(MemoryStore, lambda journal: None)
    assert all("the store was not given ['agent_end'], and nothing has failed" in each for each in reloading.take())


def test_the_written_history_is_what_a_log_would_say() -> None:
    messages = [
        Message("user", "go"),
        Message("assistant", (ToolCall("a", "look"),), "tool_use", id="m"),
        Message("tool", (ToolResult("a", (Text("looked"),)),)),
    ]
    fact: Fact = MessageEnd(messages[1])
    assert written_history(messages).count('"look"') == 1
    assert written_history([fact.message]) == written_history([messages[1]])
    assert written_history(messages) != written_history(messages[::-1])


def test_a_difference_fails_the_test_whose_run_has_it(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "conftest.py", tmp_path)
    (tmp_path / "test_planted.py").write_text(
        "import trio\n"
        "from trio_agent import Agent\n"
        "from trio_agent.testing import ScriptedModel\n"
        "async def run(plant):\n"
        "    async with Agent(ScriptedModel('Done.')).run('go') as run:\n"
        "        if plant: run._journal.state.turns += 1\n"
        "        await run.wait()\n"
        "def test_good(): trio.run(run, False)\n"
        "def test_bad(): trio.run(run, True)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed, 1 error" in done.stdout
    assert "a log, reloaded, is not what its run had" in done.stdout
    assert "ERROR test_planted.py::test_bad" in done.stdout
