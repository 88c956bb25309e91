"""Every recorded answer of Gemini is read rightly, wherever the network cuts it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from tests.wire.recordings import RECORDINGS, Recording, quoted, recordings
from trio_agent._messages import NativeBlock, parse_object
from trio_agent.wires import GeminiWire

REASONS = {"STOP": "stop", "MAX_TOKENS": "length", "SAFETY": "refusal"}

BLOCKED = "gemini-json-prompt-blocked"

ERRORS = {
    "err-gemini-400-key": "AUTHENTICATION",
    "err-gemini-404": "INVALID_REQUEST",
    "err-gemini-429": "RATE_LIMIT",
    "err-gemini-429-retryinfo": "RATE_LIMIT",
}


def is_gemini(recording: Recording) -> bool:
    return recording.api == "gemini"


def is_stream(recording: Recording) -> bool:
    return is_gemini(recording) and recording.body[:1] != b"{"


def is_document(recording: Recording) -> bool:
    return is_gemini(recording) and not is_stream(recording)


def read(recording: Recording, cuts: Any = ()) -> Outcome:
    return decode(recording.body, recording.content_type, cuts, wire=GeminiWire())


def marks(outcome: Outcome) -> list[dict[str, Any]]:
    assert outcome.answer is not None
    return [json.loads(block.data) for block in outcome.answer.message.content if type(block) is NativeBlock]


def settled_at(body: bytes) -> int:
    """Where the line ends that has the finish reason."""
    for match in re.finditer(rb"data: ?([^\r\n]*)", body):
        if any(candidate.get("finishReason") for candidate in json.loads(match[1])["candidates"]):
            return match.end()
    raise AssertionError("no finish reason")


@pytest.mark.parametrize("recording", recordings(is_gemini))
def test_an_answer_is_read_as_recorded(recording: Recording) -> None:
    expected = recording.expected
    outcome = read(recording)
    if recording.id == BLOCKED:
        assert (outcome.answer, outcome.code, outcome.finishes) == (None, "CONTENT_FILTER", 0)
        assert expected["block_reason"] in outcome.error
        return
    assert outcome.code is None, outcome.error
    assert outcome.answer is not None
    assert outcome.finishes == 1
    message = outcome.answer.message
    assert (message.text, message.reasoning) == (expected["text"], expected.get("reasoning", ""))
    calls = expected["tool_calls"]
    assert [(call.id, call.name, parse_object(call.arguments)) for call in message.calls] == [
        (call["id"] or "", call["name"], call["arguments"]) for call in calls
    ]
    assert outcome.answer.raw == expected["finish_reason"]
    assert message.finish_reason == ("tool_use" if calls else REASONS[expected["finish_reason"]])
    assert sum("thoughtSignature" in mark for mark in marks(outcome)) == expected.get("thought_signatures", 0)


@pytest.mark.parametrize("recording", recordings(is_gemini))
def test_usage_is_read_in_our_terms(recording: Recording) -> None:
    norm: dict[str, Any] = recording.expected["usage_norm"]
    usage = read(recording).usage
    assert (usage.input, usage.reasoning) == (norm.get("input"), norm.get("reasoning"))
    if "output" in norm or "reasoning" in norm:
        assert usage.output == norm.get("output", 0) + norm.get("reasoning", 0) == norm["total"] - norm["input"]
    else:
        assert usage.output is None  # unknown is not 0


@pytest.mark.parametrize("recording", recordings(is_gemini))
def test_a_cut_changes_nothing(recording: Recording) -> None:
    whole = read(recording)
    for place in range(len(recording.body) + 1):
        assert read(recording, [place]) == whole, place


@pytest.mark.parametrize("recording", recordings(is_gemini))
def test_an_answer_that_comes_byte_by_byte_is_the_same(recording: Recording) -> None:
    assert read(recording, range(len(recording.body))) == read(recording)


if RECORDINGS:

    @given(st.data(), st.sampled_from([recording for recording in RECORDINGS if is_gemini(recording)]))
    def test_cuts_anywhere_change_nothing(data: st.DataObject, recording: Recording) -> None:
        cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=40))
        assert read(recording, cuts) == read(recording)


@pytest.mark.parametrize("recording", recordings(is_stream))
def test_a_stream_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    whole = read(recording)
    settled = settled_at(recording.body)
    for place in range(len(recording.body) + 1):
        outcome = decode(recording.body[:place], recording.content_type, wire=GeminiWire())
        if place >= settled:
            assert outcome == whole, place
            continue
        assert (outcome.answer, outcome.finishes) == (None, 0)
        # A last event that lacks nothing but its blank line has arrived too, though nobody was shown it.
        arrived = decode(recording.body[:place] + b"\n\n", recording.content_type, wire=GeminiWire())
        some = bool(arrived.shown or arrived.thought or arrived.calls)
        assert bool(outcome.shown or outcome.thought or outcome.calls) <= some
        assert outcome.code == ("PARTIAL_STREAM" if some else "PROVIDER_DISCONNECT"), place


@pytest.mark.parametrize("recording", recordings(is_document))
def test_a_document_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    for place in range(len(recording.body.rstrip())):
        outcome = decode(recording.body[:place], recording.content_type, wire=GeminiWire())
        assert outcome.answer is None
        assert outcome.code == ("PARTIAL_STREAM" if place else "PROVIDER_DISCONNECT")


@pytest.mark.parametrize("recording", recordings(is_stream))
def test_a_stream_that_was_asked_for_without_events_is_the_same(recording: Recording) -> None:
    payloads = re.findall(rb"data: ?([^\r\n]*)", recording.body)
    array = decode(b"[" + b",\r\n".join(payloads) + b"\r\n]", "application/json; charset=UTF-8", wire=GeminiWire())
    assert array == read(recording)


@pytest.mark.parametrize("recording", recordings(lambda found: found.provider == "gemini" and found.folder == "errors"))
def test_a_recorded_error_has_its_code(recording: Recording) -> None:
    assert recording.status is not None
    error = GeminiWire().error(recording.status, {}, recording.body)
    assert (error.code, error.status) == (ERRORS[recording.id], recording.status)
    assert error.retry_after == (34.4 if recording.id == "err-gemini-429-retryinfo" else None)
    told = json.loads(recording.body)["error"]["message"]
    assert told[:60] in error.message


@pytest.mark.parametrize("recording", recordings(lambda found: found.id.startswith("err-gemini")))
@pytest.mark.parametrize("wrapped", [False, True])
def test_an_error_inside_of_an_answer_has_the_same_code(recording: Recording, wrapped: bool) -> None:
    body = recording.body.strip().replace(b"\n", b"")
    body = b"[" + body + b"]" if wrapped else body
    for content_type, sent in (("text/event-stream", b"data: " + body + b"\r\n\r\n"), ("application/json", body)):
        outcome = decode(sent, content_type, wire=GeminiWire())
        assert (outcome.answer, outcome.code) == (None, ERRORS[recording.id])


@pytest.mark.parametrize("entry", quoted(lambda entry: entry["provider"] == "gemini"))
def test_a_quoted_error_has_its_code(entry: dict[str, Any]) -> None:
    error = GeminiWire().error(entry["http_status"], {}, json.dumps(entry["body"]).encode())
    assert error.code == entry["proposed_code"]
