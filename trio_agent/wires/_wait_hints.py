"""How long a provider asks to wait, in every form in which providers say it; looks at no clock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

__all__ = ["parse_duration", "wait_hint"]

SECONDS: Final[Mapping[str, float]] = {
    "milliseconds": 0.001,
    "ms": 0.001,
    "seconds": 1,
    "secs": 1,
    "s": 1,
    "minutes": 60,
    "mins": 60,
    "m": 60,
    "hours": 3600,
    "h": 3600,
    "days": 86400,
    "d": 86400,
}
"""Of each unit; a long one may lack its last letter."""

PART: Final = re.compile(
    r"(\d+(?:\.\d+)?)\s?(milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|h|days?|d)(?![a-z])", re.IGNORECASE
)
DURATION: Final = re.compile(rf"(?:{PART.pattern}\s?)+", re.IGNORECASE)
ASKED: Final = re.compile(r"\b(?:try again|retry|wait)\s+(?:(?:in|after|for)\s+)?(?=\d)", re.IGNORECASE)

RESETS: Final = (
    ("x-ratelimit-reset-requests", "x-ratelimit-remaining-requests"),
    ("x-ratelimit-reset-tokens", "x-ratelimit-remaining-tokens"),
    ("anthropic-ratelimit-requests-reset", "anthropic-ratelimit-requests-remaining"),
    ("anthropic-ratelimit-tokens-reset", "anthropic-ratelimit-tokens-remaining"),
    ("anthropic-ratelimit-input-tokens-reset", "anthropic-ratelimit-input-tokens-remaining"),
    ("anthropic-ratelimit-output-tokens-reset", "anthropic-ratelimit-output-tokens-remaining"),
)
"""A header that says when an allowance is full again, and the one that says what is left of it."""


def wait_hint(
    headers: Mapping[str, str], *, retry_delay: str = "", text: str = "", limited: bool = False
) -> float | None:
    """Seconds that the provider asked to wait, by the form that is to be trusted most; ``None``: it did not say.

    Args:
      headers: of the answer, names in lower case.  A point in time is held against their ``date``, which
        is the server's own clock; without it such a hint is worth nothing.
      retry_delay: Google's ``RetryInfo.retryDelay``.
      text: the error's message.
      limited: a rate limit was hit, so the headers that tell when allowances are full again mean something.
    """
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    for hint in (_moment(headers, headers.get("retry-after", "")), parse_duration(retry_delay)):
        if hint is not None:
            return hint
    if limited and (resets := list(_resets(headers))):
        return max(resets)
    asked = ASKED.search(text)
    found = DURATION.match(text, asked.end()) if asked else None
    return parse_duration(found.group()) if found else None


def parse_duration(text: str) -> float | None:
    """Seconds of ``"6m0s"``, ``"12ms"``, ``"1h2m3.5s"``, ``"20 seconds"`` or a bare number of seconds."""
    text = text.strip()
    if not DURATION.fullmatch(text):
        return _number(text)
    total = 0.0
    for amount, unit in PART.findall(text):
        name = unit.lower()
        total += float(amount) * SECONDS[name if name in SECONDS else name + "s"]
    return total if math.isfinite(total) else None


def _number(text: str) -> float | None:
    text = text.strip()
    if not re.fullmatch(r"\d+(?:\.\d+)?", text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def _resets(headers: Mapping[str, str]) -> list[float]:
    """Of the allowances that may have run out: one of which something is left did not."""
    found: list[float] = []
    for reset, remaining in RESETS:
        if (_number(headers.get(remaining, "")) or 0) > 0:
            continue
        seconds = _moment(headers, headers.get(reset, ""))
        if seconds is not None:
            found.append(seconds)
    return found


def _moment(headers: Mapping[str, str], text: str) -> float | None:
    """Seconds of a duration, or until a point in time in either of its written forms."""
    duration = parse_duration(text)
    if duration is not None:
        return duration
    then, now = _date(text), _date(headers.get("date", ""))
    if then is None or now is None:
        return None
    return max((then - now) / timedelta(seconds=1), 0.0)


def _date(text: str) -> datetime | None:
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        if date.tzinfo is not None:
            return date
    return None
