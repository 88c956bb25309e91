"""Every kind of cut, fault, schedule and crash on every world: at least once at each place, and a draw of the rest.

``python -m tests.exploration`` tries all points; the gate runs it.
"""

from __future__ import annotations

import os

import pytest

from tests.exploration.conversations import CONVERSATIONS
from tests.exploration.kernel import EXPLORATIONS
from tests.exploration.worlds import THREADED, WORLDS
from trio_agent import ConfigChange, InputResolved, Rewind
from trio_agent.testing import RunWorld, SessionWorld, replay

LIMIT = int(os.environ.get("TRIO_AGENT_EXPLORE", "20"))
"""The most trials of one exploration."""


@pytest.mark.parametrize("name", EXPLORATIONS)
def test_no_law_is_broken(name: str) -> None:
    report = EXPLORATIONS[name].explore(LIMIT).raise_for_findings()
    assert report.tried > 5


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_that_nobody_touches_uses_what_it_is_there_for(name: str) -> None:
    trial = replay("untouched", WORLDS[name], RunWorld.play)
    world = trial.world
    assert trial.error is None
    assert world.result.stop_reason == "stop"
    assert 3 <= world.result.turns <= 6
    assert len(world.calls.ran) >= 2
    assert world.accepted == world.offered != []
    assert bool(world.heard) == ("listener" in name or "all" in name)
    assert (world.store is not None) == ("durable" in name or "all" in name)
    assert bool(world.seams.crossings["hook"]) == ("hooks" in name or "all" in name)


def test_the_world_with_threads_runs_calls_in_threads() -> None:
    trial = replay("untouched", THREADED, RunWorld.play, autojump_threshold=0.02)
    assert [ran.result.text for ran in trial.world.calls.ran if ran.result is not None].count("threaded") == 3


REASONS = {
    "talked": ["stop"] * 3,
    "asked": ["stop"] * 2,
    "suspended": ["suspended"] * 3 + ["stop", "suspended", "stop"],
    "queued": ["stop"] * 2,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_a_session_that_nobody_touches_uses_what_it_is_there_for(name: str) -> None:
    trial = replay("untouched", CONVERSATIONS[name], SessionWorld.play)
    world = trial.world
    kind = name.partition(",")[0]
    assert trial.error is None
    assert [played.result.stop_reason for played in world.runs] == REASONS[kind]
    assert world.accepted == world.offered
    assert (world.store is None) == ("durable" not in name and "SQLite" not in name)
    assert bool(world.heard) == ("listener" in name)
    facts = {type(fact) for fact in world.log}
    answers = [(type(each.answer).__name__) for each in world.asked]
    match kind:
        case "talked":
            assert facts >= {ConfigChange, Rewind}
            assert len(world.forks) == (world.store is not None)
        case "asked":
            assert sorted(answers) == ["Allow", "Allow", "Allow", "Deny", "str", "str"]
        case "suspended":
            assert set(answers) == {"Suspend"}
            assert InputResolved in facts
            assert len({ran.call_id for ran in world.calls.ran}) < len(world.calls.ran), "one runs again from its start"
        case _:
            assert world.runs[0].events[-1].seq < world.runs[1].events[0].seq
