"""What a wire has encoded already: a conversation is sent again and again, and only what is new is encoded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence

import attrs

from .._messages import Message
from .._model import ToolSpec
from ._json import JSONObject, dump
from ._names import WireNames, is_legal

__all__ = ["EncodedTools", "KeptEncodings"]


@attrs.frozen
class EncodedTools:
    """A request's tools."""

    specs: tuple[ToolSpec, ...]
    names: WireNames
    encoded: bytes
    """The JSON array of them."""


class KeptEncodings:
    """The messages and tools that one wire has encoded; it holds no message alive."""

    __slots__ = ("_answers", "_messages", "_tools")

    def __init__(self) -> None:
        self._messages = weakref.WeakKeyDictionary[Message, bytes]()
        self._answers = weakref.WeakKeyDictionary[Message, tuple[weakref.ref[Message], bytes]]()
        self._tools: EncodedTools | None = None

    def tools(
        self,
        specs: tuple[ToolSpec, ...],
        encode: Callable[[ToolSpec, str], JSONObject],
        *,
        names: Callable[[Iterable[str]], WireNames] = WireNames,
    ) -> EncodedTools:
        """The tools of a request, of which a run sends the same ones each time.

        Args:
          encode: makes one tool, from its spec and its name on the wire.
          names: makes the names on the wire; by default those that most vendors take.
        """
        if self._tools is None or self._tools.specs is not specs:
            mapped = names(spec.name for spec in specs)
            encoded = dump([encode(spec, mapped.to_wire(spec.name)) for spec in specs])
            self._tools = EncodedTools(specs, mapped, encoded)
        return self._tools

    def messages(
        self, messages: Sequence[Message], encode: Callable[[Message], Sequence[JSONObject | bytes]]
    ) -> list[bytes]:
        """The entries of each message, joined by commas; a message that makes none is left out.

        Args:
          encode: makes the entries; one in bytes is JSON already.
        """
        parts: list[bytes] = []
        for message in messages:
            encoded = self._messages.get(message)
            if encoded is None:
                encoded = _joined(encode(message))
                # Only the stand-in of an illegal name depends on the other tools of the request.
                if all(is_legal(call.name) for call in message.calls):
                    self._messages[message] = encoded
            if encoded:
                parts.append(encoded)
        return parts

    def conversation(
        self,
        messages: Sequence[Message],
        names: WireNames,
        encode: Callable[[Message, Message | None], Sequence[JSONObject | bytes]],
    ) -> list[bytes]:
        """As :meth:`messages`, for a protocol in which a result says more of its call than the id.

        Args:
          names: of the request's tools.
          encode: is given a message and, if that holds results, the last assistant's message before it.
        """
        parts: list[bytes] = []
        asked: Message | None = None
        for message in messages:
            # Equal results may answer different calls: ids are unique in a session, and a wire serves many.
            before = asked if message.results else None
            encoded = self._messages.get(message) if before is None else self._answer(message, before)
            if encoded is None:
                encoded = _joined(encode(message, before))
                if not all(names.accepts(call.name) for call in (before or message).calls):
                    pass  # the stand-in of an illegal name depends on the other tools of the request
                elif before is None:
                    self._messages[message] = encoded
                else:
                    self._answers[message] = weakref.ref(before), encoded
            if encoded:
                parts.append(encoded)
            if message.role == "assistant":
                asked = message
        return parts

    def _answer(self, message: Message, before: Message) -> bytes | None:
        known = self._answers.get(message)
        return known[1] if known is not None and known[0]() == before else None


def _joined(entries: Sequence[JSONObject | bytes]) -> bytes:
    return b",".join(entry if isinstance(entry, bytes) else dump(entry) for entry in entries)
