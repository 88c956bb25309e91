"""One answer of a Responses server, from payloads to chunks.

What the answer consists of is told up to four times: in pieces, when a part is done, when its item is done, and in
the last event.  Each telling is held against what has been handed out, and only what is new is added: so it makes no
difference which of them a server leaves out.  Items are told apart by ``output_index``, for their ids may change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from .._errors import ProviderError
from .._messages import FinishReason
from .._model import Finish, ModelChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._answer import ALIVE, has_error
from ._classify import Classify
from ._json import JSONObject, as_count, as_list, as_object, as_text
from ._names import WireNames
from ._openai_responses_calls import CALLS, Call, Calls, kept

__all__ = ["ResponsesGrammar"]

ENDS: Final[Mapping[str, str]] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
"""The last events, and what each says of the answer."""

STATUSES: Final = frozenset({"completed", "incomplete", "failed", "cancelled"})
"""Of answers that are at their end."""

TEXT, SUMMARY, THOUGHT = "text", "summary", "thought"

PIECES: Final[Mapping[str, tuple[str, str]]] = {
    "response.output_text": (TEXT, "text"),
    "response.refusal": (TEXT, "refusal"),
    "response.reasoning_summary_text": (SUMMARY, "text"),
    "response.reasoning_text": (THOUGHT, "text"),
}
"""What comes in pieces: what it is to us, and the field that holds the whole when it is done."""

INPUTS: Final[Mapping[str, tuple[str, str]]] = {
    "response.function_call_arguments": ("function_call", "arguments"),
    "response.custom_tool_call_input": ("custom_tool_call", "input"),
}
"""The same for calls: the type of the item, and the field that holds the whole."""


class _Item:
    """One item of the answer."""

    __slots__ = ("call", "done", "kind", "labelled", "parts", "phase")

    def __init__(self, kind: str, call: Call | None = None) -> None:
        self.kind = kind
        self.call = call
        self.done = False
        self.phase = ""
        self.labelled = False  # the phase was handed out
        self.parts: dict[tuple[str, int], list[str]] = {}  # what was handed out, by what it is and where it stands

    def said(self, what: str) -> str:
        return "".join(text for (kind, _), texts in self.parts.items() if kind == what for text in texts)


class ResponsesGrammar:
    """What the payloads of a Responses server mean.

    Args:
      names: of the request's tools, on the wire.
      known: the names of the request's tools.
    """

    field = "output"
    __slots__ = (
        "_called",
        "_calls",
        "_classify",
        "_item_ids",
        "_items",
        "_latest",
        "_natives",
        "_open",
        "_raw",
        "_refused",
        "_status",
        "complete",
        "over",
    )

    def __init__(self, names: WireNames, known: frozenset[str], classify: Classify) -> None:
        self._classify = classify
        self._calls = Calls(names, known)
        self._items: list[_Item] = []
        self._open: dict[int | str, _Item] = {}  # the latest one of each output index
        self._called: dict[tuple[int | str, str], _Item] = {}  # those that are calls, by output index and call id
        self._latest: int | str = 0
        self._natives: Counter[str] = Counter()  # how many items of each type were kept whole
        self._item_ids: set[str] = set()  # theirs
        self._refused = False
        self._status = ""
        self._raw: str | None = None
        self.over = False
        self.complete = False

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one event brings; one of an unknown type brings nothing."""
        fields = as_object(payload)
        kind = as_text(fields.get("type")) or name
        if kind == "response.error" or (not kind.startswith("response.") and has_error(payload, name)):
            raise self._classify(payload)
        before = len(chunks)
        if kind in ENDS:
            self._end(ENDS[kind], as_object(fields.get("response")), chunks)
            self.over = self.complete
        elif kind.endswith((".added", ".delta", ".done")):
            self._event(kind, fields, chunks)
        if len(chunks) == before and kind.startswith("response."):
            chunks.append(ALIVE)

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what a whole answer brings; one that is still being worked at is none."""
        fields = as_object(payload)
        if not isinstance(fields.get("output"), list) and has_error(payload):
            raise self._classify(payload)
        self._end(as_text(fields.get("status")) or "completed", fields, chunks)
        self.complete = self.complete and isinstance(fields.get("output"), list)

    def read_mark(self, text: str) -> bool:
        """``[DONE]`` is what some servers end any stream with; it says nothing that the last event has not."""
        return text == "[DONE]"

    def finish(self) -> Finish:
        """How the answer ended; the status says nothing of refusals and calls."""
        reason: FinishReason = "stop"
        if self._refused or (self._status == "incomplete" and self._raw == "content_filter"):
            reason = "refusal"
        elif self._status == "incomplete":
            reason = "length"
        elif self._calls.count:
            reason = "tool_use"
        return Finish(reason, self._raw)

    # ------------------------------------------------------------------------------------------ events

    def _event(self, kind: str, fields: JSONObject, chunks: list[ModelChunk]) -> None:
        stem, _, step = kind.rpartition(".")
        if stem == "response.output_item":
            told = as_object(fields.get("item"))
            item = self._find(fields, told, opens=step == "added")
            item.phase = item.phase or as_text(told.get("phase"))
            if step == "done":
                self._close(item, told, chunks)
            elif item.call is not None:
                self._calls.open(item.call, told, chunks)
        elif step == "added":
            return
        elif stem in PIECES:
            what, whole = PIECES[stem]
            item = self._find(fields, {"type": "message" if what == TEXT else "reasoning"})
            index = as_count(fields.get("summary_index" if what == SUMMARY else "content_index")) or 0
            text = as_text(fields.get("delta" if step == "delta" else whole))
            if step == "done":
                text = _rest(text, "".join(item.parts.get((what, index), ())))
            self._refused = self._refused or (whole == "refusal" and bool(text))
            self._say(item, what, index, text, chunks)
        elif stem in INPUTS:
            type, whole = INPUTS[stem]
            item = self._find(fields, {"type": type})
            assert item.call is not None
            if step == "delta":
                self._calls.add(item.call, fields.get("delta"), chunks)
            else:
                self._calls.complete(item.call, fields.get(whole), chunks)

    def _find(self, fields: JSONObject, told: JSONObject, *, opens: bool = False) -> _Item:
        """The item that an event is about; a new one if it is none of those that are known."""
        index = as_count(fields.get("output_index"))
        id = as_text(fields.get("item_id")) or as_text(told.get("id"))
        key: int | str = index if index is not None else id or self._latest
        self._latest = key
        kind, call_id = as_text(told.get("type")), as_text(told.get("call_id"))
        item = self._called.get((key, call_id)) or self._open.get(key)
        # Servers that give all items the same index open or close one before they tell of the next.  But an item
        # that is open is closed by the event that says so, though its id may be another one by then.
        ended = item is not None and (opens or item.done) and _is_other(item.call, call_id)
        if item is None or item.kind != kind or (opens and item.done) or ended:
            item = _Item(kind, self._calls.new(kind) if kind in CALLS else None)
            self._items.append(item)
            self._open[key] = item
        if item.call is not None and call_id:
            self._called[key, call_id] = item
        return item

    def _close(self, item: _Item, told: JSONObject, chunks: list[ModelChunk]) -> None:
        """An item was told whole."""
        if item.call is not None:
            self._calls.close(item.call, told, chunks)
        for what, texts in _texts(told).items():
            said = item.said(what)
            if "".join(texts).startswith(said):
                self._say_all(item, what, texts, len(said), chunks)
        self._note_refusal(told)
        if not item.done:
            self._keep(told, chunks)
        item.done = True

    # ----------------------------------------------------------------------------------------- content

    def _say(self, item: _Item, what: str, index: int, text: str, chunks: list[ModelChunk]) -> None:
        """Hand out a piece of text or of reasoning."""
        if not text:
            return
        if what != TEXT:
            # The parts of a summary are paragraphs, each with a heading.
            apart = what == SUMMARY and index > 0 and (what, index) not in item.parts
            chunks.append(ReasoningChunk(f"\n\n{text}" if apart else text))
        else:
            if item.phase and not item.labelled:
                item.labelled = True
                chunks.append(kept({"type": "message", "phase": item.phase}))
            chunks.append(TextChunk(text))
        item.parts.setdefault((what, index), []).append(text)

    def _say_all(self, item: _Item, what: str, texts: Iterable[str], said: int, chunks: list[ModelChunk]) -> int:
        """Hand out what stands in ``texts`` behind the first ``said`` characters; returns how many of them are left."""
        for index, text in enumerate(texts):
            self._say(item, what, index, text[said:], chunks)
            said = max(said - len(text), 0)
        return said

    def _keep(self, told: JSONObject, chunks: list[ModelChunk]) -> None:
        """Hand out an item of a kind that has no words of ours, or whose words do not say all of it."""
        kind = as_text(told.get("type"))
        if kind and kind != "message" and kind not in CALLS:
            self._natives[kind] += 1
            self._item_ids.add(as_text(told.get("id")))
            chunks.append(kept(told))

    def _note_refusal(self, told: JSONObject) -> None:
        parts = [as_object(part) for part in as_list(told.get("content"))]
        self._refused = self._refused or any(as_text(part.get("refusal")) for part in parts)

    # ----------------------------------------------------------------------------------------- the end

    def _end(self, status: str, response: JSONObject, chunks: list[ModelChunk]) -> None:
        told = as_text(response.get("status"))
        status = told if told in STATUSES else status
        usage = read_usage(as_object(response.get("usage")))
        if usage is not None:
            chunks.append(UsageReport(usage))
        if status in ("failed", "cancelled") or response.get("error"):
            error = response.get("error")
            raise self._classify({"error": error}) if error else ProviderError(f"the answer ended as {status!r}")
        if status not in ("completed", "incomplete"):
            return
        self._status = status
        self._raw = as_text(as_object(response.get("incomplete_details")).get("reason")) or status
        self._settle([as_object(item) for item in as_list(response.get("output"))], chunks)
        self._calls.end(chunks)
        self.complete = True

    def _settle(self, output: Sequence[JSONObject], chunks: list[ModelChunk]) -> None:
        """Hand out what only the last event tells.

        Some servers leave items out of it, so they are not told apart by their places: texts are held against all
        that was said, calls by what they have in common, and items that were kept whole are counted.
        """
        left: dict[str, int] = {}
        for what in (TEXT, SUMMARY, THOUGHT):
            said = "".join(item.said(what) for item in self._items)
            told = "".join(text for item in output for text in _texts(item).get(what, ()))
            left[what] = len(said) if told.startswith(said) else len(told)
        seen: Counter[str] = Counter()
        calls = iter(self._calls.match([item for item in output if item.get("type") in CALLS]))
        for told_item in output:
            kind = as_text(told_item.get("type"))
            if kind in CALLS:
                self._calls.close(next(calls), told_item, chunks)
            item = _Item(kind)
            item.phase = as_text(told_item.get("phase"))
            for what, texts in _texts(told_item).items():
                left[what] = self._say_all(item, what, texts, left[what], chunks)
            self._note_refusal(told_item)
            seen[kind] += 1
            if seen[kind] > self._natives[kind] and as_text(told_item.get("id")) not in self._item_ids:
                self._keep(told_item, chunks)


def _is_other(call: Call | None, id: str) -> bool:
    """Whether ``id`` is one of another call."""
    return call is not None and bool(id and call.id) and call.id != id


def _rest(whole: str, said: str) -> str:
    """What of a text was not said yet; nothing if it is another one."""
    return whole[len(said) :] if whole.startswith(said) else ""


def _texts(told: JSONObject) -> dict[str, list[str]]:
    """What an item says, by what it is to us."""

    def texts(key: str) -> list[str]:
        given = told.get(key)
        parts = [as_object(part) for part in as_list(given)]
        return [given] if isinstance(given, str) else [_said(part) for part in parts]

    match told.get("type"):
        case "message":
            return {TEXT: texts("content")}
        case "reasoning":
            return {SUMMARY: texts("summary"), THOUGHT: texts("content")}
        case _:
            return {}


def _said(part: JSONObject) -> str:
    return as_text(part.get("text")) or as_text(part.get("refusal"))


def read_usage(usage: JSONObject) -> Usage | None:
    """Whole totals out of a usage object; ``None`` if it says nothing.

    Where the total is larger than its parts, the rest was hidden reasoning, which is output too.
    """
    sent, generated = as_count(usage.get("input_tokens")), as_count(usage.get("output_tokens"))
    total = as_count(usage.get("total_tokens"))
    read, made = as_object(usage.get("input_tokens_details")), as_object(usage.get("output_tokens_details"))
    if sent is not None and total is not None:
        generated = max(generated or 0, total - sent)
    found = Usage(
        input=sent,
        output=generated,
        cache_read=as_count(read.get("cached_tokens")),
        cache_write=as_count(read.get("cache_write_tokens")),
        reasoning=as_count(made.get("reasoning_tokens")),
    )
    return None if found == Usage() else found
