"""An exploration finds the same in every process, whatever its hash seed: law, place, token, and how often."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.testing.determined import everything

ROOT = Path(__file__).parent.parent.parent
HASH_SEEDS = ("0", "1", "4242")


@pytest.fixture(scope="module")
def told() -> list[Any]:
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.testing.determined"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in HASH_SEEDS
    ]
    texts = [child.communicate(timeout=120)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children)
    return [json.loads(text) for text in texts]


@pytest.mark.parametrize("what", ["cuts", "pairs", "faults", "schedules"])
def test_the_same_is_found_in_every_process(told: list[Any], what: str) -> None:
    first, *others = (each[what] for each in told)
    assert first["findings"]
    for other in others:
        assert other == first


def test_orders_are_seeded_and_the_bugs_are_where_they_were_planted(told: list[Any]) -> None:
    assert told[0]["seeded"] is True
    laws = {finding[0] for what in ("cuts", "pairs") for finding in told[0][what]["findings"]}
    assert laws == {"no_call_is_cut"}
    assert any("lossy" in finding[1] for finding in told[0]["cuts"]["findings"])
    assert [finding[0] for finding in told[0]["schedules"]["findings"]] == ["the_first_to_begin_is_the_first_to_end"]


def test_it_is_the_same_in_a_process_that_has_done_other_things(told: list[Any]) -> None:
    assert json.loads(json.dumps(everything())) == told[0]
