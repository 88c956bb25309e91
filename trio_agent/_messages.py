"""The words of a conversation: blocks, messages and tool results, all frozen.

JSON inside a value is kept as *text*, as it came: immutable, byte-stable, cheap to log and to send
again.  ``.input`` and the like parse a fresh copy each time.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import attrs

__all__ = [
    "Block",
    "CustomBlock",
    "File",
    "FinishReason",
    "Image",
    "Message",
    "NativeBlock",
    "Origin",
    "Reasoning",
    "ResultBlock",
    "ResultStatus",
    "Role",
    "Text",
    "ToolCall",
    "ToolResult",
    "parse_object",
]

Role: TypeAlias = Literal["user", "assistant", "tool"]
"""Who speaks.  The system prompt is no message: it is an option of the agent."""

FinishReason: TypeAlias = Literal[
    "stop", "tool_use", "length", "refusal", "pause", "interrupted", "malformed", "error", "unknown"
]
"""Why an assistant message ended.  ``pause``: the model wants to be called again."""

Origin: TypeAlias = Literal["steer", "follow_up", "repair"]
"""Where a user message came from that was no input of its run."""

ResultStatus: TypeAlias = Literal[
    "ok",
    "error",
    "invalid",
    "unknown_tool",
    "denied",
    "not_run",
    "interrupted",
    "timed_out",
    "truncated",
]
"""What became of a call.  ``interrupted``: it was running, its effects are unknown.  ``not_run``: it
never started.  The two are never confused, and the text that the model reads says the same."""

NEVER_STARTED: Final[frozenset[ResultStatus]] = frozenset({"invalid", "unknown_tool", "denied", "truncated", "not_run"})
"""Of calls that did not run; every other status is of one that did, or may have."""

STATUS_TEXT: Final[Mapping[ResultStatus, str]] = {
    "error": "The tool failed.",
    "invalid": "The arguments are not valid, and the tool was not run.",
    "unknown_tool": "There is no such tool.",
    "denied": "The call was denied, and the tool was not run.",
    "not_run": "The tool was not run: the turn was cut short before the call started.",
    "interrupted": "The call was interrupted while it was running: whether it took effect is unknown.",
    "timed_out": "The tool did not finish in time: whether it took effect is unknown.",
    "truncated": "The answer was cut off at the output limit, so the call is incomplete and was not run. "
    "Send less at once, for example in several smaller calls.",
}
"""What the model reads of a call that has no output of its own."""


@attrs.frozen
class Text:
    """Plain text."""

    text: str


@attrs.frozen
class Reasoning:
    """A model's reasoning, given back to it unchanged where its provider asks for that."""

    text: str
    signature: str | None = None
    """The provider's seal over the reasoning; opaque."""


@attrs.frozen
class Image:
    """A picture, by value or by address."""

    media_type: str
    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None


@attrs.frozen
class File:
    """A document, by value or by address."""

    media_type: str
    data: bytes = attrs.field(default=b"", repr=False)
    url: str | None = None
    name: str | None = None


@attrs.frozen
class ToolCall:
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str = "{}"
    """JSON text as the model wrote it; nothing vouches for it yet."""

    @property
    def input(self) -> dict[str, Any]:  # Any: JSON
        """A fresh copy of the arguments.

        Raises:
          ValueError: they are not a JSON object; the message says what they are.
        """
        return parse_object(self.arguments)


ResultBlock: TypeAlias = Text | Image | File


@attrs.frozen
class ToolResult:
    """What one call gave back.  Every call that was announced gets exactly one."""

    call_id: str
    content: tuple[ResultBlock, ...] = ()
    status: ResultStatus = "ok"
    structured: str | None = None
    """The output as JSON text, for programs; the model reads ``content``."""

    @property
    def text(self) -> str:
        """The text of the content, joined."""
        return "".join(block.text for block in self.content if type(block) is Text)

    @classmethod
    def of(cls, call_id: str, status: ResultStatus, detail: str = "") -> ToolResult:
        """A result that has no output of its own: what its status means, then ``detail``."""
        text = STATUS_TEXT[status]
        return cls(call_id, (Text(f"{text} {detail}" if detail else text),), status)


@attrs.frozen
class NativeBlock:
    """A block that only its provider understands; survives the log byte for byte."""

    provider: str
    data: str
    """JSON text."""


@attrs.frozen
class CustomBlock:
    """An application's own block: stored, and dropped from requests unless ``convert_to_llm`` rewrites it."""

    kind: str
    data: str
    """JSON text."""


Block: TypeAlias = Text | Reasoning | Image | File | ToolCall | ToolResult | NativeBlock | CustomBlock


def _blocks(content: str | tuple[Block, ...] | list[Block]) -> tuple[Block, ...]:
    if type(content) is tuple:
        return content
    return (Text(content),) if isinstance(content, str) else tuple(content)


@attrs.frozen
class Message:
    """One entry of a conversation.  ``content`` may be given as a ``str``, which means one :class:`Text`."""

    role: Role
    content: tuple[Block, ...] = attrs.field(converter=_blocks)
    finish_reason: FinishReason | None = None
    """Why it ended; of assistant messages only."""
    origin: Origin | None = None
    """Where it came from; ``None``: it was input.  Of user messages only."""
    id: str = ""
    """Of assistant messages made by a run; never used again."""

    @property
    def text(self) -> str:
        """The text blocks, joined."""
        return "".join(block.text for block in self.content if type(block) is Text)

    @property
    def reasoning(self) -> str:
        """The reasoning blocks, joined."""
        return "".join(block.text for block in self.content if type(block) is Reasoning)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls, in the order of the message."""
        return tuple(block for block in self.content if type(block) is ToolCall)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The tool results, in the order of the message."""
        return tuple(block for block in self.content if type(block) is ToolResult)


class _Refused(ValueError):
    """What Python reads and JSON does not know."""


def _refuse_constant(name: str) -> object:
    raise _Refused(f"expected a JSON object, but {name} is not JSON")


MAX_DEPTH: Final = 64
"""Levels of arrays and objects that JSON from a model may have."""

# A string that is never closed reaches to the end, so that no text is scanned twice.
_STRUCTURE: Final = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)


def _is_too_deep(text: str) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _STRUCTURE.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                return True
        elif token[0] in "]}":
            depth -= 1
    return False


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise _Refused("expected a JSON object, but a number in it is too large to be read")
    return value


# json.loads would make a decoder each time.
_DECODE: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).decode


_KINDS: Final[Mapping[type, str]] = {list: "an array", str: "a string", bool: "a boolean"}


def parse_object(text: str | None) -> dict[str, Any]:  # Any: JSON
    """Read JSON text that must be an object; blank text and ``null`` are an empty one.

    The rule is that of the chat wires: ``""``, ``null``, a missing key and ``{}`` all mean "no
    arguments".  Nothing else is guessed at.  NaN and infinities are not JSON.  Of a key that stands
    twice the last one counts, as in :mod:`json`.

    Raises:
      ValueError: it is not JSON, not an object, nested too deeply, or holds half a surrogate pair.
    """
    if text is None or not text.strip():
        return {}
    if _is_too_deep(text):
        raise ValueError(f"expected a JSON object, but it is nested too deeply: more than {MAX_DEPTH} levels")
    try:
        value = cast(object, _DECODE(text))
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()
        elif not text.isascii():
            text.encode()
    except json.JSONDecodeError as error:
        raise ValueError(f"expected a JSON object, but it is not JSON: {error}") from None
    except UnicodeEncodeError:
        raise ValueError("expected a JSON object, but its text holds half a surrogate pair") from None
    except _Refused:
        raise
    except ValueError:  # int() reads no more than some thousand digits
        raise ValueError("expected a JSON object, but a number in it has too many digits to be read") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, got {_KINDS.get(type(value), 'a number')}")
    return cast("dict[str, Any]", value)
