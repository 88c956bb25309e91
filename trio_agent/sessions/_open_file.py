"""A file that is opened, locked against other programs, and made to stay: what an operating system has to say about it.

Knows nothing of what stands in a file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO, Final

if sys.platform != "win32":
    import fcntl

__all__ = ["Busy", "new_file", "now_ns", "opened", "remove", "sync_file", "sync_folder", "touch", "write_at"]

_BINARY: Final[int] = getattr(os, "O_BINARY", 0)  # only Windows has, and needs, it


class Busy(Exception):
    """Another program has the file locked.  Nothing was done."""


@contextmanager
def opened(path: str, *, write: bool = False, create: bool = False) -> Generator[BinaryIO | None, None, None]:
    """The file, locked: for others to read if it is read, for nobody else if it is written.  ``None``: there is none.

    Raises:
      Busy: another program has locked it.
    """
    while True:
        try:
            fd = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | (os.O_CREAT if create else 0) | _BINARY, 0o666)
        except FileNotFoundError:
            if create:
                raise
            yield None
            return
        with open(fd, "r+b" if write else "rb") as file:
            _lock(fd, write)
            if not _is_there(fd, path):  # deleted while the lock was waited for, and perhaps there is another now
                continue
            yield file
            return


def _lock(fd: int, write: bool) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if write else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy from None


def _is_there(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


@contextmanager
def new_file(folder: str) -> Generator[tuple[BinaryIO, str], None, None]:
    """A new file, and its path: one that no session's file has, and that is gone afterwards."""
    path = os.path.join(folder, f".{os.urandom(8).hex()}.tmp")
    try:
        with open(path, "xb", buffering=0) as file:
            yield file, path
    finally:
        if os.path.exists(path):
            os.unlink(path)


def write_at(file: BinaryIO, offset: int, data: bytes) -> None:
    """Write all of it, in one call if the system takes it so.

    Raises:
      OSError: it is not all written; what was written of it is there.
    """
    os.lseek(file.fileno(), offset, os.SEEK_SET)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file.fileno(), rest) :]


def sync_file(file: BinaryIO) -> None:
    """Wait until it would survive that the power is lost."""
    if sys.platform == "darwin":
        fcntl.fcntl(file.fileno(), fcntl.F_FULLFSYNC)  # there, fsync does not wait for the disk
    else:
        os.fsync(file.fileno())


def sync_folder(folder: str) -> None:
    """The same for which files it has."""
    if sys.platform != "win32":
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def remove(file: BinaryIO, path: str) -> None:
    """Delete a file that is open."""
    if sys.platform == "win32":
        file.close()  # there, an open file cannot be deleted
    os.unlink(path)


_latest = 0


def now_ns() -> int:
    """What time it is, in nanoseconds since the epoch; later each time, since files are put in order by it."""
    global _latest
    _latest = max(time.time_ns(), _latest + 1)
    return _latest


def touch(file: BinaryIO, path: str) -> None:
    """Let it be the file that was written to last: the system's own stamps are some milliseconds apart."""
    now = now_ns()
    os.utime(file.fileno() if os.utime in os.supports_fd else path, ns=(now, now))
