"""The whole index at once: every recorded answer through its vendor's wire, counted.  ``-s`` prints the counts."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.wire.decoding import decode
from tests.wire.recordings import ABSENT, RECORDINGS, Recording
from trio_agent._messages import parse_object
from trio_agent.wires import AnthropicWire, GeminiWire, OllamaWire, OpenAIChatWire, OpenAIResponsesWire

WIRES: dict[str, Any] = {
    "anthropic-messages": AnthropicWire,
    "gemini": GeminiWire,
    "ollama": OllamaWire,
    "openai-chat": OpenAIChatWire,
    "openai-responses": OpenAIResponsesWire,
}

COUNTS = {"anthropic-messages": 18, "gemini": 13, "ollama": 4, "openai-chat": 56, "openai-responses": 14}

ELSEWHERE = {"error": 25, "chat messages": 12}
"""Errors are counted by ``test_errors.py``, whole conversations are played by ``test_trajectories.py``."""

FAILING = {
    "gemini-json-prompt-blocked": "CONTENT_FILTER",
    "groq-error-midstream": "PARTIAL_STREAM",
    "llamacpp-python-empty-stream": "PROVIDER_DISCONNECT",
    "openrouter-error-midstream": "PARTIAL_STREAM",
    "responses-quota-error": "QUOTA_EXCEEDED",
}
"""Answers that are errors, and what they come to."""


def wanted(recording: Recording) -> list[tuple[str, Any]]:
    expected = recording.expected
    calls = expected["tool_calls"] or [expected[key] for key in ("legacy_function_call",) if key in expected]
    return [(call["name"], call.get("arguments", {"input": call.get("input_text")})) for call in calls]


def arguments(text: str) -> Any:
    """Parsed; of a call that was cut off, as they came."""
    try:
        return parse_object(text)
    except ValueError:
        return text


def is_read_as_expected(recording: Recording) -> bool:
    outcome = decode(recording.body, recording.content_type, wire=WIRES[recording.api]())
    if recording.id in FAILING or outcome.answer is None:
        return outcome.answer is None and FAILING.get(recording.id) == outcome.code
    message, expected = outcome.answer.message, recording.expected
    text = expected.get("refusal") or expected["text"]
    usage = expected.get("usage_norm")
    beside = 0
    if recording.api == "anthropic-messages":  # which counts what its cache held beside the input
        beside = usage.get("cached_input", 0) + usage.get("cache_write", 0)
    return (
        message.text == text
        and [(call.name, arguments(call.arguments)) for call in message.calls] == wanted(recording)
        and (usage is None or outcome.usage.input == usage["input"] + beside)
    )


@pytest.mark.skipif(not RECORDINGS, reason=ABSENT)
def test_every_recorded_answer_is_read_as_expected() -> None:
    read: Counter[str] = Counter()
    for recording in RECORDINGS:
        if recording.api in WIRES:
            right = is_read_as_expected(recording)
            read[recording.api] += right
            if not right:
                print(f"not read as expected: {recording.id}")
    for api, count in COUNTS.items():
        print(f"{api:<20} {read[api]:>3} of {count}")
    print(f"{'all':<20} {sum(read.values()):>3} of {sum(COUNTS.values())}")
    assert read == COUNTS


@pytest.mark.skipif(not RECORDINGS, reason=ABSENT)
def test_no_entry_of_the_index_is_left_out() -> None:
    assert Counter(recording.api for recording in RECORDINGS) == {**COUNTS, **ELSEWHERE}
