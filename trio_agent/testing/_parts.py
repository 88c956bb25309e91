"""The parts of a script, by names that stay what they are when others are left out.

``turn 2`` is the second answer, ``call 2.1`` its first call, ``chunk 2.1`` its first piece of text or pause.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import attrs

from ._answers import Answer, ScriptedCall, Step
from ._script import Turn

__all__ = ["goes_with", "parts_of", "without"]


def parts_of(turns: Sequence[Turn]) -> tuple[str, ...]:
    """The names of all parts: turns, then calls, then chunks; later ones first, since less depends on them."""
    indexes = range(len(turns), 0, -1)
    named = [name for index in indexes for name, _ in _steps(index, turns[index - 1])]
    return (
        *(f"turn {index}" for index in indexes),
        *(name for name in named if name.startswith("call")),
        *(name for name in named if name.startswith("chunk")),
    )


def _steps(index: int, turn: Turn) -> Iterator[tuple[str, Step]]:
    """The steps of one answer, with their names; last first."""
    if isinstance(turn, Answer) and len(turn.steps) > 1:
        for number, step in reversed(list(enumerate(turn.steps, 1))):
            yield f"{'call' if isinstance(step, ScriptedCall) else 'chunk'} {index}.{number}", step


def goes_with(part: str, others: Collection[str]) -> bool:
    """Whether a part is left out already with its turn."""
    turn, dot, _ = part.partition(" ")[2].partition(".")
    return bool(dot) and f"turn {turn}" in others


def without(turns: Sequence[Turn], parts: Collection[str]) -> tuple[Turn, ...]:
    """The script without these parts.

    Raises:
      ValueError: it has no such part.
    """
    if unknown := sorted(set(parts) - set(parts_of(turns))):
        raise ValueError(f"the script has no {', '.join(unknown)}")
    left: list[Turn] = []
    for index, turn in enumerate(turns, 1):
        if f"turn {index}" in parts:
            continue
        gone = {name for name, _ in _steps(index, turn)} & set(parts)
        if isinstance(turn, Answer) and gone:
            steps = tuple(step for name, step in reversed(list(_steps(index, turn))) if name not in gone)
            turn = attrs.evolve(turn, steps=steps)
        left.append(turn)
    return tuple(left)
