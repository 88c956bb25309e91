"""Try other orders: extra checkpoints at the seams and another shuffle of the tasks, both drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ._findings import Law, Report, Tally
from ._general_laws import LAWS
from ._plan import Plan, schedules
from ._stage import Stage
from ._trial import Location, Scenario

__all__ = ["explore_schedules"]

W = TypeVar("W")


def explore_schedules(
    make_world: Callable[[], W],
    scenario: Scenario[W],
    *,
    laws: Sequence[Law[W]] = LAWS,
    seeds: int = 100,
    autojump_threshold: float | None = 0,
) -> Report[W]:
    """Run a scenario under many schedules; what breaks under one of them has its seed in the token.

    Trio shuffles the tasks that are ready at once; that alone gives few different orders.  So each
    crossing of a seam also waits for a few extra checkpoints.  Synchronous, as :func:`explore_cancellation`.

    Args:
      make_world: makes a new world for each trial; it has an attribute ``seams``, a :class:`Seams`.
      scenario: an async function of the world.
      laws: asked after each trial.
      seeds: how many schedules.
      autojump_threshold: as for :func:`explore_cancellation`.

    Raises:
      TypeError: the world has no seams.
      ValueError: ``seeds`` is less than 1.
      RuntimeError: called inside of a Trio run.
    """
    stage = Stage(make_world, scenario, tuple(laws), autojump_threshold)
    tally = Tally("schedules", stage.laws)
    tally.met = seeds
    for seed in schedules(seeds):
        trial = stage.trial(Plan(jitter=True, seed=seed))
        tally.take(trial, Location("some order of its tasks"))
        if trial.stuck:
            break
    return tally.report()
