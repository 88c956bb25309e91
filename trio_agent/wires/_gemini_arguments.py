"""The arguments of one call of Gemini that come in pieces: values by their paths; knows no streams and no tools.

Source: Vertex AI, "Streaming function call arguments", read 2026-11, and a recording.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, TypeAlias, cast

import attrs

from .._errors import ProviderError
from .._messages import MAX_DEPTH
from ._json import JSONObject, as_object, as_text
from ._sse import MAX_EVENT

__all__ = ["StreamedArguments", "json_text"]

STEP: Final = re.compile(
    r"""\.(?P<name>[^.\[\]'"]+)|\[(?P<place>\d{1,9})\]|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\]"""
)

Step: TypeAlias = str | int


class _Contradiction(Exception):
    """A piece that does not fit to what came before it."""


class StreamedArguments:
    """Puts an object together.

    Nothing is completed that was cut off: then the text is no JSON, so that the call cannot run, and the model that
    is told so sees what it had written.
    """

    __slots__ = ("_open", "_root", "_size", "_spoiled", "id", "index")

    def __init__(self, index: int, id: str) -> None:
        self.index = index
        self.id = id
        self._root: JSONObject = {}
        self._open: dict[str, _String] = {}  # by their paths, the strings that go on
        self._size = 0
        self._spoiled = False

    def add(self, pieces: Iterable[object]) -> None:
        """Take the next pieces.

        Raises:
          ProviderError: they are more than one answer may have.
        """
        for piece in map(as_object, pieces):
            path, text = as_text(piece.get("jsonPath")), as_text(piece.get("stringValue"))
            self._size += len(path) + len(text)
            if self._size > MAX_EVENT:
                raise ProviderError(f"the arguments of a call are longer than {MAX_EVENT} characters", retryable=False)
            try:
                self._add(path, piece)
            except _Contradiction:
                self._spoiled = True

    def add_whole(self, fields: JSONObject) -> None:
        """Take arguments that came whole."""
        self._root.update(fields)

    def text(self, *, torn: bool = False) -> str:
        """The object as JSON; of one that was not finished, its beginning.

        Args:
          torn: the call's own end did not come.
        """
        torn = torn or self._spoiled or bool(self._open)
        for string in self._open.values():
            string.close()
        text = json_text(self._root)
        return text[:-1] if torn else text

    def _add(self, path: str, piece: JSONObject) -> None:
        if "stringValue" in piece:
            string = self._open.get(path)
            if string is None:
                string = self._open[path] = _String(*self._put(path, ""))
            string.parts.append(as_text(piece["stringValue"]))
            if piece.get("willContinue") is not True:
                self._open.pop(path).close()
        elif "numberValue" in piece:
            self._put(path, piece["numberValue"])
        elif "boolValue" in piece:
            self._put(path, piece["boolValue"] is True)
        elif "nullValue" in piece:
            self._put(path, None)

    def _put(self, path: str, value: object) -> tuple[object, Step]:
        """Put a value where there is none yet, and say where that is."""
        steps = _steps(path)
        place: object = self._root
        for step, following in pairwise(steps):
            place = _entered(place, step, {} if isinstance(following, str) else [])
        if _entered(place, steps[-1], value) is not value:
            raise _Contradiction
        return place, steps[-1]


@attrs.define
class _String:
    """A string that comes in pieces."""

    place: object
    step: Step
    parts: list[str] = attrs.field(factory=list[str])

    def close(self) -> None:
        cast("dict[Step, str]", self.place)[self.step] = "".join(self.parts)


def json_text(value: object) -> str:
    """JSON in which nothing is mended or refused: whoever reads the arguments judges them."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _steps(path: str) -> list[Step]:
    found: list[Step] = []
    at = 1
    while path.startswith("$") and (match := STEP.match(path, at)):
        name = match["name"] or match["single"] or match["double"] or ""
        found.append(int(match["place"]) if match["place"] else name)
        at = match.end()
    if at != len(path) or not found or len(found) > MAX_DEPTH:
        raise _Contradiction
    return found


def _entered(place: object, step: Step, fresh: object) -> object:
    """What stands at the step; where nothing does, ``fresh`` is put there."""
    if isinstance(place, dict) and isinstance(step, str):
        return cast("dict[str, object]", place).setdefault(step, fresh)
    if isinstance(place, list) and isinstance(step, int):
        items = cast("list[object]", place)
        if step == len(items):
            items.append(fresh)
        if step < len(items):
            return items[step]
    raise _Contradiction
