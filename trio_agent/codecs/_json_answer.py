"""What a model means by an answer that should be one JSON object, and often is not quite.

Reads the forms of the json protocol and their variants; knows nothing of how they were asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias, cast, final

import attrs

from .._messages import parse_object
from .._model import ModelRequest
from ._calls import Malformed, Said, SpokenCall, arguments_of, dump
from ._mended import mended
from ._prompt import known_tools
from ._tolerant import JSONValue, Unreadable, read_value

__all__ = ["read_answer", "read_cut_text"]

Object: TypeAlias = Mapping[str, JSONValue]

_START: Final = re.compile(
    r"(?P<fence>(?<!`)`{3,}+[ \t]*+(?:json\w*+|tool_calls?+)?+\s*+)?+(?P<open>[\[{])", re.IGNORECASE
)
_MARKED: Final = re.compile(
    r"""\{\s*["'“]?(?:type["'”]?\s*:\s*["'“]?(?:tool_calls?|tool_results?|final)\b|(?:tool_)?calls["'”]?\s*:)"""
)
"""What begins an object that is evidently meant as the protocol's."""
_CALLING: Final = re.compile(r"""["'](?:tool_calls?|calls|tool|name)["']""")
_NEXT: Final = re.compile(r"[\s,;`]*+(?:json\w*+\s*+)?+(?=[\[{])")
"""What may stand between the objects of one answer."""
_BROKEN: Final = re.compile(r"""\s*+[,;]?+\s*+["'“\]}:]""")
"""Behind an object: what shows that it was not the whole."""
_CUT_TEXT: Final = re.compile(
    r"""\s*+(?:```\w*+\s*+)?+\{\s*+"type"\s*+:\s*+"final"\s*+,\s*+"text"\s*+:\s*+"((?:[^"\\]|\\.)*+)\\?\Z""", re.DOTALL
)

_MAX_CUTS: Final = 8
"""Values without an end that are looked at: each may reach to the end of the text."""
_INPUTS: Final = ("input", "arguments", "args", "parameters")
_NAMES: Final = ("name", "tool")
_REMARKS: Final = frozenset({"type", "id", "text", "thought", "thoughts", "reasoning", "reason", "comment"})
"""Keys beside a call's own that say nothing about its arguments."""


def read_answer(text: str, request: ModelRequest) -> Said | None:
    """What ``text`` means; ``None`` if it is no form of the protocol, and so the answer itself.

    Raises:
      Malformed: it is meant as one, and cannot be read.
    """
    return _Reader(text, request).answer()


def read_cut_text(text: str) -> str | None:
    """Of a final answer that was cut off inside of its text: as much as there is."""
    cut = _CUT_TEXT.fullmatch(text)
    if cut is None:
        return None
    try:
        value, _ = read_value(f'"{cut[1]}"')
    except Unreadable:
        return None
    return value if isinstance(value, str) else None


@attrs.frozen
class _Found:
    """A value in the text."""

    value: dict[str, JSONValue] | list[JSONValue]
    start: int
    """Where it or its fence begins."""
    end: int
    framed: bool
    """Whether it is all that is said, or is fenced; what stands in the middle of prose must say what it is."""


@final
class _Reader:
    __slots__ = ("_choice", "_known", "_left_open", "_schema", "_text")

    def __init__(self, text: str, request: ModelRequest) -> None:
        self._text = text
        self._known = known_tools(request)
        self._left_open: list[JSONValue] = []
        self._schema = request.output_schema
        self._choice = request.tool_choice

    def answer(self) -> Said | None:
        calls: list[SpokenCall] = []
        before: list[str] = []
        for found in self._values():
            if calls and _is_results(found.value):
                break
            said = self._meaning(found)
            if said is not None and not said.calls and not calls:
                return said
            if said is not None and said.calls:
                before += "" if calls else self._text[: found.start].strip(), said.text.strip()
                calls += said.calls
                if _NEXT.match(self._text, found.end) is None:
                    break  # what comes behind prose is the model's guess at what its calls gave
            elif calls:
                break  # a call and a final answer at once: the call
        if calls and self._choice == "none":
            raise Malformed("no tool can be called now")
        return Said("\n\n".join(part for part in before if part), calls) if calls else None

    # --- finding values ------------------------------------------------------------------------------

    def _values(self) -> Iterator[_Found]:
        """The objects in the text, and the arrays that are all that is said; each character is read once or twice."""
        text = self._text
        bare = len(text) - len(text.lstrip("\ufeff \t\r\n"))
        place, frame_end, cuts = 0, -1, 0
        while cuts < _MAX_CUTS and (opening := _START.search(text, place)) is not None:
            start, at = opening.start(), opening.start("open")
            framed = start == bare or opening["fence"] is not None or self._adjoins(frame_end, at)
            if text[at] == "[" and not framed:
                place = at + 1
                continue
            owed = text[at] == "{" and (start == bare or _MARKED.match(text, at) is not None)
            try:
                value, end = self._value(at, whole=at == bare)
                if isinstance(value, dict) and (framed or owed) and _BROKEN.match(text, end):
                    raise Unreadable(text, end, "expected nothing behind the object")
            except Unreadable as error:
                if not owed:
                    place, cuts = max(error.place, at + 1), cuts + error.cut
                    continue
                mend = None if error.hopeless else mended(text[at:].strip("` \t\r\n"))
                if mend is None:
                    raise self._unreadable(at, error) from None
                value, end = mend, len(text)
            yield _Found(value, start, end, framed)
            place, frame_end = end, end if framed or owed else -1

    def _value(self, at: int, *, whole: bool) -> tuple[dict[str, JSONValue] | list[JSONValue], int]:
        if whole:
            try:  # most answers are what was asked for
                return parse_object(self._text[at:]), len(self._text)
            except ValueError:
                pass  # the patient reader says what is wrong
        value, end = read_value(self._text, at, left_open=self._left_open)
        assert isinstance(value, dict | list)  # it begins with a bracket
        return value, end

    def _adjoins(self, place: int, at: int) -> bool:
        following = _NEXT.match(self._text, place) if place >= 0 else None
        return following is not None and following.end() == at

    def _unreadable(self, at: int, error: Unreadable) -> Malformed:
        calling = _CALLING.search(self._text, at) is not None
        return Malformed(
            f"expected one JSON object, but it is not JSON: {error}",
            "MALFORMED_TOOL_CALL" if calling else "MALFORMED_OUTPUT",
        )

    # --- what they mean ------------------------------------------------------------------------------

    def _meaning(self, found: _Found) -> Said | None:
        value = found.value
        if isinstance(value, list):
            each = [self._short(entry) for entry in value if isinstance(entry, dict)]
            calls = [call for call in each if call is not None]
            return Said("", calls) if calls and len(calls) == len(value) else None
        kind = value.get("type")
        if kind == "tool_calls" or (kind is None and self._lists_calls(value)):
            return self._calls(value)
        if kind == "final":
            return self._final(value)
        if _is_results(value):
            raise Malformed("results come from the tools; they are not for you to write", "MALFORMED_OUTPUT")
        if not found.framed:
            return None
        call = self._short(value)
        if call is not None:
            return Said(_text(value), (call,))
        if kind is None and len(value) == 1 and self._schema is None and isinstance(value.get("text"), str):
            return Said(_text(value))
        if len(value) == 1 and "output" in value and self._schema is not None:
            return None if "output" in (self._schema.get("properties") or ()) else self._final(value)
        return None

    def _lists_calls(self, value: Object) -> bool:
        """Whether an object that does not say what it is looks like a list of calls."""
        entries = value.get("calls", value.get("tool_calls"))
        if not isinstance(entries, list):
            return False
        told = [_unwrapped(entry) for entry in entries if isinstance(entry, dict)]
        return any(_name(entry) in self._known or _input(entry) is not None for entry in told)

    def _calls(self, value: Object) -> Said:
        entries = value.get("calls", value.get("tool_calls"))
        if entries is None and _name(value):
            entries = [{key: each for key, each in value.items() if key != "type"}]
        if not isinstance(entries, list):
            raise Malformed('"calls" must be an array of objects with "name" and "input"')
        if not entries:
            raise Malformed('"calls" must not be empty: to end, answer with the final form')
        return Said(_text(value), [self._call(entry, number) for number, entry in enumerate(entries, 1)])

    def _short(self, value: Object) -> SpokenCall | None:
        """A single call that stands alone: only of a tool that there is."""
        whole = value.get("type") in ("tool_call", "function_call", "function") and _name(_unwrapped(value))
        if not whole and _name(value) not in self._known:
            return None
        return self._call(value, 1)

    def _call(self, given: object, number: int) -> SpokenCall:
        if not isinstance(given, dict):
            raise Malformed(f'call {number} must be an object with "name" and "input"')
        entry = _unwrapped(cast(Object, given))
        name, key, id = _name(entry), _input(entry), entry.get("id")
        if not name:
            raise Malformed(f"call {number} has no name")
        if any(each is given if key is None else each is entry[key] for each in self._left_open):
            raise Malformed(f"the text ends inside of the arguments of {name!a}")
        extra = _beside(entry)
        if key is None and extra:
            told = ", ".join(extra)[:200]
            raise Malformed(f'the arguments of {name!a} must stand under "input", not beside it: {told!a}')
        arguments = "{}" if key is None else arguments_of(entry[key], name)
        return SpokenCall(name, arguments, id if isinstance(id, str) else "")

    def _final(self, value: Object) -> Said:
        text, schema = value.get("text"), self._schema
        if "output" in value and (schema is not None or not isinstance(text, str)):
            output = value["output"]
            if isinstance(output, str) and (schema is None or schema.get("type") in ("object", "array")):
                return Said(output)
            return Said(dump(output))
        if isinstance(text, str):
            return Said(text)
        if schema is not None and isinstance(text, dict | list):
            return Said(dump(text))
        wanted = '"output"' if schema is not None else '"text", a string'
        raise Malformed(f"the final form must have {wanted}", "MALFORMED_OUTPUT")


def _is_results(value: JSONValue) -> bool:
    return isinstance(value, dict) and value.get("type") in ("tool_results", "tool_result")


def _text(value: Object) -> str:
    text = value.get("text")
    return text if isinstance(text, str) else ""


def _unwrapped(entry: Object) -> Object:
    """The call itself, of one in the form of OpenAI's."""
    inner = entry.get("function")
    return {"id": entry.get("id"), **inner} if isinstance(inner, dict) else entry


def _name(entry: Object) -> str:
    found = (entry.get(key) for key in _NAMES)
    return next((name.strip() for name in found if isinstance(name, str) and name.strip()), "")


def _input(entry: Object) -> str | None:
    """The key under which the arguments stand."""
    return next((key for key in _INPUTS if key in entry), None)


def _beside(entry: Object) -> Sequence[str]:
    return [key for key in entry if key not in _REMARKS and key not in _NAMES]
