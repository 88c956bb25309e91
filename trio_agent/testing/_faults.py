"""Let the outside world fail: an exception at each crossing of each seam, before and after its effect."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ._findings import Law, Report, Tally
from ._general_laws import LAWS
from ._plan import WHENS, Fault, Plan, When, schedules, sides
from ._seams import InjectedFault
from ._stage import Stage
from ._trial import Location, Scenario

__all__ = ["explore_faults"]

W = TypeVar("W")


def explore_faults(
    make_world: Callable[[], W],
    scenario: Scenario[W],
    *,
    laws: Sequence[Law[W]] = LAWS,
    seams: Iterable[str] | None = None,
    when: Iterable[When] = WHENS,
    error: Callable[[], Exception] = InjectedFault,
    seeds: int = 1,
    limit: int | None = None,
    autojump_threshold: float | None = 0,
) -> Report[W]:
    """Run a scenario once for each crossing of a seam, and have that crossing fail.

    ``before`` its effect the call does not happen; ``after`` it, it has happened and its answer is lost, as
    when a database has committed and the connection breaks.  Synchronous, as :func:`explore_cancellation`.

    Args:
      make_world: makes a new world for each trial; it has an attribute ``seams``, a :class:`Seams`.
      scenario: an async function of the world.
      laws: asked after each trial.
      seams: the names of those that shall fail; by default all that the untouched scenario crosses.  A
        :class:`RunWorld` or :class:`SessionWorld` has ``model``, ``tool``, ``append``, ``read``, ``fork``,
        ``listener``, ``hook``, ``approval`` and ``input``.
      when: on which side of the effect.
      error: makes what is raised.
      seeds: how many different schedules to explore.
      limit: the most crossings of a seam, drawn evenly, on each side; the report says how many there are.
      autojump_threshold: as for :func:`explore_cancellation`.

    Raises:
      TypeError: the world has no seams.
      ValueError: an argument makes no sense: the untouched scenario does not cross a seam that is named.
      RuntimeError: called inside of a Trio run.
    """
    stage = Stage(make_world, scenario, tuple(laws), autojump_threshold, error)
    tally = Tally("faults", stage.laws)
    whens = sides(when)
    chosen = None if seams is None else tuple(seams)
    if limit is not None and limit < 1:
        raise ValueError(f"expected limit to be at least 1, got {limit}")
    for seed in schedules(seeds):
        untouched = stage.trial(Plan(seed=seed))
        crossed = stage.seams_of(untouched.world).crossings
        if not tally.take(untouched) or untouched.stuck:
            break
        if unknown := set(chosen or ()) - set(crossed):
            raise ValueError(f"seams that are never crossed: {sorted(unknown)}; there are {sorted(crossed)}")
        for seam, side in itertools.product(sorted(crossed) if chosen is None else chosen, whens):
            step = 1 if limit is None else -(-crossed[seam] // limit)
            for crossing in range(1, crossed[seam] + 1, step):
                trial = stage.trial(Plan(fault=Fault(seam, side, crossing), seed=seed))
                if trial.injected is None:
                    continue  # a call that never returns has nothing behind its effect
                tally.met += min(step, crossed[seam] - crossing + 1)
                tally.take(trial, Location(f"the seam {seam}, {side} its effect"))
                if trial.stuck:
                    return tally.report()
    return tally.report()
