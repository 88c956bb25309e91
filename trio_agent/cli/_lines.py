"""The demonstration told in plain lines: a few for each turn, never one for each call.

For pipes and files.  Knows no terminal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import final

from .._events import Diagnostic, Event, RetryScheduled
from .._facts import MessageEnd, TurnEnd
from ._interrupt import Interrupts
from ._summary import asked_text, ended_text
from ._tally import Tally
from ._words import printable

__all__ = ["Lines"]


@final
class Lines:
    """A listener that says what happens.

    Args:
      tally: counts the same events; it has seen each before.
      say: prints a line.
    """

    def __init__(self, tally: Tally, say: Callable[[str], None]) -> None:
        self._tally = tally
        self._say = say

    def begin(self) -> None:
        """The run is about to begin."""

    def end(self) -> None:
        """It is over, and everything was told."""

    async def attend(self, interrupts: Interrupts) -> None:
        """Say so when Ctrl-C is pressed, until cancelled."""
        async for times in interrupts.told:
            self._say("Ctrl-C: what runs is cut and settled" if times == 1 else "Ctrl-C once more: still settling")

    def see(self, event: Event) -> None:
        """Tell one event, if it is one of those that are told."""
        match event:
            case MessageEnd() if event.message.role == "assistant":
                if event.message.text.strip():
                    self._say(f"turn {event.turn}: the model says: {printable(event.message.text)}")
                if event.message.calls:
                    self._say(f"turn {event.turn}: {asked_text(self._tally.turn)}")
                if event.error is not None:
                    self._say(f"turn {event.turn}: error {event.error.code}: {printable(event.error.message)}")
            case RetryScheduled():
                self._say(f"turn {event.turn}: trying again in {event.delay:.1f} s: {event.error.code}")
            case TurnEnd() if self._tally.turn.calls:
                self._say(f"turn {event.number}: {ended_text(self._tally.turn)}")
            case Diagnostic():
                self._say(f"{event.code}: {printable(event.text)}")
            case _:
                pass
