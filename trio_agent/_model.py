"""What goes to a model and what comes back: requests, chunks, usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import attrs

from ._messages import FinishReason, Message, NativeBlock
from ._options import Sampling, ToolChoice

__all__ = [
    "NO_USAGE",
    "CallChunk",
    "Finish",
    "ModelChunk",
    "ModelRequest",
    "NativeChunk",
    "ReasoningChunk",
    "TextChunk",
    "ToolSpec",
    "Usage",
    "UsageReport",
]


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


@attrs.frozen
class Usage:
    """Tokens that model calls were billed for.  ``None`` is unknown, and unknown is not 0."""

    input: int | None = None
    """Tokens sent, cached ones included, whatever the provider's habit."""
    output: int | None = None
    """Tokens generated, hidden reasoning included."""
    cache_read: int | None = None
    """Of ``input``: read from the provider's cache."""
    cache_write: int | None = None
    """Of ``input``: written to the provider's cache."""
    reasoning: int | None = None
    """Of ``output``: hidden reasoning."""

    def __add__(self, other: Usage) -> Usage:
        """Sum field by field; a sum is ``None`` only if both parts are."""
        if other is NO_USAGE or other == NO_USAGE:
            return self
        return Usage(
            _sum(self.input, other.input),
            _sum(self.output, other.output),
            _sum(self.cache_read, other.cache_read),
            _sum(self.cache_write, other.cache_write),
            _sum(self.reasoning, other.reasoning),
        )


NO_USAGE: Final = Usage()
"""Nothing is known."""


@attrs.frozen
class ToolSpec:
    """A tool as a model is told of it."""

    name: str
    description: str
    parameters: dict[str, Any] = attrs.field(hash=False)  # Any: a JSON Schema
    """A JSON Schema of type object.  Shared: do not change it."""


@attrs.frozen
class ModelRequest:
    """One model call."""

    messages: Sequence[Message]
    """A read-only view of fixed length on the history; it never sees what comes later."""
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    sampling: Sampling = Sampling()
    reasoning: str | None = None
    """The effort asked for, in the provider's own word (``"low"``, ``"high"``, ...)."""
    turn: int = 1
    """The number of the turn; codecs need it for ids that repeat in no other turn."""
    output_schema: dict[str, Any] | None = attrs.field(default=None, hash=False)  # Any: a JSON Schema
    """What the text of the final answer must be: JSON that this describes.  A wire says it in its vendor's way, a
    codec in its own.  Shared: do not change it."""


@attrs.frozen
class TextChunk:
    """A piece of the answer's text.  An empty one says no more than "still alive"."""

    text: str


@attrs.frozen
class ReasoningChunk:
    """A piece of the model's reasoning; a signature seals all that came since the last one."""

    text: str
    signature: str | None = None


@attrs.frozen
class CallChunk:
    """A piece of a tool call.

    ``index`` says which call it belongs to, ``None`` that the provider did not say.  Id and name are
    whole or empty, never pieces; ``arguments`` is a piece of JSON text.
    """

    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""


@attrs.frozen
class NativeChunk:
    """A whole block that only the provider understands."""

    block: NativeBlock


@attrs.frozen
class UsageReport:
    """What was used.  A cumulative report replaces the earlier ones of its call, others add up."""

    usage: Usage
    cumulative: bool = True


@attrs.frozen
class Finish:
    """The end of an answer: mandatory and last."""

    reason: FinishReason
    raw: str | None = None
    """The provider's own word for it."""


ModelChunk: TypeAlias = TextChunk | ReasoningChunk | CallChunk | NativeChunk | UsageReport | Finish
"""What a provider emits."""
