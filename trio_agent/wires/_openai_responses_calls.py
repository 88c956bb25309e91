"""The calls of one Responses answer, however often and in whatever pieces each of them is told."""

from __future__ import annotations

import json
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from .._errors import ProviderError
from .._messages import NativeBlock, parse_object
from .._model import CallChunk, ModelChunk, NativeChunk
from ._json import JSONObject, as_list, as_object, as_text, dump
from ._names import WireNames
from ._openai_responses_items import CUSTOM, NATIVE

__all__ = ["CALLS", "Call", "Calls", "kept"]

FUNCTION: Final = "function_call"

CALLS: Final = (FUNCTION, CUSTOM)
"""The types of items that are calls of the request's tools."""

WRAPPERS: Final = frozenset({"parallel", "multi_tool_use.parallel"})
"""Tools that nobody declared, into which models wrap several calls."""

PREFIX: Final = "functions."
"""What stands before the name of a tool inside of a wrapper."""

Told: TypeAlias = tuple[str, str, str, str, int]
"""What tells calls apart: type, id, name, arguments, and the place among those of its type."""

Trait: TypeAlias = Callable[[Told], tuple[object, ...]]
"""The part of it that two tellings of one call have in common."""

SAME: Final[Sequence[Trait]] = (
    lambda told: told[:4],
    lambda told: told[:2] if told[1] else (),
    lambda told: (told[0], told[4]),
    lambda told: (told[0], *told[2:4]),
)
"""How two tellings are known to be of one call, the surest first.  An id alone is not certain, for models repeat
them; and where ids change on the way the rest must do: a call that is taken for another one runs twice."""

AT_THE_SAME_PLACE: Final = 2
"""Of ``SAME``: this one holds only where an id is missing."""


class Call:
    """What has come of one call."""

    __slots__ = ("closed", "custom", "given", "id", "index", "item_id", "name", "pieces")

    def __init__(self, *, custom: bool) -> None:
        self.custom = custom
        self.id = ""
        self.item_id = ""  # stands for an id that never comes
        self.name = ""
        self.pieces: list[str] = []
        self.given = ""  # what stood in it when it was opened: the whole on some servers, nothing on most
        self.index: int | None = None  # of its chunks; None: nothing was handed out yet
        self.closed = False


class Calls:
    """Makes chunks of calls.

    A call is handed out piece by piece, unless it takes the whole to say what it is: free text, which becomes JSON,
    a wrapper, or a call whose name or id comes last.

    Args:
      names: of the request's tools, on the wire.
      known: the names of the request's tools.
    """

    __slots__ = ("_calls", "_known", "_names", "count")

    def __init__(self, names: WireNames, known: frozenset[str]) -> None:
        self._names = names
        self._known = known
        self._calls: list[Call] = []
        self.count = 0
        """Calls that were handed out."""

    def new(self, kind: str) -> Call:
        """A call of which nothing has come yet."""
        call = Call(custom=kind == CUSTOM)
        self._calls.append(call)
        return call

    def open(self, call: Call, told: JSONObject, chunks: list[ModelChunk]) -> None:
        """Its item was announced."""
        call.given = _text(told.get("input" if call.custom else "arguments"))
        self._learn(call, told, chunks)

    def add(self, call: Call, piece: object, chunks: list[ModelChunk]) -> None:
        """A piece of its arguments has come."""
        text = _text(piece)
        if text and not call.closed:
            call.pieces.append(text)
            if call.index is not None:
                chunks.append(CallChunk(call.index, arguments=text))

    def complete(self, call: Call, whole: object, chunks: list[ModelChunk]) -> None:
        """Its arguments were told whole.

        Raises:
          ProviderError: they are others than those that were handed out.
        """
        text, said = _text(whole), "".join(call.pieces)
        if not text or text == said:
            return
        if call.index is None:
            if not call.closed:
                call.pieces = [text]
        elif text.startswith(said):
            call.pieces.append(text[len(said) :])
            chunks.append(CallChunk(call.index, arguments=text[len(said) :]))
        elif not _same(text, said):
            told = f"the arguments of the call {call.id} of {call.name} were told twice, and differ"
            raise ProviderError(told, body=text[:1000])

    def close(self, call: Call, told: JSONObject, chunks: list[ModelChunk]) -> None:
        """Its item was told whole, or the answer has ended; ``told`` may be empty."""
        self._learn(call, told, chunks)
        self.complete(call, told.get("input" if call.custom else "arguments"), chunks)
        if call.closed:
            return
        if not call.pieces:
            self.add(call, call.given, chunks)
        call.closed = True
        if call.index is None:
            self._release(call, told, chunks)

    def match(self, items: Sequence[JSONObject]) -> list[Call]:
        """The calls that the last event tells of, in its order: those that have come already, and new ones."""
        places: Counter[str] = Counter()
        told = [self._told(item, places) for item in items]
        places.clear()
        left = {call: _known(call, places) for call in self._calls}
        found: dict[int, Call] = {}
        for rule, trait in enumerate(SAME):
            waiting: defaultdict[tuple[object, ...], deque[Call]] = defaultdict(deque)
            for call, known in left.items():
                waiting[trait(known)].append(call)
            for number, one in enumerate(told):
                calls = waiting.get(trait(one)) if number not in found and trait(one) else None
                if calls and not (rule == AT_THE_SAME_PLACE and one[1] and calls[0].id):
                    found[number] = calls.popleft()
                    del left[found[number]]
        return [found[n] if n in found else self.new(one[0]) for n, one in enumerate(told)]

    def end(self, chunks: list[ModelChunk]) -> None:
        """The answer has ended: hand out what was held back."""
        for call in self._calls:
            if not call.closed:
                self.close(call, {}, chunks)

    # ------------------------------------------------------------------------------------------ chunks

    def _learn(self, call: Call, told: JSONObject, chunks: list[ModelChunk]) -> None:
        call.id = call.id or as_text(told.get("call_id"))
        call.item_id = call.item_id or as_text(told.get("id"))
        call.name = call.name or self._names.to_original(as_text(told.get("name")))
        named = bool(call.id and call.name)
        if call.index is not None or call.closed or call.custom or not named or self._wraps(call):
            return
        call.index = self._take()
        chunks.append(CallChunk(call.index, call.id, call.name, "".join(call.pieces)))

    def _told(self, item: JSONObject, places: Counter[str]) -> Told:
        kind, name = as_text(item.get("type")), self._names.to_original(as_text(item.get("name")))
        arguments = _text(item.get("input" if kind == CUSTOM else "arguments"))
        return _traits(kind, as_text(item.get("call_id")), name, arguments, places)

    def _wraps(self, call: Call) -> bool:
        return call.name in WRAPPERS and call.name not in self._known

    def _take(self) -> int:
        self.count += 1
        return self.count - 1

    def _release(self, call: Call, told: JSONObject, chunks: list[ModelChunk]) -> None:
        arguments, id = "".join(call.pieces), call.id or call.item_id
        if call.custom:
            bare = {"type": CUSTOM, "call_id": id, "name": call.name, "input": arguments}
            whole = bool(told.get("call_id")) and "input" in told
            # Its output must name the id that stands in the item, and ids may change on the way.
            id = as_text(told.get("call_id")) if whole else id
            chunks.append(kept(told if whole else bare))
            arguments = json.dumps({"input": arguments})
        unfolded = self._unfold(id, arguments) if self._wraps(call) else None
        chunks += unfolded or [CallChunk(self._take(), id, call.name, arguments)]

    def _unfold(self, id: str, arguments: str) -> list[CallChunk] | None:
        """The calls inside of a wrapper; ``None`` if one of them is of no tool of the request."""
        try:
            uses = as_list(parse_object(arguments).get("tool_uses"))
        except ValueError:
            return None
        found: list[tuple[str, str]] = []
        for use in map(as_object, uses):
            name = self._names.to_original(as_text(use.get("recipient_name")).removeprefix(PREFIX))
            if name not in self._known:
                return None
            found.append((name, _text(use.get("parameters"))))
        return [CallChunk(self._take(), f"{id}_{n}", name, text) for n, (name, text) in enumerate(found)]


def _known(call: Call, places: Counter[str]) -> Told:
    kind = CUSTOM if call.custom else FUNCTION
    return _traits(kind, call.id, call.name, "".join(call.pieces) or call.given, places)


def _traits(kind: str, id: str, name: str, arguments: str, places: Counter[str]) -> Told:
    places[kind] += 1
    if kind != CUSTOM:
        try:
            arguments = json.dumps(parse_object(arguments), sort_keys=True)
        except ValueError:  # what is no object is the same only letter by letter
            pass
    return kind, id, name, arguments, places[kind]


def kept(item: JSONObject) -> NativeChunk:
    """A block of the item as it is.

    Raises:
      ProviderError: it holds a number that is none in JSON.
    """
    return NativeChunk(NativeBlock(NATIVE, _dumped(item)))


def _text(given: object) -> str:
    """Arguments as text; some servers send the object itself."""
    if given is None or isinstance(given, str):
        return given or ""
    return _dumped(given)


def _dumped(value: object) -> str:
    try:
        return dump(value).decode()
    except (ValueError, RecursionError) as error:
        raise ProviderError(f"a part of the answer cannot be kept: {error}", retryable=False) from error


def _same(text: str, said: str) -> bool:
    """Whether the two say the same, as JSON."""
    try:
        return parse_object(text) == parse_object(said)
    except ValueError:
        return False
