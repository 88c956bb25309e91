"""The chunks of one answer become one message and its deltas.

Knows nothing of providers, retries or codecs.  However a stream is split into chunks, the message is
the same; what is kept of a stream that was cut is decided here too.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import attrs

from .._errors import OutputError, ProviderError
from .._events import ReasoningDelta, TextDelta, ToolCallDelta
from .._messages import Block, FinishReason, Message, NativeBlock, Reasoning, Text, ToolCall
from .._model import (
    NO_USAGE,
    CallChunk,
    Finish,
    ModelChunk,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)

__all__ = ["MAX_BYTES", "MAX_CALLS", "MAX_CHUNKS", "Answer", "StreamAssembler"]

MAX_BYTES: Final = 16 * 1024 * 1024
"""UTF-8 bytes of text, reasoning, arguments and native blocks that one answer may have."""
MAX_CALLS: Final = 65_536
"""Calls that one answer may have."""
MAX_CHUNKS: Final = 1_000_000
"""Chunks that one answer may come in."""

_KEEP_CALLS: Final[frozenset[FinishReason]] = frozenset({"stop", "tool_use", "length", "unknown", "pause"})
_SAY_TOOL_USE: Final[frozenset[FinishReason]] = frozenset({"stop", "tool_use", "unknown", "pause"})

Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta


@attrs.frozen
class Answer:
    """A whole answer."""

    message: Message
    usage: Usage = NO_USAGE
    raw: str | None = None
    """The provider's own word for why it ended."""


class _TextDraft:
    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[str] = []


class _ReasoningDraft:
    __slots__ = ("parts", "signature")

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.signature: str | None = None


class _CallDraft:
    __slots__ = ("id", "name", "parts", "position")

    def __init__(self, position: int, id: str, name: str) -> None:
        self.position = position
        self.id = id
        self.name = name
        self.parts: list[str] = []


_Draft: TypeAlias = _TextDraft | _ReasoningDraft | _CallDraft | NativeBlock


class StreamAssembler:
    """Collects the chunks of one attempt.

    Args:
      message_id: the id of the message that comes out.
    """

    __slots__ = (
        "_bytes_left",
        "_call_count",
        "_calls",
        "_chunks_left",
        "_drafts",
        "_finish",
        "_last_call",
        "_message_id",
        "_text",
        "_unsigned",
        "_usage",
    )

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._drafts: list[_Draft] = []  # in order of first arrival
        self._text: list[str] | None = None  # the parts of the last draft, if that is text
        self._unsigned: _ReasoningDraft | None = None  # the latest reasoning that no signature has sealed
        self._calls: dict[int | tuple[int | None, str], _CallDraft] = {}  # for the keys see _find
        self._call_count = 0
        self._last_call: _CallDraft | None = None
        self._finish: Finish | None = None
        self._usage = NO_USAGE
        self._chunks_left = MAX_CHUNKS
        self._bytes_left = MAX_BYTES

    @property
    def started(self) -> bool:
        """Whether something other than usage and signs of life has come."""
        return bool(self._drafts) or self._finish is not None

    @property
    def usage(self) -> Usage:
        """What has been used so far: the last total, and the increments since."""
        return self._usage

    def receive(self, chunk: ModelChunk, watched: bool) -> Delta | None:
        """Take one chunk.

        Args:
          watched: whether somebody looks; otherwise no delta is made.

        Returns:
          What is new in it for an observer, if it brings new text.

        Raises:
          ProviderError: ``PARTIAL_STREAM``, it came after :class:`Finish`.
          OutputError: ``MALFORMED_OUTPUT``, the answer is too large.  What came before it stands.
          TypeError: it is not a chunk.
        """
        if self._chunks_left <= 0:  # a finished stream has no chunks left either: one test for both
            raise self._refusal()
        self._chunks_left -= 1
        if type(chunk) is TextChunk:
            text = chunk.text
            if not text:
                return None
            self._bytes_left -= len(text) if text.isascii() else _size(text)
            if self._bytes_left < 0:
                raise _too_large(f"{MAX_BYTES:,} bytes")
            if self._text is None:
                draft = _TextDraft()
                self._open(draft)
                self._text = draft.parts
            self._text.append(text)
            return TextDelta(self._message_id, text) if watched else None
        if type(chunk) is ReasoningChunk:
            return self._receive_reasoning(chunk, watched)
        if type(chunk) is CallChunk:
            return self._receive_call(chunk, watched)
        if type(chunk) is NativeChunk:
            self._count(chunk.block.data)
            self._open(chunk.block)
        elif type(chunk) is UsageReport:
            self._usage = chunk.usage if chunk.cumulative else self._usage + chunk.usage
        elif type(chunk) is Finish:
            self._finish = chunk
            self._chunks_left = 0
        else:
            raise TypeError(f"a provider emitted {type(chunk).__name__}; expected a ModelChunk")
        return None

    def finish(self) -> Answer:
        """The whole answer, after its :class:`Finish`.

        Raises:
          ProviderError: the stream had no :class:`Finish`: ``PROVIDER_DISCONNECT`` if nothing came at
            all, ``PARTIAL_STREAM`` otherwise.
        """
        finish = self._finish
        if finish is None:
            if self.started or self._usage is not NO_USAGE:
                raise ProviderError("the stream ended before the answer was complete", code="PARTIAL_STREAM")
            raise ProviderError("the stream ended before anything had come", code="PROVIDER_DISCONNECT")
        reason = finish.reason
        content = _blocks(self._drafts, calls=reason in _KEEP_CALLS)
        has_calls = self._call_count > 0 and reason in _KEEP_CALLS
        if has_calls:
            if reason in _SAY_TOOL_USE:
                reason = "tool_use"
        elif reason == "tool_use":
            reason = "stop"
        message = Message("assistant", content, reason, id=self._message_id)
        return Answer(message, self._usage, finish.raw)

    def cut(self) -> Message | None:
        """What is kept of a stream that was cut: its text, and what belongs to it.

        Calls are dropped, whole ones too, since none of them will run; so is reasoning without its end,
        which is a signature or a block after it.

        Returns:
          A message with finish reason ``interrupted``; ``None`` if there is no text but white space.
        """
        drafts = self._drafts
        if drafts and type(drafts[-1]) is _ReasoningDraft and drafts[-1].signature is None:
            drafts = drafts[:-1]
        message = Message("assistant", _blocks(drafts, calls=False), "interrupted", id=self._message_id)
        return message if message.text.strip() else None

    def _refusal(self) -> ProviderError | OutputError:
        if self._finish is not None:
            return ProviderError("a chunk came after the end of the answer", code="PARTIAL_STREAM")
        return _too_large(f"{MAX_CHUNKS:,} chunks")

    def _count(self, text: str) -> None:
        self._bytes_left -= _size(text)
        if self._bytes_left < 0:
            raise _too_large(f"{MAX_BYTES:,} bytes")

    def _open(self, draft: _Draft) -> None:
        self._drafts.append(draft)
        self._text = None

    def _receive_reasoning(self, chunk: ReasoningChunk, watched: bool) -> Delta | None:
        text = chunk.text
        if not text and not chunk.signature:
            return None
        self._count(text)
        draft = self._unsigned
        if draft is None or (text and self._drafts[-1] is not draft):
            self._unsigned = draft = _ReasoningDraft()
            self._open(draft)
        if text:
            draft.parts.append(text)
        if chunk.signature:
            self._count(chunk.signature)
            draft.signature = chunk.signature
            self._unsigned = None
        return ReasoningDelta(self._message_id, text) if watched and text else None

    def _receive_call(self, chunk: CallChunk, watched: bool) -> Delta | None:
        text = chunk.arguments
        if not (text or chunk.id or chunk.name):
            return None
        self._count(text)
        draft = self._find(chunk) or self._open_call(chunk)
        draft.id = draft.id or chunk.id
        draft.name = draft.name or chunk.name
        self._last_call = draft
        if chunk.index is not None:
            self._calls[chunk.index] = draft
        if chunk.id:
            self._calls[chunk.index, chunk.id] = self._calls[None, chunk.id] = draft
        if not text:
            return None
        draft.parts.append(text)
        return ToolCallDelta(self._message_id, draft.position, draft.name, text) if watched else None

    def _find(self, chunk: CallChunk) -> _CallDraft | None:
        """The call that a piece belongs to; ``None`` if it opens a new one.

        An index is a key and never a position: servers start at 1, or give every parallel call a 0.
        A call stands in the map under its index, under (index, id) and under (None, id).
        """
        calls, index, id, name = self._calls, chunk.index, chunk.id, chunk.name
        if index is not None:
            draft = calls.get(index)
            if draft is not None and id and draft.id and id != draft.id:
                draft = calls.get((index, id))
        elif id:
            draft = calls.get((None, id))
            if draft is None and not name and self._last_call is not None and not self._last_call.id:
                draft = self._last_call
        else:
            draft = None if name else self._last_call
        if draft is not None and name and draft.name and name != draft.name:
            return None
        return draft

    def _open_call(self, chunk: CallChunk) -> _CallDraft:
        if self._call_count >= MAX_CALLS:
            raise _too_large(f"{MAX_CALLS:,} calls")
        self._count(chunk.id + chunk.name)
        draft = _CallDraft(self._call_count, chunk.id, chunk.name)
        self._call_count += 1
        self._open(draft)
        return draft


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _too_large(limit: str) -> OutputError:
    return OutputError(f"the answer is larger than {limit}")


def _blocks(drafts: list[_Draft], *, calls: bool) -> tuple[Block, ...]:
    """The drafts as blocks; texts that touch, also where a call is left out, are one block."""
    blocks: list[Block] = []
    parts: list[str] = []
    for draft in drafts:
        if isinstance(draft, _TextDraft):
            parts += draft.parts
            continue
        if isinstance(draft, _CallDraft) and not calls:
            continue
        if parts:
            blocks.append(Text(_mended("".join(parts))))
            parts = []
        if isinstance(draft, _CallDraft):
            arguments = _escaped("".join(draft.parts))
            blocks.append(ToolCall(_mended(draft.id), _mended(draft.name), arguments if arguments.strip() else "{}"))
        elif isinstance(draft, _ReasoningDraft):
            blocks.append(Reasoning(_mended("".join(draft.parts)), draft.signature))
        else:
            blocks.append(draft)
    if parts:
        blocks.append(Text(_mended("".join(parts))))
    return tuple(blocks)


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _mended(text: str) -> str:
    """The text with its surrogates joined: some servers cut a stream between the halves of a pair.

    A half that stays alone becomes U+FFFD, because no later request could carry it.
    """
    if _is_whole(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escaped(text: str) -> str:
    """JSON text with its surrogates joined; a half that stays alone is written as an escape.

    So it still says what the model said, and can be sent, and whoever parses it can refuse it.
    """
    if _is_whole(text):
        return text
    joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "backslashreplace").decode()
