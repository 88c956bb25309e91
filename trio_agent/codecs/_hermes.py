"""Hermes' and Qwen's calls in text: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, one or several.

The end tag may be missing, and the arguments may be a string that holds the object (Granite).  Knows no other
format.
"""

from __future__ import annotations

import re
from typing import Final

from .._messages import parse_object
from .._model import ModelRequest
from ._calls import Malformed, Said, SpokenCall, dump
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = ["call_of", "calls_of", "read_hermes"]

_TAG: Final = "<tool_call>"
_END: Final = re.compile(r"\s*+(?:</tool_call>|(?=<tool_call>)|\Z)")
_BETWEEN: Final = re.compile(r"\s*+")


def read_hermes(text: str, request: ModelRequest) -> Said | None:
    """The calls behind the tags; what stands between and behind them is no part of the answer.

    Raises:
      Malformed: what stands behind a tag is no call.
    """
    start = text.find(_TAG)
    calls: list[SpokenCall] = []
    place = start
    while place >= 0:
        place += len(_TAG)
        try:
            value, end = read_value(text, place, close=False)
        except Unreadable as error:
            raise Malformed(f"what stands behind <tool_call> is not JSON: {error}") from None
        closed = _END.match(text, end)
        if closed is None:
            raise Malformed("expected </tool_call> behind the object of a call")
        calls += calls_of(value)
        following = _BETWEEN.match(text, closed.end())
        place = closed.end() if following is None else following.end()
        place = place if text.startswith(_TAG, place) else -1
    return Said(text[:start].strip(), calls)


def calls_of(value: JSONValue) -> list[SpokenCall]:
    """The calls that a JSON value describes, an object or an array of them.

    Raises:
      Malformed: it describes none.
    """
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise Malformed("there are no calls in the array")
    return [call_of(entry) for entry in entries]


def call_of(entry: JSONValue) -> SpokenCall:
    """The call that an object describes, whichever of the two words it has for the arguments.

    Raises:
      Malformed: it has no name.
    """
    name = entry.get("name") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(name, str) or not name.strip():
        raise Malformed('a call must be an object with "name" and "arguments"')
    id = entry.get("id")
    return SpokenCall(name.strip(), _arguments(entry), id if isinstance(id, str) else "")


def _arguments(entry: dict[str, JSONValue]) -> str:
    arguments = entry.get("arguments", entry.get("parameters"))
    if isinstance(arguments, str):
        try:
            return dump(parse_object(arguments))
        except ValueError:
            return dump(arguments)  # the dispatcher says that it is no object
    return "{}" if arguments is None else dump(arguments)
