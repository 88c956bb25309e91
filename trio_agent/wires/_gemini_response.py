"""One answer of Gemini, from payloads to chunks.

Nothing says that the answer is over: the finish reason says that it may end, and is held back until it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from .._errors import ErrorCode, ProviderError
from .._messages import FinishReason, NativeBlock
from .._model import CallChunk, Finish, ModelChunk, NativeChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._answer import ALIVE, has_error
from ._classify import Classify
from ._gemini_arguments import StreamedArguments, json_text
from ._gemini_parts import NATIVE, call_mark, text_mark
from ._json import JSONObject, as_count, as_list, as_object, as_text, dump, shorten
from ._names import WireNames
from ._redact import redact

__all__ = ["GeminiGrammar"]

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
    "MODEL_ARMOR": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "IMAGE_RECITATION": "refusal",
}
"""The others, ``LANGUAGE`` and ``OTHER`` among them, say nothing that we have a word for."""

FAILURES: Final[Mapping[str, ErrorCode]] = {
    "MALFORMED_FUNCTION_CALL": "MALFORMED_TOOL_CALL",
    "UNEXPECTED_TOOL_CALL": "MALFORMED_TOOL_CALL",
}
"""Finish reasons that are errors.  The server keeps what the model wrote for itself, so nothing can be repaired; asked
again, the model most often gets it right."""

NO_REASONS: Final = frozenset({"", "FINISH_REASON_UNSPECIFIED", "BLOCK_REASON_UNSPECIFIED"})
"""What stands where nothing has been decided yet."""

BESIDE: Final = frozenset({"text", "thought", "thoughtSignature", "partMetadata"})
"""The fields of a part of text; any other one makes it a part of another kind."""

MAX_TOLD: Final = 600
"""Characters of the server's explanation that go into a message."""


class GeminiGrammar:
    """What the payloads of Gemini mean.  Only the first candidate is read."""

    field = "candidates"
    __slots__ = ("_calls", "_classify", "_names", "_open", "_reason", "_usage", "complete", "over")

    def __init__(self, names: WireNames, classify: Classify) -> None:
        self._names = names
        self._classify = classify
        self._calls = 0
        self._open: StreamedArguments | None = None  # of the call that is coming in pieces
        self._reason = ""
        self._usage: Usage | None = None
        self.over = False  # usage and empty parts may follow the finish reason; the connection's end comes soon
        self.complete = False

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one response brings, or each one of an array of them."""
        for item in as_list(cast(object, payload)) if isinstance(payload, list) else [payload]:
            fields = as_object(item)
            before = len(chunks)
            candidates = map(as_object, as_list(fields.get("candidates")))
            first = next((each for each in candidates if each.get("index") in (0, None)), as_object(None))
            if not has_error(fields, name):
                for part in as_list(as_object(first.get("content")).get("parts")):
                    self._part(as_object(part), chunks)
            self._report_usage(as_object(fields.get("usageMetadata")), chunks)
            if has_error(fields, name):
                raise self._classify(fields)
            if len(chunks) == before and "candidates" in fields:
                chunks.append(ALIVE)
            self._look_for_a_block(as_object(fields.get("promptFeedback")))
            self._finish_reason(first, chunks)

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what an answer brings that was not streamed, or that was streamed as one array."""
        self.read("", payload, chunks)

    def read_mark(self, text: str) -> bool:
        """Some proxies add the mark of another protocol; it means nothing here."""
        return text == "[DONE]"

    def finish(self) -> Finish:
        """How the answer ended.  The reason says nothing about calls."""
        reason: FinishReason = FINISH_REASONS.get(self._reason, "unknown")
        if reason in ("stop", "unknown") and self._calls:
            reason = "tool_use"
        return Finish(reason, self._reason)

    # ------------------------------------------------------------------------------------------- parts

    def _part(self, part: JSONObject, chunks: list[ModelChunk]) -> None:
        signature = as_text(part.get("thoughtSignature"))
        text = as_text(part.get("text"))
        if isinstance(part.get("functionCall"), dict):
            self._call(as_object(part["functionCall"]), signature, chunks)
            return
        if not text and not BESIDE.issuperset(part):
            chunks.append(NativeChunk(NativeBlock(NATIVE, _part_text(part))))
            return
        thought = part.get("thought") is True
        if text:
            chunks.append(ReasoningChunk(text) if thought else TextChunk(text))
        if signature:
            chunks.append(NativeChunk(text_mark("thought" if thought else "text", len(text), signature)))

    def _call(self, call: JSONObject, signature: str, chunks: list[ModelChunk]) -> None:
        """A whole call, or a piece of one: its name, then values, then an empty end mark."""
        given = call.get("id")
        id = str(given) if isinstance(given, int) else as_text(given)
        name, pieces = as_text(call.get("name")), as_list(call.get("partialArgs"))
        goes_on = call.get("willContinue") is True
        opened = self._open
        if opened is not None and (name or (id and id != opened.id)):
            self._close(chunks, torn=True)
            opened = None
        mark = call_mark(id, signature)
        if opened is None:
            if not call:
                return  # the end mark of nothing
            index = self._calls
            self._calls += 1
            whole = not goes_on and not pieces
            arguments = "" if not whole else "{}" if call.get("args") is None else json_text(call["args"])
            chunks.append(CallChunk(index, id, self._names.to_original(name), arguments))
            if mark is not None:
                chunks.append(NativeChunk(mark))
            if whole:
                return
            opened = self._open = StreamedArguments(index, id)
        elif mark is not None:
            chunks.append(NativeChunk(mark))
        opened.add_whole(as_object(call.get("args")))
        opened.add(pieces)
        if not goes_on:
            self._close(chunks, torn=False)

    def _close(self, chunks: list[ModelChunk], *, torn: bool) -> None:
        if self._open is not None:
            chunks.append(CallChunk(self._open.index, arguments=self._open.text(torn=torn)))
            self._open = None

    # ------------------------------------------------------------------------------- usage and the end

    def _report_usage(self, told: JSONObject, chunks: list[ModelChunk]) -> None:
        usage = read_usage(told)
        if usage is not None and usage != self._usage:
            self._usage = usage
            chunks.append(UsageReport(usage))

    def _look_for_a_block(self, feedback: JSONObject) -> None:
        reason = as_text(feedback.get("blockReason"))
        if reason not in NO_REASONS:
            told = _told(f"the prompt was blocked: {reason}", feedback.get("blockReasonMessage"))
            raise ProviderError(told, code="CONTENT_FILTER")

    def _finish_reason(self, candidate: JSONObject, chunks: list[ModelChunk]) -> None:
        reason = as_text(candidate.get("finishReason"))
        if reason in NO_REASONS:
            return
        self._close(chunks, torn=True)
        if reason in FAILURES:
            told = _told(f"the answer ended with {reason!r}", candidate.get("finishMessage"))
            raise ProviderError(told, code=FAILURES[reason], retryable=True)
        if FINISH_REASONS.get(self._reason) != "length":  # no later word makes a cut answer whole
            self._reason = reason
        self.complete = True


def read_usage(usage: JSONObject) -> Usage | None:
    """Whole totals out of ``usageMetadata``; ``None`` if it says nothing.

    The vendor counts thoughts, and what its own tools brought into the prompt, outside of the numbers that they
    belong to.
    """
    sent = as_count(usage.get("promptTokenCount"))
    brought = as_count(usage.get("toolUsePromptTokenCount"))
    shown = as_count(usage.get("candidatesTokenCount"))
    thought = as_count(usage.get("thoughtsTokenCount"))
    found = Usage(
        input=None if sent is None else sent + (brought or 0),
        output=None if shown is None and thought is None else (shown or 0) + (thought or 0),
        cache_read=as_count(usage.get("cachedContentTokenCount")),
        reasoning=thought,
    )
    return None if found == Usage() else found


def _part_text(part: JSONObject) -> str:
    try:
        return dump(part).decode()
    except ValueError as error:
        raise ProviderError(f"a part of the answer cannot be kept: {error}", retryable=False) from error


def _told(head: str, message: object) -> str:
    text = as_text(message).strip()
    return redact(f"{head}: {shorten(text, MAX_TOLD)}" if text else head)
