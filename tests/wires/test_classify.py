"""The table of errors: status, type and text decide together, and look-alikes do not deceive it."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import Message, ModelRequest, ProviderError, wires
from trio_agent._errors import ErrorCode
from trio_agent._ports import Wire
from trio_agent.wires import RULES, ErrorRule, OpenAIChatWire, classify


def body(message: str = "Something.", **fields: object) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (301, "INVALID_REQUEST"),
        (400, "INVALID_REQUEST"),
        (401, "AUTHENTICATION"),
        (402, "QUOTA_EXCEEDED"),
        (403, "AUTHENTICATION"),
        (404, "INVALID_REQUEST"),
        (408, "TIMEOUT"),
        (409, "PROVIDER_ERROR"),
        (413, "INVALID_REQUEST"),
        (422, "INVALID_REQUEST"),
        (429, "RATE_LIMIT"),
        (500, "PROVIDER_ERROR"),
        (502, "PROVIDER_ERROR"),
        (503, "PROVIDER_ERROR"),
        (504, "TIMEOUT"),
        (529, "OVERLOADED"),
    ],
)
@pytest.mark.parametrize(
    "text", [b"", b"<html>Bad gateway</html>", body(), b'{"detail":"Something."}', b"[1]", b"null"]
)
def test_a_status_alone_has_a_code(status: int, code: ErrorCode, text: bytes) -> None:
    error = classify(status, {}, text)
    assert (error.code, error.status) == (code, status)


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (429, body("You exceeded your current quota.", type="insufficient_quota"), "QUOTA_EXCEEDED"),
        (429, body("You exceeded your current quota, please check your plan."), "RATE_LIMIT"),
        (400, body("Your credit balance is too low to access the API."), "QUOTA_EXCEEDED"),
        (503, body("The engine is currently overloaded, please try again later."), "OVERLOADED"),
        (500, body("The router is overloaded."), "PROVIDER_ERROR"),
        (503, body("Try later.", status="UNAVAILABLE", code=503), "OVERLOADED"),
        (503, body("Try later.", status="RESOURCE_EXHAUSTED"), "RATE_LIMIT"),
        (400, body("Filtered.", code="content_filter", innererror={"code": "x"}), "CONTENT_FILTER"),
        (400, body("No.", code=None, innererror={"code": "ResponsibleAIPolicyViolation"}), "CONTENT_FILTER"),
        (403, body("Your chosen model requires moderation and your input was flagged."), "CONTENT_FILTER"),
        (500, b'{"error":"error parsing tool call: raw=\'{\', err=unexpected end"}', "MALFORMED_TOOL_CALL"),
        (400, body("x", details=[{"reason": "API_KEY_INVALID"}]), "AUTHENTICATION"),
        (500, body("Internal.", status="DEADLINE_EXCEEDED"), "TIMEOUT"),
        (400, body("", message_="x", code="context_length_exceeded"), "CONTEXT_OVERFLOW"),
        (
            502,
            body("Provider returned error", metadata={"raw": "maximum context length is 9 tokens"}),
            "CONTEXT_OVERFLOW",
        ),
        (502, body("Upstream.", metadata={"raw": {"m": "maximum context length is 9"}}), "CONTEXT_OVERFLOW"),
    ],
)
def test_what_the_body_says_counts(status: int, text: bytes, code: ErrorCode) -> None:
    assert classify(status, {}, text).code == code


@pytest.mark.parametrize(
    ("status", "text", "code"),
    [
        (400, body("Invalid 'metadata.a': string too long.", code="string_above_max_length"), "INVALID_REQUEST"),
        (
            400,
            body("max_tokens is too large: 99999. This model's maximum context length is 8192 tokens."),
            "INVALID_REQUEST",
        ),
        (413, body("Request exceeds the maximum size", type="request_too_large"), "INVALID_REQUEST"),
        (400, body("Unexpected 429 in messages[0].content"), "INVALID_REQUEST"),
        (400, body("The file exceeds the limit of 20 MB"), "INVALID_REQUEST"),
        (429, body("Please reduce the prompt length.", type="rate_limit_error"), "RATE_LIMIT"),
        (401, body("maximum context length is 10 tokens"), "AUTHENTICATION"),
        (500, body("Failed to parse messages: {'content': 'maximum context length is 10'}"), "INVALID_REQUEST"),
        (500, body("The server failed to parse messages"), "PROVIDER_ERROR"),
        (400, b"", "INVALID_REQUEST"),
        (413, b"", "INVALID_REQUEST"),
    ],
)
def test_a_look_alike_is_not_taken_for_something_else(status: int, text: bytes, code: ErrorCode) -> None:
    assert classify(status, {}, text).code == code


def test_an_empty_body_is_an_overflow_only_of_the_vendor_that_means_it() -> None:
    assert classify(400, {}, b"", vendor="cerebras").code == "CONTEXT_OVERFLOW"
    assert classify(400, {}, body(), vendor="cerebras").code == "INVALID_REQUEST"
    assert OpenAIChatWire(vendor="cerebras").error(413, {}, b"").code == "CONTEXT_OVERFLOW"


def test_a_request_larger_than_the_whole_allowance_is_not_tried_again() -> None:
    error = classify(413, {}, body("Request too large for model on tokens per min (TPM)", code="rate_limit_exceeded"))
    assert (error.code, error.retryable) == ("RATE_LIMIT", False)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, body("Failed to call a function.", code="tool_use_failed", failed_generation="{")),
        (400, body("Tool choice is required, but model did not call a tool", code="tool_use_failed")),
        (500, b'{"error":"error parsing tool call: raw=\'{\', err=unexpected end"}'),
    ],
)
def test_a_bad_call_that_the_server_keeps_for_itself_may_be_asked_for_again(status: int, text: bytes) -> None:
    assert classify(status, {}, text).retryable is True
    assert classify(None, {}, text).retryable is True
    assert classify(status, {"x-should-retry": "false"}, text).retryable is False


@pytest.mark.parametrize(("said", "retryable"), [("true", True), ("false", False), ("perhaps", None), ("", None)])
def test_the_provider_s_word_on_retrying_overrides_the_table(said: str, retryable: bool | None) -> None:
    assert classify(500, {"X-Should-Retry": said}, body()).retryable is retryable
    assert classify(409, {"x-should-retry": said}, body()).retryable is (True if retryable is None else retryable)


def test_a_redirect_names_where_it_points() -> None:
    assert "'https://elsewhere.example/v1'" in classify(308, {"Location": "https://elsewhere.example/v1"}, b"").message


@pytest.mark.parametrize("name", [name for name in wires.__all__ if name.endswith("Wire")])
def test_the_table_of_every_wire_can_be_extended_in_front(name: str) -> None:
    rule = ErrorRule("OVERLOADED", pattern=re.compile("gpu fell off"), retryable=False)
    wire: Wire = getattr(wires, name)(rules=(rule, *RULES))
    told = body("The gpu fell off the bus.", type="rate_limit_error")
    error = wire.error(429, {}, told)
    assert (error.code, error.retryable) == ("OVERLOADED", False)
    assert wire.error(429, {}, body()).code == "RATE_LIMIT"
    response = wire.response(ModelRequest((Message("user", "Hello."),)), "text/event-stream")
    with pytest.raises(ProviderError) as caught:
        response.receive(b"data: " + told + b"\n\n")
    assert (caught.value.code, caught.value.retryable) == ("OVERLOADED", False)


@pytest.mark.parametrize("status", [200, 429, 502])
def test_an_error_inside_of_an_answer_is_classified_by_the_status_that_it_names(status: int) -> None:
    error = classify(None, {}, body(code=status))
    assert (error.code, error.status) == (
        "RATE_LIMIT" if status == 429 else "PROVIDER_ERROR",
        status if status > 299 else None,
    )


def test_what_is_kept_of_a_body_is_bounded_and_holds_no_key() -> None:
    key = "sk-proj-abcdefghijklmnop"
    error = classify(401, {}, body(f"Incorrect API key provided: {key}. " + "x" * 100_000))
    assert key not in f"{error} {error.body} {error!r}"
    assert "Incorrect API key provided: [redacted]" in error.message
    assert len(error.message) < 1_000
    assert error.body is not None
    assert len(error.body) < 3_000


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "message", "code", "type", "status", "details", "metadata", "raw", "innererror"]),
            inner,
        )
    ),
    max_leaves=12,
)


@given(st.none() | st.integers(300, 599), json_values.map(lambda value: json.dumps(value).encode()) | st.binary())
def test_no_body_is_too_strange(status: int | None, text: bytes) -> None:
    error = classify(status, {}, text)
    assert error.status == status or status is None
    assert error.message
