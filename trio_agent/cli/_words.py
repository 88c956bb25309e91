"""What others wrote, made fit for a terminal: a model's text or a tool's must not move its cursor.

Pure.
"""

from __future__ import annotations

import unicodedata

__all__ = ["printable"]

_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text without control characters, line ends and tabs excepted; a carriage return is one."""
    if text.isprintable():
        return text
    return "".join(c for c in text if c in _KEPT or unicodedata.category(c) not in ("Cc", "Cs"))
