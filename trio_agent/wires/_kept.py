"""What a wire has encoded already: a conversation is sent again and again, and only what is new is encoded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

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

    __slots__ = ("_messages", "_tools")

    def __init__(self) -> None:
        self._messages = weakref.WeakKeyDictionary[Message, bytes]()
        self._tools: EncodedTools | None = None

    def tools(
        self,
        specs: tuple[ToolSpec, ...],
        encode: Callable[[ToolSpec, str], JSONObject],
        *,
        names: WireNames | None = None,
    ) -> EncodedTools:
        """The tools of a request, of which a run sends the same ones each time.

        Args:
          encode: makes one tool, from its spec and its name on the wire.
          names: by default those that most vendors take.
        """
        if self._tools is None or self._tools.specs is not specs:
            if names is None:
                names = WireNames(spec.name for spec in specs)
            encoded = dump([encode(spec, names.to_wire(spec.name)) for spec in specs])
            self._tools = EncodedTools(specs, names, encoded)
        return self._tools

    def messages(self, messages: Sequence[Message], encode: Callable[[Message], Sequence[JSONObject]]) -> list[bytes]:
        """The entries of each message, joined by commas; a message that makes none is left out."""
        parts: list[bytes] = []
        for message in messages:
            encoded = self._messages.get(message)
            if encoded is None:
                encoded = b",".join(map(dump, encode(message)))
                # Only the stand-in of an illegal name depends on the other tools of the request.
                if all(is_legal(call.name) for call in message.calls):
                    self._messages[message] = encoded
            if encoded:
                parts.append(encoded)
        return parts
