"""Calls that were read out of a text: their arguments, their ids, and the message that they make.

Knows no protocol: what a codec has recognised as a call is made a call here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from .._errors import ErrorCode
from .._messages import Block, FinishReason, Message, Text, ToolCall, parse_object
from .._ports import Decoded
from ._mended import mended
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = [
    "NOT_READ",
    "Malformed",
    "Said",
    "SpokenCall",
    "arguments_of",
    "decoded",
    "dump",
    "only_object",
    "refused",
    "repair_text",
]

NOT_READ: Final[frozenset[FinishReason | None]] = frozenset({"refusal", "pause", "interrupted", "malformed", "error"})
"""What ended so is no answer in any protocol, and stays as it is."""

MAX_ERROR: Final = 4_000
"""Characters of an error that the model is told."""

_BEFORE: Final = re.compile(r"""["'”’]\s*:\s*\Z|[}\])"'\d]\s*,\s*\Z|[}\]"]\s*:?\s*\Z""")
"""In front of a brace: what shows that the brace is not the first of its value."""
_BEHIND: Final = re.compile(r"""\s*[,;]?\s*["'“‘\[{}\]:]""")
"""Behind a value: what shows that it was not the whole."""
_ANOTHER: Final = re.compile(r"\{|(?<!`)`{3,}+\s*+(?:json\w*+\s*+)?+\[")
"""Farther behind: what shows that there are two values."""
_DIGITS: Final = 16


class Malformed(ValueError):
    """The answer cannot be read.  The text is for the model."""

    def __init__(self, why: str, code: ErrorCode = "MALFORMED_TOOL_CALL", *, cut: bool = False) -> None:
        super().__init__(why)
        self.code: ErrorCode = code
        self.cut = cut
        """Whether it stops inside of a value."""


@attrs.frozen
class SpokenCall:
    """A call as it was written into a text."""

    name: str
    arguments: str = "{}"
    """JSON text."""
    id: str = ""
    """The model's own."""


@attrs.frozen
class Said:
    """What an answer means: a text, or calls with what was said before them."""

    text: str = ""
    calls: Sequence[SpokenCall] = ()


def dump(value: object) -> str:
    """JSON text as models and logs read it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def only_object(text: str, *, close: bool = True) -> dict[str, JSONValue]:
    """The one object that ``text`` holds, with prose or a fence around it; blank text and null are an empty one.

    Raises:
      Malformed: there is none, or it is not evident, or there is more than it.
    """
    try:
        return parse_object(text)
    except ValueError as error:
        if text.strip() == "None":
            return {}
        start = text.find("{")
        bare = text.lstrip("\ufeff \t\r\n`-")
        if start < 0 or bare.startswith("[") or _BEFORE.search(text[max(0, start - 80) : start]):
            raise Malformed(str(error)) from None
    return _object_at(text, start, close)


def _object_at(text: str, start: int, close: bool) -> dict[str, JSONValue]:
    try:
        value, end = read_value(text, start, close=close)
        if _BEHIND.match(text, end) or _ANOTHER.search(text, end):
            raise Unreadable(text, end, "expected one JSON object, but more stands behind it")
    except Unreadable as error:
        found = None if error.hopeless else mended(text[start:].strip("` \t\r\n"))
        if found is None:
            raise Malformed(f"expected a JSON object, but it is not JSON: {error}", cut=error.cut) from None
        return found
    assert isinstance(value, dict)  # it begins with a brace
    return value


def arguments_of(value: JSONValue, name: str) -> str:
    """The arguments of a call as JSON text, from an object, or from a string that holds one.

    Raises:
      Malformed: they are neither.
    """
    if value is None:
        return "{}"
    if isinstance(value, str):
        try:
            return dump(only_object(value))
        except Malformed as error:
            raise Malformed(f"the arguments of {name!a} cannot be read: {error}") from None
    if not isinstance(value, dict):
        raise Malformed(f"the arguments of {name!a} must be a JSON object, not {dump(value)[:100]}")
    return dump(value)


def decoded(message: Message, said: Said, turn: int) -> Decoded:
    """``message`` with ``said`` in the place of its text; whatever else it holds stays where it is."""
    new: list[Block] = [Text(said.text)] if said.text.strip() else []
    new += _identified(said.calls, message.text, turn)
    content: list[Block] = []
    for block in message.content:
        if type(block) is Text:
            content += new
            new = []
        else:
            content.append(block)
    reason = message.finish_reason
    if said.calls and reason != "length":
        reason = "tool_use"
    return Decoded(attrs.evolve(message, content=tuple(content), finish_reason=reason))


def refused(message: Message, error: Malformed) -> Decoded:
    """``message`` with what is wrong with it."""
    why = str(error)[:MAX_ERROR]
    if message.finish_reason == "length":
        why = f"the answer was cut off at the output limit, so send less at once: {why}"
    return Decoded(message, error.code, why)


def repair_text(error: str, attempt: int, wish: str) -> str:
    """What the model is told of an answer that could not be read; of a long error, the beginning."""
    if len(error) > MAX_ERROR:
        error = error[:MAX_ERROR] + "…"
    return (
        f"Your last answer could not be read (attempt {attempt}): {error or 'it does not follow the format.'}\n{wish}"
    )


def _identified(calls: Iterable[SpokenCall], text: str, turn: int) -> list[ToolCall]:
    """The calls under ids that are not blank and not equal: the model's own, or derived ones.

    A derived id depends on the answer, the call's place and the turn, so replays give the same one, and an
    identical answer in another turn does not.
    """
    made: list[ToolCall] = []
    taken: set[str] = set()
    said = hashlib.sha256(f"{text}\0".encode("utf-8", "surrogatepass"))
    for index, call in enumerate(calls):
        id = call.id.strip()
        if not id or id in taken:
            digest = said.copy()
            digest.update(f"{index}\0{call.name}\0{call.arguments}\0{turn}".encode("utf-8", "surrogatepass"))
            id = f"call_{digest.hexdigest()[:_DIGITS]}"
        taken.add(id)
        made.append(ToolCall(id, call.name, call.arguments))
    return made
