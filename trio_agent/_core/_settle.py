"""What is owed when something ends or is cut short: the facts that complete a turn, and a run.

Pure.  Cancellation, abort, error, a natural end, and the prompt after a crash all post exactly these.
"""

from __future__ import annotations

from .._errors import Failure
from .._facts import AgentEnd, Fact, MessageEnd, StopReason, ToolExecutionEnd, TurnEnd, TurnEndReason, TurnStart
from .._messages import Message, ResultStatus, ToolResult
from ._state import State

__all__ = ["close_run", "close_session", "close_turn", "next_message_id"]


def next_message_id(state: State) -> str:
    """An id for the assistant message that comes next; no other message of the session has it."""
    return _message_id(state, state.turn, state.attempts + 1)


def _message_id(state: State, turn: int, attempt: int) -> str:
    # The process that a crash has ended may have shown the start of a message: its id is not used again.
    life = f".{state.resumed}" if state.resumed else ""
    return f"{state.run_id}.{turn}.{attempt}{life}"


def close_turn(
    state: State,
    reason: TurnEndReason,
    failure: Failure | None = None,
    *,
    stop: bool = False,
    recovered: bool = False,
) -> list[Fact]:
    """The facts that complete the open turn; none if none is open and nothing failed.

    Args:
      reason: why it ends.  ``aborted``, ``cancelled`` and ``interrupted`` give way to the turn's natural
        reason if nothing of it was cut or left out.
      failure: what the message of an error says; a failure outside a turn opens one.
      stop: what ``should_stop_after_turn`` said.
      recovered: the facts are posted on behalf of a run that could not.
    """
    facts: list[Fact] = []
    number = state.turn
    answer = state.answer
    if not state.turn_open:
        if failure is None:
            return facts
        number += 1
        answer = None
        facts.append(TurnStart(number))
    if reason == "suspended" and failure is None:
        return [TurnEnd(number, reason)]
    natural = None if answer is None else _natural(answer)
    if state.missing:
        natural = None
        facts += _close_calls(state, recovered=recovered)
    if failure is not None:
        if answer is None or answer.finish_reason != "error":
            attempt = state.attempts + 1 if state.turn_open else 1
            message = Message("assistant", (), "error", id=_message_id(state, number, attempt))
            facts.append(MessageEnd(message, error=failure))
        facts.append(TurnEnd(number, "error", stop=stop))
        return facts
    if natural is not None and reason in ("aborted", "cancelled", "interrupted"):
        reason = natural
    facts.append(TurnEnd(number, reason, stop=stop))
    return facts


def _close_calls(state: State, *, recovered: bool) -> list[Fact]:
    """The ends that are owed to calls without a result: cut if they had started, else not run."""
    ends: list[Fact] = []
    for index, call in enumerate(state.calls):
        if state.results[index] is None:
            status: ResultStatus = "not_run" if state.started[index] is None else "interrupted"
            ends.append(ToolExecutionEnd(ToolResult.of(call.id, status), index, recovered=recovered))
    return ends


def _natural(answer: Message) -> TurnEndReason | None:
    """The reason of a turn that nothing cut; ``None`` if the answer left something owed."""
    match answer.finish_reason:
        case "tool_use" | "length" | "refusal" | "error":
            return answer.finish_reason
        case "malformed" | "pause" | "unknown" | "interrupted":
            return None
        case "stop" | None:
            return "stop"


def close_run(state: State, reason: StopReason, failure: Failure | None = None) -> list[Fact]:
    """The facts that end the open run, whose turn is complete; none if none is open."""
    return [] if state.run_id is None else [AgentEnd(reason, state.usage, failure)]


def close_session(state: State) -> list[Fact]:
    """What an earlier run is owed: if a crash has cut it, or if it was suspended and nobody resumes it."""
    facts: list[Fact] = []
    if state.run_id is not None:
        facts += close_turn(state, "interrupted", recovered=True)
        facts += close_run(state, "interrupted")
    if state.missing and not state.turn_open:
        facts += _close_calls(state, recovered=True)
    return facts
