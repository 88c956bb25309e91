"""What is next, given what has happened.

``decide`` is pure and total: it has an answer after every prefix of every log, on a machine that knows
none of the tools.  A run that goes on and a run that recovers ask the same question here.
"""

from __future__ import annotations

from typing import Final, TypeAlias, assert_never

import attrs

from .._errors import Failure
from .._facts import StopReason, TurnEndReason
from .._messages import Message
from ._state import State

__all__ = ["CallModel", "Deliver", "Finish", "Recover", "Reopen", "Repair", "RunTools", "Settle", "Step", "decide"]

MAX_PAUSES: Final = 10
"""How often one turn calls the model again because it paused."""


@attrs.frozen
class Deliver:
    """Open a turn with these queued messages, or give them to the open one, if a crash has cut its opening."""

    ids: tuple[str, ...]


@attrs.frozen
class CallModel:
    """Ask the model, in a new turn if none is open."""


@attrs.frozen
class Repair:
    """Tell the model that its answer could not be read."""


@attrs.frozen
class RunTools:
    """Run the calls of the answer that have no result."""


@attrs.frozen
class Recover:
    """Answer the calls at these places: a crash has cut them, and they may not run again."""

    indexes: tuple[int, ...]


@attrs.frozen
class Reopen:
    """Open a turn that goes on with the calls of the one that was suspended."""


@attrs.frozen
class Settle:
    """Complete the open turn: results that are missing, the message of an error, its end."""

    reason: TurnEndReason
    failure: Failure | None = None


@attrs.frozen
class Finish:
    """End the run."""

    reason: StopReason


Step: TypeAlias = Deliver | CallModel | Repair | RunTools | Recover | Reopen | Settle | Finish

_CALL_MODEL: Final = CallModel()
_RUN_TOOLS: Final = RunTools()


def decide(state: State) -> Step:
    """The next step of the open run; :class:`Finish` if none is open."""
    if state.run_id is None:
        return Finish(state.stop_reason or "stop")
    if not state.turn_open:
        return _between_turns(state)
    if state.answer is None:
        if state.abort is not None:
            return Settle("aborted")
        return Deliver(_due(state)) if state.resumed and _was_cut_in_its_opening(state) else _CALL_MODEL
    if state.missing:
        return _about_calls(state)
    return _after_answer(state, state.answer)


def _about_calls(state: State) -> Step:
    """Calls of the answer have no result yet."""
    if state.lost:
        return Recover(tuple(sorted(state.lost)))
    if state.no_more_calls:
        return Settle("aborted")
    if len(state.suspended) == state.missing:
        return Settle("suspended" if state.abort is None else "aborted")
    return _RUN_TOOLS


def _after_answer(state: State, answer: Message) -> Step:
    """The answer is there, and so is every result that it asked for."""
    match answer.finish_reason:
        case "error":
            return Settle("error", state.failure)
        case "interrupted":
            return Settle("interrupted" if state.abort is None else "aborted")
        case "malformed":
            if state.abort is not None:
                return Settle("aborted")
            return Repair() if state.repairs < state.limits.max_decode_retries else Settle("error", state.failure)
        case "pause":
            if state.abort is not None:
                return Settle("aborted")
            if state.pauses <= MAX_PAUSES:
                return _CALL_MODEL
            return Settle(
                "error", Failure("PROVIDER_ERROR", f"the model paused more than {MAX_PAUSES} times in a turn")
            )
        case "unknown":
            return Settle("error", Failure("PROVIDER_ERROR", "the model ended its answer for an unknown reason"))
        case "length" | "refusal" | "tool_use":
            return Settle(answer.finish_reason)
        case "stop" | None:
            return Settle("stop")
        case _:
            assert_never(answer.finish_reason)


def _between_turns(state: State) -> Step:
    if state.reopens:
        return Reopen()
    last = state.last
    if last is not None:
        if last.reason in ("error", "aborted", "cancelled", "interrupted", "suspended"):
            return Finish(last.reason)
        if state.abort is None and (last.stop or state.terminal):
            return Finish("stop")
    if state.abort is not None:
        return Finish("aborted")
    due = _due(state)
    if due or _must_go_on(state):
        if state.turns >= state.limits.max_turns:
            return Finish("max_turns")
        return Deliver(due) if due else _CALL_MODEL
    assert last is not None
    return Finish("stop" if last.reason == "tool_use" else last.reason)


def _must_go_on(state: State) -> bool:
    """Whether a model has something to answer, also if nobody says more."""
    return state.last is None or state.goes_on


def _due(state: State) -> tuple[str, ...]:
    """The messages that the next turn begins with: steers, or if there is nothing else to do, follow-ups."""
    if not state.queue:
        return ()
    steers = state.queued("steer")
    if steers:
        return tuple(steers[:1] if state.limits.steering == "one" else steers)
    if _must_go_on(state):
        return ()
    follow_ups = state.queued("follow_up")
    return tuple(follow_ups[:1] if state.limits.follow_up == "one" else follow_ups)


def _was_cut_in_its_opening(state: State) -> bool:
    """Whether the open turn was opened for messages that wait, and none of them is in it."""
    if _must_go_on(state) or not _due(state):
        return False
    return len(state.transcript) > 0 and state.transcript[-1].role == "assistant"
