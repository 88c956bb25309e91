"""Takes keys out of what is recorded, also where one was cut into pieces, and keeps track of where.

Knows what a message and an answer look like; what a key looks like, :func:`trio_agent.wires.redact` knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

import attrs

from .._messages import NativeBlock
from .._model import CallChunk, Finish, ModelChunk, NativeChunk, ReasoningChunk, TextChunk
from ..wires import redact

__all__ = ["MARK", "Redaction"]

MARK: Final = redact("secret!!", ("secret!!",))
"""What stands in the place of a key."""

TELLING: Final = ("authorization", "apikey", "accesskey", "secret", "password", "token")
"""Ends of names, in small letters and without their dashes, whose value is a key whatever it looks like."""

_BINARY: Final = frozenset({"image", "file"})
_JOINED: Final = {"text": "text", "reasoning": "text"}  # by type of block: the field that a stream may cut anywhere


@final
class Redaction:
    """Cleans the parts of one record.

    Attributes:
      places: where something was taken out, as paths into the record.
    """

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._secrets = secrets
        self.places: list[str] = []

    def text(self, text: str, place: str) -> str:
        """One text."""
        clean = redact(text, self._secrets)
        if clean != text:
            self.places.append(place)
        return clean

    def pieces(self, pieces: Sequence[str], places: Sequence[str]) -> list[str]:
        """The pieces of one text: a key is also found where they meet, and its mark stands where it began."""
        whole = "".join(pieces)
        clean = redact(whole, self._secrets)
        if clean == whole:
            return list(pieces)
        taken = list(_taken(whole, clean.split(MARK)))
        cleaned: list[str] = []
        edges = itertools.pairwise(itertools.accumulate(map(len, pieces), initial=0))
        for piece, place, (start, end) in zip(pieces, places, edges, strict=True):
            kept = _without(whole, taken, start, end)
            if kept != piece:
                self.places.append(place)
            cleaned.append(kept)
        return cleaned

    def json(self, value: Any, place: str) -> Any:  # Any: JSON
        """A JSON value, text by text."""
        if isinstance(value, str):
            return self.text(value, place)
        if isinstance(value, list | tuple):
            items = cast("Sequence[Any]", value)
            return [self.json(item, f"{place}[{index}]") for index, item in enumerate(items)]
        if isinstance(value, Mapping):
            return self._object(cast("Mapping[str, Any]", value), place)
        return value

    def _object(self, value: Mapping[str, Any], place: str) -> dict[str, Any]:  # Any: JSON
        cleaned: dict[str, Any] = {}
        binary = value.get("type") in _BINARY
        for key, item in value.items():
            inner = f"{place}.{key}"
            if binary and key == "data":
                cleaned[key] = item
            elif isinstance(item, str) and item and _tells(key):
                cleaned[key] = MARK
                self.places.append(inner)
            else:
                cleaned[key] = self.json(item, inner)
        return cleaned

    # --- messages ------------------------------------------------------------------------------------

    def message(self, message: dict[str, Any], place: str) -> dict[str, Any]:  # Any: JSON
        """A message in its written form.

        Its texts are cleaned as one, and so is its reasoning: that is how an answer is cleaned, whose message
        comes back in the next request.
        """
        before = len(self.places)
        blocks = [dict(block) for block in message["content"]]
        for kind, field in _JOINED.items():
            found = [(index, block) for index, block in enumerate(blocks) if block["type"] == kind]
            places = [f"{place}.content[{index}].{field}" for index, _ in found]
            texts = self.pieces([block[field] for _, block in found], places)
            for (_, block), text in zip(found, texts, strict=True):
                block[field] = text
        for index, block in enumerate(blocks):
            done = _JOINED.get(block["type"])
            rest = {key: item for key, item in block.items() if key != done}
            block.update(self._object(rest, f"{place}.content[{index}]"))
        emptied = len(self.places) > before and message["role"] == "assistant"
        return {**message, "content": _as_assembled(blocks) if emptied else blocks}

    # --- answers -------------------------------------------------------------------------------------

    def chunks(self, chunks: Sequence[ModelChunk], place: str) -> list[ModelChunk]:
        """The chunks of an answer: each text, and the arguments of each call, are cleaned as one."""
        cleaned = list(chunks)
        threads: dict[object, list[int]] = {}
        latest: dict[int | None, str] = {}  # by index: the id of the call that the last piece belonged to
        for index, chunk in enumerate(chunks):
            match chunk:
                case TextChunk() | ReasoningChunk():
                    threads.setdefault(type(chunk), []).append(index)
                case CallChunk():
                    latest[chunk.index] = chunk.id or latest.get(chunk.index, "")
                    threads.setdefault((chunk.index, latest[chunk.index]), []).append(index)
                case _:
                    pass
        for thread in threads.values():
            self._clean_thread(cleaned, thread, place)
        for index, chunk in enumerate(cleaned):
            cleaned[index] = self._clean_rest(chunk, f"{place}[{index}]")
        return cleaned

    def _clean_thread(self, chunks: list[ModelChunk], thread: list[int], place: str) -> None:
        texts: list[str] = []
        places: list[str] = []
        for index in thread:
            chunk = chunks[index]
            named = "arguments" if isinstance(chunk, CallChunk) else "text"
            texts.append(getattr(chunk, named))
            places.append(f"{place}[{index}].{named}")
        for index, before, after in zip(thread, texts, self.pieces(texts, places), strict=True):
            if after != before:
                chunk = chunks[index]
                if isinstance(chunk, CallChunk):
                    chunks[index] = attrs.evolve(chunk, arguments=after)
                elif isinstance(chunk, TextChunk | ReasoningChunk):
                    chunks[index] = attrs.evolve(chunk, text=after)

    def _clean_rest(self, chunk: ModelChunk, place: str) -> ModelChunk:
        match chunk:
            case ReasoningChunk() if chunk.signature:
                return attrs.evolve(chunk, signature=self.text(chunk.signature, f"{place}.signature"))
            case CallChunk() if chunk.id or chunk.name:
                id = self.text(chunk.id, f"{place}.id")
                return attrs.evolve(chunk, id=id, name=self.text(chunk.name, f"{place}.name"))
            case NativeChunk():
                data = self.text(chunk.block.data, f"{place}.block.data")
                return NativeChunk(NativeBlock(chunk.block.provider, data))
            case Finish() if chunk.raw:
                return attrs.evolve(chunk, raw=self.text(chunk.raw, f"{place}.raw"))
            case _:
                return chunk


def _as_assembled(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:  # Any: JSON
    """The blocks without those that a mark elsewhere has emptied: no chunk brings them when the answer is played."""
    kept: list[dict[str, Any]] = []
    for block in blocks:
        field = _JOINED.get(block["type"])
        if field is not None and not block[field] and not block.get("signature"):
            continue
        if field is not None and kept and kept[-1]["type"] == block["type"] and not kept[-1].get("signature"):
            kept[-1] = {**block, field: kept[-1][field] + block[field]}
        else:
            kept.append(block)
    return kept


def _tells(name: str) -> bool:
    return "".join(filter(str.isalnum, name.lower())).endswith(TELLING)


def _taken(whole: str, kept: Sequence[str]) -> list[tuple[int, int]]:
    """Which ranges of ``whole`` were taken out, given what stands between them.

    Where that could be told in several ways the earliest is taken: it only decides which piece keeps what.
    """
    ranges: list[tuple[int, int]] = []
    start = len(kept[0])
    for text in kept[1:-1]:
        end = whole.index(text, start + 1)
        ranges.append((start, end))
        start = end + len(text)
    ranges.append((start, len(whole) - len(kept[-1])))
    return ranges


def _without(whole: str, taken: Sequence[tuple[int, int]], start: int, end: int) -> str:
    """What is left of one piece of the text; a mark belongs to the piece in which its range begins."""
    parts: list[str] = []
    at = start
    for begin, stop in taken:
        if stop <= at or begin >= end:
            continue
        parts.append(whole[at : max(at, begin)])
        if begin >= start:
            parts.append(MARK)
        at = min(stop, end)
    return "".join((*parts, whole[at:end]))
