"""What Anthropic's servers send in answer, and what becomes of it; the recordings have tests of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.recordings import Recording, quoted, recordings
from trio_agent._core._assembler import Answer, StreamAssembler
from trio_agent._errors import ErrorCode, ProviderError
from trio_agent._messages import FinishReason, Message, NativeBlock, Reasoning, Text, ToolCall
from trio_agent._model import (
    CallChunk,
    Finish,
    ModelChunk,
    ModelRequest,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)
from trio_agent._ports import WireResponse
from trio_agent.wires import RULES, AnthropicWire, ErrorRule

EVENTS = "text/event-stream; charset=utf-8"
ALIVE = TextChunk("")


def response(content_type: str = EVENTS, wire: AnthropicWire | None = None) -> WireResponse:
    return (wire or AnthropicWire()).response(ModelRequest((Message("user", "Hello."),)), content_type)


def event(payload: dict[str, Any], *, named: bool = True) -> bytes:
    head = f"event: {payload['type']}\n" if named else ""
    return f"{head}data: {json.dumps(payload)}   \n\n".encode()


def start(id: str = "msg_1", **usage: Any) -> bytes:
    return event({"type": "message_start", "message": {"id": id, "content": [], "usage": usage}})


def opened(index: int | None, **block: Any) -> bytes:
    where = {} if index is None else {"index": index}
    return event({"type": "content_block_start", **where, "content_block": block})


def delta(index: int | None, **fields: Any) -> bytes:
    where = {} if index is None else {"index": index}
    return event({"type": "content_block_delta", **where, "delta": fields})


def closed(index: int | None = 0) -> bytes:
    return event({"type": "content_block_stop", **({} if index is None else {"index": index})})


def ended(reason: str | None = "end_turn", **usage: Any) -> bytes:
    return event({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage})


STOP = event({"type": "message_stop"})
PING = event({"type": "ping"})


def text(value: str, index: int | None = 0) -> bytes:
    return delta(index, type="text_delta", text=value)


def piece(value: str, index: int | None = 0) -> bytes:
    return delta(index, type="input_json_delta", partial_json=value)


SAID = (opened(0, type="text", text=""), text("Hi"), closed())


def chunks_of(*pieces: bytes, content_type: str = EVENTS) -> list[ModelChunk]:
    """All chunks, without signs of life."""
    reader = response(content_type)
    chunks = [chunk for part in pieces for chunk in reader.receive(part)]
    chunks += reader.end()
    return [chunk for chunk in chunks if chunk != ALIVE]


def assembled(chunks: Iterable[ModelChunk]) -> Answer:
    assembler = StreamAssembler("m1")
    for chunk in chunks:
        assembler.receive(chunk, False)
    return assembler.finish()


def answer(*pieces: bytes, content_type: str = EVENTS) -> Message:
    return assembled(chunks_of(*pieces, content_type=content_type)).message


def failure(*pieces: bytes, content_type: str = EVENTS) -> tuple[list[ModelChunk], ProviderError]:
    """The chunks before the failure, and the failure."""
    reader = response(content_type)
    chunks: list[ModelChunk] = []

    def read_all() -> None:
        for part in pieces:
            chunks.extend(reader.receive(part))
            chunks.extend(reader.receive(b""))
        chunks.extend(reader.end())

    with pytest.raises(ProviderError) as caught:
        read_all()
    return [chunk for chunk in chunks if chunk != ALIVE], caught.value


# -------------------------------------------------------------------------------------- the whole answer


def test_an_answer_is_complete_when_it_says_so_and_not_before() -> None:
    reader = response()
    assert list(reader.receive(start(input_tokens=3, output_tokens=1))) == [UsageReport(Usage(3, 1))]
    assert list(reader.receive(b"".join(SAID))) == [ALIVE, TextChunk("Hi"), ALIVE]
    assert list(reader.receive(ended(output_tokens=2))) == [UsageReport(Usage(3, 2))]
    assert list(reader.receive(STOP)) == [Finish("stop", "end_turn")]
    assert list(reader.receive(b"data: [DONE]\n\n")) == []
    assert list(reader.end()) == []


@pytest.mark.parametrize(
    ("pieces", "code"),
    [
        ((), "PROVIDER_DISCONNECT"),
        ((PING, PING), "PROVIDER_DISCONNECT"),
        ((STOP,), "PROVIDER_DISCONNECT"),
        ((start(input_tokens=1),), "PROVIDER_DISCONNECT"),
        ((start(), opened(0, type="text", text="")), "PROVIDER_DISCONNECT"),
        ((start(), *SAID), "PARTIAL_STREAM"),
        ((start(), *SAID, ended()), "PARTIAL_STREAM"),
        ((start(), *SAID, ended(), b"data: [DONE]\n\n"), "PARTIAL_STREAM"),
        ((start(), opened(0, type="tool_use", id="c", name="f", input={}), closed()), "PARTIAL_STREAM"),
        ((start(), opened(0, type="redacted_thinking", data="x"), closed()), "PARTIAL_STREAM"),
    ],
)
def test_a_stream_without_its_end_is_torn(pieces: tuple[bytes, ...], code: ErrorCode) -> None:
    assert failure(*pieces)[1].code == code


def test_a_payload_without_content_is_a_sign_of_life_and_a_ping_is_none() -> None:
    reader = response()
    for sign in (start(), opened(0, type="text", text=""), text(""), closed(), ended(None)):
        assert list(reader.receive(sign)) == [ALIVE]
    for silence in (PING, event({"type": "ping"}, named=False), event({"type": "surprise"}), b": comment\n\n"):
        assert list(reader.receive(silence)) == []


def test_events_are_known_by_their_type_or_by_their_name() -> None:
    nameless = [part.partition(b"\n")[2] for part in (start(), *SAID, ended(), STOP)]
    assert answer(*nameless).text == "Hi"
    typeless = json.dumps({"index": 0, "delta": {"type": "text_delta", "text": "Hi"}})
    assert answer(start(), f"event: content_block_delta\ndata: {typeless}\n\n".encode(), STOP).text == "Hi"


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "stop"),  # without a call
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("compaction", "pause"),
        ("something_new", "unknown"),
        (None, "unknown"),
    ],
)
def test_every_stop_reason_has_its_meaning(raw: str | None, reason: FinishReason) -> None:
    assert chunks_of(start(), *SAID, ended(raw), STOP)[-1] == Finish(reason, raw)
    document = {"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": raw}
    assert chunks_of(json.dumps(document).encode(), content_type="application/json")[-1] == Finish(reason, raw)


def test_a_later_null_erases_no_stop_reason() -> None:
    assert chunks_of(start(), *SAID, ended("max_tokens"), ended(None), STOP)[-1] == Finish("length", "max_tokens")


@pytest.mark.parametrize(
    ("raw", "reason", "calls"),
    [
        ("end_turn", "tool_use", 1),
        ("tool_use", "tool_use", 1),
        (None, "tool_use", 1),
        ("max_tokens", "length", 1),
        ("pause_turn", "tool_use", 1),
        ("refusal", "refusal", 0),
    ],
)
def test_calls_decide_and_not_the_stop_reason(raw: str | None, reason: FinishReason, calls: int) -> None:
    message = answer(start(), opened(0, type="tool_use", id="c", name="f", input={}), closed(), ended(raw), STOP)
    assert (message.finish_reason, len(message.calls)) == (reason, calls)


def test_a_window_that_is_full_before_anything_came_is_an_overflow() -> None:
    _, error = failure(start(), ended("model_context_window_exceeded"), STOP)
    assert error.code == "CONTEXT_OVERFLOW"


# ------------------------------------------------------------------------------------------- two answers


def test_a_repeated_start_changes_nothing() -> None:
    once = answer(start(), *SAID, ended(), STOP)
    assert answer(start(), start(), *SAID, ended(), STOP) == once
    assert answer(start(), opened(0, type="text", text=""), text("H"), start(), text("i"), ended(), STOP).text == "Hi"
    assert answer(start(), opened(0, type="text", text=""), text("H"), start(""), text("i"), ended(), STOP).text == "Hi"


def test_another_start_before_anything_was_shown_begins_anew() -> None:
    chunks = chunks_of(
        start("one", input_tokens=9, cache_read_input_tokens=4),
        opened(0, type="redacted_thinking", data="of the first"),
        start("two", input_tokens=5),
        closed(),
        *SAID,
        ended(output_tokens=2),
        STOP,
    )
    assert assembled(chunks).message.content == (Text("Hi"),)
    assert assembled(chunks).usage == Usage(5, 2)


def test_another_start_in_the_middle_is_a_torn_stream_and_never_spliced() -> None:
    chunks, error = failure(start("one"), *SAID[:2], start("two"), *SAID, ended(), STOP)
    assert [chunk for chunk in chunks if type(chunk) is TextChunk] == [TextChunk("Hi")]
    assert error.code == "PARTIAL_STREAM"
    assert "'two'" in error.message
    assert "'one'" in error.message


# ------------------------------------------------------------------------------------------------ calls


def test_a_call_is_joined_from_its_pieces() -> None:
    chunks = chunks_of(
        start(),
        opened(0, type="tool_use", id="c1", name="f", input={}),
        piece(""),
        piece('{"a"'),
        piece(": 1}"),
        closed(),
        opened(1, type="tool_use", id="c2", name="g", input={}),
        piece("{}", 1),
        closed(1),
        ended("tool_use"),
        STOP,
    )
    assert chunks[:-1] == [
        CallChunk(0, "c1", "f"),
        CallChunk(0, arguments='{"a"'),
        CallChunk(0, arguments=": 1}"),
        CallChunk(1, "c2", "g"),
        CallChunk(1, arguments="{}"),
    ]
    assert assembled(chunks).message.calls == (ToolCall("c1", "f", '{"a": 1}'), ToolCall("c2", "g"))


@pytest.mark.parametrize(
    ("given", "pieces", "arguments"),
    [
        ({}, (), "{}"),
        ({}, ("",), "{}"),
        ({"a": "ö"}, (), '{"a": "ö"}'),
        ({"a": 1}, ("",), '{"a": 1}'),
        ({"a": 1}, ('{"b": 2}',), '{"b": 2}'),
        ('{"a": 1}', (), '{"a": 1}'),
        (None, (), "{}"),
        ([1], (), "[1]"),
    ],
)
def test_an_input_at_the_start_counts_if_no_piece_follows(
    given: object, pieces: tuple[str, ...], arguments: str
) -> None:
    block = opened(3, type="tool_use", id="c", name="f", input=given)
    parts = [piece(part, 3) for part in pieces]
    for end in ((closed(3), ended("tool_use"), STOP), (ended("tool_use"), STOP)):
        assert answer(start(), block, *parts, *end).calls == (ToolCall("c", "f", arguments),)


def test_blocks_may_have_gaps_between_their_indices_and_come_interleaved() -> None:
    message = answer(
        start(),
        opened(2, type="tool_use", id="c1", name="f", input={}),
        opened(7, type="tool_use", id="c2", name="f", input={}),
        piece('{"n":', 7),
        piece('{"n": 1}', 2),
        piece(" 2}", 7),
        closed(7),
        closed(2),
        ended("tool_use"),
        STOP,
    )
    assert [call.input for call in message.calls] == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("index", [0, None])
def test_indices_that_are_repeated_or_missing_do_not_glue_blocks_together(index: int | None) -> None:
    message = answer(
        start(),
        opened(index, type="text", text="I "),
        text("look.", index),
        opened(index, type="tool_use", name="f", input={}),
        piece('{"n": 1}', index),
        closed(index),
        opened(index, type="tool_use", name="f", input={}),
        piece('{"n": 2}', index),
        ended("tool_use"),
        STOP,
    )
    assert message.text == "I look."
    assert [call.input for call in message.calls] == [{"n": 1}, {"n": 2}]


def test_pieces_of_blocks_that_nobody_opened_are_read_where_they_say_what_they_are() -> None:
    message = answer(
        start(),
        delta(0, type="thinking_delta", thinking="Hm."),
        delta(0, type="signature_delta", signature="sig"),
        text("Hi", 1),
        piece('{"lost": 1}', 2),
        ended(),
        STOP,
    )
    assert message.content == (Reasoning("Hm.", "sig"), Text("Hi"))
    # A text that comes under the index of a call is no part of its arguments.
    mixed = answer(start(), opened(0, type="tool_use", id="c", name="f"), piece("{}"), text("Hi"), ended(), STOP)
    assert mixed.content == (ToolCall("c", "f"), Text("Hi"))


# -------------------------------------------------------------------------------- reasoning and opaque blocks


def test_reasoning_is_sealed_when_its_block_ends() -> None:
    chunks = chunks_of(
        start(),
        opened(0, type="thinking", thinking="H", signature=""),
        delta(0, type="thinking_delta", thinking="m."),
        delta(0, type="signature_delta", signature="sig"),
        closed(),
        opened(1, type="thinking", thinking="", signature="alone"),
        closed(1),
        *SAID,
        ended(),
        STOP,
    )
    assert chunks[:4] == [
        ReasoningChunk("H"),
        ReasoningChunk("m."),
        ReasoningChunk("", "sig"),
        ReasoningChunk("", "alone"),
    ]
    assert assembled(chunks).message.content == (Reasoning("Hm.", "sig"), Reasoning("", "alone"), Text("Hi"))


def test_reasoning_without_a_seal_is_shown_and_not_sent_back() -> None:
    message = answer(start(), opened(0, type="thinking", thinking="Hm."), closed(), *SAID, ended(), STOP)
    assert message.content == (Reasoning("Hm."), Text("Hi"))
    body = json.loads(AnthropicWire().request(ModelRequest((Message("user", "?"), message)), "m").body)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Hi"}]


def test_the_vendor_s_own_blocks_are_kept_whole_and_never_called() -> None:
    use = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}
    found = {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"encrypted_content": "ä\u2028=="}]}
    chunks = chunks_of(
        start(),
        opened(0, **use),
        piece(""),
        piece('{"query": '),
        piece('"x", "n": 1.50}'),
        closed(),
        opened(1, **found),
        closed(1),
        *SAID,
        ended("pause_turn"),
        STOP,
    )
    kept = [chunk.block for chunk in chunks if type(chunk) is NativeChunk]
    head = '{"type":"server_tool_use","id":"s1","name":"web_search","input":'
    assert kept[0] == NativeBlock("anthropic", head + '{"query": "x", "n": 1.50}}')
    assert json.loads(kept[1].data) == found
    assert not any(type(chunk) is CallChunk for chunk in chunks)
    assert assembled(chunks).message.finish_reason == "pause"


@pytest.mark.parametrize(
    ("block", "deltas", "whole"),
    [
        (
            {"type": "compaction", "content": None},
            [{"type": "compaction_delta", "content": "Once"}, {"type": "compaction_delta", "content": " upon"}],
            {"type": "compaction", "content": "Once upon"},
        ),
        (
            {"type": "mcp_tool_use", "id": "s"},
            [{"type": "input_json_delta", "partial_json": '{"a":1}'}],
            {"type": "mcp_tool_use", "id": "s", "input": {"a": 1}},
        ),
        (
            {"type": "surprise", "text": "a"},
            [{"type": "text_delta", "text": "b"}, {"type": "citations_delta", "citation": {"n": 1}}],
            {"type": "surprise", "text": "ab", "citations": [{"n": 1}]},
        ),
    ],
)
def test_blocks_of_unknown_kinds_are_kept_with_what_is_added_to_them(
    block: dict[str, Any], deltas: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    parts = [delta(0, **fields) for fields in deltas]
    [kept] = answer(start(), opened(0, **block), *parts, closed(), ended(), STOP).content
    assert type(kept) is NativeBlock
    assert json.loads(kept.data) == whole


@pytest.mark.parametrize(
    "pieces",
    [
        (piece('{"query": "x'), closed()),
        (piece('{"query": "x"}'),),  # never closed
        (piece('{"query": NaN}'), closed()),
        (piece('"\ud83d"'), closed()),
    ],
)
def test_a_block_that_was_cut_off_is_not_kept(pieces: tuple[bytes, ...]) -> None:
    use = opened(0, type="server_tool_use", id="s1", name="web_search", input={})
    said = (opened(1, type="text", text=""), text("Hi", 1), closed(1))
    assert answer(start(), use, *pieces, *said, ended("max_tokens"), STOP).content == (Text("Hi"),)


def test_a_block_without_a_type_is_nothing() -> None:
    assert answer(start(), opened(0), closed(), *SAID, ended(), STOP).content == (Text("Hi"),)


def test_a_text_with_citations_is_shown_as_text_and_kept_whole() -> None:
    place = {"type": "char_location", "cited_text": "rain"}
    chunks = chunks_of(
        start(),
        *SAID,
        opened(1, type="text", text="", citations=[]),
        text("It ", 1),
        delta(1, type="citations_delta", citation=place),
        text("rains.", 1),
        closed(1),
        opened(2, type="text", text=""),
        text(" ", 2),
        delta(2, type="citations_delta", citation=place),
        closed(2),
        ended(),
        STOP,
    )
    message = assembled(chunks).message
    assert message.text == "HiIt rains. "
    kept = message.content[1]
    assert type(kept) is NativeBlock
    assert json.loads(kept.data) == {"type": "text", "text": "It rains.", "citations": [place]}
    body = json.loads(AnthropicWire().request(ModelRequest((Message("user", "?"), message)), "m").body)
    assert body["messages"][1]["content"] == [{"type": "text", "text": "Hi"}, json.loads(kept.data)]


# ------------------------------------------------------------------------------------------------ usage


def test_usage_is_a_total_so_far_and_the_last_number_counts() -> None:
    chunks = chunks_of(
        start(input_tokens=25, output_tokens=1), *SAID, ended(None, output_tokens=15), ended(output_tokens=40), STOP
    )
    reports = [chunk.usage for chunk in chunks if type(chunk) is UsageReport]
    assert reports == [Usage(25, 1), Usage(25, 15), Usage(25, 40)]
    assert assembled(chunks).usage == Usage(25, 40)


def test_what_was_cached_is_a_part_of_the_input() -> None:
    chunks = chunks_of(
        start(input_tokens=4, cache_read_input_tokens=1000, cache_creation_input_tokens=0, output_tokens=1),
        *SAID,
        ended(
            input_tokens=6,
            cache_creation_input_tokens=20,
            cache_read_input_tokens=None,
            output_tokens=9,
            output_tokens_details={"thinking_tokens": 3},
        ),
        STOP,
    )
    assert assembled(chunks).usage == Usage(1026, 9, cache_read=1000, cache_write=20, reasoning=3)


def test_usage_that_was_not_told_is_unknown() -> None:
    assert assembled(chunks_of(start(), *SAID, ended(), STOP)).usage == Usage()
    assert assembled(chunks_of(start(), *SAID, ended(output_tokens=7), STOP)).usage == Usage(None, 7)


# --------------------------------------------------------------------------------------------- documents


def test_a_document_is_read_like_a_stream() -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Hi", "citations": None},
        {"type": "text", "text": " there", "citations": [{"n": 1}]},
        {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 3, "output_tokens": 2}
    document = {"type": "message", "id": "m", "content": content, "stop_reason": "tool_use", "usage": usage}
    chunks = chunks_of(json.dumps(document).encode(), content_type="application/json")
    found = assembled(chunks)
    assert found.message.content == (
        Reasoning("Hm.", "sig"),
        NativeBlock("anthropic", '{"type":"redacted_thinking","data":"x"}'),
        Text("Hi there"),
        NativeBlock("anthropic", '{"type":"text","text":" there","citations":[{"n":1}]}'),
        ToolCall("c", "f", '{"a": 1}'),
    )
    assert found.usage == Usage(3, 2)


@pytest.mark.parametrize(
    ("document", "code"),
    [
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "OVERLOADED"),
        ({"choices": []}, "PROVIDER_ERROR"),
        ({"type": "message", "content": "text"}, "PROVIDER_ERROR"),
        ([], "PROVIDER_ERROR"),
        ({"content": [], "stop_reason": "model_context_window_exceeded"}, "CONTEXT_OVERFLOW"),
    ],
)
def test_a_document_that_is_no_answer_is_an_error(document: object, code: ErrorCode) -> None:
    chunks, error = failure(json.dumps(document).encode(), content_type="application/json")
    assert (chunks, error.code) == ([], code)


# ------------------------------------------------------------------------------------------------ errors


def in_stream(kind: str, message: str = "It broke.") -> bytes:
    return event({"type": "error", "error": {"type": kind, "message": message}, "request_id": None})


@pytest.mark.parametrize(
    ("status", "kind", "message", "code"),
    [
        (400, "invalid_request_error", "max_tokens: Field required", "INVALID_REQUEST"),
        (400, "invalid_request_error", "prompt is too long: 201130 tokens > 200000 maximum", "CONTEXT_OVERFLOW"),
        (400, "invalid_request_error", "Your credit balance is too low to access the API.", "QUOTA_EXCEEDED"),
        (400, "invalid_request_error", "Output blocked by content filtering policy", "CONTENT_FILTER"),
        (401, "authentication_error", "invalid x-api-key", "AUTHENTICATION"),
        (402, "billing_error", "Pay.", "QUOTA_EXCEEDED"),
        (403, "permission_error", "No.", "AUTHENTICATION"),
        (404, "not_found_error", "model: x", "INVALID_REQUEST"),
        (413, "request_too_large", "Request exceeds the maximum size", "INVALID_REQUEST"),
        (429, "rate_limit_error", "Please reduce the prompt length", "RATE_LIMIT"),
        (500, "api_error", "Internal server error", "PROVIDER_ERROR"),
        (504, "timeout_error", "Too long.", "TIMEOUT"),
        (529, "overloaded_error", "Overloaded", "OVERLOADED"),
    ],
)
def test_an_error_is_the_same_by_its_status_and_inside_of_the_stream(
    status: int, kind: str, message: str, code: ErrorCode
) -> None:
    body = json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
    assert AnthropicWire().error(status, {}, body).code == code
    for before in ((), (PING,), (start(input_tokens=1),)):
        chunks, error = failure(*before, in_stream(kind, message))
        assert error.code == code
        assert message in error.message
        assert Finish not in map(type, chunks)
    chunks, error = failure(start(), *SAID[:2], in_stream(kind, message), STOP)
    assert (chunks, error.code) == ([TextChunk("Hi")], "PARTIAL_STREAM")
    assert code in error.message


def test_a_rule_of_your_own_comes_first() -> None:
    rule = ErrorRule("OVERLOADED", words=frozenset({"api_error"}), vendor="anthropic")
    wire = AnthropicWire(rules=(rule, *RULES))
    body = b'{"type":"error","error":{"type":"api_error","message":"x"}}'
    assert wire.error(500, {}, body).code == "OVERLOADED"
    with pytest.raises(ProviderError) as caught:
        response(wire=wire).receive(in_stream("api_error"))
    assert caught.value.code == "OVERLOADED"


def is_anthropic_error(recording: Recording) -> bool:
    return recording.folder == "errors" and recording.provider == "anthropic"


@pytest.mark.parametrize("recording", recordings(is_anthropic_error))
def test_a_recorded_error_has_its_code(recording: Recording) -> None:
    assert recording.status is not None
    error = AnthropicWire().error(recording.status, {}, recording.body)
    assert (error.code, error.status) == ("INVALID_REQUEST", recording.status)


QUOTED: dict[str, ErrorCode] = {"quoted-02": "OVERLOADED", "quoted-05": "OVERLOADED"}
"""Where our names differ from the collection's older ones."""


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["provider"] == "anthropic"))
def test_a_quoted_error_has_its_code(entry: dict[str, Any]) -> None:
    wanted = QUOTED.get(entry["id"], entry["proposed_code"])
    if entry["where"] == "http":
        body = json.dumps(entry["body"]).encode()
        error = AnthropicWire().error(entry["http_status"], entry.get("headers", {}), body)
        assert error.code == wanted
        assert error.retryable in (None, entry["retry_helps"])
    elif entry["where"] == "message_delta":
        assert failure(start(), event({"type": "message_delta", "delta": entry["body"]}))[1].code == wanted
        # Reached while generating: what has come is valid.
        assert answer(start(), *SAID, event({"type": "message_delta", "delta": entry["body"]}), STOP).text == "Hi"
    else:
        assert failure(event(entry["body"]))[1].code == wanted


# --------------------------------------------------------------------------------------- whatever comes

junk = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.sampled_from(["", "x", "text", "tool_use"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "index",
                    "delta",
                    "content_block",
                    "message",
                    "usage",
                    "text",
                    "input",
                    "id",
                    "name",
                    "citations",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)
names = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta", "surprise"]
)


@given(st.lists(st.tuples(names, junk), max_size=6))
def test_whatever_has_the_wrong_shape_is_no_reason_to_fail_in_another_way(payloads: list[tuple[str, Any]]) -> None:
    reader = response()
    try:
        for name, payload in payloads:
            told = {**payload, "type": name} if isinstance(payload, dict) else payload
            reader.receive(f"event: {name}\ndata: {json.dumps(told)}\n\n".encode())
        reader.receive(start())
        reader.receive(STOP)
    except ProviderError:
        pass  # another start in the middle
