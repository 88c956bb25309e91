"""Checks the log of a session: each step against what is decided there, and each run by running it again.

Knows nothing of stores and terminals.  Needs a clock that jumps when every task waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs

from .._core._state import State, fold
from .._facts import Fact
from ._conductor import is_copied
from ._record import Record
from ._replay_parts import Part, parts_of
from ._replay_run import run_again
from ._replay_steps import first_unexplained
from ._tally import plural

__all__ = ["Checked", "check_log"]


@attrs.frozen
class Checked:
    """What the check has come to."""

    counted: str
    """``10 facts, 2 turns, 1 call``."""
    difference: str | None = None
    """The first place where it is not the same, and how; nothing behind it was looked at."""
    copied: int = 0
    """Facts that no log lets anybody do again, and that were taken as they are."""
    not_led: tuple[str, ...] = ()
    """What could not be run again to its end, and was not compared from there on: which facts, and why."""

    @property
    def is_same(self) -> bool:
        """Whether no difference was found."""
        return self.difference is None

    def lines(self) -> Iterator[str]:
        """What is told of it."""
        if self.difference is not None:
            yield f"{self.counted}: NOT the same"
            yield f"  {self.difference}"
            return
        if self.copied:
            yield f"{plural(self.copied, 'fact')} of hooks and of the caller: taken as they are"
        yield from self.not_led
        yield f"{self.counted}: the same{', as far as they could be run again' if self.not_led else ''}"


async def check_log(facts: Sequence[Fact], session: str) -> Checked:
    """Check it.  A checkpoint.

    Raises:
      SessionCorrupt: a fact cannot stand after those before it.
    """
    record = Record(session)
    for fact in facts:
        record.see(fact)
    counts = (plural(len(facts), "fact"), plural(record.turns, "turn"), plural(record.calls, "call"))
    counted = ", ".join(counts)
    difference = first_unexplained(facts)
    if difference is not None:
        return Checked(counted, difference)
    state = State()
    copied, not_led = 0, list[str]()
    for part in parts_of(facts, session):
        if part.is_run:
            copied += sum(map(is_copied, part.facts))
            parting = await run_again(facts[: part.start], state, part)
            if parting is not None:
                turn = part.cut_turn(parting.place)
                if turn is None:
                    return Checked(counted, parting.text)
                not_led.append(_not_led(part, turn, parting.text))
        for fact in part.facts:
            fold(state, fact)
    return Checked(counted, None, copied, tuple(not_led))


def _not_led(part: Part, turn: int, parting: str) -> str:
    return (
        f"facts {part.start + turn + 1:,} to {part.stop:,}: each follows from those before it, but the turn was cut at a "
        f"moment that the log does not tell exactly, and run again it parts from it there: {parting}"
    )
