"""Every recorded answer of a Responses server is read rightly, wherever the network cuts it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from tests.wire.recordings import RECORDINGS, Recording, quoted, recordings
from trio_agent._errors import ErrorCode
from trio_agent._messages import NativeBlock, Reasoning, Text, ToolCall, parse_object
from trio_agent.wires import OpenAIResponsesWire

LARGE = 5_000
"""Bytes from which on an answer is cut at every line end, byte of a character and seventh byte, not at every one."""

LATE = "responses-openrouter-rawcot"
"""Here the reasoning is said to be done only behind the text that it belongs to."""


def is_responses(recording: Recording) -> bool:
    return recording.folder == "responses"


def succeeds(recording: Recording) -> bool:
    return is_responses(recording) and "error" not in recording.expected


def read(recording: Recording, cuts: tuple[int, ...] | list[int] | range = ()) -> Outcome:
    return decode(recording.body, recording.content_type, cuts, wire=OpenAIResponsesWire())


def places(body: bytes) -> list[int]:
    if len(body) <= LARGE:
        return list(range(len(body) + 1))
    found = {0, len(body), *range(0, len(body), 7)}
    for match in re.finditer(rb"\n", body):
        found |= {match.start() - 1, match.start(), match.end(), match.end() + 1}
    found |= {place for place in range(len(body)) if body[place] & 0xC0 == 0x80}
    return sorted(place for place in found if 0 <= place <= len(body))


def events(recording: Recording) -> list[dict[str, Any]]:
    lines = re.findall(rb"data: ?([^\r\n]*)", recording.body)
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def arguments(wanted: dict[str, Any]) -> dict[str, Any]:
    return {"input": wanted["input_text"]} if wanted.get("kind") == "custom" else wanted["arguments"]


def test_all_of_them_are_here() -> None:
    if not RECORDINGS:
        pytest.skip("the recorded traffic is not here")
    assert sum(map(is_responses, RECORDINGS)) == 14
    assert sum(map(succeeds, RECORDINGS)) == 13


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_an_answer_is_read_as_recorded(recording: Recording) -> None:
    expected = recording.expected
    outcome = read(recording)
    assert outcome.code is None, outcome.error
    assert outcome.answer is not None
    assert outcome.finishes == 1
    message = outcome.answer.message
    assert (message.text, message.reasoning) == (expected["text"], expected.get("reasoning", ""))
    assert (outcome.shown, outcome.thought) == (message.text, message.reasoning)
    assert [(call.id, call.name, parse_object(call.arguments)) for call in message.calls] == [
        (call["id"], call["name"], arguments(call)) for call in expected["tool_calls"]
    ]
    assert outcome.answer.raw == expected["finish_reason"]
    assert message.finish_reason == ("tool_use" if expected["tool_calls"] else "stop")


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_usage_is_read_in_our_terms(recording: Recording) -> None:
    norm: dict[str, Any] = recording.expected["usage_norm"]
    usage = read(recording).usage
    assert (usage.input, usage.output) == (norm["input"], norm["output"])
    assert (usage.cache_read, usage.reasoning) == (norm["cached_input"], norm["reasoning"])
    assert usage.cache_write == recording.expected["usage"]["input_tokens_details"].get("cache_write_tokens")


@pytest.mark.parametrize("recording", recordings(lambda found: is_responses(found) and not succeeds(found)))
def test_a_failure_inside_of_a_success_is_one(recording: Recording) -> None:
    outcome = read(recording)
    error = recording.expected["error"]
    assert error["code"] == "insufficient_quota"
    assert (outcome.answer, outcome.code, outcome.finishes) == (None, "QUOTA_EXCEEDED", 0)
    assert error["message"][:60] in outcome.error


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_items_are_kept_whole_and_stand_before_what_belongs_to_them(recording: Recording) -> None:
    wanted: list[tuple[str, Any]] = []
    for event in events(recording):
        if event["type"] != "response.output_item.done":
            continue
        item: dict[str, Any] = event["item"]
        if item["type"] == "message":
            if "phase" in item:
                wanted.append(("kept", {"type": "message", "phase": item["phase"]}))
            wanted.append(("text", "".join(part["text"] for part in item["content"])))
        elif item["type"] == "reasoning":
            parts = [*item["summary"], *item.get("content", ())]
            if parts:
                wanted.append(("reasoning", "".join(part["text"] for part in parts)))
            wanted.append(("kept", item))
        else:
            if item["type"] == "custom_tool_call":
                wanted.append(("kept", item))
            wanted.append(("call", item["call_id"]))
    if recording.id == LATE:
        wanted = [wanted[1], wanted[0], wanted[2]]
    outcome = read(recording)
    assert outcome.answer is not None
    found: list[tuple[str, Any]] = []
    for block in outcome.answer.message.content:
        match block:
            case Text(text=text):
                found.append(("text", text))
            case Reasoning(text=text, signature=None):
                found.append(("reasoning", text))
            case ToolCall(id=id):
                found.append(("call", id))
            case NativeBlock(provider="openai-responses", data=data):
                found.append(("kept", json.loads(data)))
            case _:
                raise AssertionError(block)
    assert found == wanted
    assert outcome.natives == any(kind == "kept" for kind, _ in wanted)


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_what_one_telling_leaves_out_another_one_brings(recording: Recording) -> None:
    """Whatever a server leaves out of what it says up to four times, text and calls are neither lost nor doubled."""
    whole = read(recording)
    assert whole.answer is not None
    told = events(recording)
    pieces = {event["type"] for event in told if event["type"].endswith(".delta")}
    dones = {event["type"] for event in told if event["type"].endswith(".done")} - {"response.output_item.done"}
    items = {"response.output_item.done"}
    added = {"response.output_item.added"}
    for left_out in (pieces, dones, items, pieces | dones, pieces | items, pieces | dones | items | added):
        kept = [event for event in told if event["type"] not in left_out]
        compare(whole, kept, left_out)
    bare: dict[str, Any] = {**told[-1], "response": {**told[-1]["response"], "output": []}}
    without_output = [*told[:-1], bare]
    for left_out in (set[str](), pieces, dones, pieces | dones, pieces | dones | added):
        compare(whole, [event for event in without_output if event["type"] not in left_out], left_out)


def compare(whole: Outcome, told: list[dict[str, Any]], left_out: set[str]) -> None:
    body = b"".join(b"data: " + json.dumps(event).encode() + b"\n\n" for event in told)
    found = decode(body, wire=OpenAIResponsesWire())
    assert found.answer is not None, (found.error, left_out)
    assert whole.answer is not None
    was, message = whole.answer.message, found.answer.message
    assert (message.text, message.reasoning) == (was.text, was.reasoning), left_out
    assert [(call.id, call.name, call.input) for call in message.calls] == [
        (call.id, call.name, call.input) for call in was.calls
    ]
    assert (message.finish_reason, found.usage) == (was.finish_reason, whole.usage)


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_the_last_event_s_answer_as_a_document_is_the_same(recording: Recording) -> None:
    response = events(recording)[-1]["response"]
    body = json.dumps(response).encode()
    whole = read(recording)
    outcome = decode(body, "application/json", [len(body) // 2], wire=OpenAIResponsesWire())
    assert outcome.answer is not None, outcome.error
    assert whole.answer is not None
    assert [block for block in outcome.answer.message.content if type(block) is not NativeBlock] == [
        block for block in whole.answer.message.content if type(block) is not NativeBlock
    ]
    assert (outcome.answer.raw, outcome.usage) == (whole.answer.raw, whole.usage)
    for place in range(0, len(body), 1 + len(body) // 40):
        torn = decode(body[:place], "application/json", wire=OpenAIResponsesWire())
        assert torn.answer is None
        assert torn.code == ("PARTIAL_STREAM" if place else "PROVIDER_DISCONNECT")


@pytest.mark.parametrize("recording", recordings(is_responses))
def test_a_cut_changes_nothing(recording: Recording) -> None:
    whole = read(recording)
    for place in places(recording.body):
        assert read(recording, [place]) == whole, place


@pytest.mark.parametrize("recording", recordings(is_responses))
def test_an_answer_that_comes_byte_by_byte_is_the_same(recording: Recording) -> None:
    assert read(recording, range(len(recording.body))) == read(recording)


if RECORDINGS:

    @given(st.data(), st.sampled_from([recording for recording in RECORDINGS if is_responses(recording)]))
    def test_cuts_anywhere_change_nothing(data: st.DataObject, recording: Recording) -> None:
        cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=40))
        assert read(recording, cuts) == read(recording)


@pytest.mark.parametrize("recording", recordings(succeeds))
def test_a_stream_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    whole = read(recording)
    last = re.compile(rb'data: \{[^\n]*"type": ?"response\.completed"[^\n]*\}')
    [end] = [match.end() for match in last.finditer(recording.body)]
    for place in places(recording.body):
        outcome = decode(recording.body[:place], recording.content_type, wire=OpenAIResponsesWire())
        if place >= end:
            assert outcome == whole, place
            continue
        assert outcome.answer is None, place
        assert outcome.finishes == 0
        some = bool(outcome.shown or outcome.thought or outcome.calls or outcome.natives)
        if not some and outcome.code == "PARTIAL_STREAM":
            # A last event that lacks nothing but its blank line has arrived too, though nobody was shown it.
            arrived = decode(recording.body[:place] + b"\n\n", recording.content_type, wire=OpenAIResponsesWire())
            some = bool(arrived.shown or arrived.thought or arrived.calls or arrived.natives)
        assert outcome.code == ("PARTIAL_STREAM" if some else "PROVIDER_DISCONNECT"), place


ERRORS: dict[str, ErrorCode] = {
    "err-deepseek-400-history": "INVALID_REQUEST",
    "err-openai-400-history": "INVALID_REQUEST",
    "err-openai-400-temperature": "INVALID_REQUEST",
    "err-openai-401": "AUTHENTICATION",
    "err-openai-404-model": "INVALID_REQUEST",
}


@pytest.mark.parametrize("recording", recordings(lambda found: found.id in ERRORS))
def test_a_recorded_error_has_its_code(recording: Recording) -> None:
    assert recording.status is not None
    error = OpenAIResponsesWire().error(recording.status, {}, recording.body)
    assert (error.code, error.status) == (ERRORS[recording.id], recording.status)


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["provider"] == "openai-responses"))
def test_a_quoted_overflow_inside_of_a_success_is_one_in_both_of_its_shapes(entry: dict[str, Any]) -> None:
    assert entry["proposed_code"] == "CONTEXT_OVERFLOW"
    flat = {"type": "error", **{key: value for key, value in entry["body"]["error"].items() if key != "type"}}
    for payload in (entry["body"], flat):
        body = b"event: error\ndata: " + json.dumps(payload).encode() + b"\n\n"
        outcome = decode(body, wire=OpenAIResponsesWire())
        assert (outcome.answer, outcome.code) == (None, "CONTEXT_OVERFLOW")
