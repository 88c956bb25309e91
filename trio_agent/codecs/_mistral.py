"""Mistral's calls in text: ``[TOOL_CALLS][{"name": ..., "arguments": {...}}]``, and the newer
``[TOOL_CALLS]name[ARGS]{...}``, with or without ``[CALL_ID]``.

Knows no other format.
"""

from __future__ import annotations

import re
from typing import Final

from .._model import ModelRequest
from ._calls import Malformed, Said, SpokenCall, dump
from ._hermes import calls_of
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = ["read_mistral"]

_TAG: Final = "[TOOL_CALLS]"
_NAMED: Final = re.compile(r"\s*+([^\[\]{}\s]++)\s*+(?:\[CALL_ID\]\s*+([^\[\]\s]++)\s*+)?+(?:\[ARGS\]\s*+)?+(?=\{)")
_GAP: Final = re.compile(r"\s*+(?:\[TOOL_CALLS\])?+")


def read_mistral(text: str, request: ModelRequest) -> Said | None:
    """The calls behind the tag.

    Raises:
      Malformed: what stands behind it is neither form.
    """
    start = text.find(_TAG)
    place = start + len(_TAG)
    if _first(text, place) in ("[", "{"):
        value, _ = _json(text, place)
        return Said(text[:start].strip(), calls_of(value))
    calls: list[SpokenCall] = []
    while (named := _NAMED.match(text, place)) is not None:
        value, place = _json(text, named.end())
        calls.append(SpokenCall(named[1], dump(value), named[2] or ""))
        gap = _GAP.match(text, place)
        place = place if gap is None else gap.end()
    if not calls or text.startswith(_TAG, place - len(_TAG)):
        raise Malformed("expected a tool's name and its arguments behind [TOOL_CALLS]")
    return Said(text[:start].strip(), calls)


def _first(text: str, place: int) -> str:
    while place < len(text) and text[place].isspace():
        place += 1
    return text[place : place + 1]


def _json(text: str, place: int) -> tuple[JSONValue, int]:
    try:
        return read_value(text, place, close=False)
    except Unreadable as error:
        raise Malformed(f"what stands behind [TOOL_CALLS] is not JSON: {error}") from None
