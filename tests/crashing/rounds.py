"""A round from its seed to what it came to, in a folder of its own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import attrs

from tests.crashing.course import Course, play
from tests.crashing.laws import LAWS
from tests.crashing.plans import Plan, plan_of
from tests.crashing.program import Disk, Durability, StoreName
from tests.crashing.tally import Tally, tally_of


@attrs.frozen
class Outcome:
    """What a round came to."""

    plan: Plan
    tally: Tally
    broken: tuple[str, ...] = ()
    """The laws that it has broken, and how."""
    left: str = ""
    """Where its disk is kept, if it has broken one."""


def play_seed(seed: str, store: StoreName, durability: Durability) -> Outcome:
    """Play the round of a seed, and hold it against the laws."""
    return play_plan(plan_of(seed), store, durability)


def play_plan(plan: Plan, store: StoreName, durability: Durability) -> Outcome:
    """Play a round, and hold it against the laws."""
    folder = Path(tempfile.mkdtemp(prefix="crashing-"))
    tally: Tally = Tally()
    try:
        course = play(plan, Disk(folder, store, durability))
        tally = tally_of(course)
        broken = tuple(violations(course))
    except Exception as error:
        broken = (f"{type(error).__name__}: {error}",)
    if not broken:
        shutil.rmtree(folder)
    return Outcome(plan, tally, broken, str(folder) if broken else "")


def violations(course: Course) -> Iterator[str]:
    """The laws that a round has broken, and how."""
    for law in LAWS:
        try:
            law(course)
        except AssertionError as error:
            yield f"{law.__name__}: {error}"
