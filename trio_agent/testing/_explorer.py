"""Visit every point at which a scenario can be cut: one trial a point, until one ends untouched.

Nothing here knows agents.  The scenario runs again and again in a new world, each time with an action at
the next step of its tasks; after each trial the laws are asked.
"""

from __future__ import annotations

import itertools
import math
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeVar

import attrs

from ._findings import Finding, Law, Report, Tally
from ._general_laws import LAWS
from ._plan import CANCEL, INTERRUPT, WHENS, Action, Cut, Plan, When, schedules, sides
from ._shrink import shrink_findings
from ._stage import Stage
from ._trial import Scenario, Trial

__all__ = ["explore_cancellation"]

W = TypeVar("W")

_PAIR_SEED: Final = 20_260
_DRAWS: Final = 5
"""How often a pair is drawn, on average, until there is one of which both can be done."""


def explore_cancellation(
    make_world: Callable[[], W],
    scenario: Scenario[W],
    *,
    laws: Sequence[Law[W]] = LAWS,
    action: Action = CANCEL,
    pairs: bool | Action = False,
    when: Iterable[When] = WHENS,
    seeds: int = 1,
    limit: int | None = None,
    shrink: bool = True,
    autojump_threshold: float | None = 0,
) -> Report[W]:
    """Run a scenario once for each point at which it can be cut, and ask the laws each time.

    A point is a step of one of the scenario's tasks.  The action comes ``after`` it, when the task has
    just blocked, and in another trial ``before`` it, when the task was woken, so that what it waited for
    has happened, but has not run yet.

    Synchronous: call it from a plain function or test, also where pytest-trio is installed, and not inside
    of a Trio run.  Each trial is a ``trio.run`` of its own on a virtual clock, so nothing ever sleeps.  A
    scenario must be a function of its world and the seed: threads and real sockets make points come and go.

    Args:
      make_world: makes a new world for each trial; whatever the scenario changes belongs in it.
      scenario: an async function of the world.
      laws: asked after each trial; by default those that hold for any async function.
      action: what is done at the point.
      pairs: after the first action, one more at each later point: a cancellation, or the given action.
        The number of trials grows with the square of the number of points.
      when: on which side of the step.
      seeds: how many different schedules to explore.
      limit: the most trials a seed.  Points are then drawn evenly, but each place at least once if they
        are enough, pairs by chance; the report says how many there are, of pairs the most there can be.
      shrink: leave out parts of the world (turns, calls, chunks of a script) while a finding stays.
      autojump_threshold: real seconds of idleness before virtual time jumps.  Raise it to 0.05 if threads work
        while others sleep.  ``None``: real time, for real sockets.

    Returns:
      What was explored and found.  A scenario that breaks a law when nothing is done to it is a finding
      of its own, and then nothing else is tried.

    Raises:
      RuntimeError: called inside of a Trio run; an action has raised, as :func:`ABORT` does in a world without
        ``abort``; or an interrupt would not reach Trio: not the main thread, or a handler of one's own.
      ValueError: an argument makes no sense.
    """
    whens = sides(when)
    _check_limit(limit, whens)
    second = (CANCEL if pairs is True else pairs) or None
    if INTERRUPT in (action, second):
        _check_that_interrupts_reach_trio()
    what = action.name if second is None else f"{action.name} + {second.name}"
    stage = Stage(make_world, scenario, tuple(laws), autojump_threshold)
    exploration = _Exploration(stage, action, second, whens, limit, Tally(what, stage.laws))
    for seed in schedules(seeds):
        if not exploration.explore(Plan(seed=seed)):
            break
    report = exploration.tally.report()
    return exploration.shrunk(report) if shrink and report.findings else report


@attrs.frozen
class _Exploration:
    """One way to go through the points of one scenario."""

    stage: Stage[Any]  # Any: whatever world it is
    action: Action
    second: Action | None
    whens: tuple[When, ...]
    limit: int | None
    tally: Tally[Any]  # Any: as above

    def explore(self, base: Plan) -> bool:
        """Go through all points under one schedule.  Returns whether the untouched scenario keeps the laws."""
        untouched = self.stage.trial(base, places=self.limit is not None)
        if not self.tally.take(untouched) or untouched.stuck:
            return False
        for when in self.whens:
            trials = self._pairs(base, when, untouched) if self.second else self._singles(base, when, untouched)
            for trial in trials:
                self.tally.take(trial)
                if trial.stuck:
                    return False
        return True

    def shrunk(self, report: Report[Any]) -> Report[Any]:  # Any: as above
        """The report with smaller worlds for its findings, if its worlds are made of parts."""

        def again(plan: Plan) -> Sequence[Finding]:
            smaller = attrs.evolve(self, tally=Tally("", self.stage.laws))
            smaller.explore(plan)
            return smaller.tally.report().findings

        actions = (self.action,) if self.second is None else (self.action, self.second)
        return attrs.evolve(report, findings=shrink_findings(report.findings, self.stage, again, actions))

    def _try(self, base: Plan, *cuts: Cut) -> Trial[Any]:  # Any: as above
        return self.stage.trial(attrs.evolve(base, cuts=cuts))

    def _singles(self, base: Plan, when: When, untouched: Trial[Any]) -> Iterator[Trial[Any]]:
        self.tally.met += untouched.steps[when]
        if self.limit is None:
            steps: Iterable[int] = itertools.count(1)
        else:
            steps = _drawn(when, untouched, self.limit // len(self.whens))
        for step in steps:
            trial = self._try(base, Cut(self.action, when, step))
            if not trial.performed:
                break
            yield trial

    def _pairs(self, base: Plan, when: When, untouched: Trial[Any]) -> Iterator[Trial[Any]]:
        assert self.second is not None
        share = None if self.limit is None else self.limit // len(self.whens)
        points = untouched.steps[when]
        if share is not None and points * (points - 1) // 2 > share:
            yield from self._drawn_pairs(base, when, points, share)
            return
        for first in itertools.count(1):
            for second in itertools.count(first + 1):
                trial = self._try(base, Cut(self.action, when, first), Cut(self.second, when, second))
                if not trial.performed:
                    return
                if len(trial.performed) < 2:
                    break
                self.tally.met += 1
                yield trial

    def _drawn_pairs(self, base: Plan, when: When, points: int, share: int) -> Iterator[Trial[Any]]:
        assert self.second is not None
        self.tally.met += points * (points - 1) // 2
        rng = random.Random(_PAIR_SEED + base.seed)
        lasts: dict[int, int] = {}  # the last step of a run that was cut at this one; it often ends soon
        drawn: set[tuple[int, int]] = set()
        for _ in range(share * _DRAWS):
            first = rng.randint(1, points)
            last = lasts.get(first, points)
            if last <= first or (first, second := rng.randint(first + 1, last)) in drawn:
                continue
            trial = self._try(base, Cut(self.action, when, first), Cut(self.second, when, second))
            if len(trial.performed) < 2:
                lasts[first] = trial.steps[when]
                continue
            drawn.add((first, second))
            yield trial
            if len(drawn) == share:
                return


def _check_limit(limit: int | None, whens: Sequence[When]) -> None:
    if limit is not None and limit < len(whens):
        raise ValueError(f"expected limit to be at least {len(whens)}, one for each side of a step, got {limit}")


def _check_that_interrupts_reach_trio() -> None:
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("INTERRUPT is Ctrl-C, which only the main thread hears: explore there")
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        raise RuntimeError("INTERRUPT needs Python's own handler of SIGINT, which Trio replaces while it runs")


def _drawn(when: When, untouched: Trial[Any], share: int) -> Sequence[int]:
    """At most ``share`` steps: the first at each place, as far as they go, and an even choice of the others."""
    points = untouched.steps[when]
    if points <= share:
        return range(1, points + 2)
    firsts: dict[str, int] = {}
    for step in range(1, points + 1):
        firsts.setdefault(untouched.places[when, step].name, step)
    chosen = set(itertools.islice(firsts.values(), share))
    others = [step for step in range(1, points + 1) if step not in chosen]
    room = share - len(chosen)
    if room:
        chosen.update(others[math.floor(number * len(others) / room)] for number in range(room))
    return sorted(chosen)
