"""What servers send in answer, and what becomes of it; the recordings have tests of their own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import FinishReason, Message
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelChunk,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent._ports import WireResponse
from trio_agent.wires import OpenAIChatWire

EVENTS = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def response(content_type: str = EVENTS) -> WireResponse:
    return OpenAIChatWire().response(ModelRequest((Message("user", "Hello."),)), content_type)


def event(payload: object, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(payload)}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]})


def read(*pieces: bytes, content_type: str = EVENTS) -> list[ModelChunk]:
    """All chunks, without signs of life."""
    reader = response(content_type)
    chunks = [chunk for piece in pieces for chunk in reader.receive(piece)]
    chunks += reader.end()
    return [chunk for chunk in chunks if chunk != TextChunk("")]


def failure(*pieces: bytes, content_type: str = EVENTS) -> tuple[list[ModelChunk], ProviderError]:
    """The chunks before the failure, and the failure."""
    reader = response(content_type)
    chunks: list[ModelChunk] = []

    def read_all() -> None:
        for piece in pieces:
            chunks.extend(reader.receive(piece))
            chunks.extend(reader.receive(b""))
        chunks.extend(reader.end())

    with pytest.raises(ProviderError) as caught:
        read_all()
    return [chunk for chunk in chunks if chunk != TextChunk("")], caught.value


def test_the_finish_is_held_back_until_the_usage_has_come() -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}})
    reader = response()
    assert list(reader.receive(delta(content="Hi"))) == [TextChunk("Hi")]
    assert Finish not in map(type, reader.receive(delta("stop")))
    assert list(reader.receive(usage)) == [UsageReport(Usage(3, 2))]
    assert list(reader.receive(DONE)) == [Finish("stop", "stop")]
    assert list(reader.receive(b"data: whatever\n\n")) == []
    assert list(reader.end()) == []


def test_an_event_without_content_is_a_sign_of_life_and_a_comment_is_none() -> None:
    reader = response()
    assert list(reader.receive(b": PROCESSING\n\n")) == []
    assert list(reader.receive(event({"type": "ping"}, "ping"))) == []
    assert list(reader.receive(delta(role="assistant", content=""))) == [TextChunk("")]
    assert list(reader.receive(event({"choices": [], "prompt_filter_results": []}))) == [TextChunk("")]


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", "stop"),
        ("eos", "stop"),
        ("length", "length"),
        ("max_tokens", "length"),
        ("content_filter", "refusal"),
        ("sensitive", "refusal"),
        ("tool_calls", "stop"),
        ("pause_turn", "pause"),
        ("whim", "unknown"),
    ],
)
def test_a_finish_reason_is_ours_and_keeps_the_provider_s_word(raw: str, reason: FinishReason) -> None:
    assert read(delta(content="Hi"), delta(raw), DONE)[-1] == Finish(reason, raw)


@pytest.mark.parametrize("raw", ["stop", "tool_calls", "function_call", "whim", None])
def test_whether_there_are_calls_counts_more_than_the_reason(raw: str | None) -> None:
    call = delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}])
    assert read(call, delta(raw), DONE)[-1] == Finish("tool_use", raw)


def test_a_call_that_was_cut_stays_cut() -> None:
    call = delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "look", "arguments": '{"a'}}])
    assert read(call, delta("length"), delta("stop"), delta(None), DONE)[-1] == Finish("length", "length")


def test_a_later_null_erases_nothing() -> None:
    assert read(delta("content_filter"), delta(None, content=""), DONE) == [Finish("refusal", "content_filter")]


def test_done_alone_is_an_end_and_the_reason_is_inferred() -> None:
    assert read(delta(content="Hi"), DONE) == [TextChunk("Hi"), Finish("stop", None)]


def test_a_finish_reason_alone_is_an_end_too() -> None:
    assert read(delta(content="Hi"), delta("stop")) == [TextChunk("Hi"), Finish("stop", "stop")]


def test_done_without_an_answer_is_no_end() -> None:
    assert failure(DONE)[1].code == "PROVIDER_DISCONNECT"


def test_a_refusal_is_text_with_a_reason_of_its_own() -> None:
    assert read(delta(refusal="I can"), delta(refusal="not."), delta("stop"), DONE) == [
        TextChunk("I can"),
        TextChunk("not."),
        Finish("refusal", "stop"),
    ]
    part = [{"type": "refusal", "refusal": "No."}]
    assert read(delta(content=part), delta("stop"))[-1] == Finish("refusal", "stop")


def test_reasoning_comes_in_every_form() -> None:
    details = [{"type": "reasoning.text", "text": "d", "signature": "s"}, {"type": "reasoning.summary", "summary": "e"}]
    assert read(
        delta(reasoning_content="a"),
        delta(reasoning="b", reasoning_details=[{"text": "b"}]),
        delta(reasoning_details=details),
        delta(
            content=[{"type": "thinking", "thinking": [{"type": "text", "text": "f"}]}, {"type": "text", "text": "x"}]
        ),
        delta(content=[{"type": "thinking", "thinking": "g"}]),
        delta(reasoning={"odd": 1}, reasoning_content=None),
        DONE,
    ) == [
        ReasoningChunk("a"),
        ReasoningChunk("b"),
        ReasoningChunk("de", "s"),
        ReasoningChunk("f"),
        TextChunk("x"),
        ReasoningChunk("g"),
        Finish("stop", None),
    ]


def test_only_the_first_choice_is_read() -> None:
    both = [{"index": 1, "delta": {"content": "B"}, "finish_reason": "stop"}, {"index": 0, "delta": {"content": "A"}}]
    assert read(event({"choices": both}), DONE) == [TextChunk("A"), Finish("stop", None)]


def test_pieces_of_calls_go_through_as_they_were_sent() -> None:
    assert read(
        delta(tool_calls=[{"index": 1, "id": "c1", "function": {"name": "look", "arguments": None}}]),
        delta(tool_calls=[{"index": 1, "id": None, "function": {"name": None, "arguments": '{"a"'}}]),
        delta(tool_calls=[{"id": 7, "function": {"name": "find", "arguments": {"x": 1}}}, None, {"index": True}]),
        DONE,
    ) == [
        CallChunk(1, "c1", "look", ""),
        CallChunk(1, "", "", '{"a"'),
        CallChunk(None, "7", "find", '{"x":1}'),
        Finish("tool_use", None),
    ]


def test_a_legacy_function_call_is_a_call_unless_it_stands_beside_one() -> None:
    legacy = {"name": "look", "arguments": "{}"}
    assert read(delta(function_call=legacy), delta("function_call"))[0] == CallChunk(0, "", "look", "{}")
    modern = [{"index": 0, "id": "c1", "function": legacy}]
    assert read(delta(function_call=legacy, tool_calls=modern), delta(function_call=legacy), DONE) == [
        CallChunk(0, "c1", "look", "{}"),
        Finish("tool_use", None),
    ]


def test_a_document_s_calls_are_separate_whatever_index_they_claim() -> None:
    calls = [{"index": 0, "id": "", "function": {"name": "look", "arguments": "{}"}}] * 2
    body = json.dumps(
        {"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": None}]}
    ).encode()
    assert read(body, content_type="application/json") == [
        CallChunk(0, "", "look", "{}"),
        CallChunk(1, "", "look", "{}"),
        Finish("tool_use", None),
    ]


def test_a_message_beside_a_delta_is_not_read_twice() -> None:
    choice = {"index": 0, "delta": {"content": "b"}, "message": {"content": "ab"}}
    assert read(event({"choices": [choice]}), DONE)[0] == TextChunk("b")


@pytest.mark.parametrize(
    ("usage", "ours"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}, Usage(5, 3)),
        ({"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 20}, Usage(5, 15)),
        ({"prompt_tokens": 5, "completion_tokens": 3, "prompt_cache_hit_tokens": 2}, Usage(5, 3, 2)),
        ({"prompt_tokens": 5, "completion_tokens": 3, "cached_tokens": 0}, Usage(5, 3, 0)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 3,
                "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 2},
            },
            Usage(5, 3, 4, 1, 2),
        ),
        ({"prompt_tokens": 5.0, "completion_tokens": "3", "prompt_tokens_details": None}, Usage(5)),
        ({"prompt_tokens": True, "completion_tokens": -1}, None),
        ({}, None),
    ],
)
def test_usage_is_whole_and_unknown_is_not_zero(usage: dict[str, Any], ours: Usage | None) -> None:
    reports = [] if ours is None else [UsageReport(ours)]
    for payload in (
        {"choices": [], "usage": usage},
        {"choices": [], "usage": None, "x_groq": {"usage": usage}},
        {"choices": [{"index": 0, "delta": {}, "usage": usage}]},
    ):
        assert read(event(payload), delta("stop"))[:-1] == reports


def test_the_last_total_counts_and_one_that_says_the_same_is_not_reported_again() -> None:
    totals = [event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": n}}) for n in (1, 1, 2)]
    assert read(*totals, delta("stop"))[:-1] == [UsageReport(Usage(5, 1)), UsageReport(Usage(5, 2))]


# ------------------------------------------------------------------------------------------------ errors


ERROR = {"message": "Overloaded", "type": "overloaded_error"}


@pytest.mark.parametrize(
    "payload",
    [
        {"error": ERROR},
        {"error": ERROR, "choices": []},
        {"error": ERROR, "choices": [{"index": 0, "delta": {"content": "ignored"}}]},
        {"object": "error", **ERROR},
        [{"error": ERROR}],
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "error", "error": ERROR}]},
        {"x_groq": {"error": ERROR}, "choices": [{"index": 0, "delta": {}}]},
    ],
)
def test_an_error_inside_of_a_stream_is_an_error_in_every_shape(payload: object) -> None:
    chunks, error = failure(event(payload))
    assert (chunks, error.code) == ([], "OVERLOADED")
    chunks, error = failure(delta(content="Once") + event(payload) + DONE)
    assert (chunks, error.code) == ([TextChunk("Once")], "PARTIAL_STREAM")
    assert isinstance(error.__cause__, ProviderError)
    assert error.__cause__.code == "OVERLOADED"
    assert "OVERLOADED" in error.message
    assert "Overloaded" in error.message


def test_an_event_named_error_is_one_whatever_it_holds() -> None:
    assert failure(event({"message": "Bad key", "code": "invalid_api_key"}, "error"))[1].code == "AUTHENTICATION"


@pytest.mark.parametrize("payload", [{"error": None}, {"error": {}}, {"error": ""}])
def test_an_error_that_is_empty_is_none(payload: dict[str, Any]) -> None:
    assert read(event({**payload, "choices": [{"delta": {"content": "Hi"}}]}), DONE)[0] == TextChunk("Hi")


def test_what_was_used_before_an_error_is_reported() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 1}
    chunks, error = failure(delta(content="Once") + event({"error": {"message": "x", "code": 502}, "usage": usage}))
    assert chunks == [TextChunk("Once"), UsageReport(Usage(5, 1))]
    assert (error.code, error.status) == ("PARTIAL_STREAM", 502)


@pytest.mark.parametrize(("code", "retryable"), [("invalid_request_error", False), ("server_error", None)])
def test_a_torn_stream_is_not_tried_again_if_its_cause_would_come_again(code: str, retryable: bool | None) -> None:
    _, error = failure(delta(content="Once"), event({"error": {"message": "x", "type": code}}))
    assert (error.code, error.retryable) == ("PARTIAL_STREAM", retryable)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ("error", "PROVIDER_ERROR"),
        ("network_error", "PROVIDER_ERROR"),
        ("insufficient_system_resource", "OVERLOADED"),
        ("model_context_window_exceeded", "CONTEXT_OVERFLOW"),
    ],
)
def test_a_finish_reason_may_be_an_error(raw: str, code: ErrorCode) -> None:
    assert failure(delta(raw), DONE)[1].code == code


def test_a_window_that_fills_up_while_the_model_writes_cuts_the_answer() -> None:
    raw = "model_context_window_exceeded"
    assert read(delta(content="Once"), delta(raw), DONE) == [TextChunk("Once"), Finish("length", raw)]


def test_a_failure_is_raised_again() -> None:
    reader = response()
    for call in (lambda: reader.receive(event({"error": ERROR})), lambda: reader.receive(b""), reader.end):
        with pytest.raises(ProviderError, match="Overloaded"):
            call()


@pytest.mark.parametrize("broken", [b"data: {\n\n", b"data: nonsense\n\n", b"data: " + b"[" * 100_000 + b"\n\n"])
def test_an_event_that_is_not_json_is_an_error(broken: bytes) -> None:
    assert failure(broken)[1].code == "PROVIDER_ERROR"
    assert failure(delta(content="Once"), broken)[1].code == "PARTIAL_STREAM"


@pytest.mark.parametrize("odd", ["3", '"text"', "null", "[]", "{}", '{"choices": null}', '{"choices": [null, 3]}'])
def test_json_of_another_shape_is_passed_over(odd: str) -> None:
    assert read(f"data: {odd}\n\n".encode(), delta(content="Hi"), DONE) == [TextChunk("Hi"), Finish("stop", None)]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"error": {"message": "context size has been exceeded"}}', "CONTEXT_OVERFLOW"),
        (b'{"error": "no such model", "code": 404}', "INVALID_REQUEST"),
        (b'{"id": "x", "object": "list"}', "PROVIDER_ERROR"),
        (b'{"choices": []}', "PROVIDER_ERROR"),
        (b"[]", "PROVIDER_ERROR"),
        (b'{"choices": [{"message": {"content": "Hi', "PARTIAL_STREAM"),
        (b"", "PROVIDER_DISCONNECT"),
    ],
)
def test_a_document_that_is_no_answer_is_an_error(body: bytes, code: ErrorCode) -> None:
    chunks, error = failure(body, content_type="application/json")
    assert (chunks, error.code) == ([], code)


def test_a_document_has_its_usage_before_its_end() -> None:
    body = {
        "choices": [{"index": 0, "message": {"content": "Hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    pieces = [bytes([byte]) for byte in json.dumps(body).encode()]
    assert read(*pieces, content_type="application/json; charset=utf-8") == [
        TextChunk("Hi"),
        UsageReport(Usage(1, 2)),
        Finish("stop", "stop"),
    ]


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "text/plain", "application/xml", "video/mp4"])
def test_another_content_type_is_named_with_the_beginning_of_the_body(content_type: str) -> None:
    page = b"<html>Sign in, sk-abcdefghijkl</html>"
    _, error = failure(page, content_type=content_type)
    assert (error.code, error.retryable) == ("PROVIDER_ERROR", False)
    assert repr(content_type) in error.message
    assert "<html>Sign in, [redacted]</html>" in error.message


def test_an_endless_page_is_not_read_to_its_end() -> None:
    reader = response("text/html")
    reader.receive(b"x" * 1_000)
    with pytest.raises(ProviderError, match="text/html"):
        reader.receive(b"x" * 1_000)


def test_an_endless_document_is_not_read_to_its_end() -> None:
    reader = response("application/json")
    reader.receive(b" " * (16 * 1024 * 1024))
    with pytest.raises(ProviderError, match="longer than") as caught:
        reader.receive(b" ")
    assert caught.value.retryable is False


def test_a_document_that_reports_a_failure_in_its_finish_reason_is_one() -> None:
    body = json.dumps({"choices": [{"message": {"content": ""}, "finish_reason": "error"}]}).encode()
    assert failure(body, content_type="application/json")[1].code == "PROVIDER_ERROR"


def test_an_answer_without_content_type_is_named_missing_or_nothing() -> None:
    assert failure(content_type="")[1].code == "PROVIDER_DISCONNECT"
    assert "'missing'" in failure(b"Hi", content_type="")[1].message
