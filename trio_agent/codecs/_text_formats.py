"""The ways in which open models write tool calls into plain text, one row each.

Knows what servers should have parsed and did not; the readers stand in one file for each family of models.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import attrs

from .._model import ModelRequest
from ._calls import Said
from ._hermes import read_hermes
from ._llama import read_llama_json, read_python_tag, read_pythonic
from ._mistral import read_mistral
from ._qwen_coder import read_qwen_coder

__all__ = ["FORMATS", "TextFormat", "read_text_calls"]


class Read(Protocol):
    """Reads one format."""

    def __call__(self, text: str, request: ModelRequest, /) -> Said | None:
        """The calls in ``text``, if it is of this format.

        Raises:
          Malformed: it is of this format, and cannot be read.
        """
        ...


@attrs.frozen
class TextFormat:
    """One way to write calls into a text."""

    name: str
    sign: str
    """What a text must contain to be of this format."""
    read: Read


FORMATS: Final[Sequence[TextFormat]] = (
    TextFormat("Qwen3-Coder", "<function=", read_qwen_coder),
    TextFormat("Hermes, Qwen", "<tool_call>", read_hermes),
    TextFormat("Mistral", "[TOOL_CALLS]", read_mistral),
    TextFormat("Llama 3.1, built-in tools", "<|python_tag|>", read_python_tag),
    TextFormat("Llama 3, JSON", "{", read_llama_json),
    TextFormat("Llama 4, pythonic", "[", read_pythonic),
)
"""The formats in the order in which they are tried."""


def read_text_calls(text: str, request: ModelRequest) -> Said | None:
    """The calls that ``text`` holds, with the text before them; ``None`` if it is just a text.

    Raises:
      Malformed: there are some, and they cannot be read.
    """
    for format in FORMATS:
        if format.sign in text:
            said = format.read(text, request)
            if said is not None:
                return said
    return None
