"""Llama's calls in text: bare ``{"name": ..., "parameters": ...}``, ``<|python_tag|>``, and ``[f(a=1), g()]``.

Without a tag, only a text that is calls of known tools and nothing else is taken for calls.
"""

from __future__ import annotations

import re
from typing import Final

from .._model import ModelRequest
from ._calls import Malformed, Said, SpokenCall, dump
from ._hermes import call_of
from ._prompt import known_tools
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = ["read_llama_json", "read_python_tag", "read_pythonic"]

_TAG: Final = "<|python_tag|>"
_ENDS: Final = ("<|eom_id|>", "<|eot_id|>", "<|python_end|>")
_SEPARATOR: Final = re.compile(r"\s*+;?+\s*+")
_FUNCTION: Final = re.compile(r"\s*+([^\W\d][\w.-]*+)\s*+\(\s*+")
_KEYWORD: Final = re.compile(r"\s*+([^\W\d]\w*+)\s*+=(?!=)\s*+")
_COMMA: Final = re.compile(r"\s*+,\s*+")
_CLOSE: Final = re.compile(r"\s*+,?+\s*+\)")


def read_llama_json(text: str, request: ModelRequest) -> Said | None:
    """Calls of known tools with nothing around them, one object each, semicolons between."""
    known, body = known_tools(request), _body(text)
    if not body.startswith("{"):
        return None
    try:
        objects = _objects(body)
    except Unreadable:
        return None
    called = all(each.get("name") in known and ("parameters" in each or "arguments" in each) for each in objects)
    return Said("", [call_of(each) for each in objects]) if called else None


def read_python_tag(text: str, request: ModelRequest) -> Said | None:
    """The calls behind the tag, as objects or as Python; ``None`` if it is a program.

    Raises:
      Malformed: an object behind the tag cannot be read.
    """
    before, _, rest = text.partition(_TAG)
    body, known = _body(rest.replace(_TAG, ";")), known_tools(request)
    if not body.startswith("{"):
        calls = _pythonic(f"[{body}]", known)
        return None if calls is None else Said(before.strip(), calls)
    try:
        return Said(before.strip(), [call_of(each) for each in _objects(body)])
    except Unreadable as error:
        raise Malformed(f"what stands behind {_TAG} is not JSON: {error}") from None


def read_pythonic(text: str, request: ModelRequest) -> Said | None:
    """A list of calls of known tools, with keyword arguments, and nothing around it."""
    body = _body(text.strip().removeprefix("<|python_start|>"))
    calls = _pythonic(body, known_tools(request))
    return None if calls is None else Said("", calls)


def _body(text: str) -> str:
    text = text.strip()
    for end in _ENDS:
        text = text.removesuffix(end)
    return text.strip()


def _objects(text: str) -> list[dict[str, JSONValue]]:
    """The objects that ``text`` consists of."""
    found: list[dict[str, JSONValue]] = []
    place = 0
    while place < len(text):
        value, end = read_value(text, place, close=False)
        if not isinstance(value, dict):
            raise Unreadable(text, place, "expected an object")
        found.append(value)
        gap = _SEPARATOR.match(text, end)
        place = end if gap is None else gap.end()
    return found


def _pythonic(text: str, known: frozenset[str]) -> list[SpokenCall] | None:
    """The calls in a Python list; ``None`` if it is anything else."""
    calls: list[SpokenCall] = []
    place = 1
    if not (text.startswith("[") and text.endswith("]")):
        return None
    try:
        while (function := _FUNCTION.match(text, place)) is not None and function[1] in known:
            arguments, place = _keywords(text, function.end())
            calls.append(SpokenCall(function[1], dump(arguments)))
            comma = _COMMA.match(text, place)
            if comma is None:
                return calls if text[place:].strip() == "]" else None
            place = comma.end()
    except Unreadable:
        return None
    return calls if calls and text[place:].strip() == "]" else None


def _keywords(text: str, place: int) -> tuple[dict[str, JSONValue], int]:
    """The keyword arguments up to the closing parenthesis."""
    found: dict[str, JSONValue] = {}
    while (keyword := _KEYWORD.match(text, place)) is not None:
        if keyword[1] in found:
            raise Unreadable(text, place, "a keyword stands twice")
        found[keyword[1]], place = read_value(text, keyword.end(), close=False)
        comma = _COMMA.match(text, place)
        if comma is None:
            break
        place = comma.end()
    close = _CLOSE.match(text, place)
    if close is None:
        raise Unreadable(text, place, "expected a closing parenthesis")
    return found, close.end()
