"""One answer over HTTP, from bytes to payloads, whatever the vendor: framing, failures and the end.

Knows no vendor.  A :class:`Grammar` says what the payloads mean; this says when the answer is complete, when it
was torn, and that a failure is raised after the chunks that came before it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, Literal, Protocol, TypeAlias, cast

from .._errors import MAX_BODY, ErrorCode, ProviderError
from .._model import CallChunk, Finish, ModelChunk, NativeChunk, ReasoningChunk, TextChunk
from ._json import as_list, as_object, shorten
from ._lines import LineDecoder
from ._redact import redact
from ._sse import MAX_EVENT, EventStreamDecoder, ServerSentEvent

__all__ = ["ALIVE", "AnswerReader", "Grammar", "first_object", "has_error"]

NOT_CURED_BY_WAITING: Final[frozenset[ErrorCode]] = frozenset(
    {"AUTHENTICATION", "CONTENT_FILTER", "CONTEXT_OVERFLOW", "INVALID_REQUEST", "QUOTA_EXCEEDED"}
)

Framing: TypeAlias = Literal["events", "lines", "document", "other"]

ALIVE: Final = TextChunk("")
"""What a grammar adds for a payload of the answer that brings nothing to show: the model is at work.  Comments and
pings are no sign of life."""

SHOWN: Final = (TextChunk, ReasoningChunk, CallChunk, NativeChunk)
"""After one of these the answer has begun: it can be torn, and not just fail."""


class Grammar(Protocol):
    """What the payloads of one answer mean.  Made anew for each answer."""

    @property
    def field(self) -> str:
        """What an answer that is not streamed must have."""
        ...

    over: bool
    """The answer has said that it is complete, and nothing that matters follows."""
    complete: bool
    """It may end here: the connection's end is the answer's."""

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one payload brings.

        Args:
          name: of the event; empty if it has none.
          payload: JSON of any shape.

        Raises:
          ProviderError: it says that the call failed.  What was added before stands.
        """
        ...

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what an answer that was not streamed brings; it raises as :meth:`read` does."""
        ...

    def read_mark(self, text: str) -> bool:
        """Whether an event's data, which is no JSON, is a mark of the protocol, such as ``[DONE]``."""
        ...

    def finish(self) -> Finish:
        """How the answer ended."""
        ...


class AnswerReader:
    """Reads one answer: a stream of events, lines of JSON, or one document from a server that does not stream.

    A failure is raised by the call *after* the one that returned the chunks before it, so none is lost;
    ``receive(b"")`` asks for it.  After :class:`Finish` whatever comes is ignored.
    """

    __slots__ = (
        "_begun",
        "_body",
        "_content_type",
        "_events",
        "_failure",
        "_finished",
        "_framing",
        "_grammar",
        "_lines",
    )

    def __init__(self, content_type: str, grammar: Grammar) -> None:
        self._content_type = content_type
        self._grammar = grammar
        self._framing: Framing = _framing(content_type)
        self._events = EventStreamDecoder()
        self._lines = LineDecoder()
        self._body = bytearray()
        self._failure: ProviderError | None = None
        self._begun = False  # something of the answer was handed out
        self._finished = False

    def receive(self, data: bytes) -> Sequence[ModelChunk]:
        """The chunks that ``data`` completes.

        Raises:
          ProviderError: the stream says that the call failed, or what came is not the protocol.
        """
        if self._failure is not None:
            raise self._failure
        if self._finished:
            return ()
        if self._framing in ("document", "other"):
            self._collect(data)
            return ()
        chunks: list[ModelChunk] = []
        if self._framing == "events":
            for event in self._events.receive(data):
                self._event(event, chunks)
                if self._over:
                    break
        else:
            for line in self._lines.receive(data):
                self._payload("", line, chunks)
                if self._over:
                    break
        if self._failure is not None and not chunks:
            raise self._failure
        return chunks

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
        match self._framing:
            case "other":
                raise self._foreign()
            case "document":
                self._document(chunks)
            case "events":
                for event in self._events.end():
                    self._event(event, chunks, torn=True)
            case "lines":
                for line in self._lines.end():
                    self._payload("", line, chunks, torn=True)
        if self._failure is not None:
            raise self._failure
        if not self._finished:
            if not self._grammar.complete:
                raise self._too_early()
            self._finish(chunks)
        return chunks

    @property
    def _over(self) -> bool:
        return self._finished or self._failure is not None

    # --- framing -------------------------------------------------------------------------------------

    def _event(self, event: ServerSentEvent, chunks: list[ModelChunk], *, torn: bool = False) -> None:
        if not event.data.strip() or event.name == "ping":
            return
        if self._grammar.read_mark(event.data.strip()):
            if self._grammar.over:
                self._finish(chunks)
            return
        self._payload(event.name, event.data, chunks, torn=torn)

    def _payload(self, name: str, text: str, chunks: list[ModelChunk], *, torn: bool = False) -> None:
        if self._over or not text.strip():
            return
        try:
            payload = cast(object, json.loads(text))
        except (ValueError, RecursionError) as error:
            if not torn:
                told = f"a part of the stream is not JSON: {error}"
                self._interrupt(ProviderError(told, body=redact(text[:MAX_BODY])))
            return
        before = len(chunks)
        try:
            self._grammar.read(name, payload, chunks)
        except ProviderError as error:
            self._see(chunks, before)
            self._interrupt(error)
            return
        self._see(chunks, before)
        if self._grammar.over:
            self._finish(chunks)

    def _document(self, chunks: list[ModelChunk]) -> None:
        try:
            value = cast(object, json.loads(self._body))
        except (ValueError, RecursionError):
            raise self._too_early() from None
        try:
            self._grammar.read_document(value, chunks)
        except ProviderError as error:
            self._failure = error
            return
        if not self._grammar.complete:
            body = redact(bytes(self._body[:MAX_BODY]).decode("utf-8", "replace"))
            self._failure = ProviderError(f"the answer has no {self._grammar.field}", retryable=False, body=body)
            return
        self._finish(chunks)

    def _collect(self, data: bytes) -> None:
        self._body += data
        if self._framing == "other" and len(self._body) >= MAX_BODY:
            raise self._foreign()
        if len(self._body) > MAX_EVENT:
            raise ProviderError(f"the answer is longer than {MAX_EVENT} bytes", retryable=False)

    # --- how it ends ---------------------------------------------------------------------------------

    def _see(self, chunks: list[ModelChunk], before: int) -> None:
        if not self._begun:
            self._begun = any(isinstance(chunk, SHOWN) and chunk is not ALIVE for chunk in chunks[before:])

    def _finish(self, chunks: list[ModelChunk]) -> None:
        self._finished = True
        chunks.append(self._grammar.finish())

    def _foreign(self) -> ProviderError:
        """Another content type: most often a proxy's page, or an address that is not an API's."""
        if not self._content_type and not self._body:
            return self._too_early()
        preview = redact(bytes(self._body[:MAX_BODY]).decode("utf-8", "replace"))
        told = f"expected a stream of events or JSON, but the content type is {self._content_type or 'missing'!r}"
        return ProviderError(f"{told}: {shorten(preview, 200)!r}", retryable=False, body=preview)

    def _too_early(self) -> ProviderError:
        if self._begun or (self._framing == "document" and self._body):
            return ProviderError("the stream ended before the answer was complete", code="PARTIAL_STREAM")
        return ProviderError("the connection ended before an answer had come", code="PROVIDER_DISCONNECT")

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


def first_object(payload: object) -> object:
    """The payload, or what an array around it begins with: some servers wrap errors in one."""
    return next(iter(as_list(cast(object, payload))), None) if isinstance(payload, list) else payload


def has_error(payload: object, name: str = "") -> bool:
    """Whether it is an error in one of the shapes that vendors share: look before anything else is read."""
    fields = as_object(first_object(payload))
    return name == "error" or bool(fields.get("error")) or "error" in (fields.get("object"), fields.get("type"))


def _framing(content_type: str) -> Framing:
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return "events"
    if kind in ("application/x-ndjson", "application/ndjson", "application/jsonl", "application/json-lines"):
        return "lines"
    return "document" if kind == "application/json" or kind.endswith("+json") else "other"
