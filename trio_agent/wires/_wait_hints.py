"""How long a provider asks to wait, in every form in which providers say it; looks at no clock."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime
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

RESET: Final = re.compile(r"x-ratelimit-reset(?:-.+)?|anthropic-ratelimit-.+-reset")
"""A header that says when an allowance is full again; with ``remaining`` for ``reset``, the one of what is left of it."""

SINCE_1970: Final = 1e9
"""A number of this size is no wait but a point in time, in seconds since 1970, or in milliseconds if it is a hundred
times larger."""


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
    for name, text in headers.items():
        if RESET.fullmatch(name) is None or (_number(headers.get(name.replace("reset", "remaining"), "")) or 0) > 0:
            continue
        seconds = _moment(headers, text)
        if seconds is not None:
            found.append(seconds)
    return found


def _moment(headers: Mapping[str, str], text: str) -> float | None:
    """Seconds of a duration, or until a point in time in one of its written forms."""
    then = parse_duration(text)
    if then is None:
        then = _date(text)
    elif then < SINCE_1970:
        return then
    elif then >= SINCE_1970 * 100:
        then /= 1000
    now = _date(headers.get("date", ""))
    return None if then is None or now is None else max(then - now, 0.0)


def _date(text: str) -> float | None:
    """Seconds since 1970."""
    for read in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = read(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            continue
        if date.tzinfo is not None:
            return date.timestamp()
    return None
