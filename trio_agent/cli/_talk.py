"""A run told to whoever started it: what the model says on standard output, all else on standard error.

So ``trio-agent run ... > answer.txt`` keeps the answer, and nothing but the answer.
"""

from __future__ import annotations

import sys
from typing import Final, final

from .._events import Diagnostic, Event, MessageDiscarded, RetryScheduled, TextDelta
from .._facts import AgentResume, MessageEnd, ToolExecutionEnd, TurnEnd
from ._json import event_line
from ._summary import STATUSES, asked_text, ended_text
from ._tally import Tally
from ._words import printable

__all__ = ["JsonLines", "Talk", "note"]

FEW: Final = 10
"""If a turn has more calls than this they have no line each."""

SHOWN: Final = 100
"""Characters of arguments and of error results that are shown."""


def note(text: str) -> None:
    """A line on standard error."""
    print(text, file=sys.stderr, flush=True)


@final
class JsonLines:
    """A listener that prints each event as a line of JSON."""

    def see(self, event: Event) -> None:
        """Print one."""
        print(event_line(event), flush=True)

    def note(self, text: str) -> None:
        """A line on standard error."""
        note(text)


@final
class Talk:
    """A listener that prints what the model says, and notes what else happens.

    Args:
      tally: counts the same events; it has seen each before.
      live: print each piece of text as it comes.  Otherwise, for files and pipes, a message is printed when it
        is whole, because what a retry throws away cannot be taken back there.
    """

    def __init__(self, tally: Tally, *, live: bool) -> None:
        self._tally = tally
        self._live = live
        self._in_line = False

    def see(self, event: Event) -> None:
        """Tell one event, if it is one of those that are told."""
        match event:
            case TextDelta() if self._live:
                text = printable(event.text)
                print(text, end="", flush=True)
                self._in_line = not text.endswith("\n") if text else self._in_line
            case MessageEnd() if event.message.role == "assistant":
                self._end_message(event)
            case MessageDiscarded() if self._live:
                self.note("(what stands above was cut off, and is asked for again)")
            case AgentResume():
                self.note("the run goes on where it was cut")
            case RetryScheduled():
                error = f"{event.error.code}: {printable(event.error.message)}"
                self.note(f"trying again in {event.delay:.1f} s: {error}")
            case ToolExecutionEnd() if len(self._tally.turn.calls) <= FEW:
                self.note(self._ended(event))
            case TurnEnd() if len(self._tally.turn.calls) > FEW:
                self.note(ended_text(self._tally.turn))
            case Diagnostic():
                self.note(f"{event.code}: {printable(event.text)}")
            case _:
                pass

    def _end_message(self, event: MessageEnd) -> None:
        if not self._live and event.message.text:
            print(printable(event.message.text), flush=True)
        self._end_line()
        if len(event.message.calls) > FEW:
            self.note(asked_text(self._tally.turn))

    def _ended(self, event: ToolExecutionEnd) -> str:
        call = self._tally.call(event.result.call_id)
        told = f"{printable(call.name)} {_short(call.arguments)}: {STATUSES[event.result.status]}"
        if event.duration:
            told += f" in {event.duration * 1000:.0f} ms"
        return told if event.result.status == "ok" else f"{told}. {_short(event.result.text)}"

    def note(self, text: str) -> None:
        """A line on standard error, below the text that is being printed."""
        self._end_line()
        note(text)

    def _end_line(self) -> None:
        if self._in_line:
            print(flush=True)
            self._in_line = False


def _short(text: str) -> str:
    text = " ".join(printable(text).split())
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"
