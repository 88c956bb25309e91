"""Every recorded answer of Ollama is read rightly, wherever the network cuts it."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.decoding import Outcome, decode
from tests.wire.recordings import RECORDINGS, Recording, recordings
from trio_agent._messages import parse_object
from trio_agent.wires import OllamaWire

SMALL = 8_000
"""Bytes up to which an answer is cut at every place."""


def is_ollama(recording: Recording) -> bool:
    return recording.api == "ollama"


def is_stream(recording: Recording) -> bool:
    return is_ollama(recording) and "ndjson" in recording.content_type


def is_document(recording: Recording) -> bool:
    return is_ollama(recording) and not is_stream(recording)


def read(recording: Recording, cuts: Any = ()) -> Outcome:
    return decode(recording.body, recording.content_type, cuts, wire=OllamaWire())


def places(body: bytes) -> list[int]:
    if len(body) <= SMALL:
        return list(range(len(body) + 1))
    ends = [match.start() for match in re.finditer(rb"\n", body)][::20]
    inside = [place for place in range(len(body)) if body[place] & 0xC0 == 0x80]
    return sorted({0, len(body), *inside, *(end + step for end in ends for step in (-1, 0, 1) if end + step >= 0)})


@pytest.mark.parametrize("recording", recordings(is_ollama))
def test_an_answer_is_read_as_recorded(recording: Recording) -> None:
    expected = recording.expected
    outcome = read(recording)
    assert outcome.code is None, outcome.error
    assert outcome.answer is not None
    assert outcome.finishes == 1
    message = outcome.answer.message
    assert (message.text, message.reasoning) == (expected["text"], expected.get("reasoning", ""))
    calls = expected["tool_calls"]
    assert [(call.name, parse_object(call.arguments)) for call in message.calls] == [
        (call["name"], call["arguments"]) for call in calls
    ]
    assert outcome.answer.raw == expected["finish_reason"]
    assert message.finish_reason == ("tool_use" if calls else "stop")
    norm = expected["usage_norm"]
    assert (outcome.usage.input, outcome.usage.output) == (norm.get("input"), norm["output"])


@pytest.mark.parametrize("recording", recordings(is_ollama))
def test_a_cut_changes_nothing(recording: Recording) -> None:
    whole = read(recording)
    for place in places(recording.body):
        assert read(recording, [place]) == whole, place


@pytest.mark.parametrize("recording", recordings(is_ollama))
def test_an_answer_that_comes_byte_by_byte_is_the_same(recording: Recording) -> None:
    assert read(recording, range(len(recording.body))) == read(recording)


if RECORDINGS:

    @given(st.data(), st.sampled_from([recording for recording in RECORDINGS if is_ollama(recording)]))
    def test_cuts_anywhere_change_nothing(data: st.DataObject, recording: Recording) -> None:
        cuts = data.draw(st.lists(st.integers(0, len(recording.body)), max_size=40))
        assert read(recording, cuts) == read(recording)


@pytest.mark.parametrize("recording", recordings(is_stream))
def test_a_stream_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    last = recording.body.rstrip().rfind(b"\n") + 1
    end = len(recording.body.rstrip())
    for place in places(recording.body):
        outcome = decode(recording.body[:place], recording.content_type, wire=OllamaWire())
        if place >= end:
            assert outcome.answer == read(recording).answer
            continue
        assert outcome.answer is None, place
        assert outcome.finishes == 0
        some = bool(outcome.shown or outcome.thought or outcome.calls)
        if not some and place < last and outcome.code == "PARTIAL_STREAM":
            # A line that lacks nothing but its end has arrived too, though nobody was shown it.
            arrived = decode(recording.body[:place] + b"\n", recording.content_type, wire=OllamaWire())
            some = bool(arrived.shown or arrived.thought or arrived.calls)
        assert outcome.code == ("PARTIAL_STREAM" if some else "PROVIDER_DISCONNECT"), place


@pytest.mark.parametrize("recording", recordings(is_document))
def test_a_document_that_ends_early_is_never_taken_for_complete(recording: Recording) -> None:
    for place in range(len(recording.body.rstrip())):
        outcome = decode(recording.body[:place], recording.content_type, wire=OllamaWire())
        assert (outcome.answer, outcome.code) == (None, "PARTIAL_STREAM" if place else "PROVIDER_DISCONNECT")
