"""The demonstration on a terminal: one picture, drawn anew ten times a second by a task of Trio.

Calls are shown by tool, never a line for each.  No thread draws: the terminal library's own would.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

import trio
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from .._events import Diagnostic, Event
from .._messages import ToolCall
from ._interrupt import Interrupts
from ._summary import statuses_text
from ._tally import Tally, ToolTally, plural
from ._words import printable

__all__ = ["LiveView", "picture"]

PERIOD: Final = 0.1
"""Seconds between two pictures."""

BAR: Final = 12
"""Columns of a bar."""

MOST_TOOLS: Final = 12
"""Tools that have a line of their own."""


@final
class LiveView:
    """A listener that draws.

    Args:
      tally: what is drawn; it has seen each event before.
      console: where.
    """

    def __init__(self, tally: Tally, console: Console) -> None:
        self._tally = tally
        self._console = console
        self._times = 0
        self._live = Live(console=console, auto_refresh=False, get_renderable=self._picture)

    def begin(self) -> None:
        """The run is about to begin: draw."""
        self._live.start()

    def end(self) -> None:
        """It is over: leave the last picture standing, and the cursor below it.  Idempotent."""
        self._live.stop()

    async def attend(self, interrupts: Interrupts) -> None:
        """Draw, until cancelled."""
        while True:
            self._times = interrupts.times
            if self._live.is_started:
                self._live.refresh()
            await trio.sleep(PERIOD)

    def see(self, event: Event) -> None:
        """Diagnostics stay, above the picture; all else is in it."""
        if isinstance(event, Diagnostic):
            self._console.print(Text(f"{event.code}: {printable(event.text)}", style="yellow"))

    def _picture(self) -> RenderableType:
        return picture(self._tally, trio.current_time(), self._times)


def picture(tally: Tally, now: float, interrupted: int = 0) -> RenderableType:
    """The run as it is.

    Args:
      tally: what there is of it.
      now: the time on the run's clock.
      interrupted: how often Ctrl-C was pressed.
    """
    return Group(*_lines(tally, now, interrupted))


def _lines(tally: Tally, now: float, interrupted: int) -> Iterator[RenderableType]:
    elapsed = (now if tally.ended is None else tally.ended) - (now if tally.began is None else tally.began)
    head = Text(no_wrap=True, overflow="ellipsis")
    head.append("trio-agent", style="bold")
    head.append(f"  turn {len(tally.turns)}  {tally.doing}  {elapsed:.1f} s")
    yield head
    model = Text(no_wrap=True, overflow="ellipsis")
    model.append(f"model   {printable(tally.model)}  {plural(tally.model_calls, 'call')}  ")
    model.append(" ".join(printable(tally.tail).split()), style="italic")
    yield model
    if tally.tools:
        yield _tools(tally)
    if tally.slowest:
        slowest = "  ".join(f"{_told(call)} {took:.2f} s" for took, _, call in sorted(tally.slowest, reverse=True))
        yield Text(f"slowest {slowest}", no_wrap=True, overflow="ellipsis")
    if interrupted:
        text = "Ctrl-C: what runs is cut and settled" if interrupted == 1 else "Ctrl-C once more: still settling"
        yield Text(text, style="bold yellow")
    elif tally.ended is None:
        yield Text("Ctrl-C cuts what runs, settles it, and says what was done", style="dim")


def _tools(tally: Tally) -> Table:
    table = Table.grid(padding=(0, 1))
    for _ in range(5):
        table.add_column(no_wrap=True, overflow="ellipsis")
    statuses = tally.statuses
    table.add_row(
        "tools",
        ProgressBar(total=max(tally.asked, 1), completed=statuses.total(), width=BAR),
        f"{statuses.total():,}/{tally.asked:,}",
        f"{len(tally.running):,} in flight",
        statuses_text(statuses),
    )
    busiest = sorted(tally.tools.items(), key=lambda item: -item[1].asked)
    for name, tool in busiest[:MOST_TOOLS]:
        table.add_row(*_row(name, tool))
    if len(busiest) > MOST_TOOLS:
        table.add_row(f"  and {len(busiest) - MOST_TOOLS} more")
    return table


def _row(name: str, tool: ToolTally) -> tuple[RenderableType, ...]:
    times = f"p50 {tool.percentile(0.5) * 1000:.0f} p95 {tool.percentile(0.95) * 1000:.0f} ms"
    return (
        f"  {printable(name)}",
        ProgressBar(total=max(tool.asked, 1), completed=tool.ended, width=BAR),
        f"{tool.ended:,}/{tool.asked:,}",
        f"{tool.running:,} in flight",
        times if tool.durations else "",
    )


def _told(call: ToolCall) -> str:
    arguments = " ".join(printable(call.arguments).split())
    return f"{printable(call.name)} {arguments if len(arguments) <= 40 else arguments[:39] + '…'}"
