"""The laws that every run of an agent keeps, however it is cut: what happens when, and what does not.

Plain functions of a trial of a :class:`RunWorld`, like those of :mod:`._record_laws`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from .._events import ModelCallStart, ReasoningDelta, TextDelta, ToolCallDelta
from .._facts import AbortRequested, AgentEnd, ToolExecutionStart
from ._findings import Law
from ._general_laws import LAWS
from ._plan import CANCEL, INTERRUPT
from ._record_laws import RECORD_LAWS
from ._run_world import RunWorld
from ._script import ScriptedModel
from ._trial import Performed, Trial
from ._watched import Ran

__all__ = ["COURSE_LAWS", "RUN_LAWS"]

_DELTAS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
_MOMENT: Final = 1e-6
"""Seconds that sums of floats may be off."""


# ---------------------------------------------------------------------------------------- what may run


def nothing_is_left_open(trial: Trial[RunWorld]) -> None:
    """When the run is over, no tool, model stream, hook, listener or commit of it goes on."""
    world = trial.world
    left = {seam: count for seam, count in world.seams.in_flight.items() if count}
    assert not left, f"still under way: {left}"
    assert not world.calls.running, f"{world.calls.running} calls still run"
    model = world.agent.model
    assert not isinstance(model, ScriptedModel) or not model.open, f"{model.open} streams are open"


def no_more_run_at_once_than_allowed(trial: Trial[RunWorld]) -> None:
    """Never more calls at once than ``max_parallel_tools``."""
    peak, allowed = trial.world.calls.peak, trial.world.agent.max_parallel_tools
    assert peak <= allowed, f"{peak} at once, and {allowed} are allowed"


def lanes_are_kept(trial: Trial[RunWorld]) -> None:
    """Calls of one lane run one after the other in input order, and an exclusive call runs alone."""
    world = trial.world
    calls = [call.id for message in world.result.messages for call in message.calls] if world.entered else []
    order = {call_id: number for number, call_id in enumerate(calls)}
    ran = world.calls.ran
    for number, first in enumerate(ran):
        for second in ran[number + 1 :]:
            shared = set(first.lanes) & set(second.lanes)
            if shared or first.exclusive or second.exclusive:
                why = f"the lane {shared.pop()!r}" if shared else "one of them is exclusive"
                assert not _overlap(first, second), f"{first.call_id} and {second.call_id} ran at once: {why}"
                in_order = order.get(first.call_id, 0) < order.get(second.call_id, 1)
                assert in_order, f"{second.call_id} is asked for before {first.call_id} and ran after it: {why}"


def _overlap(first: Ran, second: Ran) -> bool:
    return first.ended is None or first.ended > second.began


def no_effect_before_its_acceptance(trial: Trial[RunWorld]) -> None:
    """A call that may run only once begins when its start is durable, and not before."""
    for ran in trial.world.calls.ran:
        assert ran.accepted or ran.effect != "once", f"{ran.call_id} began, and its start was not in the store"


# -------------------------------------------------------------------------------------- after a cut


def _cuts(trial: Trial[RunWorld]) -> Sequence[Performed]:
    """The cuts that met the run; one may come before it, and then an abort has nobody to reach."""
    begun = trial.world.begun_at_cut
    return () if begun is None or not trial.world.entered else trial.performed[begun.cut :]


def _first_cut(trial: Trial[RunWorld]) -> Performed | None:
    return next(iter(_cuts(trial)), None)


def nothing_starts_after_a_cut(trial: Trial[RunWorld]) -> None:
    """After a cancellation, or an abort with a finite grace, no call starts; after any abort, no model call."""
    cut = _first_cut(trial)
    begun = trial.world.begun_at_cut
    # An interrupt waits for the main task; until it is heard, all goes on.
    if cut is None or begun is None or cut.action == INTERRUPT or cut.action.grace is None:
        return
    world = trial.world
    if cut.action == CANCEL:
        models = world.seams.crossings["model"] - begun.models
    else:  # a hook around a model call that has begun may still reach the model
        asked = next((n for n, each in enumerate(world.events) if isinstance(each, AbortRequested)), len(world.events))
        models = sum(isinstance(each, ModelCallStart) for each in world.events[asked:])
    assert not models, f"{models} model calls began after the cut"
    if cut.action.grace != math.inf:
        started = [ran.call_id for ran in world.calls.ran[begun.tools :]]
        assert not started, f"{', '.join(started)} began after the cut"
    for number, fact in enumerate(world.log):
        if isinstance(fact, AbortRequested) and fact.grace != math.inf:
            later = [each for each in world.log[number:] if each.run_id == fact.run_id]
            told = [each.call_id for each in later if isinstance(each, ToolExecutionStart)]
            assert not told, f"the log says that {', '.join(told)} began after the abort"


def a_cut_ends_every_wait(trial: Trial[RunWorld]) -> None:
    """After a cut the kernel waits for what is under way out there and for nothing else: no back-off, no queue."""
    cut = _first_cut(trial)
    if cut is None or cut.action.grace is None:
        return
    # After a cancellation the body of the run waits for nothing either.
    idle = trial.world.seams.idle_between(cut.time, trial.ended if trial.cancelled else _end_of(trial))
    assert idle <= _MOMENT, f"for {idle:g} s after the cut nothing was under way, and the run had not ended"


def a_cut_ends_the_run_in_time(trial: Trial[RunWorld]) -> None:
    """A run ends by the grace of the cut and its settle time."""
    for cut in _cuts(trial):
        grace = cut.action.grace
        if grace is not None and grace != math.inf:
            took = _end_of(trial) - cut.time
            allowed = grace + trial.world.agent.settle_timeout
            assert took <= allowed + _MOMENT, f"it took {took:g} s, and {allowed:g} s are allowed"


def _end_of(trial: Trial[RunWorld]) -> float:
    end = trial.world.events[-1] if trial.world.events else None
    return end.time if isinstance(end, AgentEnd) else trial.ended


def the_end_says_why(trial: Trial[RunWorld]) -> None:
    """A run that was cut ends as what it was, or as it would have ended without: never with an error of our own."""
    world = trial.world
    if not world.entered:
        return
    reason, error = world.result.stop_reason, world.result.error
    actions = [each.action for each in trial.performed]
    assert reason != "interrupted", "a run that was settled by itself was not interrupted by a crash"
    if reason == "aborted":
        asked = any(isinstance(each, AbortRequested) for each in (*world.events, *world.log))
        assert asked, "nobody has aborted it"
    if reason == "cancelled" and not world.left_early:
        assert CANCEL in actions or INTERRUPT in actions, "nobody has cancelled it"
        if actions[-1] == CANCEL and INTERRUPT not in actions:
            assert trial.cancelled or trial.error is not None, "it says that it was cancelled, and the host never knew"
    internal = reason == "error" and getattr(error, "code", "INTERNAL") == "INTERNAL"
    assert not internal or trial.injected is not None, f"an error of the kernel: {error!r}"
    if world.store_failed and world.store is not None:
        assert world.store.failed or _had_time_to_settle(trial), f"the store has not failed: {error!r}"
        shown = world.events[-1] if world.events else None
        told = not isinstance(shown, AgentEnd) or shown.reason == "error"
        assert told, "its end is shown as if it had been written"


def _had_time_to_settle(trial: Trial[RunWorld]) -> bool:
    """Whether a settle deadline may have passed; until then the kernel gives up nothing.

    A settlement begins with a cut, or else when the run ends.
    """
    ends = [each.time for each in trial.world.events[-1:] if isinstance(each, AgentEnd)]
    began = min([each.time for each in _cuts(trial)] + (ends or [trial.began]))
    return trial.ended - began >= trial.world.agent.settle_timeout - _MOMENT


# ---------------------------------------------------------------------------------------- listeners


def listeners_hear_all(trial: Trial[RunWorld]) -> None:
    """A listener hears every event from its subscription on, in order, one at a time, to the very end."""
    world = trial.world
    if not world.entered:
        return
    for number, listener in enumerate(world.heard):
        if listener.failed:
            continue  # it was detached, and a diagnostic says so
        if len(listener.began) != len(listener.handled):
            assert _had_time_to_settle(trial), f"listener {number} was cut in the middle of an event"
            continue  # the same
        if world.handled_at_end is not None and not _had_time_to_settle(trial):
            late = len(listener.handled) - world.handled_at_end[number]
            assert not late, f"listener {number} handled {late} events after the run was over"
        # A reader is shown neighbouring deltas as one.
        heard, shown = ([e for e in each if not isinstance(e, _DELTAS)] for each in (listener.handled, world.events))
        shown = shown[len(shown) - len(heard) :]
        assert heard, f"listener {number} heard nothing"
        same = len(heard) == len(shown) and all(a is b for a, b in zip(heard, shown, strict=True))
        assert same, f"listener {number} heard {len(heard)} events, and not the last {len(heard)} shown"


COURSE_LAWS: Final[tuple[Law[RunWorld], ...]] = (
    nothing_is_left_open,
    no_more_run_at_once_than_allowed,
    lanes_are_kept,
    no_effect_before_its_acceptance,
    nothing_starts_after_a_cut,
    a_cut_ends_every_wait,
    a_cut_ends_the_run_in_time,
    the_end_says_why,
    listeners_hear_all,
)
"""All of them."""

RUN_LAWS: Final[tuple[Law[RunWorld], ...]] = (*LAWS, *COURSE_LAWS, *RECORD_LAWS)
"""Every law that a run keeps, those of any async function included."""
