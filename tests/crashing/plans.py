"""When the program is killed: by chance, or at chosen points.  Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Final

import attrs

from tests.crashing.script import CALLS

_LINES: Final = 7 * CALLS // 2
"""About as many as are heard of a program that nobody kills."""
_MOMENTS: Final[Mapping[str, int]] = {
    "agent_end": 4,
    "agent_resume": 1,
    "agent_start": 4,
    "approval_request": 6,
    "approval_resolved": 6,
    "message_delivered": 5,
    "message_end": 15,
    "model": 15,
    "release": 3,
    "sign": 3,
    "steered": 4,
    "steers": 4,
    "turn_end": 15,
    "turn_start": 15,
}
"""What is heard seldom, and is worth being killed at; and how often it is, of a program that nobody kills."""


@attrs.frozen
class Kill:
    """When the program is killed."""

    after: int
    """So many lines are heard before; 0: none, it is killed while it starts."""
    of: str = ""
    """Lines that begin with this word, or have it behind their first one; by default all."""
    spin: int = 0
    """Steps of an idle loop after the last of these."""


@attrs.frozen
class Plan:
    """One round: each life but the last has a kill."""

    seed: str
    """Of what the program does by chance."""
    kills: tuple[Kill, ...] = ()
    prompts: tuple[int, ...] = ()
    """Numbers of the lives that begin with a prompt, from 0; the others resume."""


def plan_of(seed: str) -> Plan:
    """A plan by chance, for one to three kills; seldom moments come oftener than in their time they would."""
    rng = random.Random(seed)
    kills: list[Kill] = []
    left = _LINES
    for _ in range(rng.choice((1, 1, 2, 3))):
        spin = rng.choice((0, rng.randrange(2_000), rng.randrange(50_000)))
        way = rng.random()
        if way < 0.1:  # while it opens its store and its session: some milliseconds
            kills.append(Kill(0, spin=rng.randrange(300_000)))
        elif way < 0.5:
            moment = rng.choice(sorted(_MOMENTS))
            kills.append(Kill(1 + rng.randrange(_MOMENTS[moment]) // (1 + len(kills)), moment, spin))
            left = max(20, left // 2)
        else:
            after = rng.randrange(1, left)
            kills.append(Kill(after, spin=spin))
            left = max(20, left - after)
    return Plan(seed, tuple(kills), tuple(number for number in range(1, len(kills) + 1) if rng.random() < 0.2))


CHOSEN: Final[Mapping[str, Plan]] = {
    "while it starts": Plan("a", (Kill(0), Kill(0, spin=50_000))),
    "at its first fact": Plan("b", (Kill(1, "fact"), Kill(1, "fact"))),
    "while the model answers": Plan("c", (Kill(2, "model"), Kill(1, "model"), Kill(3, "model"))),
    "while calls are prepared": Plan("d", (Kill(1, "approval_request"), Kill(1, "approval_resolved"))),
    "among the first calls of a turn": Plan("e", (Kill(5, "ran"), Kill(9, "note"), Kill(12, "pay"))),
    "among many calls": Plan("f", (Kill(33, "ran"), Kill(60, "ran"), Kill(50, "ran"))),
    "while a call runs alone": Plan("g", (Kill(1, "ran"), Kill(3, "send"), Kill(3, "crunch"))),
    "while a steer is accepted": Plan("h", (Kill(1, "steers"), Kill(1, "steers"), Kill(1, "message_delivered"))),
    "between turns": Plan("i", (Kill(2, "turn_end"), Kill(3, "turn_end"), Kill(4, "turn_end"))),
    "while it waits for an answer": Plan("j", (Kill(1, "agent_end"), Kill(1, "release"), Kill(2, "agent_end"))),
    "at the end": Plan("k", (Kill(90, "ran"), Kill(2, "agent_end"), Kill(1, "agent_end"))),
    "and prompted": Plan("l", (Kill(30, "ran"), Kill(30, "ran"), Kill(1, "agent_end")), prompts=(1, 2, 3)),
}
"""Plans that kill where it matters, by what they do."""
