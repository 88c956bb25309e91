"""What a run came to: its state, its cause and its log, put together for the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from .._errors import AgentError, ErrorCode, Failure, OutputError, ProviderError, RunCancelled
from .._facts import Request, StopReason
from .._messages import Message
from .._model import Usage
from .._ports import Output
from ._journal import Journal

__all__ = ["RunResult", "result_of"]

_KINDS: Final[Mapping[ErrorCode, type[AgentError]]] = {
    "MALFORMED_OUTPUT": OutputError,
    "MALFORMED_TOOL_CALL": OutputError,
    "PROVIDER_ERROR": ProviderError,
}


@attrs.frozen
class RunResult:
    """What a run came to."""

    messages: tuple[Message, ...]
    """This run's, its input included."""
    text: str
    """Of the last assistant message."""
    usage: Usage
    """Summed over all model calls, failed ones included."""
    stop_reason: StopReason
    error: BaseException | None
    """The cause of ``error``; a :class:`RunCancelled` after ``aborted`` and ``cancelled``; else ``None``."""
    turns: int
    undelivered: tuple[Message, ...] = ()
    """Messages that were accepted and that no turn came for."""
    pending: tuple[Request, ...] = ()
    """What a ``suspended`` run waits for, in the order of the calls: ``resume`` goes on with the answers."""
    output: Any = None  # Any: of the type that was asked for
    """The value of the last answer, if the run had an ``output`` and came to one; else ``None``."""

    def raise_for_error(self) -> RunResult:
        """Raise :attr:`error` if there is one; else return the result itself."""
        if self.error is not None:
            raise self.error
        return self


def result_of(journal: Journal, cause: BaseException | None, *, keep_queue: bool, output: Output | None) -> RunResult:
    """The result of the run that has ended.

    Args:
      output: what its last answer had to be.
      cause: the exception that ended it, if one did.
      keep_queue: the session keeps what was not delivered.
    """
    state = journal.state
    messages = tuple(state.transcript[state.run_began :])
    stop_reason: StopReason = state.stop_reason or "cancelled"
    error = cause or journal.failed
    if error is not None:
        stop_reason = "error"
    elif stop_reason == "error":
        error = _as_error(state.failure)
    elif stop_reason in ("aborted", "cancelled"):
        why = state.abort.reason if state.abort is not None and stop_reason == "aborted" else None
        error = RunCancelled(f"the run was {stop_reason}" + (f": {why}" if why else ""))
    answers = [message for message in messages if message.role == "assistant"]
    waiting = () if keep_queue or not state.queue else state.snapshot().queued
    text = answers[-1].text if answers else ""
    pending = state.requests if stop_reason == "suspended" else ()
    value = _value(output, answers[-1]) if stop_reason == "stop" and answers else None
    return RunResult(messages, text, state.usage, stop_reason, error, state.turns, waiting, pending, value)


def _value(output: Output | None, answer: Message) -> Any:  # Any: see RunResult.output
    """The value of the answer; ``None`` for one that was no last one: a run may stop behind its tools."""
    if output is None or answer.calls:
        return None
    try:
        return output.read(answer.text)
    except ValueError:  # it was not checked, since a message waited that the run never came to
        return None


def _as_error(failure: Failure | None) -> AgentError:
    """An exception for a failure that the log tells of, and that was no exception in this process."""
    if failure is None:
        return AgentError("the run failed")
    return _KINDS.get(failure.code, AgentError)(failure.message, code=failure.code)
