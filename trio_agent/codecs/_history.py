"""The history as a protocol tells it: each message is rewritten once and kept, and roles take turns.

Knows no protocol; how one message is told is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, final
from weakref import WeakKeyDictionary

import attrs

from .._messages import STATUS_TEXT, Block, File, Image, Message, Text, ToolCall, ToolResult

__all__ = ["History", "media_of", "output_of", "replaced"]

Retell: TypeAlias = Callable[[Message], tuple[Message, ...]]
"""One message as one or more.  If calls and their results become as many messages, they are told in turns."""

NO_OUTPUT: Final = "(no output)"


@final
class History:
    """Tells histories in a protocol's words.

    What is told of a message does not change from call to call, so providers' caches hold.
    """

    __slots__ = ("_joined", "_retell", "_told")

    def __init__(self, retell: Retell) -> None:
        self._retell = retell
        self._told = WeakKeyDictionary[Message, tuple[Message, ...]]()
        self._joined = WeakKeyDictionary[Message, tuple[Message, Message]]()
        """What was put behind a message that was told, and the two in one."""

    def told(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """All of ``messages``, in the protocol's words."""
        out: list[Message] = []
        asked: tuple[Message, ...] = ()
        for message in messages:
            parts = self._told.get(message) or self._retold(message)
            if message.role == "tool" and len(parts) == len(asked):
                parts = tuple(part for pair in zip(asked, parts, strict=True) for part in pair)
                asked = ()
            self._add(out, asked)
            asked = parts if message.role == "assistant" else ()
            self._add(out, () if asked else parts)
        self._add(out, asked)
        return tuple(out)

    def _retold(self, message: Message) -> tuple[Message, ...]:
        parts = self._retell(message)
        if parts[0] is not message:  # or it would keep itself alive
            self._told[message] = parts
        return parts

    def _add(self, out: list[Message], parts: Iterable[Message]) -> None:
        for part in parts:
            if out and out[-1].role == part.role:
                out[-1] = self._in_one(out[-1], part)
            else:
                out.append(part)

    def _in_one(self, first: Message, second: Message) -> Message:
        kept = self._joined.get(first)
        if kept is not None and (kept[0] is second or kept[0] == second):
            return kept[1]
        joined = attrs.evolve(first, content=first.content + second.content)
        self._joined[first] = second, joined
        return joined


def replaced(message: Message, text: str) -> Message:
    """An assistant's message with ``text`` in the place of its texts and calls."""
    new: list[Block] = [Text(text)]
    content: list[Block] = []
    for block in message.content:
        if type(block) is Text or type(block) is ToolCall:
            content += new
            new = []
        else:
            content.append(block)
    return attrs.evolve(message, content=tuple(content), finish_reason="stop")


def output_of(result: ToolResult) -> str:
    """The text of a result, with a word for each picture and file, which :func:`media_of` shows."""
    text = "\n".join(
        block.text if isinstance(block, Text) else f"[{_kind(block)} ({block.media_type}): see below]"
        for block in result.content
    )
    if text.strip():
        return text
    return NO_OUTPUT if result.status == "ok" else STATUS_TEXT[result.status]


def media_of(results: Sequence[ToolResult]) -> list[Block]:
    """The pictures and files of results, each under a line that says whose it is."""
    blocks: list[Block] = []
    for result in results:
        for block in result.content:
            if not isinstance(block, Text):
                blocks += Text(f"The {_kind(block)} that the call {result.call_id} returned:"), block
    return blocks


def _kind(block: Image | File) -> str:
    return "image" if isinstance(block, Image) else "file"
