"""One answer of a chat completions server, from bytes to chunks; more forgiving than the vendor's own reader.

The finish reason is held back until the end, because usage comes after it; ``error`` is looked at before
``choices``; what is missing, null or of the wrong shape is no reason to fail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias, cast

from .._errors import MAX_BODY, ErrorCode, ProviderError
from .._messages import FinishReason
from .._model import CallChunk, Finish, ModelChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._classify import ErrorRule, classify
from ._json import JSONObject, as_count, as_list, as_object, as_text, dump, shorten
from ._names import WireNames
from ._redact import redact
from ._sse import MAX_EVENT, EventStreamDecoder, ServerSentEvent

__all__ = ["ChatResponse"]

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

NOT_CURED_BY_WAITING: Final[frozenset[ErrorCode]] = frozenset(
    {"AUTHENTICATION", "CONTENT_FILTER", "CONTEXT_OVERFLOW", "INVALID_REQUEST", "QUOTA_EXCEEDED"}
)

Framing: TypeAlias = Literal["events", "json", "other"]

ALIVE: Final = TextChunk("")
"""For an event that brings nothing to show; comments and pings do not count as a sign of life."""


class ChatResponse:
    """Reads one answer: a stream of events, or one JSON document from a server that does not stream.

    A failure is raised by the call *after* the one that returned the chunks before it, so none is lost;
    ``receive(b"")`` asks for it.  After :class:`Finish` whatever comes is ignored.
    """

    def __init__(self, content_type: str, names: WireNames, rules: Sequence[ErrorRule], vendor: str) -> None:
        self._content_type = content_type
        self._names = names
        self._rules = rules
        self._vendor = vendor
        self._framing = _framing(content_type)
        self._events = EventStreamDecoder()
        self._body = bytearray()
        self._failure: ProviderError | None = None
        self._begun = False  # something of the answer was handed out
        self._answered = False  # a choice or usage was seen
        self._finished = False
        self._reason: str | None = None
        self._refused = False
        self._calls = False
        self._modern_calls = False  # then a legacy function_call beside them says nothing new
        self._usage: Usage | None = None

    def receive(self, data: bytes) -> Sequence[ModelChunk]:
        """The chunks that ``data`` completes.

        Raises:
          ProviderError: the stream says that the call failed, or what came is not the protocol.
        """
        if self._failure is not None:
            raise self._failure
        if self._finished:
            return ()
        if self._framing != "events":
            self._collect(data)
            return ()
        chunks: list[ModelChunk] = []
        for event in self._events.receive(data):
            self._event(event, chunks)
            if self._over:
                break
        return self._handed_out(chunks)

    def end(self) -> Sequence[ModelChunk]:
        """The connection has ended: the chunks that were held back, :class:`Finish` last.

        Raises:
          ProviderError: ``PARTIAL_STREAM`` if it ended too early, ``PROVIDER_DISCONNECT`` if nothing came.
        """
        if self._failure is not None:
            raise self._failure
        if self._finished:
            return ()
        chunks: list[ModelChunk] = []
        if self._framing == "other":
            raise self._foreign()
        if self._framing == "json":
            self._document(chunks)
        else:
            for event in self._events.end():
                self._event(event, chunks, torn=True)
        if self._failure is not None:
            raise self._failure
        if not self._finished:
            if self._reason is None:
                raise self._too_early()
            self._finish(chunks)
        return chunks

    # ----------------------------------------------------------------------------------------- framing

    @property
    def _over(self) -> bool:
        return self._finished or self._failure is not None

    def _handed_out(self, chunks: list[ModelChunk]) -> Sequence[ModelChunk]:
        if self._failure is not None and not chunks:
            raise self._failure
        return chunks

    def _collect(self, data: bytes) -> None:
        self._body += data
        if self._framing == "other" and len(self._body) >= MAX_BODY:
            raise self._foreign()
        if len(self._body) > MAX_EVENT:
            raise ProviderError(f"the answer is longer than {MAX_EVENT} bytes", retryable=False)

    def _foreign(self) -> ProviderError:
        """Another content type: most often a proxy's page, or an address that is not an API's."""
        if not self._content_type and not self._body:
            return self._too_early()
        preview = redact(bytes(self._body[:MAX_BODY]).decode("utf-8", "replace"))
        told = f"expected a stream of events or JSON, but the content type is {self._content_type or 'missing'!r}"
        return ProviderError(f"{told}: {shorten(preview, 200)!r}", retryable=False, body=preview)

    def _too_early(self) -> ProviderError:
        if self._begun or (self._framing == "json" and self._body):
            return ProviderError("the stream ended before the answer was complete", code="PARTIAL_STREAM")
        return ProviderError("the connection ended before an answer had come", code="PROVIDER_DISCONNECT")

    def _document(self, chunks: list[ModelChunk]) -> None:
        try:
            value = cast(object, json.loads(self._body))
        except (ValueError, RecursionError):
            raise self._too_early() from None
        if self._is_failure(value, named=False):
            self._fail(bytes(self._body))
            return
        self._payload(as_object(value), chunks)
        if self._failure is None and not as_list(as_object(value).get("choices")):
            self._failure = ProviderError(
                "the answer has no choices", retryable=False, body=redact(self._body.decode("utf-8", "replace"))
            )
        elif self._failure is None:
            self._finish(chunks)

    def _event(self, event: ServerSentEvent, chunks: list[ModelChunk], *, torn: bool = False) -> None:
        data = event.data
        if not data.strip() or event.name == "ping":
            return
        if data.strip() == "[DONE]":
            if self._answered:
                self._finish(chunks)
            return
        try:
            payload = cast(object, json.loads(data))
        except (ValueError, RecursionError) as error:
            if not torn:
                self._interrupt(ProviderError(f"an event of the stream is not JSON: {error}", body=redact(data)))
            return
        before = len(chunks)
        if self._is_failure(payload, named=event.name == "error"):
            self._report_usage(as_object(payload), chunks)
            self._fail(data.encode("utf-8", "replace"))
            return
        self._payload(as_object(payload), chunks)
        if len(chunks) == before and "choices" in as_object(payload):
            chunks.append(ALIVE)

    # ------------------------------------------------------------------------------------------ errors

    def _is_failure(self, payload: object, *, named: bool) -> bool:
        """Whether it is an error in one of the shapes in which they stand inside an answer."""
        if isinstance(payload, list):
            payload = next(iter(as_list(cast(object, payload))), None)
        fields = as_object(payload)
        if named or fields.get("error") or fields.get("object") == "error":
            return True
        if "x_groq" in fields and as_object(fields["x_groq"]).get("error"):
            return True
        for choice in as_list(fields.get("choices")):
            if as_object(choice).get("error"):
                return True
        return False

    def _fail(self, body: bytes) -> None:
        fields = as_object(cast(object, json.loads(body)))
        inner = as_object(fields.get("x_groq")).get("error") or next(
            filter(None, (as_object(choice).get("error") for choice in as_list(fields.get("choices")))), None
        )
        if inner and not fields.get("error"):
            body = dump({"error": inner})
        self._interrupt(classify(None, {}, body, rules=self._rules, vendor=self._vendor))

    def _interrupt(self, cause: ProviderError) -> None:
        """Keep the failure for the next call; after the first delta it is that of a torn stream."""
        if not self._begun:
            self._failure = cause
            return
        retryable = False if cause.code in NOT_CURED_BY_WAITING else cause.retryable
        self._failure = ProviderError(
            f"the stream failed after it had begun: {cause.code}: {cause.message}",
            code="PARTIAL_STREAM",
            status=cause.status,
            retry_after=cause.retry_after,
            retryable=retryable,
            body=cause.body,
        )
        self._failure.__cause__ = cause

    # ----------------------------------------------------------------------------------------- content

    def _payload(self, payload: JSONObject, chunks: list[ModelChunk]) -> None:
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
        if reason in FAILURES:
            self._interrupt(ProviderError(f"the answer ended with {reason!r}", code=FAILURES[reason]))
        elif reason == "model_context_window_exceeded" and not self._begun:
            self._interrupt(ProviderError("the request fills the context window", code="CONTEXT_OVERFLOW"))

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

    def _finish(self, chunks: list[ModelChunk]) -> None:
        self._finished = True
        chunks.append(Finish(self._finish_reason(), self._reason))

    def _finish_reason(self) -> FinishReason:
        if self._refused:
            return "refusal"
        reason: FinishReason = "stop" if self._reason is None else FINISH_REASONS.get(self._reason, "unknown")
        # Finish reasons lie about calls; whether there are any does not.
        if reason in ("stop", "tool_use", "unknown") and self._calls:
            return "tool_use"
        return "stop" if reason == "tool_use" else reason


def _framing(content_type: str) -> Framing:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return "events"
    return "json" if kind == "application/json" or kind.endswith("+json") else "other"


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
