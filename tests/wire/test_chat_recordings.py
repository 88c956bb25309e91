"""Every recorded answer of a chat completions server is read rightly, wherever the network cuts it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from tests.wire.recordings import RECORDINGS, Recording, answers, recordings
from trio_agent._messages import parse_object

SMALL = 4_000
"""Bytes up to which an answer is cut at every position."""

LARGE = 10_000
"""Of a body n times as large only every n-th line end is looked at: the lines are alike."""

FAILING = {
    "groq-error-midstream": "PARTIAL_STREAM",
    "llamacpp-python-empty-stream": "PROVIDER_DISCONNECT",
    "openrouter-error-midstream": "PARTIAL_STREAM",
}

ONLY_IN_DETAILS = {"snowflake-thinking": "15 * 27 = 405"}
"""Reasoning that stands only in ``reasoning_details``, which the reader behind the expectations leaves out."""

REASONS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


def is_chat(recording: Recording) -> bool:
    return recording.folder in ("chat", "llamacpp", "llamacpp-python") and recording.api == "openai-chat"


def read(recording: Recording, cuts: tuple[int, ...] | list[int] | range = ()) -> Outcome:
    return decode(recording.body, recording.content_type, cuts)


def places_that_matter(body: bytes) -> list[int]:
    """Every place of a small body; of a large one those around line ends and inside characters."""
    if len(body) <= SMALL:
        return list(range(len(body) + 1))
    places = {0, len(body)}
    line_ends = list(re.finditer(rb"[\r\n]", body))
    for match in line_ends[:: max(1, len(body) // LARGE)]:
        places |= {match.start() - 1, match.start(), match.end(), match.end() + 1}
    places |= {place for place in range(len(body)) if body[place] & 0xC0 == 0x80}
    return sorted(place for place in places if 0 <= place <= len(body))


def settled_at(body: bytes) -> int | None:
    """Where the first line ends that says that the first choice is complete; ``None`` if none does."""
    for match in re.finditer(rb"data: ?([^\r\n]*)", body):
        data = match[1]
        if data == b"[DONE]":
            return match.end()
        for choice in json.loads(data).get("choices") or ():
            if choice.get("index", 0) == 0 and choice.get("finish_reason"):
                return match.end()
    return None


@pytest.mark.parametrize("recording", answers())
def test_an_answer_is_read_as_recorded(recording: Recording) -> None:
    expected = recording.expected
    outcome = read(recording)
    if recording.id in FAILING:
        assert outcome.code == FAILING[recording.id]
        assert outcome.answer is None
        assert outcome.finishes == 0
        assert outcome.thought == expected.get("reasoning", "")
        return
    assert outcome.code is None, outcome.error
    assert outcome.answer is not None
    assert outcome.finishes == 1
    message = outcome.answer.message
    assert message.text == (expected.get("refusal") or expected["text"])
    assert message.reasoning == expected.get("reasoning", ONLY_IN_DETAILS.get(recording.id, ""))
    wanted = expected["tool_calls"] or [expected[key] for key in ("legacy_function_call",) if key in expected]
    assert [(call.id, call.name, parse_object(call.arguments)) for call in message.calls] == [
        (call["id"] or "", call["name"], call["arguments"]) for call in wanted
    ]
    raw = expected["finish_reason"]
    assert outcome.answer.raw == raw
    reason = REASONS[raw] if raw else ("tool_use" if wanted else "stop")
    assert message.finish_reason == ("refusal" if expected.get("refusal") else reason)


@pytest.mark.parametrize("recording", answers())
def test_usage_is_read_in_our_terms(recording: Recording) -> None:
    norm: dict[str, Any] | None = recording.expected.get("usage_norm")
    usage = read(recording).usage
    if norm is None:
        assert (usage.input, usage.output, usage.cache_read, usage.reasoning) == (None, None, None, None)
        return
    # Where the total is larger than its parts, hidden reasoning is outside of the provider's output.
    assert (usage.input, usage.output) == (norm["input"], max(norm["output"], norm["total"] - norm["input"]))
    assert usage.reasoning == norm.get("reasoning")
    if "cached_input" in norm:
        assert usage.cache_read == norm["cached_input"]


def test_reasoning_outside_of_the_output_is_counted_into_it() -> None:
    [recording] = [found for found in RECORDINGS if found.id == "xai-tool-call"] or [None]
    if recording is None:
        pytest.skip("the recorded traffic is not here")
    usage = read(recording).usage
    assert (usage.input, usage.output, usage.reasoning, usage.cache_read) == (291, 26 + 196, 196, 290)


@pytest.mark.parametrize("recording", answers())
def test_a_cut_changes_nothing(recording: Recording) -> None:
    whole = read(recording)
    for place in places_that_matter(recording.body):
        assert read(recording, [place]) == whole, place


@pytest.mark.parametrize("recording", answers())
def test_an_answer_that_comes_byte_by_byte_is_the_same(recording: Recording) -> None:
    assert read(recording, range(len(recording.body))) == read(recording)


if RECORDINGS:

    @given(st.data(), st.sampled_from([recording for recording in RECORDINGS if is_chat(recording)]))
    def test_cuts_anywhere_change_nothing(data: st.DataObject, recording: Recording) -> None:
        cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=40))
        assert read(recording, cuts) == read(recording)


@pytest.mark.parametrize("recording", recordings(lambda found: is_chat(found) and found.body[:1] != b"{"))
def test_a_stream_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    whole = read(recording)
    settled = settled_at(recording.body)
    for place in places_that_matter(recording.body):
        outcome = decode(recording.body[:place], recording.content_type)
        if outcome.answer is not None:
            assert settled is not None
            assert place >= settled, place
            if whole.answer is not None:  # else an error came after the finish reason
                assert outcome.answer.message == whole.answer.message, place
            continue
        assert outcome.finishes == 0
        some = bool(outcome.shown or outcome.thought or outcome.calls)
        if not some and outcome.code == "PARTIAL_STREAM":
            # A last event that lacks nothing but its blank line has arrived too, though nobody was shown it.
            arrived = decode(recording.body[:place] + b"\n\n", recording.content_type)
            some = bool(arrived.shown or arrived.thought or arrived.calls)
        assert outcome.code == ("PARTIAL_STREAM" if some else "PROVIDER_DISCONNECT"), place
        assert settled is None or place < settled or whole.answer is None, place


@pytest.mark.parametrize("recording", recordings(lambda found: is_chat(found) and found.body[:1] == b"{"))
def test_a_document_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    for place in range(len(recording.body.rstrip())):
        outcome = decode(recording.body[:place], recording.content_type)
        assert outcome.answer is None
        assert outcome.code == ("PARTIAL_STREAM" if place else "PROVIDER_DISCONNECT")
