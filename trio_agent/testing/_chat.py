"""The server's side of OpenAI chat completions: a request read as ours, our chunks written as its stream.

Pure; read from the chat completions reference (streaming) and from recorded traffic.  Left out: answers
that are not streamed, several choices, audio, log probabilities.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias, cast

from .._errors import ErrorCode, ProviderError
from .._messages import (
    Block,
    File,
    FinishReason,
    Image,
    Message,
    NativeBlock,
    Reasoning,
    ResultBlock,
    Text,
    ToolCall,
    ToolResult,
)
from .._model import (
    CallChunk,
    Finish,
    ModelChunk,
    ModelRequest,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    ToolSpec,
    Usage,
    UsageReport,
)
from .._options import Sampling

__all__ = ["ChatStream", "error_body", "error_headers", "error_status", "read_request"]

_Json: TypeAlias = Mapping[str, Any]  # Any: JSON that somebody sent

# ------------------------------------------------------------------------------------------- requests


def read_request(body: _Json) -> ModelRequest:
    """The request that a body says; it has passed ``check_chat_body``."""
    system: list[str] = []
    messages: list[Message] = []
    for message in cast("list[_Json]", body["messages"]):
        role, content = message["role"], message.get("content")
        if role == "user":
            messages.append(Message("user", tuple(_blocks(content))))
        elif role == "assistant":
            messages.append(Message("assistant", tuple(_spoken(message))))
        elif role == "tool":
            result = ToolResult(message["tool_call_id"], tuple(_blocks(content)))
            if messages[-1].role == "tool":
                messages[-1] = Message("tool", (*messages[-1].content, result))
            else:
                messages.append(Message("tool", (result,)))
        else:
            system.extend(block.text for block in _blocks(content) if isinstance(block, Text))
    choice = body.get("tool_choice") or "auto"
    return ModelRequest(
        messages,
        system="\n\n".join(system) or None,
        tools=tuple(_tools(body)),
        tool_choice=choice if isinstance(choice, str) else choice["function"]["name"],
        sampling=_sampling(body),
        reasoning=body.get("reasoning_effort"),
        turn=1 + sum(message.role == "assistant" for message in messages),
    )


def _blocks(content: object) -> Iterator[ResultBlock]:
    if isinstance(content, str):
        yield Text(content)
        return
    for part in cast("list[_Json]", content):
        match part:
            case {"type": "text", "text": str(text)}:
                yield Text(text)
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                yield _image(url)
            case {"type": "file", "file": {"file_data": str(url), **more}}:
                media_type, data = _inline(url)
                name = more.get("filename")
                yield File(media_type, data, name=name if isinstance(name, str) else None)
            case _:
                raise AssertionError(f"a part of type {part.get('type')!r} is not understood here")


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image("", url=url)
    return Image(*_inline(url))


def _inline(url: str) -> tuple[str, bytes]:
    """The media type and the bytes of a ``data:`` address."""
    head, _, data = url.partition(",")
    return head.removeprefix("data:").removesuffix(";base64"), base64.b64decode(data)


def _spoken(message: _Json) -> Iterator[Block]:
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if reasoning:
        yield Reasoning(reasoning)
    content = message.get("content")
    if content:
        yield from _blocks(content)
    for asked in message.get("tool_calls") or ():
        function = asked["function"]
        yield ToolCall(asked["id"], function["name"], function["arguments"])


def _tools(body: _Json) -> Iterator[ToolSpec]:
    for tool in body.get("tools") or ():
        function = tool["function"]
        yield ToolSpec(function["name"], function.get("description") or "", function["parameters"])


def _sampling(body: _Json) -> Sampling:
    stop = body.get("stop") or ()
    return Sampling(
        max_tokens=body.get("max_completion_tokens", body.get("max_tokens")),
        temperature=body.get("temperature"),
        top_p=body.get("top_p"),
        stop=(stop,) if isinstance(stop, str) else tuple(stop),
        seed=body.get("seed"),
    )


# -------------------------------------------------------------------------------------------- answers

_FINISH: Final[Mapping[FinishReason, str]] = {"tool_use": "tool_calls", "refusal": "content_filter"}


class ChatStream:
    """Writes our chunks as server-sent events.

    Args:
      number: of the answer; its id is made from it.
      model: the model's name.
      usage: whether the request asked for usage in the stream.
    """

    def __init__(self, number: int, model: str, *, usage: bool) -> None:
        self._head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 0, "model": model}
        self._wants_usage = usage
        self._usage: Usage | None = None
        self.finished = False

    def begin(self) -> bytes:
        """What stands before the first chunk."""
        return self._delta({"role": "assistant", "content": ""})

    def chunk(self, chunk: ModelChunk) -> bytes:
        """The events that say ``chunk``; none for a report of usage, which comes at the end."""
        match chunk:
            case TextChunk():
                return self._delta({"content": chunk.text})
            case ReasoningChunk():
                # this protocol has no place for a signature
                return self._delta({"reasoning_content": chunk.text})
            case CallChunk():
                return self._delta({"tool_calls": [_call_delta(chunk)]})
            case UsageReport():
                known = self._usage
                self._usage = chunk.usage if chunk.cumulative or known is None else known + chunk.usage
                return b""
            case Finish():
                return self._finish(chunk)
            case NativeChunk(block=NativeBlock(provider=provider)):
                raise TypeError(f"chat completions have no place for a native block of {provider}")

    def failure(self, error: ProviderError) -> bytes:
        """The events of a failure after the answer began."""
        return _event({"error": error_body(error)["error"]})

    def _finish(self, finish: Finish) -> bytes:
        self.finished = True
        reason = finish.raw or _FINISH.get(finish.reason, finish.reason)
        events = self._delta({}, reason)
        if self._wants_usage:
            usage = None if self._usage is None else _usage(self._usage)
            events += _event({**self._head, "choices": [], "usage": usage})
        return events + b"data: [DONE]\n\n"

    def _delta(self, delta: _Json, finish_reason: str | None = None) -> bytes:
        return _event({**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


def _event(data: _Json) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def _call_delta(chunk: CallChunk) -> _Json:
    delta: dict[str, Any] = {} if chunk.index is None else {"index": chunk.index}  # Any: JSON
    function: dict[str, str] = {"arguments": chunk.arguments}
    if chunk.id or chunk.name:
        delta |= {"id": chunk.id, "type": "function"}
        function = {"name": chunk.name, **function}
    return {**delta, "function": function}


def _usage(usage: Usage) -> _Json:
    known: dict[str, Any] = {}  # Any: JSON
    if usage.input is not None:
        known["prompt_tokens"] = usage.input
    if usage.output is not None:
        known["completion_tokens"] = usage.output
    if usage.input is not None and usage.output is not None:
        known["total_tokens"] = usage.input + usage.output
    if usage.cache_read is not None:
        known["prompt_tokens_details"] = {"cached_tokens": usage.cache_read}
    if usage.reasoning is not None:
        known["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return known


# --------------------------------------------------------------------------------------------- errors

_ERRORS: Final[Mapping[ErrorCode, tuple[int, str, str | None]]] = {
    # code -> status, type, code of the body
    "AUTHENTICATION": (401, "invalid_request_error", "invalid_api_key"),
    "CONTENT_FILTER": (400, "invalid_request_error", "content_filter"),
    "CONTEXT_OVERFLOW": (400, "invalid_request_error", "context_length_exceeded"),
    "INVALID_REQUEST": (400, "invalid_request_error", None),
    "OVERLOADED": (503, "overloaded_error", None),
    "QUOTA_EXCEEDED": (429, "insufficient_quota", "insufficient_quota"),
    "RATE_LIMIT": (429, "rate_limit_error", "rate_limit_exceeded"),
    "TIMEOUT": (504, "server_error", None),
}
"""How a code is said; any other one is a server error, 500."""


def error_status(error: ProviderError) -> int:
    """The HTTP status that says ``error``."""
    if error.status is not None:
        return error.status
    return _ERRORS.get(error.code, (500, "", None))[0]


def error_body(error: ProviderError) -> dict[str, Any]:  # Any: JSON
    """The body that says ``error``."""
    _, kind, code = _ERRORS.get(error.code, (500, "server_error", None))
    return {"error": {"message": error.message, "type": kind, "param": None, "code": code}}


def error_headers(error: ProviderError) -> list[tuple[str, str]]:
    """The headers that say when, and whether, to try again."""
    headers: list[tuple[str, str]] = []
    if error.retry_after is not None:
        if error.retry_after == int(error.retry_after):
            headers.append(("retry-after", str(int(error.retry_after))))
        else:
            headers.append(("retry-after-ms", f"{error.retry_after * 1000:g}"))
    if error.retryable is not None:
        headers.append(("x-should-retry", str(error.retryable).lower()))
    return headers
