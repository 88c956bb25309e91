"""A store in one SQLite file: durable, for many sessions, and for several programs at once.

Knows nothing of tables, nor of how appends come to be committed together.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Literal, Self, final

import trio

from .._errors import ConfigError
from .._facts import Fact
from .._ports import SessionInfo
from .._written import write_fact
from ._group_commit import GroupCommit, Inline, Worker
from ._sqlite_log import Append, Database

__all__ = ["SQLiteStore"]

_SYNCHRONOUS: Final = {"power": "FULL", "process": "NORMAL"}
_LONGEST: Final = 86_400
"""Seconds that SQLite may be told to wait for a lock."""


@final
class SQLiteStore:
    """A :class:`~trio_agent.SessionStore` in one file of SQLite's, which is created if need be.

    The file is opened at the first use; ``async with`` opens it at once, and closes it.  Several stores, also of several
    programs on this machine, may use one file.  Appends that come while a commit is under way are committed together
    with the next one.

    Args:
      path: the file; its folder must exist.  SQLite keeps two more beside it, ``-wal`` and ``-shm``: they belong to it.
      durability: what an append that has returned survives.  ``"power"``: that the machine loses its power.
        ``"process"``: that the program is killed; quicker, since nothing waits for the disk.
      busy_timeout: seconds that a call waits for another program that has the file locked, before it fails.
      inline: no thread; the database is used in the caller's task, and the loop stands still meanwhile.  For explorers
        and virtual clocks.

    Raises:
      ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Literal["power", "process"] = "power",
        busy_timeout: float = 5.0,
        inline: bool = False,
    ) -> None:
        name = os.fspath(path)
        if name in ("", ":memory:"):
            raise ConfigError(f"SQLiteStore keeps its sessions in a file, not in {name!r}; for memory use MemoryStore")
        if durability not in _SYNCHRONOUS:
            raise ConfigError(f"expected durability to be one of {', '.join(_SYNCHRONOUS)}, got {durability!r}")
        if not 0 <= busy_timeout <= _LONGEST:
            raise ConfigError(f"expected busy_timeout to be between 0 and {_LONGEST} s, got {busy_timeout!r}")
        self._path = os.path.abspath(name)
        database = Database(self._path, synchronous=_SYNCHRONOUS[durability], busy_timeout=busy_timeout)
        self._database = database
        self._worker: Worker[Append, int] = Inline(database.commit) if inline else GroupCommit(database.commit)

    def __repr__(self) -> str:
        return f"SQLiteStore({self._path!r})"

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        await self._worker.alone(self._database.open)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    @trio.lowlevel.enable_ki_protection
    async def aclose(self) -> None:
        """Close the file, after what was begun; the store cannot be used again.  A checkpoint.

        Cancelled, it is closed all the same.  Closing twice does nothing.
        """
        await self._worker.alone(self._database.close, uncut=True)
        await trio.lowlevel.checkpoint_if_cancelled()

    @trio.lowlevel.enable_ki_protection
    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """Write ``facts`` after ``expected_head``: see :class:`~trio_agent.SessionStore`.  A checkpoint.

        Atomic under cancellation: an append that has not begun is taken back; one that has is waited for, and returns.

        Raises:
          SessionConflict: someone else wrote meanwhile.  Nothing was written.
          StoreFailed: the file cannot be written, or is locked for too long.  Nothing was written.
          SessionCorrupt: the file is damaged.  Nothing was written.
        """
        texts = [write_fact(fact) for fact in facts]  # here: the thread waits for the disk meanwhile
        return await self._worker.together(Append(session, texts, expected_head))

    @trio.lowlevel.enable_ki_protection
    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        """The facts after position ``after``, in order.  A checkpoint.

        Raises:
          SessionCorrupt: the file is damaged, a record cannot be read or is missing; the message names its place.
          StoreFailed: the file cannot be read.
        """
        return await self._worker.alone(lambda: self._database.read(session, after, limit))

    @trio.lowlevel.enable_ki_protection
    async def head(self, session: str) -> int:
        """The position of the last fact; 0 for an unknown session.  A checkpoint.  Raises as :meth:`read` does."""
        return await self._worker.alone(lambda: self._database.head(session))

    @trio.lowlevel.enable_ki_protection
    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the one written to last first.  A checkpoint.  Raises as :meth:`read` does."""
        return await self._worker.alone(self._database.sessions)

    @trio.lowlevel.enable_ki_protection
    async def delete(self, session: str) -> bool:
        """Forget a session; atomic under cancellation.  A checkpoint.  Returns whether there was one.

        Raises:
          StoreFailed: the file cannot be written, or is locked for too long.  Nothing was deleted.
        """
        return await self._worker.alone(lambda: self._database.delete(session))

    @trio.lowlevel.enable_ki_protection
    async def fork(self, session: str, to: str, *, at: int) -> None:
        """Begin the session ``to`` with the first ``at`` facts of ``session``.

        A checkpoint; atomic under cancellation.

        Raises:
          SessionConflict: ``to`` has facts already.  Nothing was written.
          ValueError: ``session`` has fewer facts than ``at``, or ``at`` is less than 1.
          StoreFailed: the file cannot be written, or is locked for too long.  Nothing was written.
        """
        await self._worker.alone(lambda: self._database.fork(session, to, at))

    @trio.lowlevel.enable_ki_protection
    async def check(self) -> None:
        """Look through the whole file for damage.  A checkpoint; it takes as long as reading the file does.

        SQLite's own integrity check, and whether each session has all of its positions.  Records are not parsed.

        Raises:
          SessionCorrupt: something is damaged; the message names what.
          StoreFailed: the file cannot be read.
        """
        await self._worker.alone(self._database.check)
