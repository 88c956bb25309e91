"""For models that call tools natively: everything goes through as it is, or calls are read out of the text.

Knows nothing of any vendor; the wires speak their protocols.
"""

from __future__ import annotations

from typing import Final

import attrs

from .._messages import Message
from .._model import ModelRequest
from .._ports import Decoded
from ._calls import NOT_READ, Malformed, decoded, refused
from ._text_formats import read_text_calls

__all__ = ["NativeCodec"]

_MAX_ERROR: Final = 4_000
"""Characters of an error that the model is told."""


@attrs.frozen
class NativeCodec:
    """The codec of an agent whose model has tool calling of its own."""

    text_calls: bool = False
    """Read the calls of Hermes, Qwen, Mistral and Llama out of plain text, where a server has not parsed them.
    Answers are buffered then.  Only an answer without native calls is looked at; a format without a tag counts
    only for tools that there are, with nothing around it; what cannot be read is repaired by asking."""

    @property
    def streams(self) -> bool:
        """Whether there is nothing to wait for."""
        return not self.text_calls

    def encode(self, request: ModelRequest) -> ModelRequest:
        """The request itself; without tools there is no choice among them, and servers refuse one."""
        if request.tools or request.tool_choice == "auto":
            return request
        return attrs.evolve(request, tool_choice="auto")

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The message itself, or with the calls that its text holds.

        Arguments that are no JSON are the dispatcher's business.
        """
        if not self.text_calls or message.calls or message.finish_reason in NOT_READ:
            return Decoded(message)
        try:
            said = read_text_calls(message.text, request)
        except Malformed as error:
            return refused(message, error)
        return Decoded(message) if said is None else decoded(message, said, request.turn)

    def repair(self, error: str, attempt: int) -> str:
        """A plain request to answer again, with what was wrong; of a long error, with its beginning."""
        if len(error) > _MAX_ERROR:
            error = error[:_MAX_ERROR] + "…"
        again = "Please answer again" if attempt < 2 else f"This was attempt {attempt}. Please answer once more"
        return f"Your last answer could not be used: {error}\n{again}, and correct that."
