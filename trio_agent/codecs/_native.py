"""For models that call tools natively: everything goes through as it is.

Knows nothing of any vendor; the wires speak their protocols.
"""

from __future__ import annotations

from typing import Final

import attrs

from .._messages import Message
from .._model import ModelRequest
from .._ports import Decoded

__all__ = ["NativeCodec"]

_MAX_ERROR: Final = 4_000
"""Characters of an error that the model is told."""


@attrs.frozen
class NativeCodec:
    """The codec of an agent whose model has tool calling of its own.  It never finds an answer malformed."""

    @property
    def streams(self) -> bool:
        """Always: there is nothing to wait for."""
        return True

    def encode(self, request: ModelRequest) -> ModelRequest:
        """The request itself; without tools there is no choice among them, and servers refuse one."""
        if request.tools or request.tool_choice == "auto":
            return request
        return attrs.evolve(request, tool_choice="auto")

    def decode(self, message: Message, request: ModelRequest) -> Decoded:
        """The message itself.  Arguments that are no JSON are the dispatcher's business."""
        return Decoded(message)

    def repair(self, error: str, attempt: int) -> str:
        """A plain request to answer again, with what was wrong; of a long error, with its beginning."""
        if len(error) > _MAX_ERROR:
            error = error[:_MAX_ERROR] + "…"
        again = "Please answer again" if attempt < 2 else f"This was attempt {attempt}. Please answer once more"
        return f"Your last answer could not be used: {error}\n{again}, and correct that."
