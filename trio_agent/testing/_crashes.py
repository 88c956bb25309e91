"""Let the process die: the log is cut after each of its facts, opened again, and the next prompt made on it.

What dies with a process is everything but the store, so a crash is a new world whose store holds a prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from .._facts import Fact, MessageEnd, ToolExecutionEnd, ToolExecutionStart
from .._written import write_fact
from ._course_laws import RUN_LAWS
from ._findings import Law, Report, Tally
from ._plan import Action, Plan, parse, schedules
from ._run_world import RunWorld
from ._stage import Stage
from ._trial import Location, Trial

__all__ = ["CRASH_LAWS", "crash_trial", "explore_crashes"]


# ------------------------------------------------------------------------------------------- laws


def what_survived_is_kept(trial: Trial[RunWorld]) -> None:
    """Recovery only ever appends: what the crash has left is still there, as it was."""
    survived, log = trial.world.survived, trial.world.log
    for number, fact in enumerate(survived):  # in their written form, since facts are equal whatever their stamps
        now = write_fact(log[number]) if number < len(log) else "nothing"
        assert now == write_fact(fact), f"fact {number + 1} of {len(survived)} that had survived is now {now}"


def crashed_calls_are_told_truly(trial: Trial[RunWorld]) -> None:
    """A call that had started is told as interrupted, one that had not as not run, one that had ended as it ended."""
    survived, world = trial.world.survived, trial.world
    asked = [c.id for fact in survived if isinstance(fact, MessageEnd) for c in fact.message.calls]
    started = {fact.call_id for fact in survived if isinstance(fact, ToolExecutionStart)}
    ended = {fact.result.call_id for fact in survived if isinstance(fact, ToolExecutionEnd)}
    later = [fact for fact in world.log[len(survived) :] if isinstance(fact, ToolExecutionEnd)]
    for call_id in asked:
        told = [(fact.result.status, fact.recovered) for fact in later if fact.result.call_id == call_id]
        expected = [] if call_id in ended else [("interrupted" if call_id in started else "not_run", True)]
        assert told == expected, f"{call_id}: expected {expected}, its ends after the crash are {told}"


def no_call_runs_twice(trial: Trial[RunWorld]) -> None:
    """A call whose start had survived is not run again."""
    started = {fact.call_id for fact in trial.world.survived if isinstance(fact, ToolExecutionStart)}
    again = [ran.call_id for ran in trial.world.calls.ran if ran.call_id in started]
    assert not again, f"{', '.join(again)} ran before the crash, and again after it"


CRASH_LAWS: Final[tuple[Law[RunWorld], ...]] = (
    what_survived_is_kept,
    crashed_calls_are_told_truly,
    no_call_runs_twice,
    *RUN_LAWS,
)
"""What holds after a crash, and everything that holds for any run."""


# --------------------------------------------------------------------------------------- the explorer


def explore_crashes(
    make_world: Callable[[], RunWorld],
    *,
    laws: Sequence[Law[RunWorld]] = CRASH_LAWS,
    after: str = "untouched",
    actions: Sequence[Action] = (),
    seeds: int = 1,
) -> Report[RunWorld]:
    """Run an agent on a store, and then once more for each fact of its log, on what a crash behind it leaves.

    Works with any :class:`~trio_agent.SessionStore`.  Synchronous, as :func:`explore_cancellation`.

    Args:
      make_world: makes a new world for each trial, with a new and empty store on its agent.
      laws: asked after each trial.
      after: the token of a plan, to crash in a run that was cut: ``"abort(5):after:30"``.
      actions: those of your own that ``after`` may name.
      seeds: how many different schedules to explore, from that of the token on.

    Raises:
      TypeError: the agent has no store.
      ValueError: ``after`` is no token, or ``seeds`` is less than 1.
      RuntimeError: called inside of a Trio run.
    """
    stage = Stage(make_world, RunWorld.play, tuple(laws))
    tally = Tally("crashes" if after == "untouched" else f"crashes after {after}", stage.laws)
    for seed in schedules(seeds):
        plan = parse(after, actions)
        plan = attrs.evolve(plan, seed=plan.seed + seed)
        log = _log(stage.trial(plan))
        tally.met += len(log) + 1
        for kept in range(len(log) + 1):
            trial = crash_trial(stage, attrs.evolve(plan, crash=kept), log)
            tally.take(trial, Location(f"behind {log[kept - 1].kind}" if kept else "before everything"))
            if trial.stuck:
                return tally.report()
    return tally.report()


def crash_trial(stage: Stage[RunWorld], plan: Plan, log: Sequence[Fact] | None = None) -> Trial[RunWorld]:
    """What follows one crash.

    Args:
      plan: what was done to the run before it, and where it crashed.
      log: of that run, if it is known already.
    """
    if log is None:
        log = _log(stage.trial(attrs.evolve(plan, crash=None)))
    world = stage.make_world()
    world.survived = tuple(log[: plan.crash])
    trial = stage.trial_in(world, RunWorld.recover, attrs.evolve(plan, cuts=(), fault=None))
    trial.plan = plan  # so that its token tells what came before the crash, too
    return trial


def _log(trial: Trial[RunWorld]) -> Sequence[Fact]:
    if trial.world.agent.store is None:
        raise TypeError("the agent has no store: nothing of its log survives a crash")
    return trial.world.log
