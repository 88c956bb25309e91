"""What an observer sees, and the promised order of it.

An event is a fact, which is logged and shown once it is durable, or an observation, which is shown and
not logged.  Observations are made only while somebody looks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

import attrs

from ._errors import Failure
from ._facts import Fact, Stamped
from ._messages import Role, ToolCall

__all__ = [
    "DIAGNOSTICS",
    "ORDER",
    "Diagnostic",
    "DiagnosticCode",
    "Event",
    "MessageDiscarded",
    "MessageStart",
    "ModelCallStart",
    "Observation",
    "Phase",
    "PhaseChange",
    "ReasoningDelta",
    "RetryScheduled",
    "TextDelta",
    "ToolCallDelta",
    "ToolExecutionUpdate",
    "ToolUse",
]

Phase: TypeAlias = Literal["idle", "turn", "retry"]
"""What a run is busy with."""

DiagnosticCode: TypeAlias = Literal[
    "CALL_WILL_NOT_STOP",
    "HOOK_FAILED",
    "LATE_UPDATE",
    "LISTENER_FAILED",
    "LISTENER_TIMED_OUT",
    "RESULT_CUT",
    "STORE_FAILED",
    "THREAD_ABANDONED",
]
"""The stable names of what a diagnostic says; ``DIAGNOSTICS`` explains them."""

DIAGNOSTICS: Final[Mapping[DiagnosticCode, str]] = {
    "CALL_WILL_NOT_STOP": "a call was cut and is still running after the settle time",
    "HOOK_FAILED": "a hook raised where a raise changes nothing",
    "LATE_UPDATE": "a tool said something after its call had ended; it was dropped",
    "LISTENER_FAILED": "a listener raised and was detached",
    "LISTENER_TIMED_OUT": "a listener was still busy at the settle deadline and was cancelled",
    "RESULT_CUT": "a result was longer than its limit",
    "STORE_FAILED": "the log could not be written; nothing more is logged",
    "THREAD_ABANDONED": "a thread could not be stopped and goes on without its call",
}
"""What each diagnostic code means."""


@attrs.frozen
class PhaseChange(Stamped):
    """What the run is busy with: idle to turn to idle, turn to retry and back, nothing else."""

    phase: Phase


@attrs.frozen
class ModelCallStart(Stamped):
    """An attempt at a model call begins."""

    model: str
    attempt: int


@attrs.frozen
class MessageStart(Stamped):
    """A message begins: an assistant's with its first chunk, or a tool's result."""

    message_id: str
    role: Role
    call_id: str | None = None


@attrs.frozen
class TextDelta(Stamped):
    """New text of an assistant message, only the new part.  Unread neighbours are merged."""

    message_id: str
    text: str


@attrs.frozen
class ReasoningDelta(Stamped):
    """New reasoning of an assistant message, only the new part."""

    message_id: str
    text: str


@attrs.frozen
class ToolCallDelta(Stamped):
    """A new piece of a call's arguments."""

    message_id: str
    index: int
    """Place of the call in its message."""
    name: str
    text: str


@attrs.frozen
class MessageDiscarded(Stamped):
    """The attempt is thrown away: erase the draft of this message."""

    message_id: str


@attrs.frozen
class ToolUse(Stamped):
    """A call that the model asked for; all of a turn, in input order, before any of them starts."""

    call: ToolCall


@attrs.frozen
class ToolExecutionUpdate(Stamped):
    """Progress of a running call."""

    call_id: str
    data: Any  # Any: whatever the tool passes to ``progress``


@attrs.frozen
class RetryScheduled(Stamped):
    """The next attempt starts after ``delay`` seconds."""

    attempt: int
    """The number of the attempt that failed, from 1."""
    delay: float
    error: Failure


@attrs.frozen
class Diagnostic(Stamped):
    """Something that does not change the run, and that somebody should know."""

    code: DiagnosticCode
    text: str


Observation: TypeAlias = (
    PhaseChange
    | ModelCallStart
    | MessageStart
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | MessageDiscarded
    | ToolUse
    | ToolExecutionUpdate
    | RetryScheduled
    | Diagnostic
)
"""What is shown and not logged."""

Event: TypeAlias = Fact | Observation
"""What an observer sees."""

_DELTAS: Final = ("text_delta", "reasoning_delta", "tool_call_delta")

ORDER: Final[Mapping[str, Mapping[str, str]]] = {
    # Where the run is: what may come -> where it is then.  A kind that stands nowhere here (custom,
    # diagnostic, message_queued, abort_requested, model_call_end, ...) may come anywhere between
    # agent_start and agent_end.  What follows a colon tells events of one kind apart:
    #   phase_change:turn             the phase that it changes to
    #   message_start:tool            the role
    #   message_end:tool              the role, of an assistant's message what its finish reason means:
    #                                 pause, malformed, error; message_end:answer is any other
    #   tool_execution_end:refused    it failed in preparation: invalid, unknown_tool, denied, truncated
    #   tool_execution_end:not_run    the turn was cut before it ran
    #   tool_execution_end:ran        any other
    "outside": {"agent_start": "started"},
    "started": {"phase_change:turn": "between"},
    "between": {"turn_start": "opened", "phase_change:idle": "closing"},
    "opened": {
        "message_delivered": "opened",
        "model_call_start": "calling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "calling": {
        "message_start:assistant": "streaming",
        "model_call_failed": "failed",
    },
    "streaming": {
        **dict.fromkeys(_DELTAS, "streaming"),
        "message_end:answer": "answered",
        "message_end:pause": "paused",
        "message_end:malformed": "malformed",
        "message_end:error": "ended",
        "model_call_failed": "discarding",
    },
    "discarding": {"message_discarded": "failed"},
    "failed": {
        "retry_scheduled": "waiting",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "waiting": {"phase_change:retry": "backoff"},
    "backoff": {"phase_change:turn": "ready"},
    "ready": {
        "model_call_start": "calling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "paused": {
        "model_call_start": "calling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "malformed": {
        "message_delivered": "ready",  # the repair
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "answered": {
        "tool_use": "announcing",
        "tool_execution_end:not_run": "settling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "announcing": {
        "tool_use": "announcing",
        "tool_execution_end:refused": "preparing",
        "tool_execution_end:not_run": "preparing",
        "tool_execution_start": "executing",
    },
    "preparing": {
        "tool_execution_end:refused": "preparing",
        "tool_execution_end:not_run": "preparing",
        "tool_execution_start": "executing",
        "message_start:tool": "assembling",
    },
    "executing": {
        "tool_execution_start": "executing",
        "tool_execution_update": "executing",
        "tool_execution_end:ran": "executing",
        "tool_execution_end:not_run": "executing",
        "message_start:tool": "assembling",
    },
    "settling": {
        "tool_execution_end:not_run": "settling",
        "message_start:tool": "assembling",
    },
    "assembling": {"message_end:tool": "assembled"},
    "assembled": {
        "message_start:tool": "assembling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "failing": {"message_end:error": "ended"},
    "ended": {"turn_end": "between"},
    "closing": {"agent_end": "outside"},
}
"""The whole order of a run, as an automaton; ``testing.EventOrder`` checks it."""
