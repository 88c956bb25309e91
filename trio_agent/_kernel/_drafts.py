"""Logs an answer while it is written, in batches: what observers were shown of it outlives the process.

Knows nothing of attempts and retries; it takes deltas.  Nothing that decides reads what it logs.
"""

from __future__ import annotations

from typing import Final, final

from .._events import ReasoningDelta, TextDelta, ToolCallDelta
from .._facts import MessageDraft
from ._journal import Journal

__all__ = ["Drafts"]

BATCH: Final = 2_000
"""Characters after which a batch is logged ..."""
PATIENCE: Final = 0.5
"""... or seconds, seen when the next delta comes."""


@final
class Drafts:
    """One answer's."""

    __slots__ = ("_journal", "_message_id", "_reasoning", "_since", "_size", "_text")

    def __init__(self, journal: Journal, message_id: str) -> None:
        self._journal = journal
        self._message_id = message_id
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._size = 0
        self._since = journal.now()

    def take(self, delta: TextDelta | ReasoningDelta | ToolCallDelta, now: float) -> None:
        """Keep what is new, and log what has gathered if it is enough or has waited long."""
        if type(delta) is ToolCallDelta:
            return  # half a call says nothing, and a whole one stands in its message
        (self._text if type(delta) is TextDelta else self._reasoning).append(delta.text)
        self._size += len(delta.text)
        if self._size >= BATCH or now >= self._since + PATIENCE:
            self._since = now
            self.flush()

    def flush(self) -> None:
        """Log what has gathered."""
        if self._size:
            self._journal.post(MessageDraft(self._message_id, "".join(self._text), "".join(self._reasoning)))
            self._text.clear()
            self._reasoning.clear()
            self._size = 0
