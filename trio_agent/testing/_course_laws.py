"""The laws that every run of an agent keeps, however it is cut: what happens when, and what does not.

Plain functions of a trial of an :class:`AgentWorld`, like those of :mod:`._record_laws`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from .._errors import StoreFailed
from .._events import ModelCallStart, ReasoningDelta, TextDelta, ToolCallDelta
from .._facts import AbortRequested, AgentEnd, ToolExecutionStart, TurnEnd
from ._agent_world import AgentWorld, Met, Played
from ._findings import Law
from ._general_laws import LAWS
from ._plan import CANCEL, INTERRUPT
from ._record_laws import RECORD_LAWS
from ._script import ScriptedModel
from ._session_laws import SESSION_LAWS
from ._trial import Performed, Trial
from ._watched import Ran

__all__ = ["COURSE_LAWS", "RUN_LAWS"]

_DELTAS: Final = (TextDelta, ReasoningDelta, ToolCallDelta)
_MOMENT: Final = 1e-6
"""Seconds that sums of floats may be off."""


# ---------------------------------------------------------------------------------------- what may run


def nothing_is_left_open(trial: Trial[AgentWorld]) -> None:
    """When the run is over, no tool, model stream, hook, listener or commit of it goes on."""
    world = trial.world
    left = {seam: count for seam, count in world.seams.in_flight.items() if count}
    assert not left, f"still under way: {left}"
    assert not world.calls.running, f"{world.calls.running} calls still run"
    model = world.agent.model
    assert not isinstance(model, ScriptedModel) or not model.open, f"{model.open} streams are open"


def no_more_run_at_once_than_allowed(trial: Trial[AgentWorld]) -> None:
    """Never more calls at once than ``max_parallel_tools``."""
    peak, allowed = trial.world.calls.peak, trial.world.agent.max_parallel_tools
    assert peak <= allowed, f"{peak} at once, and {allowed} are allowed"


def lanes_are_kept(trial: Trial[AgentWorld]) -> None:
    """Calls of one lane run one after the other in input order, and an exclusive call runs alone."""
    world = trial.world
    calls = [call.id for played in world.runs for message in played.result.messages for call in message.calls]
    order = {call_id: number for number, call_id in enumerate(calls)}
    ran = world.calls.ran
    for number, first in enumerate(ran):
        for second in ran[number + 1 :]:
            if second.run != first.run:
                continue  # those that were suspended wait for another run
            shared = set(first.lanes) & set(second.lanes)
            if shared or first.exclusive or second.exclusive:
                why = f"the lane {shared.pop()!r}" if shared else "one of them is exclusive"
                assert not _overlap(first, second), f"{first.call_id} and {second.call_id} ran at once: {why}"
                in_order = order.get(first.call_id, 0) < order.get(second.call_id, 1)
                assert in_order, f"{second.call_id} is asked for before {first.call_id} and ran after it: {why}"


def _overlap(first: Ran, second: Ran) -> bool:
    return first.ended is None or first.ended > second.began


def no_effect_before_its_acceptance(trial: Trial[AgentWorld]) -> None:
    """A call that changes something begins when its start is durable, and not before."""
    for ran in trial.world.calls.ran:
        assert ran.accepted or ran.effect == "pure", f"{ran.call_id} began, and its start was not in the store"


# -------------------------------------------------------------------------------------- after a cut


def _cuts(trial: Trial[AgentWorld]) -> Sequence[tuple[Performed, Met, Played]]:
    """The cuts that met a run, and which; one may come before any, and then an abort has nobody to reach."""
    world = trial.world
    both = zip(trial.performed, world.met, strict=True)
    return [(cut, met, world.runs[met.run]) for cut, met in both if met.run is not None]


def nothing_starts_after_a_cut(trial: Trial[AgentWorld]) -> None:
    """After a cancellation, or an abort with a finite grace, no call starts; after any abort, no model call."""
    world = trial.world
    for cut, met, played in _cuts(trial):
        # An interrupt waits for the main task; until it is heard, all goes on.
        if cut.action == INTERRUPT or cut.action.grace is None:
            continue
        ran = world.calls.ran[met.tools :]
        if cut.action == CANCEL:
            models = world.seams.crossings["model"] - met.models
        else:  # a hook around a model call that has begun may still reach the model
            ran = [each for each in ran if each.run == met.run]
            events = played.events
            asked = next((n for n, each in enumerate(events) if isinstance(each, AbortRequested)), len(events))
            models = sum(isinstance(each, ModelCallStart) for each in events[asked:])
        assert not models, f"{models} model calls began after the cut"
        if cut.action.grace != math.inf:
            assert not ran, f"{', '.join(each.call_id for each in ran)} began after the cut"
    for number, fact in enumerate(world.log):
        if isinstance(fact, AbortRequested) and fact.grace != math.inf:
            later = [each for each in world.log[number:] if each.run_id == fact.run_id]
            told = [each.call_id for each in later if isinstance(each, ToolExecutionStart)]
            assert not told, f"the log says that {', '.join(told)} began after the abort"


def a_cut_ends_every_wait(trial: Trial[AgentWorld]) -> None:
    """After a cut the kernel waits for what is under way and nothing else: no back-off, no queue, no person."""
    for cut, _, played in _cuts(trial):
        if cut.action.grace is not None:
            # After a cancellation the body of the run waits for nothing either.
            end = trial.ended if trial.cancelled and cut.action == CANCEL else _end_of(trial, played)
            idle = trial.world.seams.idle_between(cut.time, end)
            assert idle <= _MOMENT, f"for {idle:g} s after the cut nothing was under way, and the run had not ended"


def a_cut_ends_the_run_in_time(trial: Trial[AgentWorld]) -> None:
    """A run ends by the grace of the cut and its settle time."""
    for cut, _, played in _cuts(trial):
        grace = cut.action.grace
        if grace is not None and grace != math.inf:
            took = _end_of(trial, played) - cut.time
            allowed = grace + trial.world.agent.settle_timeout
            assert took <= allowed + _MOMENT, f"it took {took:g} s, and {allowed:g} s are allowed"


def _end_of(trial: Trial[AgentWorld], played: Played) -> float:
    end = played.events[-1] if played.events else None
    return end.time if isinstance(end, AgentEnd) else trial.ended


def the_end_says_why(trial: Trial[AgentWorld]) -> None:
    """A run that was cut ends as what it was, or as it would have ended without: never with an error of our own."""
    for played in trial.world.runs:
        _check_reason(trial, played)
        if isinstance(played.result.error, StoreFailed) and trial.world.store is not None:
            why = f"the store has not failed: {played.result.error!r}"
            assert trial.world.store.failed or _had_time_to_settle(trial, played), why
            shown = played.events[-1] if played.events else None
            told = not isinstance(shown, AgentEnd) or shown.reason == "error"
            assert told, "its end is shown as if it had been written"


def _check_reason(trial: Trial[AgentWorld], played: Played) -> None:
    world, reason, error = trial.world, played.result.stop_reason, played.result.error
    actions = [each.action for each in trial.performed]
    assert reason != "interrupted", "a run that was settled by itself was not interrupted by a crash"
    if reason == "aborted":
        asked = any(isinstance(each, AbortRequested) for each in (*played.events, *world.log))
        assert asked, "nobody has aborted it"
    before = any(isinstance(each, TurnEnd) and each.reason == "cancelled" for each in world.survived)
    if reason == "cancelled" and not played.left_early and not before:
        assert played.cancelled, "nobody has cancelled it"
        if actions and actions[-1] == CANCEL and INTERRUPT not in actions:
            assert trial.cancelled or trial.error is not None, "it says that it was cancelled, and the host never knew"
    internal = reason == "error" and getattr(error, "code", "INTERNAL") == "INTERNAL"
    assert not internal or trial.injected is not None, f"an error of the kernel: {error!r}"


def _had_time_to_settle(trial: Trial[AgentWorld], played: Played) -> bool:
    """Whether a settle deadline may have passed; until then the kernel gives up nothing.

    A settlement begins with a cut, or else when the run ends; there may be another run behind it.
    """
    ends = [each.time for each in played.events[-1:] if isinstance(each, AgentEnd)]
    began = min([cut.time for cut, _, met in _cuts(trial) if met is played] + (ends or [trial.began]))
    later = trial.world.runs[trial.world.runs.index(played) + 1 :]
    until = next((each.events[0].time for each in later if each.events), trial.ended)
    return until - began >= trial.world.agent.settle_timeout - _MOMENT


# ---------------------------------------------------------------------------------------- listeners


def listeners_hear_all(trial: Trial[AgentWorld]) -> None:
    """A listener hears every event from its subscription on, in order, one at a time, to the very end."""
    world = trial.world
    if not world.entered:
        return
    for number, listener in enumerate(world.heard):
        if listener.failed:
            continue  # it was detached, and a diagnostic says so
        if len(listener.began) != len(listener.handled):
            settled = any(_had_time_to_settle(trial, played) for played in world.runs)
            assert settled, f"listener {number} was cut in the middle of an event"
            continue  # the same
        for played in world.runs:
            known = played.handled_at_end or ()
            if number < len(known) and not _had_time_to_settle(trial, played):
                later = listener.handled[known[number] :]
                late = sum(event.run_id == played.id for event in later)
                assert not late, f"listener {number} handled {late} events after the run was over"
        # A reader is shown neighbouring deltas as one, and of a session only what belongs to its run.
        heard, shown = (
            [e for e in each if e.run_id and not isinstance(e, _DELTAS)] for each in (listener.handled, world.events)
        )
        shown = shown[len(shown) - len(heard) :]
        assert heard, f"listener {number} heard nothing"
        same = len(heard) == len(shown) and all(a is b for a, b in zip(heard, shown, strict=True))
        assert same, f"listener {number} heard {len(heard)} events, and not the last {len(heard)} shown"


COURSE_LAWS: Final[tuple[Law[AgentWorld], ...]] = (
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

RUN_LAWS: Final[tuple[Law[AgentWorld], ...]] = (*LAWS, *COURSE_LAWS, *SESSION_LAWS, *RECORD_LAWS)
"""Every law that the runs of a session keep, be it one or more, those of any async function included."""
