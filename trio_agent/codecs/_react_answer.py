"""What a model means by an answer in the ReAct form: its first action, or its final answer.

The fields stand at the beginnings of lines, in any case, plain or in bold.  Knows nothing of how they were
asked for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import attrs

from ._calls import Malformed, Said, SpokenCall, dump, only_object

__all__ = ["read_answer"]

_FIELD: Final = re.compile(
    r"^[ \t>#]*+(?P<bold>\*\*|__)?+"
    r"(?P<name>thought|action[ \t]++input|action|observation|final[ \t]++answer|answer)"
    r"(?:[ \t]*+\[[^\]\n]*+\])?+[ \t]*+(?:\*\*|__)?+[ \t]*+[:：](?(bold)(?:\*\*|__)?+)",
    re.IGNORECASE | re.MULTILINE,
)
_FENCE_LINE: Final = re.compile(r"^[ \t]*+`{3,}+[\w-]*+[ \t]*+$", re.MULTILINE)
_REMARK: Final = re.compile(r"(?P<name>[^(\n]*[^(\s])\s*\(.*\)")
"""A tool's name with a remark in parentheses behind it."""
_QUOTES: Final = " \t\r`\"'*"


@attrs.frozen
class _Field:
    name: str
    start: int
    body: int
    """Where its value begins."""
    end: int
    """Where the next field begins."""


def read_answer(text: str, known: frozenset[str]) -> Said | None:
    """What ``text`` means; ``None`` if it has no action and no final answer, and so is the answer itself.

    What follows the first action, observations above all, is invented, and cut.  A final answer goes on to the
    end, whatever it says.

    Raises:
      Malformed: an action without input, an input without action, or input that is no JSON object.
    """
    fields = _fields(text)
    for index, field in enumerate(fields):
        if field.name == "action":
            final = _first(fields[index:], "final answer")
            given = _first(fields[index : index + 2], "action input")
            if given is not None:
                return _action(text, field, given, known)
            if final is None or _tool(text, field, known) in known:
                raise Malformed("Invalid Format: Missing 'Action Input:' after 'Action:'")
            return Said(_final(text, final))  # "Action: none needed"
        if field.name == "final answer":
            return Said(_final(text, field))
        if field.name == "answer" and index and fields[index - 1].name == "thought":
            return Said(_final(text, field))
    if _first(fields, "action input") is not None:
        raise Malformed("Invalid Format: Missing 'Action:' before 'Action Input:'")
    return None


def _fields(text: str) -> Sequence[_Field]:
    found = list(_FIELD.finditer(text))
    ends = [*(match.start() for match in found[1:]), len(text)]
    return [
        _Field(" ".join(match["name"].casefold().split()), match.start(), match.end(), end)
        for match, end in zip(found, ends, strict=False)
    ]


def _first(fields: Sequence[_Field], name: str) -> _Field | None:
    return next((field for field in fields if field.name == name), None)


def _action(text: str, action: _Field, given: _Field, known: frozenset[str]) -> Said:
    name = _tool(text, action, known)
    if not name:
        raise Malformed("Invalid Format: there is no tool's name behind 'Action:'")
    try:
        input = only_object(text[given.body : given.end])
    except Malformed as error:
        if not error.cut:
            raise Malformed(f"the Action Input of {name!a} cannot be read: {error}") from None
        try:  # a line of a string may look like a field
            input = only_object(text[given.body :])
        except Malformed:
            raise Malformed(f"the Action Input of {name!a} cannot be read: {error}") from None
    return Said(_thought(text[: action.start]), (SpokenCall(name, dump(input)),))


def _tool(text: str, action: _Field, known: frozenset[str]) -> str:
    lines = _FENCE_LINE.sub("", text[action.body : action.end]).split("\n")
    name = next((line.strip(_QUOTES) for line in lines if line.strip(_QUOTES)), "")
    remark = _REMARK.fullmatch(name)
    if remark is None or name in known:
        return name
    return remark["name"].strip(_QUOTES)


def _thought(text: str) -> str:
    """What was said before an action, without the fence and the word that it begins with."""
    text = _FENCE_LINE.sub("", text).strip()
    label = _FIELD.match(text)
    return text[label.end() :].strip() if label is not None and label["name"].casefold() == "thought" else text


def _final(text: str, final: _Field) -> str:
    """The final answer; a fence that was opened before it is not part of it."""
    answer = text[final.body :].strip()
    fences = _FENCE_LINE.findall(answer)
    if len(fences) % 2 and answer.endswith("```") and _FENCE_LINE.search(text, 0, final.start):
        answer = answer[: answer.rindex("\n") if "\n" in answer else 0].rstrip()
    return answer
