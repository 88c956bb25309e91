"""Ways to break the laws on what happens when, and those on what follows a crash."""

from __future__ import annotations

import attrs

from tests.testing.tampered import (
    ABORTED,
    CANCELLED,
    Case,
    changed,
    log_of,
    on,
    result,
    rewrite,
    show,
)
from trio_agent import StoreFailed
from trio_agent._events import ModelCallStart
from trio_agent._facts import (
    ToolExecutionEnd,
    ToolExecutionStart,
    TurnStart,
)
from trio_agent.testing import Ran, RunWorld, Trial


def _run_in_another_order(world: RunWorld) -> None:
    world.calls.ran[3].call_id, world.calls.ran[4].call_id = "call_6", "call_5"


def _begin_another(world: RunWorld) -> None:
    world.calls.ran.append(Ran("call_99", "pure", (), False, 90, True, 91))


def _tell_a_start_after_the_abort(trial: Trial[RunWorld]) -> None:
    log = log_of(trial)
    start = next(fact for fact in log if isinstance(fact, ToolExecutionStart))
    log.insert(-2, changed(start, call_id="call_99"))


def _leave_the_host_in_the_dark(trial: Trial[RunWorld]) -> None:
    trial.cancelled = False


def _wait(trial: Trial[RunWorld]) -> None:
    trial.world.seams.idle.append((trial.performed[0].time, trial.performed[0].time + 0.5))
    trial.ended += 1
    trial.cancelled = True


def _take_long(trial: Trial[RunWorld]) -> None:
    first = trial.performed[0]
    trial.performed[0] = attrs.evolve(first, time=first.time - 1_000)


def _unhear(world: RunWorld) -> None:
    del world.heard[0].handled[5], world.heard[0].began[5]
    world.runs[0].handled_at_end = [len(world.heard[0].handled)]


def _hear_in_another_order(world: RunWorld) -> None:
    for heard in (world.heard[0].handled, world.heard[0].began):
        heard[0], heard[1] = heard[1], heard[0]


def _hear_nothing(world: RunWorld) -> None:
    world.heard[0].handled.clear()
    world.heard[0].began.clear()
    world.runs[0].handled_at_end = [0]


def _tell_an_end_otherwise(trial: Trial[RunWorld]) -> None:
    log = log_of(trial)
    survived = len(trial.world.survived)
    number = next(n for n, fact in enumerate(log) if n >= survived and isinstance(fact, ToolExecutionEnd))
    log[number] = changed(log[number], recovered=False)


CASES = [
    # ------------------------------------------------------------------------------ what may run
    Case("nothing_is_left_open", "still under way: {'tool': 1}", on(lambda w: w.seams.in_flight.update(tool=1))),
    Case("nothing_is_left_open", "1 calls still run", on(lambda w: setattr(w.calls, "running", 1))),
    Case("nothing_is_left_open", "1 streams are open", on(lambda w: setattr(w.agent.model, "open", 1))),
    Case("no_more_run_at_once_than_allowed", "3 at once, and 2 are", on(lambda w: setattr(w.calls, "peak", 3))),
    Case(
        "lanes_are_kept",
        "call_5 and call_6 ran at once: the lane 'a",
        on(lambda w: setattr(w.calls.ran[3], "ended", 12)),
    ),
    Case(
        "lanes_are_kept",
        "call_6 and call_7 ran at once: one of them is",
        on(lambda w: setattr(w.calls.ran[4], "ended", None)),
    ),
    Case("lanes_are_kept", "call_5 is asked for before call_6 and ran after", on(_run_in_another_order)),
    Case(
        "no_effect_before_its_acceptance",
        "call_2 began, and its start was",
        on(lambda w: setattr(w.calls.ran[0], "accepted", False)),
    ),
    # ------------------------------------------------------------------------------ after a cut
    Case("nothing_starts_after_a_cut", "call_99 began after the cut", on(_begin_another), ABORTED),
    Case("nothing_starts_after_a_cut", "call_99 began after the cut", on(_begin_another), CANCELLED),
    Case(
        "nothing_starts_after_a_cut", "1 model calls began", on(lambda w: w.seams.crossings.update(model=1)), CANCELLED
    ),
    Case(
        "nothing_starts_after_a_cut", "1 model calls began", show(lambda: ModelCallStart("m", 1)), "abort(inf):after:40"
    ),
    Case("nothing_starts_after_a_cut", "the log says that call_99 began after", _tell_a_start_after_the_abort, ABORTED),
    Case("a_cut_ends_every_wait", "for 1.5 s after the cut nothing was under way", _wait, CANCELLED),
    Case("a_cut_ends_the_run_in_time", "it took 100[0-9]", _take_long, CANCELLED),
    Case("a_cut_ends_the_run_in_time", "it took 100[0-9]", _take_long, ABORTED),
    Case("the_end_says_why", "was not interrupted by a crash", result(stop_reason="interrupted")),
    Case("the_end_says_why", "nobody has aborted it", result(stop_reason="aborted")),
    Case("the_end_says_why", "nobody has cancelled it", result(stop_reason="cancelled"), ABORTED),
    Case("the_end_says_why", "and the host never knew", _leave_the_host_in_the_dark, CANCELLED),
    Case("the_end_says_why", "an error of the kernel: None", result(stop_reason="error")),
    Case("the_end_says_why", "the store has not failed", result(stop_reason="error", error=StoreFailed("full"))),
    Case("listeners_hear_all", "listener 0 heard", on(_unhear)),
    Case("listeners_hear_all", "listener 0 heard", on(_hear_in_another_order)),
    Case("listeners_hear_all", "listener 0 heard nothing", on(_hear_nothing)),
    Case("listeners_hear_all", "was cut in the middle of an event", on(lambda w: w.heard[0].handled.pop())),
    Case(
        "listeners_hear_all",
        "handled 1 events after the run was over",
        on(lambda w: setattr(w.runs[0], "handled_at_end", [len(w.heard[0].handled) - 1])),
    ),
    # ------------------------------------------------------------------------------ after a crash
    Case("what_survived_is_kept", "fact 3 of 3 that had survived is now", rewrite(TurnStart, number=7), "crash:3"),
    Case(
        "what_survived_is_kept",
        "fact 1 of 3 that had survived is now nothing",
        lambda trial: log_of(trial).clear(),
        "crash:3",
    ),
    Case(
        "crashed_calls_are_told_truly",
        r"call_1: expected \[\('interrupted', True\)\], its ends after the crash are",
        _tell_an_end_otherwise,
        "crash:8",
    ),
    Case(
        "no_call_runs_twice",
        "call_1 ran before the crash, and again after it",
        on(lambda w: w.calls.ran.append(Ran("call_1", "once", (), False, 90, True))),
        "crash:8",
    ),
]
