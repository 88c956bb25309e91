"""One answer of Ollama, from lines to chunks: each holds what is new, calls come whole, the last line says ``done``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from .._messages import FinishReason
from .._model import CallChunk, Finish, ModelChunk, ReasoningChunk, TextChunk, Usage, UsageReport
from ._answer import ALIVE, has_error
from ._classify import Classify
from ._json import JSONObject, as_count, as_list, as_object, as_text
from ._names import WireNames

__all__ = ["OllamaGrammar"]

FINISH_REASONS: Final[Mapping[str, FinishReason]] = {"stop": "stop", "length": "length"}
"""``load`` and ``unload`` answer a request without messages, which is never sent: they are unknown."""


class OllamaGrammar:
    """What the lines of an answer mean."""

    field = "message"
    __slots__ = ("_calls", "_classify", "_names", "_reason", "complete", "over")

    def __init__(self, names: WireNames, classify: Classify) -> None:
        self._names = names
        self._classify = classify
        self._calls = 0
        self._reason: str | None = None
        self.over = False
        self.complete = False

    def read(self, name: str, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what one line brings."""
        if has_error(payload, name):
            raise self._classify(payload)
        fields = as_object(payload)
        message = as_object(fields.get("message"))
        before = len(chunks)
        thought = as_text(message.get("thinking"))
        if thought:
            chunks.append(ReasoningChunk(thought))
        text = as_text(message.get("content"))
        if text:
            chunks.append(TextChunk(text))
        for call in as_list(message.get("tool_calls")):
            self._read_call(as_object(call), chunks)
        if len(chunks) == before and message:
            chunks.append(ALIVE)
        if fields.get("done") is True:
            self._read_end(fields, chunks)

    def read_document(self, payload: object, chunks: list[ModelChunk]) -> None:
        """Add what a whole answer brings: it has the form of a last line."""
        self.read("", payload, chunks)
        self.complete = self.complete and "message" in as_object(payload)

    def read_mark(self, text: str) -> bool:
        """The protocol has no marks."""
        return False

    def finish(self) -> Finish:
        """How the answer ended; with calls the server says ``stop``."""
        reason: FinishReason = "stop" if self._reason is None else FINISH_REASONS.get(self._reason, "unknown")
        return Finish("tool_use" if self._calls and reason in ("stop", "unknown") else reason, self._reason)

    def _read_call(self, call: JSONObject, chunks: list[ModelChunk]) -> None:
        # A call is whole: its place in the answer, and no index that a server may repeat, tells it from the others.
        function = as_object(call.get("function"))
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
        name = self._names.to_original(as_text(function.get("name")))
        if name or arguments:
            chunks.append(CallChunk(self._calls, as_text(call.get("id")), name, arguments))
            self._calls += 1

    def _read_end(self, fields: JSONObject, chunks: list[ModelChunk]) -> None:
        self.over = self.complete = True
        self._reason = as_text(fields.get("done_reason")) or None
        # Older servers may not count a prompt that was cached: unknown, and not 0.  Newer ones count all of it.
        usage = Usage(
            as_count(fields.get("prompt_eval_count")),
            as_count(fields.get("eval_count")),
            as_count(fields.get("prompt_eval_cached_count")),
        )
        if usage != Usage():
            chunks.append(UsageReport(usage))
