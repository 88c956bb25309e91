"""Everything that can go wrong, as one tree of exceptions with stable codes.

::

    AgentError                        code
    ├─ ConfigError                    INVALID_CONFIG
    ├─ RequestError                   INVALID_REQUEST
    ├─ ProviderError                  PROVIDER_ERROR, RATE_LIMIT, OVERLOADED, AUTHENTICATION, ...
    ├─ OutputError                    MALFORMED_TOOL_CALL, MALFORMED_OUTPUT
    ├─ ToolFailed                     TOOL_FAILED
    │  └─ FatalToolError              raised by a tool to end its run
    ├─ HookFailed                     HOOK_FAILED
    ├─ ListenerFailed                 LISTENER_FAILED
    ├─ StoreFailed                    STORE_FAILED
    │  ├─ SessionConflict             SESSION_CONFLICT
    │  └─ SessionCorrupt              SESSION_CORRUPT
    ├─ SessionBusy                    SESSION_BUSY
    ├─ SessionClosed                  SESSION_CLOSED
    ├─ NotResumable                   NOT_RESUMABLE
    ├─ InvalidAnswer                  INVALID_ANSWER
    ├─ RunCancelled                   CANCELLED
    ├─ RunEnded                       RUN_ENDED
    └─ InternalError                  INTERNAL

A failing *tool* is a result that the model reads; a failing *run* is a fact in the log before it is
anyone's exception.  Errors are inert: creating one logs nothing and looks at nothing.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal, TypeAlias, cast

import attrs

__all__ = [
    "AgentError",
    "ConfigError",
    "ErrorCode",
    "Failure",
    "FatalToolError",
    "HookFailed",
    "InternalError",
    "InvalidAnswer",
    "ListenerFailed",
    "NotResumable",
    "OutputError",
    "ProviderError",
    "RequestError",
    "RunCancelled",
    "RunEnded",
    "SessionBusy",
    "SessionClosed",
    "SessionConflict",
    "SessionCorrupt",
    "StoreFailed",
    "ToolFailed",
]

ErrorCode: TypeAlias = Literal[
    "AUTHENTICATION",
    "CANCELLED",
    "CONTENT_FILTER",
    "CONTEXT_OVERFLOW",
    "HOOK_FAILED",
    "INTERNAL",
    "INVALID_ANSWER",
    "INVALID_CONFIG",
    "INVALID_REQUEST",
    "LISTENER_FAILED",
    "MALFORMED_OUTPUT",
    "MALFORMED_TOOL_CALL",
    "NOT_RESUMABLE",
    "OVERLOADED",
    "PARTIAL_STREAM",
    "PROVIDER_DISCONNECT",
    "PROVIDER_ERROR",
    "QUOTA_EXCEEDED",
    "RATE_LIMIT",
    "RUN_ENDED",
    "SESSION_BUSY",
    "SESSION_CLOSED",
    "SESSION_CONFLICT",
    "SESSION_CORRUPT",
    "STALLED",
    "STORE_FAILED",
    "TIMEOUT",
    "TOOL_FAILED",
]
"""The stable names of what went wrong.  New ones may be added; none changes its meaning."""

MAX_BODY: Final = 2_000
"""Characters of a provider's error body that an error keeps."""


class AgentError(Exception):
    """The root of every error of this package.

    Args:
      message: what went wrong, for a person; names the thing, the place and what was expected.
      code: the stable name; by default that of the class.
    """

    code: ErrorCode = "INTERNAL"

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ConfigError(AgentError):
    """An option, a tool or an argument of ours cannot be used; the message names it."""

    code: ErrorCode = "INVALID_CONFIG"


class RequestError(AgentError):
    """The input of a run is not a conversation that a model could be sent."""

    code: ErrorCode = "INVALID_REQUEST"


class ProviderError(AgentError):
    """A model call failed.

    Attributes:
      status: the HTTP status, if there was one.
      provider: the provider's name.
      retry_after: seconds that the provider asked to wait, if it did.
      retryable: the provider's own word on whether waiting helps; ``None``: the code decides.
      body: a bounded piece of the answer's body, with secrets removed.
    """

    code: ErrorCode = "PROVIDER_ERROR"

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        status: int | None = None,
        provider: str | None = None,
        retry_after: float | None = None,
        retryable: bool | None = None,
        body: str | None = None,
    ) -> None:
        super().__init__(message, code=code)
        self.status = status
        self.provider = provider
        self.retry_after = retry_after
        self.retryable = retryable
        self.body = body if body is None or len(body) <= MAX_BODY else body[:MAX_BODY] + "…"


class OutputError(AgentError):
    """The model's output could not be read, also after repair."""

    code: ErrorCode = "MALFORMED_OUTPUT"


class ToolFailed(AgentError):
    """A tool failed in a way that a result cannot carry."""

    code: ErrorCode = "TOOL_FAILED"


class FatalToolError(ToolFailed):
    """Raise this in a tool to end the run: siblings are cut as by ``abort(grace=0)``."""


class HookFailed(AgentError):
    """A middleware raised where a raise ends the run."""

    code: ErrorCode = "HOOK_FAILED"


class ListenerFailed(AgentError):
    """A listener raised, and it was subscribed with ``on_error="fail"``."""

    code: ErrorCode = "LISTENER_FAILED"


class StoreFailed(AgentError):
    """The log could not be written or read; nothing more is logged after it."""

    code: ErrorCode = "STORE_FAILED"


class SessionConflict(StoreFailed):
    """Someone else wrote to the session meanwhile.  Nothing was written."""

    code: ErrorCode = "SESSION_CONFLICT"


class SessionCorrupt(StoreFailed):
    """A record of the log cannot be read; the message names its place."""

    code: ErrorCode = "SESSION_CORRUPT"


class SessionBusy(AgentError):
    """The session has a run already, or is open elsewhere in this process.  Nothing was done."""

    code: ErrorCode = "SESSION_BUSY"


class SessionClosed(AgentError):
    """The session's block was left, or its log can no longer be written.  Nothing was done."""

    code: ErrorCode = "SESSION_CLOSED"


class NotResumable(AgentError):
    """There is nothing that could go on; the message says what would."""

    code: ErrorCode = "NOT_RESUMABLE"


class InvalidAnswer(AgentError):
    """An answer that nobody asked for, that is of the wrong kind, or that contradicts an earlier one."""

    code: ErrorCode = "INVALID_ANSWER"


class RunCancelled(AgentError):
    """What ``result.error`` is after an abort or a cancellation."""

    code: ErrorCode = "CANCELLED"


class RunEnded(AgentError):
    """A verb was used on a run that has ended.  Nothing was accepted."""

    code: ErrorCode = "RUN_ENDED"


class InternalError(AgentError):
    """A rule of the kernel was broken: a defect of this package or of one of its extensions."""

    code: ErrorCode = "INTERNAL"


@attrs.frozen
class Failure:
    """An error as the log keeps it: what an exception said, without the exception."""

    UNEXPECTED: ClassVar[ErrorCode] = "INTERNAL"

    code: ErrorCode
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Describe ``error``; a foreign exception gets the code ``INTERNAL`` and its class name."""
        if isinstance(error, AgentError):
            return cls(error.code, error.message)
        return cls(cls.UNEXPECTED, describe(error))


def describe(error: BaseException, limit: int = MAX_BODY) -> str:
    """``ClassName: text`` of an exception, bounded; of a group, that of its leaves.

    Never raises, whatever ``__str__`` does.
    """
    found = leaves(error)
    if found != [error]:
        return "; ".join(describe(each, limit) for each in found[:8])[: 2 * limit]
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # a hostile __str__ must not turn one failure into two
        return name
    if not text:
        return name
    return f"{name}: {text if len(text) <= limit else text[:limit] + '…'}"


def leaves(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, however deep, that are no groups themselves; else the error alone."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [each for inner in group.exceptions for each in leaves(inner)]


def leaf(error: Exception) -> Exception:
    """The error itself, out of however many groups that hold nothing else."""
    found = leaves(error)
    return found[0] if len(found) == 1 and isinstance(found[0], Exception) else error


def failure_in(group: BaseExceptionGroup[BaseException]) -> Exception:
    """The failure in a group that foreign code raised, as a :func:`leaf`.

    Raises:
      BaseExceptionGroup: what in it is no ``Exception``: a cancellation or an interrupt is not a failure,
        and goes on.
    """
    failures, rest = group.split(Exception)
    if rest is not None or failures is None:
        raise rest or group from None
    return leaf(failures)
