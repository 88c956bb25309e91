"""The laws on what follows a crash, whether the session is prompted or resumed.

Plain functions of a trial of an :class:`AgentWorld` that has survived one; others they let pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from .._core._state import State, state_of
from .._facts import AgentEnd, AgentResume, AgentStart, Fact, MessageEnd, ToolExecutionEnd, ToolExecutionStart
from .._messages import NEVER_STARTED
from .._written import write_fact
from ._agent_world import AgentWorld
from ._course_laws import RUN_LAWS
from ._findings import Law
from ._trial import Trial

__all__ = ["CRASH_LAWS"]


def what_survived_is_kept(trial: Trial[AgentWorld]) -> None:
    """Recovery only ever appends: what the crash has left is still there, as it was."""
    survived, log = trial.world.survived, trial.world.log
    for number, fact in enumerate(survived):  # in their written form, since facts are equal whatever their stamps
        now = write_fact(log[number]) if number < len(log) else "nothing"
        assert now == write_fact(fact), f"fact {number + 1} of {len(survived)} that had survived is now {now}"


def crashed_calls_are_told_truly(trial: Trial[AgentWorld]) -> None:
    """A call that had ended keeps its result, and one that had started is never told as one that did not.

    A prompt tells what had started as interrupted, and the rest as not run.  A resume tells so what may run
    only once; the rest runs.
    """
    world, survived = trial.world, trial.world.survived
    asked = [c.id for fact in survived if isinstance(fact, MessageEnd) for c in fact.message.calls]
    starts = {fact.call_id: fact for fact in survived if isinstance(fact, ToolExecutionStart)}
    ended = {fact.result.call_id for fact in survived if isinstance(fact, ToolExecutionEnd)}
    later = [fact for fact in world.log[len(survived) :] if isinstance(fact, ToolExecutionEnd)]
    left = {request.call_id for played in world.runs[-1:] for request in played.result.pending}
    for call_id in asked:
        told = [(fact.result.status, fact.recovered) for fact in later if fact.result.call_id == call_id]
        if trial.plan.resume and world.not_resumable is None and call_id not in ended:
            start = starts.get(call_id)
            if start is not None and start.effect == "once" and _was_open(survived):
                assert told == [("interrupted", True)], f"{call_id} may run only once, and its ends are {told}"
            elif call_id not in left:
                assert len(told) == 1, f"{call_id} was resumed, and its ends are {told}"
                lied = start is not None and told[0][0] in NEVER_STARTED
                assert not lied, f"{call_id} had started, and its result says {told[0][0]}"
        elif not trial.plan.resume or call_id in ended:
            expected = [] if call_id in ended else [("interrupted" if call_id in starts else "not_run", True)]
            assert told == expected, f"{call_id}: expected {expected}, its ends after the crash are {told}"


def _was_open(survived: Sequence[Fact]) -> bool:
    """Whether the crash has cut a run, and not come after its end."""
    return state_of(survived, "").run_id is not None


def no_call_runs_twice(trial: Trial[AgentWorld]) -> None:
    """A call that had started runs again only in a run that is resumed, and only if its effect allows it."""
    survived = trial.world.survived
    starts = {fact.call_id: fact for fact in survived if isinstance(fact, ToolExecutionStart)}
    ended = {fact.result.call_id for fact in survived if isinstance(fact, ToolExecutionEnd)}
    again = [ran.call_id for ran in trial.world.calls.ran if ran.call_id in starts]
    if trial.plan.resume:
        again = [call_id for call_id in again if starts[call_id].effect == "once" or call_id in ended]
    assert not again, f"{', '.join(again)} ran before the crash, and again after it"


def what_was_cut_goes_on(trial: Trial[AgentWorld]) -> None:
    """A resume goes on with the run that was cut, under its id, or with the calls that were suspended.

    If there is neither, a new run goes on where the last one has stopped before its end; if that has come, there
    is nothing to resume, and nothing is written.
    """
    world = trial.world
    if not trial.plan.resume or trial.error is not None:
        return
    state, later = state_of(world.survived, world.session), list(world.log[len(world.survived) :])
    waits = state.last is not None and state.last.reason == "suspended" and not state.turn_open
    if state.run_id is not None and not waits:
        first = later[0] if later else None
        assert isinstance(first, AgentResume), f"expected {state.run_id} to go on, and what follows is {first!r}"
        assert first.run_id == state.run_id, f"{first.run_id} goes on, and it was {state.run_id} that was cut"
        begun = [fact.run_id for fact in later if isinstance(fact, AgentStart)]
        assert not begun, f"the run goes on, and {', '.join(begun)} began beside it"
        return
    if state.run_id is not None and later:  # nothing of it is missing but its end
        end = later.pop(0)
        assert isinstance(end, AgentEnd), f"expected the end of {state.run_id}, and what follows is {end!r}"
        assert end.reason == "suspended", f"{state.run_id} was suspended, and its end says {end.reason}"
    why = _to_resume(world, state)
    if not later:
        assert world.not_resumable is not None, "it was resumed, and nothing was written"
        assert not why, f"it said that there is nothing to resume ({world.not_resumable}), and {why}"
        return
    first = later[0]
    assert why, "it had ended, and was resumed"
    assert isinstance(first, AgentStart), f"expected a run to begin, and what follows is {first!r}"
    expected = state.latest_run if state.missing else None
    assert first.resumes == expected, f"it resumes {first.resumes}, expected {expected}: {why}"
    assert not first.messages, "it was resumed, and has an input"


def _to_resume(world: AgentWorld, state: State) -> str:
    """What there is to resume in a session whose last run is over; empty: nothing."""
    if state.missing:
        somebody = world.agent.approval is not None or world.agent.input is not None or world.given
        return "calls are suspended" if somebody or not state.requests else ""
    if any(queued.origin != "repair" for queued in state.queue.values()):
        return "messages wait"
    visible = state.transcript.visible()
    if state.stop_reason == "stop" or not visible or visible[-1].role == "assistant":
        return ""
    return "a model has something to answer"


CRASH_LAWS: Final[tuple[Law[AgentWorld], ...]] = (
    what_survived_is_kept,
    crashed_calls_are_told_truly,
    no_call_runs_twice,
    what_was_cut_goes_on,
    *RUN_LAWS,
)
"""What holds after a crash, and everything that holds for any run."""
