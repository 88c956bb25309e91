"""However the stream of an answer is split, one message comes out, or a clear error."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies
from trio_agent._core import _assembler
from trio_agent._core._assembler import Answer, StreamAssembler
from trio_agent._errors import OutputError, ProviderError
from trio_agent._events import ReasoningDelta, TextDelta, ToolCallDelta
from trio_agent._messages import Block, FinishReason, Message, NativeBlock, Reasoning, Text, ToolCall
from trio_agent._model import (
    NO_USAGE,
    CallChunk,
    Finish,
    ModelChunk,
    NativeChunk,
    ReasoningChunk,
    TextChunk,
    Usage,
    UsageReport,
)

NATIVE = NativeBlock("anthropic", '{"type":"server_tool_use"}')


def feed(*chunks: ModelChunk) -> StreamAssembler:
    assembler = StreamAssembler("m1")
    for chunk in chunks:
        assembler.receive(chunk, watched=False)
    return assembler


def assemble(*chunks: ModelChunk) -> Message:
    return feed(*chunks).finish().message


def calls_of(*chunks: CallChunk) -> list[tuple[str, str, str]]:
    message = assemble(*chunks, Finish("tool_use"))
    return [(call.id, call.name, call.arguments) for call in message.calls]


# --------------------------------------------------------------------------------------- splitting


@given(st.data(), strategies.answers())
def test_any_legal_splitting_gives_the_same_message(data: st.DataObject, content: tuple[Block, ...]) -> None:
    stream = data.draw(strategies.streams(content))
    reason = data.draw(strategies.natural_ends())
    message = assemble(*stream, Finish(reason))
    if not any(type(chunk) is CallChunk and chunk.id for chunk in stream):  # a server that names no ids
        content = tuple(ToolCall("", b.name, b.arguments) if type(b) is ToolCall else b for b in content)
    assert message == Message("assistant", content, "tool_use" if message.calls else "stop", id="m1")


@given(st.data(), strategies.answers())
def test_the_deltas_joined_are_the_message(data: st.DataObject, content: tuple[Block, ...]) -> None:
    assembler = StreamAssembler("m1")
    shown: list[Any] = []
    for chunk in data.draw(strategies.streams(content)):
        delta = assembler.receive(chunk, watched=True)
        if delta is not None:
            assert delta.text
            assert delta.message_id == "m1"
            shown.append(delta)
    assembler.receive(Finish("stop"), watched=True)
    message = assembler.finish().message
    assert "".join(delta.text for delta in shown if type(delta) is TextDelta) == message.text
    assert "".join(delta.text for delta in shown if type(delta) is ReasoningDelta) == message.reasoning
    for position, call in enumerate(message.calls):
        mine = [delta for delta in shown if type(delta) is ToolCallDelta and delta.index == position]
        assert "".join(delta.text for delta in mine) == call.arguments
        assert {delta.name for delta in mine} == {call.name}


@given(st.lists(strategies.chunks(), max_size=12))
def test_whatever_comes_only_our_errors_leave(chunks: list[ModelChunk]) -> None:
    assembler = StreamAssembler("m1")
    try:
        for chunk in chunks:
            assembler.receive(chunk, watched=True)
        message: Message | None = assembler.finish().message
    except (ProviderError, OutputError):
        message = None
    kept = assembler.cut()
    assert kept is None or (kept.text.strip() and not kept.calls and kept.finish_reason == "interrupted")
    for whole in (message, kept):
        if whole is not None:  # nothing that UTF-8 cannot carry is left in it
            said = whole.text + whole.reasoning + "".join(c.id + c.name + c.arguments for c in whole.calls)
            said.encode()
            assert not any(type(a) is type(b) is Text for a, b in zip(whole.content, whole.content[1:], strict=False))


def test_nobody_watching_means_no_deltas() -> None:
    assembler = StreamAssembler("m1")
    for chunk in (TextChunk("a"), ReasoningChunk("b"), CallChunk(0, "c", "f", "{}")):
        assert assembler.receive(chunk, watched=False) is None


def test_a_delta_of_a_call_says_its_place_in_the_message_and_not_its_index() -> None:
    assembler = StreamAssembler("m1")
    assert assembler.receive(CallChunk(7, "a", "f"), watched=True) is None
    assembler.receive(CallChunk(3, "b", "g"), watched=True)
    assert assembler.receive(CallChunk(3, arguments="{"), watched=True) == ToolCallDelta("m1", 1, "g", "{")
    assert assembler.receive(CallChunk(7, arguments="["), watched=True) == ToolCallDelta("m1", 0, "f", "[")


def test_text_on_both_sides_of_a_piece_of_an_older_call_is_one_block() -> None:
    message = assemble(
        CallChunk(0, "a", "f", "{"), TextChunk("x"), CallChunk(0, arguments="}"), TextChunk("y"), Finish("stop")
    )
    assert message.content == (ToolCall("a", "f", "{}"), Text("xy"))


def test_a_pair_of_surrogates_may_be_cut_between_two_chunks() -> None:
    message = assemble(
        TextChunk("a\ud83d"),
        TextChunk("\ude00"),
        CallChunk(0, "c", "f", '{"a":"\ud83d'),
        CallChunk(0, arguments='\ude00"}'),
        Finish("stop"),
    )
    assert message.content == (Text("a😀"), ToolCall("c", "f", '{"a":"😀"}'))


def test_half_a_pair_of_surrogates_cannot_poison_the_history() -> None:
    message = assemble(TextChunk("a\ud83d!"), CallChunk(0, "c", "f", '{"a":"é\ude00"}'), Finish("stop"))
    assert message.content == (Text("a\ufffd!"), ToolCall("c", "f", '{"a":"é\\ude00"}'))
    with pytest.raises(ValueError, match="half a surrogate pair"):
        _ = message.calls[0].input  # and nobody runs a call with other arguments than the model's


# ------------------------------------------------------------------------------------------- calls


def test_a_new_id_at_a_used_index_opens_a_new_call() -> None:
    """B20."""
    assert calls_of(CallChunk(0, "a", "f", '{"n":1}'), CallChunk(0, "b", "f", '{"n":2}')) == [
        ("a", "f", '{"n":1}'),
        ("b", "f", '{"n":2}'),
    ]


def test_a_new_name_at_a_used_index_opens_a_new_call_with_or_without_an_id() -> None:
    """B20."""
    assert calls_of(CallChunk(0, "", "f", "{}"), CallChunk(0, "", "g", "{}")) == [("", "f", "{}"), ("", "g", "{}")]
    assert calls_of(CallChunk(0, "a", "f", "{}"), CallChunk(0, "a", "g", "{}")) == [("a", "f", "{}"), ("a", "g", "{}")]


def test_a_piece_without_an_id_goes_to_the_latest_call_of_its_index() -> None:
    """B20."""
    assert calls_of(
        CallChunk(0, "a", "f", "1"),
        CallChunk(1, "b", "f", "2"),
        CallChunk(0, arguments="3"),
        CallChunk(1, arguments="4"),
        CallChunk(0, "c", "f", "5"),
        CallChunk(0, arguments="6"),
        CallChunk(1, arguments="7"),
    ) == [("a", "f", "13"), ("b", "f", "247"), ("c", "f", "56")]


def test_a_known_id_comes_back_to_its_call() -> None:
    assert calls_of(
        CallChunk(0, "a", "f", "1"),
        CallChunk(0, "b", "f", "2"),
        CallChunk(0, "a", "", "3"),
        CallChunk(0, arguments="4"),
        CallChunk(None, "b", "", "5"),
    ) == [("a", "f", "134"), ("b", "f", "25")]


def test_ids_and_names_that_are_repeated_are_not_glued_together() -> None:
    repeated = [CallChunk(0, "call_1", "add", piece) for piece in ('{"a"', ":1", "}")]
    assert calls_of(*repeated) == [("call_1", "add", '{"a":1}')]


def test_empty_ids_and_names_overwrite_nothing_and_late_ones_are_taken() -> None:
    assert calls_of(CallChunk(0, "", "f", "{"), CallChunk(0, "a", "", "}"), CallChunk(0, "", "")) == [("a", "f", "{}")]
    assert calls_of(CallChunk(0, "a", "", "{"), CallChunk(0, "", "f", "}")) == [("a", "f", "{}")]
    assert calls_of(CallChunk(None, "", "f", "{"), CallChunk(None, "a", "", "}")) == [("a", "f", "{}")]


def test_without_an_index_an_id_or_a_name_opens_a_call() -> None:
    assert calls_of(CallChunk(None, "a", "f", "{}"), CallChunk(None, "b", "f", "{"), CallChunk(None, "", "", "}")) == [
        ("a", "f", "{}"),
        ("b", "f", "{}"),
    ]
    assert calls_of(CallChunk(None, "", "f", "{}"), CallChunk(None, "", "f", "{}")) == [("", "f", "{}")] * 2


def test_a_name_is_not_needed_to_open_a_call() -> None:
    assert calls_of(CallChunk(None, arguments="{")) == [("", "", "{")]


def test_a_call_may_have_the_id_of_another_index() -> None:
    """B18."""
    assert calls_of(CallChunk(0, "x", "f", "{}"), CallChunk(1, "x", "f", "[]")) == [("x", "f", "{}"), ("x", "f", "[]")]


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_blank_arguments_are_an_empty_object(blank: str) -> None:
    assert calls_of(CallChunk(0, "a", "f", blank)) == [("a", "f", "{}")]


def test_several_objects_end_to_end_stay_as_they_came() -> None:
    glued = '{"a":1}{"b":2}'
    assert calls_of(CallChunk(0, "", "f", '{"a":1}'), CallChunk(0, "", "f", '{"b":2}')) == [("", "f", glued)]


# --------------------------------------------------------------------------------------- reasoning


def test_a_signature_seals_the_reasoning_since_the_last_one() -> None:
    message = assemble(
        ReasoningChunk("a"),
        ReasoningChunk("b", "s1"),
        ReasoningChunk("c"),
        ReasoningChunk("", "s2"),
        ReasoningChunk("d"),
        TextChunk("x"),
        ReasoningChunk("", "s3"),
        ReasoningChunk("", "s4"),
        Finish("stop"),
    )
    assert message.content == (
        Reasoning("ab", "s1"),
        Reasoning("c", "s2"),
        Reasoning("d", "s3"),
        Text("x"),
        Reasoning("", "s4"),
    )


# ------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("reason", get_args(FinishReason))
@pytest.mark.parametrize("has_calls", [False, True])
def test_the_finish_reason_fits_the_calls(reason: FinishReason, has_calls: bool) -> None:
    call = [CallChunk(0, "a", "f", "{}")] if has_calls else []
    message = assemble(TextChunk("x"), *call, TextChunk("y"), Finish(reason, "raw"))
    if not has_calls:
        expected = "stop" if reason == "tool_use" else reason
        assert (message.content, message.finish_reason) == ((Text("xy"),), expected)
    elif reason in ("stop", "tool_use", "unknown", "pause"):
        assert (len(message.calls), message.finish_reason) == (1, "tool_use")
    elif reason == "length":
        assert (len(message.calls), message.finish_reason) == (1, "length")
    else:
        assert (message.content, message.finish_reason) == ((Text("xy"),), reason)


def test_an_answer_has_the_usage_and_the_raw_reason() -> None:
    answer = feed(TextChunk("x"), UsageReport(Usage(3, 1)), Finish("stop", "end_turn")).finish()
    assert answer == Answer(Message("assistant", "x", "stop", id="m1"), Usage(3, 1), "end_turn")


def test_the_last_total_of_usage_counts_and_increments_add_to_it() -> None:
    assembler = feed(UsageReport(Usage(9, 9)), UsageReport(Usage(5, 1)))
    assert assembler.usage == Usage(5, 1)
    assembler.receive(UsageReport(Usage(output=2, reasoning=1), cumulative=False), watched=False)
    assert assembler.usage == Usage(5, 3, reasoning=1)
    assert StreamAssembler("m1").usage == NO_USAGE


def test_a_stream_has_started_with_the_first_thing_that_it_says() -> None:
    quiet: list[ModelChunk] = [TextChunk(""), ReasoningChunk(""), CallChunk(0), UsageReport(Usage(1))]
    loud: list[ModelChunk] = [
        TextChunk(" "),
        ReasoningChunk("r"),
        CallChunk(0, "a"),
        NativeChunk(NATIVE),
        Finish("stop"),
    ]
    assert not feed(*quiet).started
    for chunk in loud:
        assert feed(*quiet, chunk).started


@pytest.mark.parametrize(
    "chunks",
    [
        [TextChunk("half a sen")],
        [CallChunk(0, "a", "f", '{"x": ')],
        [CallChunk(0, "a", "f", "{}")],
        [UsageReport(Usage(5))],
    ],
)
def test_a_stream_that_just_ends_is_partial(chunks: list[ModelChunk]) -> None:
    """B46."""
    with pytest.raises(ProviderError) as caught:
        feed(*chunks).finish()
    assert caught.value.code == "PARTIAL_STREAM"


def test_a_stream_without_a_word_is_a_disconnect() -> None:
    with pytest.raises(ProviderError) as caught:
        feed(TextChunk("")).finish()
    assert caught.value.code == "PROVIDER_DISCONNECT"


@pytest.mark.parametrize("late", [TextChunk("x"), TextChunk(""), Finish("stop"), UsageReport(Usage(1))])
def test_nothing_may_come_after_the_end(late: ModelChunk) -> None:
    assembler = feed(TextChunk("x"), Finish("stop"))
    with pytest.raises(ProviderError) as caught:
        assembler.receive(late, watched=False)
    assert caught.value.code == "PARTIAL_STREAM"


def test_what_is_no_chunk_is_refused_by_name() -> None:
    chunk: Any = "hello"
    with pytest.raises(TypeError, match="emitted str; expected a ModelChunk"):
        StreamAssembler("m1").receive(chunk, watched=False)


# ----------------------------------------------------------------------------------------- cut text


def test_of_a_cut_stream_the_text_is_kept_and_no_call() -> None:
    kept = feed(
        ReasoningChunk("why", "s"), TextChunk("I will"), CallChunk(0, "a", "f", "{}"), NativeChunk(NATIVE)
    ).cut()
    assert kept == Message("assistant", (Reasoning("why", "s"), Text("I will"), NATIVE), "interrupted", id="m1")


@pytest.mark.parametrize(
    "chunks",
    [
        [],
        [TextChunk("\n\n")],
        [ReasoningChunk("hmm")],
        [ReasoningChunk("hmm", "s")],
        [CallChunk(0, "a", "f", "{}")],
    ],
)
def test_of_a_stream_that_said_nothing_yet_nothing_is_kept(chunks: list[ModelChunk]) -> None:
    """B06."""
    assert feed(*chunks).cut() is None


@pytest.mark.parametrize(
    ("end", "kept"),
    [
        ([], False),
        ([ReasoningChunk("", "s")], True),
        ([TextChunk("y")], True),
        ([CallChunk(0, "a", "f")], True),
        ([NativeChunk(NATIVE)], True),
    ],
)
def test_reasoning_is_kept_if_a_signature_or_a_block_ended_it(end: list[ModelChunk], kept: bool) -> None:
    message = feed(TextChunk("x"), ReasoningChunk("hmm"), *end).cut()
    assert message is not None
    assert (message.reasoning == "hmm") is kept


# ------------------------------------------------------------------------------------------- bounds


@pytest.mark.parametrize(
    ("chunk", "fits"),
    [
        (TextChunk("x"), 100),
        (TextChunk("é"), 50),
        (ReasoningChunk("x", "s"), 50),
        (CallChunk(0, "", "", "x"), 100),
        (NativeChunk(NativeBlock("p", "x")), 100),
    ],
)
def test_an_answer_has_a_largest_size(chunk: ModelChunk, fits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _assembler.MAX_BYTES == 16 * 2**20
    monkeypatch.setattr(_assembler, "MAX_BYTES", 100)
    assembler = feed(*[chunk] * fits)
    with pytest.raises(OutputError) as caught:
        assembler.receive(chunk, watched=True)
    assert caught.value.code == "MALFORMED_OUTPUT"


def test_an_answer_has_a_largest_number_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _assembler.MAX_CALLS == 65_536
    monkeypatch.setattr(_assembler, "MAX_CALLS", 3)
    assembler = feed(*[CallChunk(n, f"id{n}", "f", "{}") for n in range(3)])
    assembler.receive(CallChunk(0, arguments=" "), watched=False)
    with pytest.raises(OutputError, match="3 calls"):
        assembler.receive(CallChunk(3, "id3", "f"), watched=False)


def test_an_answer_has_a_largest_number_of_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _assembler.MAX_CHUNKS == 1_000_000
    monkeypatch.setattr(_assembler, "MAX_CHUNKS", 10)
    assembler = feed(TextChunk("x"), *[TextChunk("")] * 9)
    with pytest.raises(OutputError, match="10 chunks"):
        assembler.receive(TextChunk(""), watched=False)
    kept = assembler.cut()
    assert kept is not None
    assert kept.text == "x"
