"""What a run is written to: a session that was opened for it alone, or one that has had others before it."""

from __future__ import annotations

from typing import Protocol, final

import trio

from .._ports import Listener
from ._journal import Journal

__all__ = ["Host", "OneRun"]


class Host(Protocol):
    """The session of a run: it owns the journal and its tasks, and lets one run at a time in."""

    @property
    def journal(self) -> Journal:
        """The journal that the run borrows."""
        ...

    @property
    def keeps(self) -> bool:
        """Whether a later run finds the messages that this one has not delivered."""
        ...

    async def admit(self) -> None:
        """Let a run in.  A checkpoint if it has to wait, or to read the log.

        Raises:
          SessionBusy: there is a run already, or somebody else has the session.
          SessionClosed: it takes no more runs.
          StoreFailed: the log cannot be read.
        """
        ...

    def begin(self, nursery: trio.Nursery) -> None:
        """The run's nursery is open, and its first facts follow."""
        ...

    def over(self) -> None:
        """The run has ended, or could not begin."""
        ...


@final
class OneRun:
    """A session for one run: its journal's tasks live in the run's own nursery."""

    def __init__(self, journal: Journal, listeners: tuple[Listener, ...], *, keeps: bool) -> None:
        self.journal = journal
        self.keeps = keeps
        self._listeners = listeners

    async def admit(self) -> None:
        """Read the log, if there is one."""
        await self.journal.open()

    def begin(self, nursery: trio.Nursery) -> None:
        """Give the journal the run's nursery, and the agent's listeners."""
        self.journal.start(nursery)
        for listener in self._listeners:
            self.journal.listen(listener, None, "fail", of_run=False)

    def over(self) -> None:
        """Close the log."""
        self.journal.close()
