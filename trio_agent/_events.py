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
    "GOES_ON",
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

_ANSWERS: Final = ("approval_resolved", "input_resolved")

_OWED: Final[Mapping[str, str]] = {
    # The ends of calls that do not run any more.
    "tool_execution_end:not_run": "settling",
    "tool_execution_end:cut": "settling",
}

_CALLS_GO_ON: Final[Mapping[str, str]] = {
    # The turn that a crash has cut has calls, and some may have their results.
    "tool_execution_end:cut": "recovered",
    "tool_execution_end:not_run": "settling",
    "tool_use": "announcing",
    "message_start:tool": "assembling",
    "message_start:assistant": "failing",
    "turn_end": "between",
    "turn_end:suspended": "suspended",
}

ORDER: Final[Mapping[str, Mapping[str, str]]] = {
    # Where the run is: what may come -> where it is then.  A kind that stands nowhere here (custom,
    # diagnostic, message_queued, config_change, abort_requested, model_call_end, ...) may come anywhere
    # between the first and the last event of a run; message_queued, config_change and diagnostic between runs.
    # What follows a colon tells events of one kind apart:
    #   agent_start:resumes           it goes on with the calls of a run that was suspended
    #   phase_change:turn             the phase that it changes to
    #   message_start:tool            the role
    #   message_end:tool              the role, of an assistant's message what its finish reason means:
    #                                 pause, malformed, error; message_end:answer is any other
    #   tool_execution_end:refused    it failed in preparation: invalid, unknown_tool, denied, truncated
    #   tool_execution_end:not_run    the turn was cut before it ran
    #   tool_execution_end:cut        interrupted, and since the run goes on it has not started: a crash or a
    #                                 suspension has cut it
    #   tool_execution_end:ran        any other
    #   turn_end:suspended, agent_end:suspended    the reason
    #
    # --- between runs
    "outside": {
        "agent_start": "started",
        "agent_start:resumes": "reopening",
        "agent_resume": "resuming",
        "rewind": "outside",
    },
    "over": {"agent_start": "started", "rewind": "over"},
    "pending": {  # calls wait for a person's answer
        "agent_start:resumes": "reopening",
        "tool_execution_end:not_run": "pending",  # or a prompt, or a rewind, settles them first
        "tool_execution_end:cut": "pending",
        "agent_start": "started",
        "rewind": "over",
    },
    # --- between the turns of a run
    "started": {"phase_change:turn": "between"},
    "between": {"turn_start": "opened", "phase_change:idle": "closing"},
    "closing": {"agent_end": "over"},
    # --- the model's part of a turn
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
        "message_draft": "streaming",
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
    # --- the tools' part of a turn
    "answered": {
        "tool_use": "announcing",
        "tool_execution_end:not_run": "settling",
        "message_start:assistant": "failing",
        "turn_end": "between",
    },
    "announcing": {
        "tool_use": "announcing",
        "approval_request": "announcing",
        **dict.fromkeys(_ANSWERS, "announcing"),
        "tool_execution_end:refused": "preparing",
        "tool_execution_end:not_run": "preparing",
        "tool_execution_end:cut": "preparing",
        "tool_execution_start": "executing",
        "turn_end:suspended": "suspended",
    },
    "preparing": {
        "approval_request": "preparing",
        **dict.fromkeys(_ANSWERS, "preparing"),
        "tool_execution_end:refused": "preparing",
        "tool_execution_end:not_run": "preparing",
        "tool_execution_end:cut": "preparing",
        "tool_execution_start": "executing",
        "message_start:tool": "assembling",
        "turn_end:suspended": "suspended",
    },
    "executing": {
        "tool_execution_start": "executing",
        "tool_execution_update": "executing",
        "input_request": "executing",
        "input_resolved": "executing",
        "tool_execution_end:ran": "executing",
        "tool_execution_end:not_run": "executing",
        "tool_execution_end:cut": "executing",
        "message_start:tool": "assembling",
        "turn_end:suspended": "suspended",
    },
    "settling": {
        **_OWED,
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
    # --- a suspension, and the run that goes on with its calls
    "suspended": {"phase_change:idle": "suspending", "turn_start": "revoking"},
    "suspending": {"agent_end:suspended": "pending", "agent_end": "pending"},
    "revoking": _OWED,  # after_agent has failed, so an error ends the run
    "reopening": {**dict.fromkeys(_ANSWERS, "reopening"), "phase_change:turn": "reopens"},
    "reopens": {"turn_start": "reopened", "phase_change:idle": "leaving"},
    "leaving": {"agent_end": "pending"},
    "reopened": {"tool_use": "announcing", **_OWED},
    # --- a run that goes on after a crash: with the turn that was open, if one was
    "resuming": {**dict.fromkeys(_ANSWERS, "resuming"), "phase_change:turn": "resumed"},
    "resumed": {  # whoever has not seen the log cannot know where it was
        **_CALLS_GO_ON,
        "model_call_start": "calling",
        "message_delivered": "opened",
        "turn_start": "anew",
        "phase_change:idle": "closing",
    },
    "anew": {
        "message_delivered": "opened",
        "model_call_start": "calling",
        "message_start:assistant": "failing",
        "turn_end": "between",
        "tool_use": "announcing",
        **_OWED,
    },
    "recovering": {**dict.fromkeys(_ANSWERS, "recovering"), **_CALLS_GO_ON},
    "recovered": _CALLS_GO_ON,
}
"""The whole order of a run, as an automaton; ``testing.EventOrder`` checks it."""

GOES_ON: Final[Mapping[str, str]] = {
    # A crash comes where it wants.  In a log agent_resume may stand wherever a run had something left to do, and
    # then the run is:
    **dict.fromkeys(("started", "between", "closing"), "between"),
    "opened": "opened",
    **dict.fromkeys(("calling", "streaming", "discarding", "failed", "waiting", "backoff", "ready"), "ready"),
    "paused": "paused",
    "malformed": "malformed",
    **dict.fromkeys(("answered", "announcing", "preparing", "executing", "settling"), "recovering"),
    **dict.fromkeys(("assembling", "assembled", "recovering", "recovered"), "recovering"),
    **dict.fromkeys(("reopened", "revoking"), "recovering"),
    "ended": "ended",
    **dict.fromkeys(("reopening", "reopens", "leaving"), "reopening"),
    **dict.fromkeys(("resuming", "resumed", "anew"), "resuming"),
}
"""The order's other half: where a run that a crash has cut goes on, behind ``agent_resume``."""
