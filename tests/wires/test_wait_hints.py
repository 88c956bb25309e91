"""How long to wait is found in every form, the most trusted first, and without a clock."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_agent import wires
from trio_agent._ports import Wire
from trio_agent.wires import classify
from trio_agent.wires._wait_hints import parse_duration, wait_hint

NOW = {"date": "Wed, 21 Oct 2026 07:28:00 GMT"}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1),
        ("6m0s", 360),
        ("12ms", 0.012),
        ("1m6.779s", 66.779),
        ("59.369s", 59.369),
        ("1h2m3.5s", 3723.5),
        ("2d", 172_800),
        ("9m38.016s", 578.016),
        ("34.4s", 34.4),
        ("20", 20),
        ("0", 0),
        ("20 seconds", 20),
        ("1 minute", 60),
        ("2 hours 5 mins", 7500),
        ("", None),
        ("soon", None),
        ("-3", None),
        ("3 months", None),
        ("5 x", None),
        ("nan", None),
        ("inf", None),
        ("9" * 400, None),
        ("9" * 400 + "s", None),
    ],
)
def test_a_duration_is_read(text: str, seconds: float | None) -> None:
    found = parse_duration(text)
    assert found == (None if seconds is None else pytest.approx(seconds))


@given(st.integers(0, 100), st.integers(0, 59), st.integers(0, 59_999))
def test_a_duration_that_is_written_is_read(hours: int, minutes: int, milliseconds: int) -> None:
    text = f"{hours}h{minutes}m{milliseconds / 1000:.3f}s"
    assert parse_duration(text) == pytest.approx(hours * 3600 + minutes * 60 + milliseconds / 1000)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "7.5"}, 7.5),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT", **NOW}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 07:27:30 GMT", **NOW}, 0),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:30 GMT"}, None),
        ({"retry-after": "tomorrow", **NOW}, None),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"x-ratelimit-reset-requests": "6m0s"}, 360),
        ({"x-ratelimit-reset-requests": "12ms", "x-ratelimit-reset-tokens": "4s"}, 4),
        (
            {
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "2s",
                "x-ratelimit-remaining-tokens": "159970",
                "x-ratelimit-reset-tokens": "6m0s",
            },
            2,
        ),
        ({"anthropic-ratelimit-tokens-reset": "2026-10-21T07:29:00Z", **NOW}, 60),
        ({"anthropic-ratelimit-tokens-reset": "2026-10-21T07:29:00Z"}, None),
        ({"anthropic-ratelimit-requests-reset": "2026-10-21T09:28:05.5+02:00", **NOW}, 5.5),
        ({"anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:27:00Z", **NOW}, 0),
        ({"anthropic-ratelimit-output-tokens-reset": "2026-10-21T07:29:00", **NOW}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "49",
                "anthropic-ratelimit-requests-reset": "2026-10-21T07:38:00Z",
                "anthropic-ratelimit-input-tokens-remaining": "0",
                "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:28:20Z",
                **NOW,
            },
            20,
        ),
        ({"x-ratelimit-reset-tokens-minute": "11.38", "x-ratelimit-reset-requests-day": "33011.4"}, 33011.4),
        (
            {
                "x-ratelimit-remaining-tokens-minute": "0",
                "x-ratelimit-reset-tokens-minute": "11.38",
                "x-ratelimit-remaining-requests-day": "99",
                "x-ratelimit-reset-requests-day": "33011.4",
            },
            11.38,
        ),
        ({"x-ratelimit-reset": "5"}, 5),
        ({"x-ratelimit-reset": "5", "x-ratelimit-remaining": "1"}, None),
        ({"x-ratelimit-reset": "1792567710", **NOW}, 30),
        ({"x-ratelimit-reset": "1792567710500", **NOW}, 30.5),
        ({"x-ratelimit-reset": "1792567710"}, None),
        ({"x-ratelimit-reset": "1792567000", **NOW}, 0),
        ({"anthropic-ratelimit-unified-5h-reset": "1792567690", **NOW}, 10),
        ({"anthropic-ratelimit-tokens-limit": "7", "x-ratelimit-limit-tokens": "7", "x-reset": "7"}, None),
        ({"retry-after": "Wednesday, 21-Oct-26 07:28:30 GMT", **NOW}, 30),
        ({"retry-after": "Wed, 21 Oct 2026 09:28:30 +0200", **NOW}, 30),
        ({"retry-after": "7", "date": "yesterday"}, 7),
        ({"retry-after": "-7"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after-ms": "-1", "retry-after": "3"}, 3),
        ({}, None),
    ],
)
def test_a_header_says_how_long(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_hint(headers, limited=True) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please try again in 9m38.016s. Visit x", 578.016),
        ("Please try again in 4.77s.", 4.77),
        ("Please retry in 34.4s.", 34.4),
        ("Try again in 20 seconds.", 20),
        ("try again after 1 minute, please", 60),
        ("wait 5 seconds before", 5),
        ("Please try again later.", None),
        ("Please wait a moment and try again.", None),
        ("Limit 7000, Requested 12903", None),
        ("try again in 5 months", None),
    ],
)
def test_a_text_says_how_long(text: str, seconds: float | None) -> None:
    assert wait_hint({}, text=text) == (None if seconds is None else pytest.approx(seconds))


def test_the_most_trusted_form_wins() -> None:
    told = {"retry-after-ms": "2000", "retry-after": "3", "x-ratelimit-reset-tokens": "4s"}
    text = "Please try again in 6s."
    assert wait_hint(told, retry_delay="5s", text=text, limited=True) == 2
    del told["retry-after-ms"]
    assert wait_hint(told, retry_delay="5s", text=text, limited=True) == 3
    del told["retry-after"]
    assert wait_hint(told, retry_delay="5s", text=text, limited=True) == 5
    assert wait_hint(told, text=text, limited=True) == 4
    assert wait_hint({}, text=text, limited=True) == 6


def test_when_allowances_are_full_again_matters_to_a_rate_limit_only() -> None:
    headers = {"X-RateLimit-Reset-Tokens": "4s"}
    assert classify(429, headers, b"").retry_after == 4
    assert classify(500, headers, b"").retry_after is None
    assert classify(503, {"Retry-After": "2"}, b"").retry_after == 2


def limited(delay: str) -> bytes:
    details = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay},
    ]
    error = {"code": 429, "message": "Too many.", "status": "RESOURCE_EXHAUSTED", "details": details}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(("delay", "seconds"), [("34.4s", 34.4), ("0.25s", 0.25), ("3600s", 3600), ("soon", None)])
def test_google_says_it_in_the_body(delay: str, seconds: float | None) -> None:
    assert classify(429, {}, limited(delay)).retry_after == seconds
    assert classify(None, {}, limited(delay)).retry_after == seconds
    assert classify(429, {"Retry-After": "2"}, limited(delay)).retry_after == 2


@pytest.mark.parametrize("name", [name for name in wires.__all__ if name.endswith("Wire")])
def test_every_wire_hears_it(name: str) -> None:
    wire: Wire = getattr(wires, name)()
    error = wire.error(429, {"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": NOW["date"]}, b"")
    assert (error.code, error.retry_after) == ("RATE_LIMIT", 30)
    assert wire.error(503, {"x-should-retry": "false"}, b"").retryable is False
