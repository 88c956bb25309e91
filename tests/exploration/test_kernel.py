"""Every kind of cut, fault, schedule and crash on every world: at least once at each place, and a draw of the rest.

``python -m tests.exploration`` tries all points; the gate runs it.
"""

from __future__ import annotations

import os

import pytest

from tests.exploration.kernel import EXPLORATIONS
from tests.exploration.worlds import THREADED, WORLDS
from trio_agent.testing import RunWorld, replay

LIMIT = int(os.environ.get("TRIO_AGENT_EXPLORE", "40"))
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
