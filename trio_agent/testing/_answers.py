"""What a scripted model says: answers as values, put together from texts, calls, failures and silences.

Knows nothing of who plays them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from .._errors import ErrorCode, ProviderError
from .._messages import FinishReason
from .._model import ModelChunk, ReasoningChunk, TextChunk, Usage

__all__ = [
    "CUT",
    "STALL",
    "Answer",
    "Failing",
    "Named",
    "ScriptedCall",
    "Wait",
    "call",
    "calls",
    "chunks",
    "cut",
    "fail",
    "say",
    "stall",
    "think",
]

_STATUS_CODES: Final[Mapping[int, ErrorCode]] = {
    400: "INVALID_REQUEST",
    401: "AUTHENTICATION",
    402: "QUOTA_EXCEEDED",
    403: "AUTHENTICATION",
    404: "INVALID_REQUEST",
    408: "TIMEOUT",
    413: "CONTEXT_OVERFLOW",
    422: "INVALID_REQUEST",
    429: "RATE_LIMIT",
    503: "OVERLOADED",
    504: "TIMEOUT",
    529: "OVERLOADED",
}
"""What a status means; any other one is a ``PROVIDER_ERROR``."""


class Named(Protocol):
    """A tool, as far as a script needs one."""

    @property
    def name(self) -> str:
        """The name that the model calls it by."""
        ...


@attrs.frozen
class Wait:
    """A silence of so many seconds on Trio's clock."""

    seconds: float


@attrs.frozen
class ScriptedCall:
    """A tool call; its index, and its id if there is none, are filled in when it is played."""

    name: str
    arguments: str
    id: str | None = None


@attrs.frozen
class Failing:
    """The :class:`ProviderError` that an answer ends with; each time it is played it is a new one."""

    code: ErrorCode
    message: str
    status: int | None = None
    retry_after: float | None = None
    retryable: bool | None = None

    def error(self, provider: str) -> ProviderError:
        """The exception to raise."""
        return ProviderError(
            self.message,
            code=self.code,
            status=self.status,
            provider=provider,
            retry_after=self.retry_after,
            retryable=self.retryable,
        )


Step: TypeAlias = ModelChunk | Wait | ScriptedCall
End: TypeAlias = Literal["finish", "cut", "stall"] | Failing | Exception


@attrs.frozen
class Answer:
    """One answer of a model.  Two of them joined with ``+`` are one that says both; the right one's end counts."""

    steps: tuple[Step, ...] = ()
    """What is sent, in order."""
    end: End = "finish"
    """How it ends: with a ``Finish``, with none (``cut``), never (``stall``), or by raising."""
    finish: FinishReason | None = None
    """``None``: ``tool_use`` if there are calls, otherwise ``stop``."""
    usage: Usage | None = None
    """Reported before the end; ``None``: nothing is reported."""

    def __add__(self, other: Answer) -> Answer:
        return Answer(
            self.steps + other.steps,
            other.end,
            other.finish if other.finish is not None else self.finish,
            other.usage if other.usage is not None else self.usage,
        )

    @property
    def reason(self) -> FinishReason:
        """The finish reason that is sent."""
        if self.finish is not None:
            return self.finish
        return "tool_use" if any(isinstance(step, ScriptedCall) for step in self.steps) else "stop"


def say(
    text: str,
    *,
    chunks: int | Sequence[str] = 1,
    usage: Usage | None = None,
    finish: FinishReason | None = None,
    delay: float = 0.0,
    every: float = 0.0,
) -> Answer:
    """An answer in words.

    Args:
      text: what it says.
      chunks: into how many pieces it is cut, or the pieces themselves.
      usage: what it reports as used.
      finish: its finish reason; by default ``stop``.
      delay: seconds before the first chunk.
      every: seconds between two chunks.

    Raises:
      ValueError: the pieces do not add up to the text.
    """
    pieces = _cut(text, chunks) if isinstance(chunks, int) else tuple(chunks)
    if "".join(pieces) != text:
        raise ValueError(f"the pieces {pieces!r} do not add up to {text!r}")
    return Answer(_timed([TextChunk(piece) for piece in pieces], delay, every), "finish", finish, usage)


def _cut(text: str, count: int) -> tuple[str, ...]:
    """``count`` pieces of nearly equal length, fewer if the text is shorter."""
    if count < 1:
        raise ValueError(f"expected at least 1 chunk, got {count}")
    count = min(count, len(text)) or 1
    edges = [len(text) * number // count for number in range(count + 1)]
    return tuple(text[a:b] for a, b in itertools.pairwise(edges))


def _timed(steps: Sequence[Step], delay: float, every: float) -> tuple[Step, ...]:
    timed: list[Step] = []
    for number, step in enumerate(steps):
        pause = delay if number == 0 else every
        if pause:
            timed.append(Wait(pause))
        timed.append(step)
    return tuple(timed)


def think(text: str, signature: str | None = None) -> Answer:
    """Reasoning, to be followed by something: ``think("Hm.") + say("Yes.")``."""
    return Answer((ReasoningChunk(text, signature),))


def call(
    tool: str | Named,
    arguments: Mapping[str, Any] | None = None,  # Any: JSON
    /,
    *,
    id: str | None = None,
    raw: str | None = None,
    **more: Any,  # Any: JSON
) -> Answer:
    """An answer that asks for one tool call.  Several are joined with ``+`` or by :func:`calls`.

    Args:
      tool: a tool or its name.
      arguments: what to call it with; keyword arguments are added.
      id: the call's id; by default ``call_1``, ``call_2``, ... over the life of the model.
      raw: text to send as the arguments instead, JSON or not.

    Raises:
      TypeError: the arguments are not JSON, or were given beside ``raw``.
    """
    name = tool if isinstance(tool, str) else tool.name
    if raw is None:
        raw = json.dumps({**(arguments or {}), **more})
    elif arguments is not None or more:
        raise TypeError("expected either arguments or raw, got both")
    return Answer((ScriptedCall(name, raw, id),))


def calls(
    *answers: Answer,
    text: str = "",
    usage: Usage | None = None,
    finish: FinishReason | None = None,
    delay: float = 0.0,
    every: float = 0.0,
) -> Answer:
    """One answer with several calls, after ``text`` if there is any.  Arguments as for :func:`say`."""
    steps: list[Step] = [TextChunk(text)] if text else []
    for answer in answers:
        steps.extend(answer.steps)
    return Answer(_timed(steps, delay, every), "finish", finish, usage)


def chunks(*raw: ModelChunk) -> Answer:
    """Exactly these chunks and nothing else: no ``Finish`` is added."""
    return Answer(raw, "cut")


def fail(
    reason: int | ErrorCode,
    message: str = "",
    *,
    retry_after: float | None = None,
    after: Answer | None = None,
    retryable: bool | None = None,
) -> Answer:
    """A model call that fails with a :class:`ProviderError`.

    Args:
      reason: an HTTP status, which says the code, or the code.
      message: what the provider says; a default one by default.
      retry_after: seconds that it asks to wait.
      after: what is sent before it fails.
      retryable: the provider's own word on whether waiting helps.
    """
    if isinstance(reason, int):
        code: ErrorCode = _STATUS_CODES.get(reason, "PROVIDER_ERROR")
        failing = Failing(code, message or f"scripted failure with status {reason}", reason, retry_after, retryable)
    else:
        failing = Failing(reason, message or "scripted failure", None, retry_after, retryable)
    return attrs.evolve(after or Answer(), end=failing)


def cut(answer: Answer | None = None) -> Answer:
    """The stream ends after what ``answer`` says, with no ``Finish``."""
    return attrs.evolve(answer or Answer(), end="cut")


def stall(answer: Answer | None = None) -> Answer:
    """The stream sends what ``answer`` says, and then nothing for ever."""
    return attrs.evolve(answer or Answer(), end="stall")


CUT: Final = cut()
"""A stream that ends before it began."""
STALL: Final = stall()
"""A stream that never says anything."""
