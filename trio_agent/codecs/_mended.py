"""The last resort before asking: ``json_repair``, if it is installed, where it loses and invents nothing.

It completes what was cut off and drops what it cannot place; so what it gives counts only if each letter,
digit, sign and bracket of the text stands in it again, in the same order.
"""

from __future__ import annotations

import json
import re
from typing import Final, cast

from .._messages import parse_object
from ._tolerant import JSONValue

__all__ = ["MAX_LENGTH", "mended"]

MAX_LENGTH: Final = 4_000
"""Characters of a text that is worth its time, which is some milliseconds for each thousand."""
MAX_BRACKETS: Final = 64
"""Opening brackets of such a text: with many, its time grows with the square of the text."""

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|[nrtbf]|(.))", re.DOTALL)
_PUNCTUATION: Final = re.compile(r"[\s\"'`“”‘’(),:\\]+")
"""What may be put in, left out or moved to make JSON of a text."""
_NO_VALUE: Final = re.compile(r":\s*+[,}\]]")
"""Where a value would have to be invented."""
_NOTHING: Final = re.compile(r"\bnone\b")


def mended(text: str) -> dict[str, JSONValue] | None:
    """The object that ``text`` was meant to be; ``None`` if there is no telling, or no ``json_repair``."""
    if len(text) > MAX_LENGTH or _NO_VALUE.search(text) or not _is_balanced(text):
        return None
    try:
        import json_repair  # heavy, and optional
    except ImportError:
        return None
    try:
        value = cast(object, json_repair.repair_json(text, return_objects=True, skip_json_loads=True))
        written = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return parse_object(written) if _essence(written) == _essence(text) else None
    except Exception:  # foreign code on hostile text: whatever it raises, the model is asked again
        return None


def _is_balanced(text: str) -> bool:
    pairs = [(text.count(opening), text.count(closing)) for opening, closing in ("{}", "[]")]
    brackets = sum(opened for opened, _ in pairs) + text.count("(")
    return brackets <= MAX_BRACKETS and all(opened == closed for opened, closed in pairs)


def _essence(text: str) -> str:
    return _PUNCTUATION.sub("", _NOTHING.sub("null", _ESCAPE.sub(_unescaped, text).casefold()))


def _unescaped(escape: re.Match[str]) -> str:
    if escape[1]:
        return chr(int(escape[1], 16))
    return escape[2] or " "
