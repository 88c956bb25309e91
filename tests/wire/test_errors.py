"""Every recorded or quoted error of a provider gets its stable code, and look-alikes do not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.wire.decoding import REQUEST, Outcome, decode
from tests.wire.recordings import ABSENT, FOLDER, RECORDINGS, Recording, quoted, recordings
from trio_agent._core._retry import is_retryable
from trio_agent._errors import ErrorCode, ProviderError
from trio_agent.wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire, classify

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

FULL = {"quoted-36", "quoted-37"}
"""No errors: an answer ended because it was full, and what has come of it is valid."""

ANOTHER_SAMPLE = {"err-groq-400-no-call", "err-groq-400-tool-use-failed"}
"""The server blames the request, but it was the model that wrote a bad call, and it may write a better one."""

IN_BAND = ("SSE chunk", "SSE event: error", "NDJSON line")

OF_THEIR_OWN: dict[str, Any] = {
    "anthropic": AnthropicWire,
    "gemini": GeminiWire,
    "ollama": OllamaWire,
    "openai-responses": OpenAIResponsesWire,
}


def wire_of(provider: str) -> Any:
    """The wire that a provider's errors come over: chat completions, unless it has a protocol of its own."""
    return OF_THEIR_OWN[provider]() if provider in OF_THEIR_OWN else OpenAIChatWire(vendor=provider)


def written(entry: dict[str, Any]) -> tuple[bytes, str]:
    """An error inside of an answer as it comes over the network, and the content type of that."""
    body = json.dumps(entry["body"]).encode()
    if entry["where"] == "NDJSON line":
        return body + b"\n", "application/x-ndjson"
    if entry["where"] == "terminal chunk":
        body = json.dumps({"choices": [{"index": 0, "delta": {}, **entry["body"]}]}).encode()
    event = b"event: error\n" if entry["where"] == "SSE event: error" else b""
    return event + b"data: " + body + b"\n\n", "text/event-stream"


def answered(entry: dict[str, Any], begun: bytes = b"") -> Outcome:
    """What an error inside of an answer comes to."""
    body, content_type = written(entry)
    return decode(begun + body, content_type, wire=wire_of(entry["provider"]))


def failure(entry: dict[str, Any]) -> ProviderError:
    """The error that an answer begins with."""
    body, content_type = written(entry)
    response = wire_of(entry["provider"]).response(REQUEST, content_type)
    try:
        response.receive(body)
        response.end()
    except ProviderError as error:
        return error
    pytest.fail("the answer is no error")


def is_error(recording: Recording) -> bool:
    return recording.folder == "errors" or recording.api == "error"


def is_overflow(entry: dict[str, Any]) -> bool:
    return entry["proposed_code"] == "CONTEXT_OVERFLOW" and entry["where"] == "http" and entry["body"] is not None


@pytest.mark.parametrize("recording", recordings(is_error))
def test_a_recorded_error_has_its_code(recording: Recording) -> None:
    assert recording.status is not None
    error = wire_of(recording.provider).error(recording.status, {}, recording.body)
    assert error.code == RECORDED[recording.id]
    assert error.status == recording.status
    assert is_retryable(error) == (error.code == "RATE_LIMIT" or recording.id in ANOTHER_SAMPLE)
    said = (recording.expected["error"].get("message") or "")[:60]
    assert said.strip()
    assert said in error.message or "[redacted]" in error.message


@pytest.mark.parametrize("recording", recordings(lambda found: found.id == "err-gemini-429-retryinfo"))
def test_the_wait_inside_of_a_body_is_found(recording: Recording) -> None:
    assert GeminiWire().error(429, {}, recording.body).retry_after == 34.4


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["id"] not in FULL))
def test_a_quoted_error_has_its_code(entry: dict[str, Any]) -> None:
    wanted = QUOTED.get(entry["id"], entry["proposed_code"])
    if entry["where"] != "http":
        outcome = answered(entry)
        assert (outcome.answer, outcome.code, outcome.finishes) == (None, wanted, 0)
        return
    body = b"" if entry["body"] is None else json.dumps(entry["body"]).encode()
    error = wire_of(entry["provider"]).error(entry["http_status"], entry.get("headers", {}), body)
    assert (error.code, error.status) == (wanted, entry["http_status"])
    assert is_retryable(error) is entry["retry_helps"]


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["where"] != "http" and entry["id"] not in FULL))
def test_waiting_helps_inside_of_an_answer_as_it_does_before_one(entry: dict[str, Any]) -> None:
    assert is_retryable(failure(entry)) is entry["retry_helps"]


ENDED: dict[str, bytes] = {
    "openai": b'{"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}',
    "anthropic": b'{"type":"message_delta","delta":{"stop_reason":"model_context_window_exceeded"}}',
}
STOPPED = b'data: {"type":"message_stop"}\n\n'


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["id"] in FULL))
def test_an_answer_that_became_too_long_keeps_what_has_come(entry: dict[str, Any]) -> None:
    provider = entry["provider"]
    end = ENDED[provider]
    [said] = entry["body"].values()
    assert json.dumps(said).encode() in end
    begun = BEGUN.get(provider, CHAT)
    outcome = decode(begun + b"data: " + end + b"\n\n" + STOPPED * (provider == "anthropic"), wire=wire_of(provider))
    assert outcome.answer is not None
    assert (outcome.answer.message.text, outcome.answer.message.finish_reason) == ("Once", "length")


BEGUN: dict[str, bytes] = {
    "anthropic": b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,'
    b'"delta":{"type":"text_delta","text":"Once"}}\n\n',
    "ollama": b'{"message":{"content":"Once"},"done":false}\n',
    "openai-responses": b'data: {"type":"response.output_text.delta","output_index":0,"content_index":0,"delta":"Once"}\n\n',
}
CHAT = b'data: {"choices":[{"index":0,"delta":{"content":"Once"}}]}\n\n'


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["where"] in IN_BAND))
def test_a_quoted_error_after_a_delta_is_a_torn_stream_that_names_its_cause(entry: dict[str, Any]) -> None:
    outcome = answered(entry, BEGUN.get(entry["provider"], CHAT))
    assert outcome.code == "PARTIAL_STREAM"
    assert outcome.shown == "Once"
    assert QUOTED.get(entry["id"], entry["proposed_code"]) in outcome.error
    error = entry["body"]["error"] if "error" in entry["body"] else entry["body"]
    assert (error if isinstance(error, str) else error["message"]) in outcome.error


@pytest.mark.parametrize("entry", quoted(is_overflow))
def test_an_overflow_is_an_overflow_whatever_the_status(entry: dict[str, Any]) -> None:
    for status in (400, 413, 422, 500, 502):
        assert classify(status, {}, json.dumps(entry["body"]).encode()).code == "CONTEXT_OVERFLOW"


@pytest.mark.skipif(not RECORDINGS, reason=ABSENT)
def test_none_is_left_out() -> None:
    recorded = [recording for recording in RECORDINGS if is_error(recording)]
    lines = (FOLDER / "errors" / "quoted.ndjson").read_text(encoding="utf-8").splitlines()
    ids = {json.loads(line)["id"] for line in lines}
    assert {recording.id for recording in recorded} == set(RECORDED)
    assert (len(recorded), len(ids)) == (25, 39)
    assert ids >= FULL | QUOTED.keys()
    print(f"recorded errors {len(recorded)} of {len(RECORDED)}, quoted {len(ids)} of 39, {len(FULL)} of them no errors")
