"""A store in a folder: a file of JSON lines for each session, to be read by people and by other programs.

Knows nothing of what stands in a file, nor of how one is locked.
"""

from __future__ import annotations

import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Literal, Self, TypeVar, final

import attrs
import trio

from .._errors import ConfigError, StoreFailed
from .._facts import Fact
from .._ports import SessionInfo
from .._written import write_fact
from ._open_file import Busy
from ._session_file import SessionFile
from ._session_folder import sessions_in
from ._session_lines import TornTail

__all__ = ["JSONLStore"]

T = TypeVar("T")

_DURABILITIES: Final = ("power", "process")
_LONGEST: Final = 86_400
"""Seconds that a locked file may be waited for."""
_PAUSES: Final = (0.001, 0.05)
"""Seconds until a locked file is tried again: the first time, and at most; each time twice as many."""
_THREADS: Final = 8
"""As many sessions are read and written at once."""
_KNOWN: Final = 1_024
"""Sessions of which it is remembered where they end."""

_logger: Final = logging.getLogger("trio_agent.sessions")


@attrs.define(eq=False)
class _Known:
    """A session's file, and who may use it."""

    file: SessionFile
    lock: trio.Lock = attrs.field(factory=trio.Lock)


@final
class JSONLStore:
    """A :class:`~trio_agent.SessionStore` in a folder, with a readable file of JSON lines for each session.

    A file's first line is a header that names the session; each line that follows is a fact, and the line's number is
    the fact's position and one.  The file's name is the session's, with ``%`` and two digits for whatever some file
    system might not keep apart, and the suffix ``.jsonl``; one that is too long is cut, and made unique by a hash.
    Files that are no session's are left alone, and are not listed.

    *Whole records.*  An append is one write.  If it fails, as on a full disk, the file is cut back to what it was.  If the
    program or the machine dies in it, those of its facts stay that were written to their end, in order: each of them has
    happened, and a log may stop anywhere.  A record that was not is a *torn tail*: a last line that is no JSON.  A read
    leaves it out; the next append moves it to the file ``<name>.jsonl.torn``, and writes in its place.  Both are told to
    ``on_torn_tail``.  Anything else that cannot be read is ``SessionCorrupt``, and what a newer version has written is
    ``StoreFailed``; nothing is changed then.

    *Several programs.*  Each file is locked (``flock``) while it is read or written, so several stores, also of several
    programs on this machine, may use one folder.  Where there is no ``flock``, on Windows, one program at a time must.

    Args:
      folder: where the files are; created at the first append, in a folder that must exist.
      durability: what an append that has returned survives.  ``"power"``: that the machine loses its power.
        ``"process"``: that the program is killed; quicker, since nothing waits for the disk.
      busy_timeout: seconds that a call waits for another program that has the file locked, before it fails.
      on_torn_tail: called with each :class:`TornTail` that is found, in the task that has found it; by default it is
        logged as a warning.  What it raises is logged.
      inline: no thread; files are read and written in the caller's task, and the loop stands still meanwhile.  For
        explorers and virtual clocks.

    Raises:
      ConfigError: an argument cannot be used.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        durability: Literal["power", "process"] = "power",
        busy_timeout: float = 5.0,
        on_torn_tail: Callable[[TornTail], object] | None = None,
        inline: bool = False,
    ) -> None:
        name = os.fspath(folder)
        if not name:
            raise ConfigError("JSONLStore keeps its sessions in a folder, not in ''; for memory use MemoryStore")
        if durability not in _DURABILITIES:
            raise ConfigError(f"expected durability to be one of {', '.join(_DURABILITIES)}, got {durability!r}")
        if not 0 <= busy_timeout <= _LONGEST:
            raise ConfigError(f"expected busy_timeout to be between 0 and {_LONGEST} s, got {busy_timeout!r}")
        self._folder = os.path.abspath(name)
        self._durable = durability == "power"
        self._busy_timeout = busy_timeout
        self._on_torn_tail = _warn if on_torn_tail is None else on_torn_tail
        self._limiter = None if inline else trio.CapacityLimiter(_THREADS)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._closed = False

    def __repr__(self) -> str:
        return f"JSONLStore({self._folder!r})"

    async def __aenter__(self) -> Self:
        await trio.lowlevel.checkpoint()
        self._demand_open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let the store not be used again; no file is open between two calls.  A checkpoint.

        Cancelled, it is closed all the same.  Closing twice does nothing.
        """
        self._closed = True
        await trio.lowlevel.checkpoint()

    # --- the port ------------------------------------------------------------------------------------

    @trio.lowlevel.enable_ki_protection
    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        """Write ``facts`` after ``expected_head``: see :class:`~trio_agent.SessionStore`.  A checkpoint.

        Atomic under cancellation: once it is being written it is waited for, as long as the disk takes, and returns.

        Raises:
          SessionConflict: someone else wrote meanwhile.  Nothing was written.
          SessionCorrupt: the last of what stands there cannot be read.  Nothing was written.
          StoreFailed: the file cannot be written, is of a newer version, or is locked for too long.  Nothing of it is left.
          ValueError: a fact is stamped for another position.
        """
        written = tuple(facts)
        texts = [write_fact(fact) for fact in written]
        return await self._ask(session, lambda file: file.append(written, texts, expected_head))

    @trio.lowlevel.enable_ki_protection
    async def read(self, session: str, *, after: int = 0, limit: int | None = None) -> Sequence[Fact]:
        """The facts after position ``after``, in order.  A checkpoint.

        Raises:
          SessionCorrupt: a record cannot be read; the message names the file, the line and the byte.
          StoreFailed: the file cannot be read, is of a newer version, or is locked for too long.
        """
        return await self._ask(session, lambda file: file.read(after, limit))

    @trio.lowlevel.enable_ki_protection
    async def head(self, session: str) -> int:
        """The position of the last fact; 0 for an unknown session.  A checkpoint.  Raises as :meth:`read` does."""
        return await self._ask(session, SessionFile.head)

    @trio.lowlevel.enable_ki_protection
    async def list(self) -> Sequence[SessionInfo]:
        """All sessions, the one written to last first.  A checkpoint.

        Files that no store has made are left out.  When a session was written to is when its file was.

        Raises:
          StoreFailed: the folder or a file in it cannot be read.
        """
        self._demand_open()
        await trio.lowlevel.checkpoint()
        try:
            return await self._perform(partial(sessions_in, self._folder))
        except OSError as error:
            raise StoreFailed(f"the sessions in {self._folder} cannot be listed: {_told(error)}") from error

    @trio.lowlevel.enable_ki_protection
    async def delete(self, session: str) -> bool:
        """Forget a session; atomic under cancellation.  A checkpoint.  Returns whether there was one.

        Raises:
          SessionCorrupt: the file is not that session's.  One whose records cannot be read is deleted.
          StoreFailed: the file cannot be deleted, or is locked for too long.
        """
        return await self._ask(session, SessionFile.delete)

    @trio.lowlevel.enable_ki_protection
    async def fork(self, session: str, to: str, *, at: int) -> None:
        """Begin the session ``to`` with the first ``at`` facts of ``session``.

        A checkpoint; atomic under cancellation, and if the program dies: the new file appears when it is whole.

        Raises:
          SessionConflict: ``to`` has facts already.  Nothing was written.
          SessionCorrupt: one of these facts cannot be read.  Nothing was written.
          ValueError: ``session`` has fewer facts than ``at``, or ``at`` is less than 1.
          StoreFailed: a file cannot be read or written, or is locked for too long.
        """
        lines = await self._ask(session, lambda file: file.lines(at))
        await self._ask(to, lambda file: file.begin(lines))

    # --- one call ------------------------------------------------------------------------------------

    async def _ask(self, session: str, work: Callable[[SessionFile], T]) -> T:
        """Do something with a session's file, when those who asked before have been served."""
        self._demand_open()
        known = self._file_of(session)
        async with known.lock:
            try:
                return await self._patiently(known.file, work)
            except OSError as error:
                raise StoreFailed(f"session {session!r} in {known.file.path}: {_told(error)}") from error
            finally:
                while known.file.torn:
                    self._tell(known.file.torn.pop(0))

    async def _patiently(self, file: SessionFile, work: Callable[[SessionFile], T]) -> T:
        """Wait while another program has the file locked; that can be cancelled, and has done nothing."""
        until = trio.current_time() + self._busy_timeout
        pause, longest = _PAUSES
        while True:
            try:
                return await self._perform(partial(work, file))
            except Busy:
                if trio.current_time() >= until:
                    what = f"it is locked by another program for {self._busy_timeout:g} s"
                    raise StoreFailed(f"session {file.session!r} in {file.path}: {what}") from None
            await trio.sleep(pause)
            pause = min(2 * pause, longest)

    async def _perform(self, work: Callable[[], T]) -> T:
        if self._limiter is None:
            return work()
        # A thread that has begun is waited for, whoever is cancelled: what it has done is told.
        return await trio.to_thread.run_sync(work, limiter=self._limiter)

    def _file_of(self, session: str) -> _Known:
        known = self._known.get(session)
        if known is None:
            known = self._known[session] = _Known(SessionFile(self._folder, session, durable=self._durable))
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)  # if it is in use, the lock of the file still keeps the order
        self._known.move_to_end(session)
        return known

    def _demand_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"the store in {self._folder} is closed")

    def _tell(self, tail: TornTail) -> None:
        try:
            self._on_torn_tail(tail)
        except Exception:
            _logger.exception("on_torn_tail failed for: %s", tail)


def _warn(tail: TornTail) -> None:
    _logger.warning("%s", tail)


def _told(error: OSError) -> str:
    """What the system said, without the path if it is told already."""
    return error.strerror or str(error)
