"""One answer of a chat completions server, from payloads to chunks; more forgiving than the vendor's own reader.

The finish reason is held back until the end, because usage comes after it; ``error`` is looked at before
``choices``; what is missing, null or of the wrong shape is no reason to fail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .._errors import ErrorCode, ProviderError
from .._messages import FinishReason
from .._model import CallChunk, Finish, ModelChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._answer import ALIVE, first_object, has_error
from ._classify import Classify
from ._json import JSONObject, as_count, as_list, as_object, as_text, dump
from ._names import WireNames

__all__ = ["ChatGrammar"]

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "length": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_calls": "tool_use",
    "tool_use": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "sensitive": "refusal",
    "pause_turn": "pause",
}

FAILURES: Final[Mapping[str, ErrorCode]] = {
    "error": "PROVIDER_ERROR",
    "network_error": "PROVIDER_ERROR",
    "insufficient_system_resource": "OVERLOADED",
}
"""Finish reasons that are errors."""


class ChatGrammar:
    """What the payloads of a chat completions server mean."""

    field = "choices"
    __slots__ = (
        "_answered",
        "_begun",
        "_calls",
        "_classify",
        "_modern_calls",
        "_names",
        "_reason",
        "_refused",
        "_usage",
        "complete",
        "over",
    )

    def __init__(self, names: WireNames, classify: Classify) -> None:
        self._names = names
        self._classify = classify
        self._begun = False
        self._reason: str | None = None
        self._refused = False
        self._calls = False
        self._modern_calls = False  # then a legacy function_call beside them says nothing new
        self._usage: Usage | None = None
        self._answered = False  # a choice or usage was seen
        self.over = False
        self.complete = False

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one chunk of the protocol brings."""
        fields = as_object(payload)
        error = _error_in(payload, name)
        if error is not None:
            self._report_usage(fields, chunks)
            raise self._classify(error)
        before = len(chunks)
        self._read(fields, chunks)
        if len(chunks) == before and "choices" in fields:
            chunks.append(ALIVE)

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what a whole answer brings; one without choices is none."""
        self.read("", payload, chunks)
        self.complete = bool(as_list(as_object(payload).get("choices")))

    def read_mark(self, text: str) -> bool:
        """``[DONE]`` ends the answer, if one has come: two servers never send a finish reason."""
        if text != "[DONE]":
            return False
        self.over = self._answered
        return True

    def finish(self) -> Finish:
        """How the answer ended: finish reasons lie about calls; whether there are any does not."""
        reason: FinishReason = "stop" if self._reason is None else FINISH_REASONS.get(self._reason, "unknown")
        if self._refused:
            reason = "refusal"
        elif reason in ("stop", "tool_use", "unknown") and self._calls:
            reason = "tool_use"
        elif reason == "tool_use":
            reason = "stop"
        return Finish(reason, self._reason)

    # ----------------------------------------------------------------------------------------- content

    def _read(self, payload: JSONObject, chunks: list[ModelChunk]) -> None:
        for item in as_list(payload.get("choices")):
            choice = as_object(item)
            self._answered = True
            if choice.get("index") in (0, None):
                self._choice(choice, chunks)
        self._report_usage(payload, chunks)

    def _choice(self, choice: JSONObject, chunks: list[ModelChunk]) -> None:
        # A message beside a delta is the sum of what has come; alone it is the whole answer.
        whole = not isinstance(choice.get("delta"), dict)
        delta = as_object(choice.get("message" if whole else "delta"))
        before = len(chunks)
        self._read_reasoning(delta, chunks)
        self._read_content(delta.get("content"), chunks)
        self._read_refusal(as_text(delta.get("refusal")), chunks)
        self._read_calls(delta, chunks, whole)
        self._begun = self._begun or len(chunks) > before
        reason = as_text(choice.get("finish_reason"))
        # A later null erases nothing, and no later word makes a cut answer whole.
        if reason and FINISH_REASONS.get(self._reason or "") != "length":
            self._reason = reason
            self.complete = True
        if reason in FAILURES:
            raise ProviderError(f"the answer ended with {reason!r}", code=FAILURES[reason])
        if reason == "model_context_window_exceeded" and not self._begun:
            raise ProviderError("the request fills the context window", code="CONTEXT_OVERFLOW")

    def _read_reasoning(self, delta: JSONObject, chunks: list[ModelChunk]) -> None:
        text = as_text(delta.get("reasoning_content")) or as_text(delta.get("reasoning"))
        if not delta.get("reasoning_details"):
            if text:
                chunks.append(ReasoningChunk(text))
            return
        details = [as_object(item) for item in as_list(delta.get("reasoning_details"))]
        text = text or "".join(as_text(item.get("text")) or as_text(item.get("summary")) for item in details)
        signature = next(filter(None, (as_text(item.get("signature")) for item in details)), None)
        if text or signature:
            chunks.append(ReasoningChunk(text, signature))

    def _read_content(self, content: object, chunks: list[ModelChunk]) -> None:
        if isinstance(content, str):
            if content:
                chunks.append(TextChunk(content))
            return
        for item in as_list(content):
            part = as_object(item)
            thinking = part.get("thinking")
            thought = as_text(thinking) or "".join(as_text(as_object(x).get("text")) for x in as_list(thinking))
            if thought:
                chunks.append(ReasoningChunk(thought))
            self._read_refusal(as_text(part.get("refusal")), chunks)
            text = as_text(part.get("text"))
            if text:
                chunks.append(TextChunk(text))

    def _read_refusal(self, refusal: str, chunks: list[ModelChunk]) -> None:
        if refusal:
            self._refused = True
            chunks.append(TextChunk(refusal))

    def _read_calls(self, delta: JSONObject, chunks: list[ModelChunk], whole: bool) -> None:
        calls = as_list(delta.get("tool_calls"))
        self._modern_calls = self._modern_calls or bool(calls)
        for position, item in enumerate(calls):
            call = as_object(item)
            # In a whole message every item is a call of its own, whatever index it claims.
            index = position if whole else as_count(call.get("index"))
            self._read_call(call, as_object(call.get("function")), index, chunks)
        legacy = as_object(delta.get("function_call"))
        if legacy and not self._modern_calls:
            self._read_call({}, legacy, 0, chunks)

    def _read_call(self, call: JSONObject, function: JSONObject, index: int | None, chunks: list[ModelChunk]) -> None:
        id, given = call.get("id"), function.get("arguments")
        id = str(id) if isinstance(id, int) else as_text(id)
        name = self._names.to_original(as_text(function.get("name")))
        arguments = given if isinstance(given, str) else "" if given is None else dump(given).decode()
        if id or name or arguments:
            self._calls = True
            chunks.append(CallChunk(index, id, name, arguments))

    # ------------------------------------------------------------------------------- usage and the end

    def _report_usage(self, payload: JSONObject, chunks: list[ModelChunk]) -> None:
        told = as_object(payload.get("usage")) or as_object(as_object(payload.get("x_groq")).get("usage"))
        if not told:
            for choice in as_list(payload.get("choices")):
                told = told or as_object(as_object(choice).get("usage"))
        usage = read_usage(told) if told else None
        if usage is None:
            return
        self._answered = True
        if usage != self._usage:
            self._usage = usage
            chunks.append(UsageReport(usage))


def _error_in(payload: object, name: str) -> object:
    """The error that stands in a payload, in one of the shapes in which they stand inside an answer."""
    if has_error(payload, name):
        return payload
    fields = as_object(first_object(payload))
    places = [fields.get("x_groq"), *as_list(fields.get("choices"))]
    inner = next(filter(None, (as_object(place).get("error") for place in places)), None)
    return None if inner is None else {"error": inner}


def read_usage(usage: JSONObject) -> Usage | None:
    """Whole totals out of a usage object; ``None`` if it says nothing.

    Where the total is larger than its parts (xAI, Gemini's façade), the rest was hidden reasoning, which
    is output too.
    """
    sent = as_count(usage.get("prompt_tokens"))
    generated = as_count(usage.get("completion_tokens"))
    total = as_count(usage.get("total_tokens"))
    read = as_object(usage.get("prompt_tokens_details"))
    made = as_object(usage.get("completion_tokens_details"))
    cached = [read.get("cached_tokens"), usage.get("cached_tokens"), usage.get("prompt_cache_hit_tokens")]
    if sent is not None and total is not None:
        generated = max(generated or 0, total - sent)
    found = Usage(
        input=sent,
        output=generated,
        cache_read=next((count for count in map(as_count, cached) if count is not None), None),
        cache_write=as_count(read.get("cache_write_tokens")),
        reasoning=as_count(made.get("reasoning_tokens")),
    )
    return None if found == Usage() else found
