"""Keys do not get through, and other words do."""

from __future__ import annotations

import pytest

from trio_agent.wires import redact


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Incorrect API key provided: sk-proj-abc***xyz.", "Incorrect API key provided: [redacted]"),
        ("key gsk_0123456789abcdef here", "key [redacted] here"),
        ("AIzaSyA1234567890abcdefg", "[redacted]"),
        ("Authorization: Bearer abc123def", "Authorization: Bearer [redacted]"),
        ('{"authorization": "Basic dXNlcjpwYXNz1"}', '{"authorization": "Basic [redacted]"}'),
        ('{"api_key": "0123456789"}', '{"api_key": "[redacted]"}'),
        ("x-api-key=deadbeef01", "x-api-key=[redacted]"),
        ("bearer " + "x" * 40, "bearer [redacted]"),
    ],
)
def test_a_key_is_taken_out(text: str, kept: str) -> None:
    assert redact(text) == kept


@pytest.mark.parametrize(
    "text",
    [
        "Bearer authentication is required.",
        "Invalid API key provided.",
        "the task-specific model",
        "No cookie auth credentials found",
        "api_key: missing",
        "sk-.",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text


def test_a_known_secret_is_taken_out_whatever_it_looks_like() -> None:
    assert redact("You sent correct horse!", ["correct horse"]) == "You sent [redacted]!"


def test_a_stand_in_for_a_key_is_no_secret() -> None:
    assert redact("none of the models", ["none"]) == "none of the models"
