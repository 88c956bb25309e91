"""Reads the JSON that models write: what is evident is put right, and nothing is guessed.

Knows no protocol.  Beyond JSON it takes code fences, comments, trailing commas, single and typographic
quotes, the literals, tuples and numbers of Python, bare keys, raw line breaks in strings, escapes that JSON
does not know, and missing brackets at the very end.  What stops inside of a value was cut off, and is never
completed.  One pass over the text, and at most :data:`DEPTH` levels.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, final

from .._messages import MAX_DEPTH

__all__ = ["DEPTH", "JSONValue", "Unreadable", "read_value"]

JSONValue: TypeAlias = "dict[str, JSONValue] | list[JSONValue] | str | int | float | bool | None"

DEPTH: Final = MAX_DEPTH + 4
"""Levels of arrays and objects: those that arguments may have, and those of the protocol around them."""

_GAP: Final = re.compile(r"(?:[\s\ufeff]++|//[^\n]*+|#[^\n]*+|/\*(?:[^*]++|\*(?!/))*+\*/)*+")
_FENCE: Final = "```"
_BODIES: Final[Mapping[str, re.Pattern[str]]] = {
    opening: re.compile(rf"([^{closing}\\]*+(?:\\.[^{closing}\\]*+)*+){closing}", re.DOTALL)
    for opening, closing in ('""', "''", "“”", "‘’")
}
"""What stands behind each opening quote: the rest of its string."""
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final[Mapping[str, str]] = {
    **dict(zip("nrtbf\n", ("\n", "\r", "\t", "\b", "\f", ""), strict=True)),
    **{quote: quote for quote in "\"'“”‘’/\\"},
}
_NUMBER: Final = re.compile(
    r"[+-]?+(?:(?:0|[1-9](?:_?[0-9])*+)(?P<point>\.(?:[0-9](?:_?[0-9])*+)?+)?+|(?P<half>\.[0-9]++))"
    r"(?P<power>[eE][+-]?+[0-9]++)?+(?=[\s,\]}):#]|//|/\*|```|\Z)"
)
_NUMBER_REST: Final = re.compile(r"[-+.0-9eE_]++\Z")
_NUMERIC: Final = re.compile(r"[+-]?+[.0-9]")
_WORD: Final = re.compile(r"[^\W\d][\w$-]*+|\$[\w$-]*+")
_LITERALS: Final[Mapping[str, bool | None]] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "None")),
}
_CLOSERS: Final[Mapping[str, str]] = {"{": "}", "[": "]", "(": ")"}


class Unreadable(ValueError):
    """The text is not JSON, nor evidently meant as some."""

    def __init__(self, text: str, place: int, why: str, *, cut: bool = False, hopeless: bool = False) -> None:
        super().__init__(why)
        self._text = text
        self.place = place
        self.cut = cut
        """Whether the text stops inside of a value."""
        self.hopeless = cut or hopeless
        """Whether no guess at what was meant can be right."""

    def __str__(self) -> str:
        # Counted only when it is read: of prose with many braces, most errors never are.
        line = self._text.count("\n", 0, self.place) + 1
        column = self.place - self._text.rfind("\n", 0, self.place)
        return f"{self.args[0]} at line {line}, column {column}"


def read_value(
    text: str, start: int = 0, *, close: bool = True, left_open: list[JSONValue] | None = None
) -> tuple[JSONValue, int]:
    """Read the object, array, tuple or scalar that begins at ``start``.

    Args:
      close: whether brackets may be missing at the end of the text (or before the end of its code fence).
      left_open: gets the objects and arrays whose brackets are missing.

    Returns:
      The value, and where the text goes on behind it.

    Raises:
      Unreadable: says what was expected, and where.
    """
    reader = _Reader(text, start, close, [] if left_open is None else left_open)
    value = reader.value()
    reader.check_unicode(value, start)
    return value, reader.place


@final
class _Reader:
    """Reads one value.  The methods leave ``place`` behind what they have read."""

    __slots__ = ("_close", "_comma", "_depth", "_left_open", "_text", "place")

    place: int

    def __init__(self, text: str, place: int, close: bool, left_open: list[JSONValue]) -> None:
        self._text = text
        self._close = close
        self._left_open = left_open
        self._comma = False
        self._depth = 0
        self.place = place

    def value(self) -> JSONValue:
        self._skip()
        char = self._text[self.place : self.place + 1]
        if char in _BODIES:
            return self._string()
        if char in _CLOSERS:
            self._depth += 1
            if self._depth > DEPTH:
                raise self._error(f"more than {DEPTH} levels of arrays and objects", hopeless=True)
            self.place += 1
            value = self._object() if char == "{" else self._items(_CLOSERS[char])
            self._depth -= 1
            return value
        if _NUMERIC.match(self._text, self.place):
            return self._number()
        word = _WORD.match(self._text, self.place)
        if word is None:
            raise self._error("expected a value", cut=self._at_end())
        if word[0] not in _LITERALS:
            foreign = word[0].casefold() in ("nan", "infinity", "inf")
            raise self._error(f"the word {word[0][:40]} stands", cut=word.end() == len(self._text), hopeless=foreign)
        self.place = word.end()
        return _LITERALS[word[0]]

    def _object(self) -> JSONValue:
        found: dict[str, JSONValue] = {}
        again = not self._took("}")
        while again:
            key = self._key()
            if not self._took(":"):
                raise self._error("expected a colon behind a key", cut=self._at_end())
            found[key] = self.value()
            again = self._more("}", found)
        return found

    def _items(self, closer: str) -> JSONValue:
        """The rest of an array or a tuple; a value in parentheses is itself."""
        found: list[JSONValue] = []
        again = not self._took(closer)
        while again:
            found.append(self.value())
            again = self._more(closer, found)
        return found[0] if closer == ")" and len(found) == 1 and not self._comma else found

    def _key(self) -> str:
        self._skip()
        if self._text[self.place : self.place + 1] in _BODIES:
            return self._string()
        word = _WORD.match(self._text, self.place)
        if word is None:
            raise self._error("expected a key in quotes", cut=self._at_end())
        self.place = word.end()
        return word[0]

    def _string(self) -> str:
        text, start = self._text, self.place
        body = _BODIES[text[start]].match(text, start + 1)
        if body is None:
            raise self._error("the text ends inside of a string that begins", cut=True)
        self.place = body.end()
        if "\\" not in body[1]:
            return body[1]
        unescaped = _ESCAPE.sub(_unescaped, body[1])
        if "\\u" not in body[1]:
            return unescaped
        try:  # the halves of a pair stand in two escapes
            return unescaped.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise Unreadable(text, start, "half a surrogate pair in the string", hopeless=True) from None

    def _number(self) -> int | float:
        number = _NUMBER.match(self._text, self.place)
        if number is None:
            raise self._error("expected a number", cut=_NUMBER_REST.match(self._text, self.place) is not None)
        if number.end() == len(self._text) and self._depth:
            raise self._error("the text ends in a number that begins", cut=True)
        whole = number["point"] is None and number["half"] is None and number["power"] is None
        read: Callable[[str], int | float] = int if whole else float
        try:
            value = read(number[0].replace("_", ""))
        except ValueError:  # int() reads no more than some thousand digits
            raise self._error("too many digits in a number", hopeless=True) from None
        if isinstance(value, float) and math.isinf(value):
            raise self._error("too large a number", hopeless=True)
        self.place = number.end()
        return value

    # --- between values ------------------------------------------------------------------------------

    def _skip(self) -> None:
        gap = _GAP.match(self._text, self.place)
        assert gap is not None  # it may be empty
        if self._text.startswith("/*", gap.end()):
            self.place = gap.end()
            raise self._error("the text ends inside of a comment that begins", cut=True)
        self.place = gap.end()

    def _at_end(self) -> bool:
        return self.place >= len(self._text) or self._text.startswith(_FENCE, self.place)

    def _took(self, char: str) -> bool:
        self._skip()
        if not self._text.startswith(char, self.place):
            return False
        self.place += 1
        return True

    def _more(self, closer: str, found: JSONValue) -> bool:
        """Behind a value: whether another one follows; if not, its bracket is closed, or the text ends."""
        before = self.place
        self._comma = self._took(",")
        if self._comma:
            return not self._took(closer)
        if self._took(closer):
            return False
        if not self._at_end():
            raise self._error(f"expected a comma or {closer}")
        if not self._close:
            raise self._error(f"the text ends without {closer}", cut=True)
        last_line = self._text[before : self.place].rpartition("\n")[2]
        if "#" in last_line or "//" in last_line:
            # On one line, such a comment has swallowed whatever stood behind it.
            raise self._error(f"the text ends in a comment, without {closer}", hopeless=True)
        self._left_open.append(found)
        return False

    def _error(self, why: str, *, cut: bool = False, hopeless: bool = False) -> Unreadable:
        return Unreadable(self._text, self.place, why, cut=cut, hopeless=hopeless)

    def check_unicode(self, value: JSONValue, start: int) -> None:
        """Refuse half a surrogate pair, which could be neither logged nor sent."""
        try:
            if not self._text.isascii():
                json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise Unreadable(self._text, start, "half a surrogate pair in what begins", hopeless=True) from None


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, escape[0])  # of "\\d" in a pattern both characters are meant
