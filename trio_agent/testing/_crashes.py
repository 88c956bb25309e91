"""Let the process die: the log is cut after each of its facts, opened again, and prompted or resumed.

What dies with a process is everything but the store, so a crash is a new world whose store holds a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

import attrs

from .._facts import Fact
from ._agent_world import AgentWorld
from ._crash_laws import CRASH_LAWS
from ._findings import Law, Report, Tally
from ._plan import Action, Plan, parse, schedules
from ._stage import Stage
from ._trial import Location, Trial

__all__ = ["crash_trial", "explore_crashes"]

W = TypeVar("W", bound=AgentWorld)


def explore_crashes(
    make_world: Callable[[], W],
    *,
    laws: Sequence[Law[W]] = CRASH_LAWS,
    by: Literal["prompt", "resume"] = "prompt",
    after: str = "untouched",
    actions: Sequence[Action] = (),
    seeds: int = 1,
    limit: int | None = None,
) -> Report[W]:
    """Play a world on a store, and then recover once for each fact of its log, from what a crash behind it leaves.

    Works with any :class:`~trio_agent.SessionStore`.  Synchronous, as :func:`explore_cancellation`.

    Args:
      make_world: makes a new world for each trial, a :class:`RunWorld` or a :class:`SessionWorld`, with a new and
        empty store on its agent.
      laws: asked after each trial.
      by: what the session is told when it is opened again: a new prompt, or to resume.
      after: the token of a plan, to crash in a world that was cut: ``"abort(5):after:30"``.
      actions: those of your own that ``after`` may name.
      seeds: how many different schedules to explore, from that of the token on.
      limit: the most crashes a seed, drawn evenly; the report says how many there are.

    Raises:
      TypeError: the agent has no store.
      ValueError: ``after`` is no token, ``by`` is neither, or ``seeds`` or ``limit`` is less than 1.
      RuntimeError: called inside of a Trio run.
    """
    if by not in ("prompt", "resume"):
        raise ValueError(f"expected by to be 'prompt' or 'resume', got {by!r}")
    if limit is not None and limit < 1:
        raise ValueError(f"expected limit to be at least 1, got {limit}")
    stage = Stage(make_world, _play, tuple(laws))
    what = "crashes" if after == "untouched" else f"crashes after {after}"
    tally = Tally(what if by == "prompt" else f"{what}, resumed", stage.laws)
    for seed in schedules(seeds):
        plan = parse(after, actions)
        plan = attrs.evolve(plan, seed=plan.seed + seed, resume=by == "resume")
        log = _log(stage.trial(plan))
        tally.met += len(log) + 1
        for kept in _drawn(len(log) + 1, limit):
            trial = crash_trial(stage, attrs.evolve(plan, crash=kept), log)
            tally.take(trial, Location(f"behind {log[kept - 1].kind}" if kept else "before everything"))
            if trial.stuck:
                return tally.report()
    return tally.report()


def _drawn(count: int, limit: int | None) -> Sequence[int]:
    """At most ``limit`` of the numbers below ``count``, evenly."""
    if limit is None or count <= limit:
        return range(count)
    return [number * count // limit for number in range(limit)]


def crash_trial(stage: Stage[W], plan: Plan, log: Sequence[Fact] | None = None) -> Trial[W]:
    """What follows one crash.

    Args:
      plan: what was done before it, where it crashed, and what the session is told then.
      log: of that world, if it is known already.
    """
    if log is None:
        log = _log(stage.trial(attrs.evolve(plan, crash=None)))
    world = stage.make_world()
    world.survived = tuple(log[: plan.crash])
    scenario = _go_on if plan.resume else _recover
    trial = stage.trial_in(world, scenario, attrs.evolve(plan, cuts=(), fault=None))
    trial.plan = plan  # so that its token tells what came before the crash, too
    return trial


async def _play(world: AgentWorld) -> None:
    await world.play()


async def _recover(world: AgentWorld) -> None:
    await world.recover()


async def _go_on(world: AgentWorld) -> None:
    await world.go_on()


def _log(trial: Trial[AgentWorld]) -> Sequence[Fact]:
    if trial.world.agent.store is None:
        raise TypeError("the agent has no store: nothing of its log survives a crash")
    return trial.world.log
