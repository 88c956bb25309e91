"""Every recorded or quoted error of a provider gets its stable code, and look-alikes do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.decoding import decode
from tests.wire.recordings import Recording, quoted, recordings
from trio_agent._errors import ErrorCode
from trio_agent.wires import OpenAIChatWire, classify

RECORDED: dict[str, ErrorCode] = {
    "err-anthropic-400-effort": "INVALID_REQUEST",
    "err-anthropic-404": "INVALID_REQUEST",
    "err-azure-401": "AUTHENTICATION",
    "err-azure-404-deployment": "INVALID_REQUEST",
    "err-cohere-404": "INVALID_REQUEST",
    "err-deepseek-400-history": "INVALID_REQUEST",
    "err-gemini-400-key": "AUTHENTICATION",
    "err-gemini-404": "INVALID_REQUEST",
    "err-gemini-429": "RATE_LIMIT",
    "err-gemini-429-retryinfo": "RATE_LIMIT",
    "err-groq-400-no-call": "MALFORMED_TOOL_CALL",
    "err-groq-400-tool-use-failed": "MALFORMED_TOOL_CALL",
    "err-groq-404": "INVALID_REQUEST",
    "err-ollama-404": "INVALID_REQUEST",
    "err-openai-400-history": "INVALID_REQUEST",
    "err-openai-400-temperature": "INVALID_REQUEST",
    "err-openai-401": "AUTHENTICATION",
    "err-openai-404-model": "INVALID_REQUEST",
    "err-openrouter-401": "AUTHENTICATION",
    "err-openrouter-429": "RATE_LIMIT",
    "llamacpp-bad-role": "INVALID_REQUEST",
    "llamacpp-bad-tools": "INVALID_REQUEST",
    "llamacpp-overflow": "CONTEXT_OVERFLOW",
    "llamacpp-python-null-content": "INVALID_REQUEST",
    "llamacpp-python-overflow": "CONTEXT_OVERFLOW",
}

QUOTED: dict[str, ErrorCode] = {
    "quoted-02": "OVERLOADED",
    "quoted-05": "OVERLOADED",
    "quoted-21": "PROVIDER_ERROR",
    "quoted-22": "PROVIDER_ERROR",
    "quoted-23": "PROVIDER_ERROR",
}
"""Where our names differ from the collection's older ones."""

OUTSIDE = {"quoted-36", "quoted-37"}
"""No errors: a finish reason ``length``, and one of another protocol."""


def is_error(recording: Recording) -> bool:
    return recording.folder == "errors" or recording.api == "error"


def is_overflow(entry: dict[str, Any]) -> bool:
    return entry["proposed_code"] == "CONTEXT_OVERFLOW" and entry["where"] == "http" and entry["body"] is not None


@pytest.mark.parametrize("recording", recordings(is_error))
def test_a_recorded_error_has_its_code(recording: Recording) -> None:
    assert recording.status is not None
    error = OpenAIChatWire().error(recording.status, {}, recording.body)
    assert error.code == RECORDED[recording.id]
    assert error.status == recording.status
    said = (recording.expected["error"].get("message") or "")[:60]
    assert said.strip()
    assert said in error.message or "[redacted]" in error.message


@pytest.mark.parametrize("recording", recordings(lambda found: found.id == "err-gemini-429-retryinfo"))
def test_the_wait_inside_of_a_body_is_found(recording: Recording) -> None:
    assert OpenAIChatWire().error(429, {}, recording.body).retry_after == 34.4


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["id"] not in OUTSIDE))
def test_a_quoted_error_has_its_code(entry: dict[str, Any]) -> None:
    wanted = QUOTED.get(entry["id"], entry["proposed_code"])
    body = b"" if entry["body"] is None else json.dumps(entry["body"]).encode()
    wire = OpenAIChatWire(vendor=entry["provider"])
    if entry["where"] == "http":
        error = wire.error(entry["http_status"], entry.get("headers", {}), body)
        assert (error.code, error.status) == (wanted, entry["http_status"])
        if wanted == "RATE_LIMIT":
            assert error.retryable is (None if entry["retry_helps"] else False)
        return
    if entry["where"] == "terminal chunk":
        body = json.dumps({"choices": [{"index": 0, "delta": {}, **entry["body"]}]}).encode()
    event = b"event: error\n" if entry["where"] == "SSE event: error" else b""
    outcome = decode(event + b"data: " + body + b"\n\n", wire=wire)
    assert (outcome.answer, outcome.code, outcome.finishes) == (None, wanted, 0)


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["where"] in ("SSE chunk", "SSE event: error")))
def test_a_quoted_error_after_a_delta_is_a_torn_stream_that_names_its_cause(entry: dict[str, Any]) -> None:
    event = b"event: error\n" if entry["where"] == "SSE event: error" else b""
    begun = b'data: {"choices":[{"index":0,"delta":{"content":"Once"}}]}\n\n'
    outcome = decode(begun + event + b"data: " + json.dumps(entry["body"]).encode() + b"\n\n")
    assert outcome.code == "PARTIAL_STREAM"
    assert outcome.shown == "Once"
    assert QUOTED.get(entry["id"], entry["proposed_code"]) in outcome.error
    assert entry["body"]["error"]["message"] in outcome.error


@pytest.mark.parametrize("entry", quoted(is_overflow))
def test_an_overflow_is_an_overflow_whatever_the_status(entry: dict[str, Any]) -> None:
    for status in (400, 413, 422, 500, 502):
        assert classify(status, {}, json.dumps(entry["body"]).encode()).code == "CONTEXT_OVERFLOW"
