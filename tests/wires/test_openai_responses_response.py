"""What Responses servers send in answer, and what becomes of it; the recordings have tests of their own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wires.responses_events import (
    DONE,
    NATIVE,
    Event,
    answer,
    call,
    document,
    encoded,
    end,
    event,
    failure,
    item,
    message,
    piece,
    read,
    response,
    said,
)
from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import FinishReason, Message, NativeBlock
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelChunk,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)

# ---------------------------------------------------------------------------------- life and the end


def test_every_event_of_the_answer_is_a_sign_of_life_and_a_ping_is_none() -> None:
    reader = response()
    assert list(reader.receive(encoded(event("created", response={"status": "queued"})))) == [TextChunk("")]
    assert list(reader.receive(encoded(event("web_search_call.searching", output_index=0)))) == [TextChunk("")]
    assert list(reader.receive(encoded(event("what.ever.delta", delta="x")))) == [TextChunk("")]
    assert list(reader.receive(encoded({"type": "keepalive", "sequence_number": 4}))) == []
    assert list(reader.receive(b": comment\n\n")) == []
    assert list(reader.receive(encoded({"type": "codex.rate_limits", "delta": "x"}))) == []


def test_the_event_s_name_will_do_where_the_payload_has_no_type() -> None:
    reader = response()
    line = b'event: response.output_text.delta\ndata: {"output_index":0,"delta":"Hi"}\n\n'
    assert list(reader.receive(line)) == [TextChunk("Hi")]
    assert list(reader.receive(b'event: response.completed\ndata: {"response":{}}\n\n')) == [
        TextChunk(""),
        Finish("stop", "completed"),
    ]


def test_usage_comes_once_and_with_the_end() -> None:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 1},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 14,
    }
    assert read(said("Hi"), end(usage=usage)) == [
        TextChunk("Hi"),
        UsageReport(Usage(9, 5, 4, 1, 3)),
        Finish("stop", "completed"),
    ]
    hidden = read(end(usage={"input_tokens": 9, "output_tokens": 5, "total_tokens": 20}))
    assert hidden[0] == UsageReport(Usage(9, 11))


@pytest.mark.parametrize(
    ("details", "reason", "raw"),
    [
        ({"reason": "max_output_tokens"}, "length", "max_output_tokens"),
        ({"reason": "content_filter"}, "refusal", "content_filter"),
        ({"reason": "whim"}, "length", "whim"),
        (None, "length", "incomplete"),
    ],
)
def test_an_incomplete_answer_says_why(details: Event | None, reason: FinishReason, raw: str) -> None:
    ended = end(kind="incomplete", incomplete_details=details)
    assert read(said("Hi"), ended)[-1] == Finish(reason, raw)
    assert read(item("added", call()), piece('{"a"'), ended)[-1] == Finish(reason, raw)


def test_a_status_that_is_still_at_work_does_not_count_against_the_last_event() -> None:
    assert read(said("Hi"), event("completed", response={"status": "in_progress"}))[-1] == Finish("stop", "completed")


def test_calls_make_the_reason_whatever_the_status_says() -> None:
    assert read(item("added", call()), DONE)[-1] == Finish("tool_use", "completed")


def test_a_mark_at_the_end_says_nothing() -> None:
    reader = response()
    reader.receive(encoded(said("Hi")))
    assert list(reader.receive(b"data: [DONE]\n\n")) == []
    with pytest.raises(ProviderError) as caught:
        reader.end()
    assert caught.value.code == "PARTIAL_STREAM"


def test_what_comes_after_the_end_is_ignored() -> None:
    reader = response()
    assert list(reader.receive(encoded(DONE) + encoded(said("late"))))[-1] == Finish("stop", "completed")
    assert list(reader.receive(b"data: [DONE]\n\n")) == []
    assert list(reader.end()) == []


# ------------------------------------------------------------------------------------------- content


def test_a_refusal_is_text_with_a_reason_of_its_own() -> None:
    refused: Event = {"type": "message", "content": [{"type": "refusal", "refusal": "No way."}]}
    streamed = event("refusal.delta", output_index=0, content_index=0, delta="No ")
    for events in ([streamed, item("done", refused), DONE], [item("done", refused), DONE], [end(refused)]):
        assert answer(*events) == Message("assistant", "No way.", "refusal")
    whole = event("refusal.done", output_index=0, content_index=0, refusal="No way.")
    assert answer(streamed, whole, DONE) == Message("assistant", "No way.", "refusal")


def test_parts_of_a_summary_are_paragraphs_however_they_come() -> None:
    parts = ["**One**", "**Two**"]
    told = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": text} for text in parts]}
    deltas = [
        event("reasoning_summary_text.delta", output_index=0, summary_index=n, delta=text)
        for n, text in enumerate(parts)
    ]
    for events in ([*deltas, item("done", told), end(told)], [item("done", told), DONE], [end(told)], [*deltas, DONE]):
        chunks = read(*events)
        assert "".join(chunk.text for chunk in chunks if type(chunk) is ReasoningChunk) == "**One**\n\n**Two**"
        kept = [json.loads(chunk.block.data) for chunk in chunks if type(chunk) is NativeChunk]
        assert kept == ([told] if events != [*deltas, DONE] else [])


def test_items_of_the_vendor_s_own_kinds_are_kept_in_their_places_and_never_called() -> None:
    search = {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"query": "x"}}
    mcp = {"type": "mcp_call", "id": "m", "name": "look", "arguments": "{}", "output": "y"}
    chunks = read(
        item("added", {**search, "status": "in_progress"}),
        event("web_search_call.completed", output_index=0),
        item("done", search),
        item("added", mcp, 1),
        event("mcp_call_arguments.delta", output_index=1, delta="{}"),
        item("done", mcp, 1),
        said("Found.", 2),
        end(search, mcp, message("Found.")),
    )
    assert chunks == [
        NativeChunk(NativeBlock(NATIVE, json.dumps(search, separators=(",", ":")))),
        NativeChunk(NativeBlock(NATIVE, json.dumps(mcp, separators=(",", ":")))),
        TextChunk("Found."),
        Finish("stop", "completed"),
    ]


def test_an_item_that_only_the_last_event_tells_of_is_kept_and_one_with_a_new_id_is_no_new_one() -> None:
    search = {"type": "web_search_call", "id": "ws"}
    assert [type(chunk) for chunk in read(end(search, message("x")))] == [NativeChunk, TextChunk, Finish]
    again = {**search, "id": "ws2"}
    assert [type(chunk) for chunk in read(item("done", search), end(again))] == [NativeChunk, Finish]
    both = read(item("done", again), end(search, again))
    assert [type(chunk) for chunk in both] == [NativeChunk, Finish]


def test_a_phase_stands_before_its_text() -> None:
    label = NativeBlock(NATIVE, '{"type":"message","phase":"commentary"}')
    added = item("added", message(phase="commentary"))
    assert read(added, said("Let "), said("me."), DONE) == [
        NativeChunk(label),
        TextChunk("Let "),
        TextChunk("me."),
        Finish("stop", "completed"),
    ]
    assert read(added, DONE) == [Finish("stop", "completed")]
    assert read(end(message("Hi", phase="commentary")))[:2] == [NativeChunk(label), TextChunk("Hi")]


def test_an_item_that_cannot_be_kept_as_json_is_a_failure() -> None:
    with pytest.raises(ProviderError) as caught:
        response().receive(b'data: {"type":"response.output_item.done","item":{"type":"x","n":NaN}}\n\n')
    assert (caught.value.code, caught.value.retryable) == ("PROVIDER_ERROR", False)


def test_an_error_with_a_number_that_is_none_in_json_is_an_error_all_the_same() -> None:
    with pytest.raises(ProviderError) as caught:
        response().receive(b'data: {"type":"error","code":"rate_limit_exceeded","message":"Slow\xc3\xa9","n":NaN}\n\n')
    assert caught.value.code == "RATE_LIMIT"
    assert "Slowé" in caught.value.message


# -------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("code", "message", "wanted"),
    [
        ("server_error", "An error occurred.", "PROVIDER_ERROR"),
        ("rate_limit_exceeded", "Rate limit reached. Please try again in 2s.", "RATE_LIMIT"),
        ("insufficient_quota", "You exceeded your current quota.", "QUOTA_EXCEEDED"),
        ("context_length_exceeded", "Your input exceeds the context window of this model.", "CONTEXT_OVERFLOW"),
        ("server_is_overloaded", "Our servers are currently overloaded.", "OVERLOADED"),
        ("invalid_prompt", "Your prompt was flagged as potentially violating our usage policy.", "CONTENT_FILTER"),
        ("invalid_prompt", "The prompt is not valid.", "INVALID_REQUEST"),
        ("image_content_policy_violation", "No.", "CONTENT_FILTER"),
        ("image_too_large", "The image is too large.", "INVALID_REQUEST"),
        ("vector_store_timeout", "Timed out.", "PROVIDER_ERROR"),
    ],
)
def test_a_failure_in_the_stream_has_its_code_in_every_shape(code: str, message: str, wanted: ErrorCode) -> None:
    error = {"code": code, "message": message}
    for told in (
        end(kind="failed", error=error),
        {"type": "error", "error": {"type": "x", **error}},
        {"type": "error", "sequence_number": 2, **error},
        event("error", error=error),
    ):
        chunks, found = failure(event("created", response={}), told)
        assert (found.code, chunks) == (wanted, [])
        assert message in found.message
        begun, torn = failure(said("Once"), told)
        assert (torn.code, begun) == ("PARTIAL_STREAM", [TextChunk("Once")])
        assert wanted in torn.message
    if code == "rate_limit_exceeded":
        assert failure(end(kind="failed", error=error))[1].retry_after == 2


def test_a_failure_without_words_and_a_cancelled_answer_are_failures() -> None:
    for kind in ("failed", "cancelled"):
        _, error = failure(event("completed", response={"status": kind, "output": []}))
        assert error.code == "PROVIDER_ERROR"
        assert kind in error.message


def test_a_failed_answer_s_usage_is_told() -> None:
    chunks, _ = failure(end(kind="failed", error={"code": "server_error"}, usage={"input_tokens": 3}))
    assert chunks == [UsageReport(Usage(3))]


def test_an_answer_that_never_began_is_a_broken_connection() -> None:
    assert failure(event("created", response={}))[1].code == "PROVIDER_DISCONNECT"


# ----------------------------------------------------------------------------------------- documents


def test_a_document_is_read_in_its_order() -> None:
    thought: Event = {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "s"}
    body: Event = {"status": "completed", "output": [thought, message("Hi"), call("{}")], "usage": {"input_tokens": 1}}
    assert document(body) == [
        UsageReport(Usage(1)),
        NativeChunk(NativeBlock(NATIVE, json.dumps(thought, separators=(",", ":")))),
        TextChunk("Hi"),
        CallChunk(0, "c1", "look"),
        CallChunk(0, arguments="{}"),
        Finish("tool_use", "completed"),
    ]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"error": {"code": "rate_limit_exceeded", "message": "Slow."}}, "RATE_LIMIT"),
        ({"status": "failed", "error": {"code": "insufficient_quota"}, "output": []}, "QUOTA_EXCEEDED"),
        ({"status": "failed", "error": None, "output": []}, "PROVIDER_ERROR"),
        ({"status": "in_progress", "output": []}, "PROVIDER_ERROR"),
        ({"status": "queued", "output": [message("x")]}, "PROVIDER_ERROR"),
        ({"choices": []}, "PROVIDER_ERROR"),
        ([1, 2], "PROVIDER_ERROR"),
    ],
)
def test_a_document_that_is_no_answer_fails(body: object, code: ErrorCode) -> None:
    with pytest.raises(ProviderError) as caught:
        document(body)
    assert caught.value.code == code


names = st.sampled_from
KEYS = names(["type", "item", "delta", "output_index", "arguments", "content", "text", "name", "call_id"])
MORE_KEYS = names(["input", "response", "output", "status", "usage", "summary", "error", "id", "refusal"])
WORDS = names(["", "x", "message", "reasoning", "function_call", "custom_tool_call", "parallel"])
SHAPES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | MORE_KEYS, inner, max_size=5),
    max_leaves=12,
)
KINDS = names(["output_item.added", "output_item.done", "output_text.delta", "output_text.done", "created"])
CALL_KINDS = names(["function_call_arguments.delta", "function_call_arguments.done", "reasoning_text.delta"])
OTHER_KINDS = names(["custom_tool_call_input.delta", "incomplete", "failed"])
FIELDS = st.dictionaries(st.sampled_from(["item", "delta", "text", "arguments", "response"]), SHAPES)


@given(st.lists(st.tuples(KINDS | CALL_KINDS | OTHER_KINDS, FIELDS), max_size=6), SHAPES)
def test_no_shape_of_a_payload_breaks_the_reader(events: list[tuple[str, Event]], last: object) -> None:
    reader = response("look")
    chunks: list[ModelChunk] = []
    try:
        for kind, fields in events:
            chunks += reader.receive(encoded(event(kind, **fields)))
        chunks += reader.receive(encoded(event("completed", response=last)))
        chunks += reader.end()
    except ProviderError:
        return
    assert [type(chunk) for chunk in chunks].count(Finish) == 1
    assert type(chunks[-1]) is Finish
