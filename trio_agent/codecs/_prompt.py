"""What a model is offered, in words: the tools, and which ways of answering are open to it.

Knows no protocol, only what each has to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import attrs

from .._model import ModelRequest, ToolSpec
from ._calls import dump

__all__ = ["CATALOGUE", "Offer", "Prompt", "Prompts", "known_tools"]

CATALOGUE: Final = "The tools, as a JSON array of name, description and parameters (a JSON Schema):"


@attrs.frozen
class Offer:
    """What one answer may be."""

    tools: tuple[ToolSpec, ...]
    """Those that may be called."""
    final: bool
    """Whether it may be the final answer."""
    schema: dict[str, Any] | None = attrs.field(hash=False)  # Any: a JSON Schema
    """What the final answer must be."""

    @classmethod
    def of(cls, request: ModelRequest) -> Offer:
        """What ``request`` leaves open."""
        tools, choice = request.tools, request.tool_choice
        if choice == "none" or not tools:
            return cls((), True, request.output_schema)
        named = tuple(spec for spec in tools if spec.name == choice)
        return cls(named or tools, choice == "auto", request.output_schema)

    @property
    def catalogue(self) -> str:
        """The tools as one JSON array, the same text for the same tools."""
        told = [{"name": t.name, "description": t.description, "parameters": t.parameters} for t in self.tools]
        return dump(told)

    @property
    def duty(self) -> str:
        """What must be done now, if something must."""
        if self.final:
            return ""
        which = f"the tool {self.tools[0].name}" if len(self.tools) == 1 else "a tool"
        return f"You must call {which} now; the final answer comes later."


@attrs.frozen
class Prompt:
    """The words for one offer."""

    system: str
    schema: dict[str, Any] | None = attrs.field(default=None, hash=False)  # Any: a JSON Schema
    """What the server shall hold the answer to."""


@final
class Prompts:
    """Words an offer, and keeps the last wording: a run makes the same offer each time."""

    __slots__ = ("_last", "_word")

    def __init__(self, word: Callable[[str | None, Offer], Prompt]) -> None:
        self._word = word
        self._last: tuple[ModelRequest, Prompt] | None = None

    def prompt(self, request: ModelRequest) -> Prompt:
        """The words for ``request``."""
        last = self._last
        if last is not None and _alike(last[0], request):
            return last[1]
        prompt = self._word(request.system, Offer.of(request))
        self._last = attrs.evolve(request, messages=()), prompt
        return prompt


def _alike(a: ModelRequest, b: ModelRequest) -> bool:
    same = a.tools is b.tools and a.output_schema is b.output_schema
    return same and a.tool_choice == b.tool_choice and a.system == b.system


def known_tools(request: ModelRequest) -> frozenset[str]:
    """The names that a short form of a call may have."""
    return frozenset(spec.name for spec in request.tools)
