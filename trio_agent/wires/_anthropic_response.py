"""One answer of an Anthropic server, from payloads to chunks.

Complete is an answer that said ``message_stop``, and nothing else.  Text, reasoning and calls are handed out as
they come, blocks that only the vendor understands when they are whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, cast

from .._errors import ProviderError
from .._messages import FinishReason, NativeBlock, parse_object
from .._model import CallChunk, Finish, ModelChunk, NativeChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._answer import ALIVE, has_error
from ._anthropic_messages import NATIVE
from ._classify import Classify
from ._json import JSONObject, as_count, as_list, as_object, as_text, dump
from ._names import WireNames

__all__ = ["MessagesGrammar"]

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refusal",
    "pause_turn": "pause",
    "compaction": "pause",
}

OURS: Final = frozenset({"text", "thinking", "tool_use"})
"""The blocks that have words of our own; all others are kept as they are."""

DELTAS: Final = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}
"""The blocks that these are pieces of, for servers that open none."""

COUNTS: Final = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


class _Block:
    """One content block that is open."""

    __slots__ = ("call", "citations", "fields", "kind", "parts", "signature")

    def __init__(self, kind: str, fields: JSONObject) -> None:
        self.kind = kind
        self.fields = fields
        self.call: int | None = None
        self.parts: list[str] = []  # of a text, or of the JSON of an input
        self.citations: list[object] = []
        self.signature = ""


class MessagesGrammar:
    """What the payloads of an Anthropic server mean."""

    field = "content"
    __slots__ = (
        "_begun",
        "_blocks",
        "_calls",
        "_classify",
        "_counts",
        "_id",
        "_latest",
        "_names",
        "_reason",
        "_started",
        "_usage",
        "complete",
        "over",
    )

    def __init__(self, names: WireNames, classify: Classify) -> None:
        self._names = names
        self._classify = classify
        self._id = ""
        self._started = False
        self._begun = False  # something of the answer's content was handed out
        self._blocks: dict[int, _Block] = {}  # those that are open, by their index
        self._latest = 0
        self._calls = 0
        self._reason: str | None = None
        self._counts: dict[str, int] = {}
        self._usage: Usage | None = None
        self.over = False
        self.complete = False

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one event brings; one of an unknown type brings nothing."""
        if has_error(payload, name):
            raise self._classify(payload)
        fields = as_object(payload)
        before = len(chunks)
        index = as_count(fields.get("index"))
        match as_text(fields.get("type")) or name:
            case "message_start":
                self._start(as_object(fields.get("message")), chunks)
            case "content_block_start":
                self._latest = self._latest + 1 if index is None else index
                self._open(self._latest, as_object(fields.get("content_block")), chunks)
            case "content_block_delta":
                self._add(self._latest if index is None else index, as_object(fields.get("delta")), chunks)
            case "content_block_stop":
                self._close(self._latest if index is None else index, chunks)
            case "message_delta":
                self._count(as_object(fields.get("usage")), chunks)
                self._stop(as_text(as_object(fields.get("delta")).get("stop_reason")))
            case "message_stop":
                self._end(chunks)
                return
            case _:
                return
        if len(chunks) == before:
            chunks.append(ALIVE)

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what a whole answer brings; one without content is none."""
        if has_error(payload):
            raise self._classify(payload)
        fields = as_object(payload)
        for index, block in enumerate(as_list(fields.get("content"))):
            self._open(index, as_object(block), chunks)
            self._close(index, chunks)
        self._count(as_object(fields.get("usage")), chunks)
        self._stop(as_text(fields.get("stop_reason")))
        self.complete = isinstance(fields.get("content"), list)

    def read_mark(self, text: str) -> bool:
        """``[DONE]`` is what some proxies end any stream with; it says nothing that ``message_stop`` has not."""
        return text == "[DONE]"

    def finish(self) -> Finish:
        """How the answer ended; without a reason that is not known."""
        reason: FinishReason = FINISH_REASONS.get(self._reason or "", "unknown")
        if self._calls and reason in ("stop", "unknown"):
            reason = "tool_use"
        elif reason == "tool_use" and not self._calls:
            reason = "stop"
        return Finish(reason, self._reason)

    # -------------------------------------------------------------------------------------- the message

    def _start(self, message: JSONObject, chunks: list[ModelChunk]) -> None:
        id = as_text(message.get("id"))
        if id and self._id and id != self._id:
            if self._begun:
                # Some proxy tried again on its own: the halves of two answers make no answer.
                raise ProviderError(f"a second answer ({id!r}) began in the middle of {self._id!r}")
            self._counts.clear()
            self._blocks.clear()
        self._id = id or self._id
        self._started = True
        self._count(as_object(message.get("usage")), chunks)

    def _stop(self, reason: str) -> None:
        if not reason:
            return
        self._reason = reason
        if reason == "model_context_window_exceeded" and not self._begun:
            raise ProviderError("the request fills the context window", code="CONTEXT_OVERFLOW")

    def _end(self, chunks: list[ModelChunk]) -> None:
        if not (self._started or self._begun):
            return
        # A block that was never closed is cut off.  What was shown of it stands, as the finish reason does.
        for block in self._blocks.values():
            if block.kind in ("thinking", "tool_use"):
                self._settle(block, chunks)
        self._blocks.clear()
        self.complete = True
        self.over = True

    def _count(self, usage: JSONObject, chunks: list[ModelChunk]) -> None:
        """Every number is a total so far: the last one that was told counts."""
        details = as_object(usage.get("output_tokens_details"))
        told = {name: as_count(usage.get(name)) for name in COUNTS}
        told["thinking_tokens"] = as_count(details.get("thinking_tokens"))
        self._counts.update((name, count) for name, count in told.items() if count is not None)
        counts = self._counts
        sent = counts.get("input_tokens")
        read, written = counts.get("cache_read_input_tokens"), counts.get("cache_creation_input_tokens")
        found = Usage(
            input=None if sent is None else sent + (read or 0) + (written or 0),
            output=counts.get("output_tokens"),
            cache_read=read,
            cache_write=written,
            reasoning=counts.get("thinking_tokens"),
        )
        if found not in (self._usage, Usage()):
            self._usage = found
            chunks.append(UsageReport(found))

    # --------------------------------------------------------------------------------------- the content

    def _show(self, chunk: ModelChunk, chunks: list[ModelChunk]) -> None:
        self._begun = True
        chunks.append(chunk)

    def _open(self, index: int, fields: JSONObject, chunks: list[ModelChunk]) -> None:
        self._close(index, chunks)  # some proxies give every block the same index, and close none
        kind = as_text(fields.get("type"))
        block = self._blocks[index] = _Block(kind, fields)
        if kind == "text":
            self._add_text(block, as_text(fields.get("text")), chunks)
            block.citations += as_list(fields.get("citations"))
        elif kind == "thinking":
            self._add_thinking(as_text(fields.get("thinking")), chunks)
            block.signature = as_text(fields.get("signature"))
        elif kind == "tool_use":
            # By a number of our own: the vendor's index may be used again.
            block.call = self._calls
            self._calls += 1
            name = self._names.to_original(as_text(fields.get("name")))
            self._show(CallChunk(block.call, as_text(fields.get("id")), name), chunks)

    def _add(self, index: int, delta: JSONObject, chunks: list[ModelChunk]) -> None:
        kind = as_text(delta.get("type"))
        block = self._blocks.get(index)
        wanted = DELTAS.get(kind)
        if block is None or (wanted is not None and block.kind in OURS and block.kind != wanted):
            if wanted is None:
                return  # of a block that nobody opened: without its name it is nothing
            self._open(index, {"type": wanted}, chunks)
            block = self._blocks[index]
        if kind == "input_json_delta":
            piece = as_text(delta.get("partial_json"))
            block.parts.append(piece)
            if block.call is not None and piece:
                self._show(CallChunk(block.call, arguments=piece), chunks)
        elif kind == "citations_delta":
            block.citations.append(delta.get("citation"))
        elif kind == "text_delta" and block.kind == "text":
            self._add_text(block, as_text(delta.get("text")), chunks)
        elif kind == "thinking_delta" and block.kind == "thinking":
            self._add_thinking(as_text(delta.get("thinking")), chunks)
        elif kind == "signature_delta" and block.kind == "thinking":
            block.signature = as_text(delta.get("signature"))
        else:
            _put_in(block.fields, delta)

    def _add_text(self, block: _Block, text: str, chunks: list[ModelChunk]) -> None:
        if text:
            block.parts.append(text)
            self._show(TextChunk(text), chunks)

    def _add_thinking(self, text: str, chunks: list[ModelChunk]) -> None:
        if text:
            self._show(ReasoningChunk(text), chunks)

    def _close(self, index: int, chunks: list[ModelChunk]) -> None:
        block = self._blocks.pop(index, None)
        if block is not None:
            self._settle(block, chunks)

    def _settle(self, block: _Block, chunks: list[ModelChunk]) -> None:
        """Add what a block brings at its end."""
        joined = "".join(block.parts)
        if block.kind == "thinking":
            if block.signature:
                self._show(ReasoningChunk("", block.signature), chunks)
        elif block.kind == "tool_use":
            given = block.fields.get("input")
            if given and not joined:
                arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
                self._show(CallChunk(block.call, arguments=arguments), chunks)
        elif block.kind == "text":
            if block.citations and joined.strip():
                cited = {**block.fields, "text": joined, "citations": block.citations}
                self._keep(cited, "", chunks)
        elif block.kind:
            if joined:
                block.fields.setdefault("input", {})
            self._keep({**block.fields, **_citations(block)}, joined, chunks)

    def _keep(self, fields: JSONObject, input: str, chunks: list[ModelChunk]) -> None:
        try:
            members = [
                dump(key) + b":" + (input.encode() if input and key == "input" else dump(value))
                for key, value in fields.items()
            ]
            data = (b"{" + b",".join(members) + b"}").decode()
            parse_object(data)
        except (ValueError, RecursionError):
            return  # its input was cut off: it could only be sent back to be refused
        self._show(NativeChunk(NativeBlock(NATIVE, data)), chunks)


def _citations(block: _Block) -> JSONObject:
    return {"citations": block.citations} if block.citations else {}


def _put_in(fields: JSONObject, delta: JSONObject) -> None:
    """Add a delta of a kind that is not known, as all known ones are added: texts behind texts."""
    for key, value in delta.items():
        if key != "type":
            known = fields.get(key)
            both = isinstance(known, str) and isinstance(value, str)
            fields[key] = cast(str, known) + value if both else value
