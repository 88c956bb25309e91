"""How many tokens a request will take, roughly, without a tokenizer.

A history is not counted again: of each answer it is remembered how much there was up to it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Final, final

from .._messages import Block, File, Image, Message, NativeBlock, Reasoning, Text, ToolCall, ToolResult
from .._model import ModelRequest, ToolSpec

__all__ = ["Estimate"]

BYTES: Final = 4
"""Bytes of text in a token: English has about four letters, and a Chinese character of three bytes is about one."""

PICTURE: Final = 1_000 * BYTES
"""What a picture or a document counts for; what it really takes depends on the vendor and on what is in it."""


@final
class Estimate:
    """A function of a request, with a memory.  It holds no message alive."""

    def __init__(self) -> None:
        self._histories = weakref.WeakKeyDictionary[Message, tuple[int, int]]()
        self._tools = weakref.WeakKeyDictionary[ToolSpec, int]()

    def __call__(self, request: ModelRequest) -> float:
        """Tokens of the request, and those that its answer may have if it says so."""
        size = _size(request.system or "") + sum(map(self._tool, request.tools)) + self._history(request.messages)
        if request.output_schema is not None:
            size += _size(str(request.output_schema))
        return size / BYTES + (request.sampling.max_tokens or 0)

    def _tool(self, spec: ToolSpec) -> int:
        size = self._tools.get(spec)
        if size is None:
            size = _size(spec.name) + _size(spec.description) + _size(str(spec.parameters))
            self._tools[spec] = size
        return size

    def _history(self, messages: Sequence[Message]) -> int:
        """The size of the messages; it looks at no more than what came since the last answer that it knows.

        The id of an answer is used once, so what stands before it is the same each time.  If a hook has rewritten that
        without making it longer or shorter, this is only an estimate.
        """
        size = 0
        new: list[tuple[int, Message]] = []
        for index in range(len(messages) - 1, -1, -1):
            message = messages[index]
            known = self._histories.get(message) if message.id else None
            if known is not None and known[0] == index:
                size = known[1]
                break
            new.append((index, message))
        for index, message in reversed(new):
            size += sum(map(_block_size, message.content))
            if message.id:
                self._histories[message] = index, size
        return size


def _block_size(block: Block) -> int:
    match block:
        case Text() | Reasoning():
            return _size(block.text)
        case ToolCall():
            return _size(block.name) + _size(block.arguments)
        case ToolResult():
            return sum(map(_block_size, block.content))
        case NativeBlock():
            return _size(block.data)
        case Image() | File():
            return PICTURE
        case _:  # an application's own, which is not sent
            return 0


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
