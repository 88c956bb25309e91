"""What the lines of a session's file say, and what is said of one that was not written to its end.

Knows nothing of locks, nor of when a file is written.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO, Final, cast, final

import attrs

__all__ = ["FORMAT", "TornTail", "as_read", "header_line", "header_of", "json_object", "line_at", "line_before"]

FORMAT: Final = 1
"""Of a session's file; each fact has a version of its own besides."""
_BLOCK: Final = 65_536


@final
@attrs.frozen
class TornTail:
    """What a crash has left of a record that was being written: no append that has returned wrote it."""

    session: str
    path: str
    """The session's file."""
    line: int
    """Which line it is, from 1."""
    offset: int
    """Where it begins, in bytes."""
    size: int
    """How long it is, in bytes."""
    kept: str | None
    """The file to which it was moved; ``None``: it was left out by a read, and stands there still."""

    def __str__(self) -> str:
        what = f"session {self.session!r}: {self.path}, line {self.line}: a record was not written to its end"
        fate = "it is left out" if self.kept is None else f"it was moved to {self.kept}"
        return f"{what} ({self.size} bytes from byte {self.offset} on); {fate}"


def header_line(session: str) -> bytes:
    """The first line of a session's file."""
    header = {"trio_agent": "session", "v": FORMAT, "session": session}
    return f"{json.dumps(header, separators=(',', ':'))}\n".encode()


def header_of(line: bytes) -> dict[str, Any] | None:  # Any: JSON
    """What a session's header says; ``None``: it is none."""
    header = json_object(line) or {}
    ours = (
        header.get("trio_agent") == "session"
        and isinstance(header.get("session"), str)
        and isinstance(header.get("v"), int)
    )
    return header if ours else None


def json_object(line: bytes) -> dict[str, Any] | None:  # Any: JSON
    """The object that a line is; ``None``: it is none, or not whole, since no beginning of one is JSON."""
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None


def line_before(file: BinaryIO, start: int, end: int) -> int:
    """Where the line begins that ends at ``end``, if none begins before ``start``."""
    at = end - 1  # its own end is not looked for
    while at > start:
        low = max(start, at - _BLOCK)
        file.seek(low)
        found = file.read(at - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        at = low
    return start


def line_at(file: BinaryIO, offset: int) -> int:
    """Which line begins there, from 1."""
    file.seek(0)
    return 1 + file.read(offset).count(b"\n")


def as_read(session: str) -> str:
    """A session's name as JSON gives it back: two halves of a surrogate pair become one character."""
    return str(json.loads(json.dumps(session)))
