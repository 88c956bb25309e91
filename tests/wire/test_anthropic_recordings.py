"""Every recorded answer of an Anthropic server is read rightly, wherever the network cuts it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from tests.wire.recordings import RECORDINGS, Recording, recordings
from trio_agent._core._assembler import Answer
from trio_agent._messages import NativeBlock, Reasoning, Text, ToolCall, parse_object
from trio_agent.wires import AnthropicWire

REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_use",
    "max_tokens": "length",
    "refusal": "refusal",
}

LARGE = 3_000
"""Bytes from which on an answer is cut at every line end, byte of a character and third byte, not at every one."""


def is_anthropic(recording: Recording) -> bool:
    return recording.folder == "anthropic"


def is_streamed(recording: Recording) -> bool:
    return is_anthropic(recording) and recording.body[:1] != b"{"


def is_document(recording: Recording) -> bool:
    return is_anthropic(recording) and not is_streamed(recording)


def read(recording: Recording, cuts: tuple[int, ...] | list[int] | range = ()) -> Outcome:
    return decode(recording.body, recording.content_type, cuts, wire=AnthropicWire())


def places(body: bytes) -> list[int]:
    if len(body) <= LARGE:
        return list(range(len(body) + 1))
    found = {0, len(body), *range(0, len(body), 3)}
    for match in re.finditer(rb"\n", body):
        found |= {match.start() - 1, match.start(), match.end(), match.end() + 1}
    found |= {place for place in range(len(body)) if body[place] & 0xC0 == 0x80}
    return sorted(place for place in found if 0 <= place <= len(body))


def payloads(recording: Recording) -> list[dict[str, Any]]:
    return [json.loads(match[1]) for match in re.finditer(rb"data: ?([^\r\n]*)", recording.body)]


def kinds(answer: Answer) -> list[str]:
    """The blocks of a message in the vendor's words."""
    found: list[str] = []
    for block in answer.message.content:
        match block:
            case Text():
                found.append("text")
            case Reasoning():
                found.append("thinking")
            case ToolCall():
                found.append("tool_use")
            case NativeBlock(provider="anthropic", data=data):
                found.append(json.loads(data)["type"])
            case _:
                raise AssertionError(block)
    return found


def test_all_of_them_are_here() -> None:
    if not RECORDINGS:
        pytest.skip("the recorded traffic is not here")
    assert sum(map(is_anthropic, RECORDINGS)) == 18


@pytest.mark.parametrize("recording", recordings(is_anthropic))
def test_an_answer_is_read_as_recorded(recording: Recording) -> None:
    expected = recording.expected
    outcome = read(recording)
    assert outcome.code is None, outcome.error
    assert outcome.answer is not None
    assert outcome.finishes == 1
    message = outcome.answer.message
    assert (message.text, message.reasoning) == (expected["text"], expected.get("reasoning", ""))
    for call, wanted in zip(message.calls, expected["tool_calls"], strict=True):
        assert (call.id, call.name) == (wanted["id"], wanted["name"])
        if wanted.get("arguments_valid_json", True):
            assert parse_object(call.arguments) == wanted["arguments"]
        else:
            assert call.arguments == wanted["arguments"]
            with pytest.raises(ValueError, match="expected a JSON object"):
                parse_object(call.arguments)
    assert outcome.answer.raw == expected["finish_reason"]
    assert message.finish_reason == REASONS[expected["finish_reason"]]
    assert kinds(outcome.answer) == expected["block_types"]
    signatures = [len(block.signature or "") for block in message.content if type(block) is Reasoning]
    assert signatures == expected.get("thinking_signature_lengths", [])


@pytest.mark.parametrize("recording", recordings(is_anthropic))
def test_usage_is_read_in_our_terms(recording: Recording) -> None:
    norm: dict[str, Any] = recording.expected["usage_norm"]
    usage = read(recording).usage
    # The vendor counts what it read from its cache, or wrote to it, beside the input.
    cached, written = norm.get("cached_input"), norm.get("cache_write")
    assert usage.input == norm["input"] + (cached or 0) + (written or 0)
    assert (usage.output, usage.cache_read, usage.cache_write) == (norm["output"], cached, written)
    details: dict[str, Any] = recording.expected["usage"].get("output_tokens_details", {})
    assert usage.reasoning == details.get("thinking_tokens")


@pytest.mark.parametrize("recording", recordings(is_streamed))
def test_blocks_that_only_the_vendor_understands_are_kept_as_they_came(recording: Recording) -> None:
    sent: dict[int, dict[str, Any]] = {}
    inputs: dict[int, str] = {}
    for payload in payloads(recording):
        if payload["type"] == "content_block_start":
            sent[payload["index"]] = payload["content_block"]
        elif payload["type"] == "content_block_delta" and payload["delta"]["type"] == "input_json_delta":
            inputs[payload["index"]] = inputs.get(payload["index"], "") + payload["delta"]["partial_json"]
    wanted = [
        block if not inputs.get(index) else {**block, "input": json.loads(inputs[index])}
        for index, block in sent.items()
        if block["type"] not in ("text", "thinking", "tool_use")
    ]
    outcome = read(recording)
    assert outcome.answer is not None
    kept = [block.data for block in outcome.answer.message.content if type(block) is NativeBlock]
    assert [json.loads(data) for data in kept] == wanted
    assert [list(json.loads(data)) for data in kept] == [list(block) for block in wanted]
    assert outcome.natives == bool(wanted)


@pytest.mark.parametrize("recording", recordings(is_anthropic))
def test_a_cut_changes_nothing(recording: Recording) -> None:
    whole = read(recording)
    for place in places(recording.body):
        assert read(recording, [place]) == whole, place


@pytest.mark.parametrize("recording", recordings(is_anthropic))
def test_an_answer_that_comes_byte_by_byte_is_the_same(recording: Recording) -> None:
    assert read(recording, range(len(recording.body))) == read(recording)


if RECORDINGS:

    @given(st.data(), st.sampled_from([recording for recording in RECORDINGS if is_anthropic(recording)]))
    def test_cuts_anywhere_change_nothing(data: st.DataObject, recording: Recording) -> None:
        cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=40))
        assert read(recording, cuts) == read(recording)


@pytest.mark.parametrize("recording", recordings(is_streamed))
def test_a_stream_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    whole = read(recording)
    # Complete is what said message_stop: padding and the blank line behind it say nothing more.
    settled = recording.body.index(b"}", recording.body.rindex(b'"message_stop"')) + 1
    for place in places(recording.body):
        outcome = decode(recording.body[:place], recording.content_type, wire=AnthropicWire())
        if place >= settled:
            assert outcome == whole, place
            continue
        assert outcome.answer is None, place
        assert outcome.finishes == 0
        some = bool(outcome.shown or outcome.thought or outcome.calls or outcome.natives)
        if not some and outcome.code == "PARTIAL_STREAM":
            # A last event that lacks nothing but its blank line has arrived too, though nobody was shown it.
            arrived = decode(recording.body[:place] + b"\n\n", recording.content_type, wire=AnthropicWire())
            some = bool(arrived.shown or arrived.thought or arrived.calls or arrived.natives)
        assert outcome.code == ("PARTIAL_STREAM" if some else "PROVIDER_DISCONNECT"), place


@pytest.mark.parametrize("recording", recordings(is_document))
def test_a_document_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    for place in range(len(recording.body.rstrip())):
        outcome = decode(recording.body[:place], recording.content_type, wire=AnthropicWire())
        assert outcome.answer is None
        assert outcome.code == ("PARTIAL_STREAM" if place else "PROVIDER_DISCONNECT")
