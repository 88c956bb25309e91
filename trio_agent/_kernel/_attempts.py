"""One attempt at a model call: its stream, its time limits, and what is kept when it is cut.

Knows nothing of retry; :mod:`._model_phase` owns that.
"""

from __future__ import annotations

import math
from typing import Final, final

import trio

from .._core._assembler import Answer, StreamAssembler
from .._errors import ProviderError
from .._events import MessageStart
from .._middleware import CallModel
from .._model import ModelChunk, ModelRequest
from .._options import Retry
from ._drafts import Drafts
from ._interrupts import foreign
from ._journal import Journal

__all__ = ["Attempt"]

_DAY: Final = 86_400


@final
class Attempt:
    """Streams one answer.

    Attributes:
      assembler: what has come so far; also after a failure or a cut.
      shown: whether observers have seen the message's start.
    """

    __slots__ = (
        "_drafts",
        "_first",
        "_grain",
        "_idle",
        "_journal",
        "_last",
        "_limits",
        "_now",
        "_shows",
        "assembler",
        "message_id",
        "shown",
    )

    def __init__(
        self, message_id: str, journal: Journal | None, retry: Retry, *, shows: bool = True, logs: bool = False
    ) -> None:
        self.message_id = message_id
        self.assembler = StreamAssembler(message_id)
        self.shown = False
        self._journal = journal
        self._shows = shows and journal is not None
        self._drafts = Drafts(journal, message_id) if logs and shows and journal is not None else None
        self._now = trio.lowlevel.current_clock().current_time if journal is None else journal.now
        self._first = retry.first_event
        self._idle = retry.idle
        # Moving a deadline costs more than a chunk does: it is moved when a hundredth of the limit has passed.
        self._grain = min(retry.idle, _DAY) / 100  # of an infinite one, a hundredth is no number to count with
        self._last = -math.inf
        self._limits = trio.CancelScope(deadline=self._now() + self._first)

    async def stream(self, call: CallModel, request: ModelRequest) -> Answer:
        """Call the model and return its whole answer.  A checkpoint if the provider is one.

        Raises:
          ProviderError: it failed; ``STALLED`` if a time limit passed, ``PARTIAL_STREAM`` if it ended early.
          OutputError: the answer is larger than any answer may be.
        """
        try:
            with self._limits:
                await foreign(call, request, self.receive)
        finally:
            if self._drafts is not None:
                self._drafts.flush()
                self._drafts = None
            self._shows = False  # what is emitted later, by somebody who has kept ``emit``, is part of no message
        if self._limits.cancelled_caught:
            if self._last == -math.inf:
                raise ProviderError(f"no event came within {self._first:g} s, the limit for the first", code="STALLED")
            raise ProviderError(f"no event came for {self._idle:g} s in mid-stream", code="STALLED")
        return self.assembler.finish()

    @trio.lowlevel.enable_ki_protection
    def receive(self, chunk: ModelChunk) -> None:
        """Take one chunk: what the provider calls ``emit``."""
        now = self._now()
        if now > self._last + self._grain:
            self._last = now
            self._limits.deadline = now + self._idle + self._grain
        journal = self._journal
        drafts = self._drafts
        if self._shows and journal is not None and (journal.watched or drafts is not None):
            delta = self.assembler.receive(chunk, True)
            if journal.watched:
                if not self.shown and self.assembler.started:
                    self.show_start(journal)
                if delta is not None:
                    journal.emit(delta)
            if drafts is not None and delta is not None:
                drafts.take(delta, now)
        else:
            self.assembler.receive(chunk, False)

    def show_start(self, journal: Journal) -> None:
        """Show that the message begins, if nobody has been shown yet."""
        if not self.shown:
            self.shown = True
            journal.emit(MessageStart(self.message_id, "assistant"))
