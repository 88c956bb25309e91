"""Takes keys out of texts that a server sent back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

__all__ = ["redact"]

MARK: Final = "[redacted]"

SHORTEST_SECRET: Final = 8
"""Characters.  What is shorter is a stand-in ("none", "x") of a local server, and common in any text."""

KEYS: Final = re.compile(
    r"\b(?:sk|pk|rk|xai|csk|pplx)-[\w*.\-]{6,}"
    r"|\b(?:gsk|hf|ghp|gho|tgp)_[\w*.\-]{6,}"
    r"|\bAIza[\w\-]{10,}"
)
"""Keys that their beginning gives away."""

NAMED: Final = re.compile(
    r"(\bbearer\s+|\b(?:x-)?api[-_]?key\b[\"']?\s*[:=]\s*[\"']?|\bauthorization[\"']?\s*[:=]\s*[\"']?(?:basic\s+)?)"
    # A digit, or great length: "Bearer authentication" is no secret.
    r"((?=[^\s\"',;}]*\d)[^\s\"',;}]{6,}|[^\s\"',;}]{20,})",
    re.IGNORECASE,
)
"""Keys that the word before them gives away."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """``text`` without ``secrets`` and without anything that looks like a key."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            text = text.replace(secret, MARK)
    return NAMED.sub(rf"\1{MARK}", KEYS.sub(MARK, text))
