"""One line of a stream, waited for in a way that can be cut: whoever is cut leaves no thread that eats the next line.

Knows nothing of what is asked.
"""

from __future__ import annotations

import errno
import os
from typing import Final, TextIO
from weakref import WeakKeyDictionary

import attrs
import trio

__all__ = ["LineInput", "line_input"]


@attrs.define(eq=False)
class LineInput:
    """The reading side of one stream; all that ask there share it, and take turns.

    On POSIX it waits until the stream's descriptor is readable, and reads byte by byte, as a shell's ``read`` does:
    what stands behind the line stays for whoever reads next.  What Python has put into a buffer of its own before, as
    ``input()`` does with a pipe, it does not see.  What never makes anybody wait, such as a file, is read at once.

    On Windows a console cannot be waited for: there a thread reads, and a wait that is cut ends when the line has come,
    which is then dropped.  A stream without a descriptor, in memory, is read where it is.
    """

    lock: trio.Lock = attrs.field(factory=trio.Lock)
    _begun: bytearray = attrs.field(init=False, factory=bytearray)
    """What has come of a line; a cut leaves it to the next question."""

    async def line(self, stream: TextIO) -> str | None:
        """The next line, without its end; ``None`` at the end of the input, or if there is none.  A checkpoint.

        Cancelled: nothing of a terminal's line was taken.
        """
        await trio.lowlevel.checkpoint()
        fd = _descriptor(stream)
        if fd is None or os.name == "nt":
            text = stream.readline() if fd is None else await trio.to_thread.run_sync(stream.readline)
            return text.rstrip("\r\n") if text else None
        while True:
            byte = await _byte(fd)
            if byte == b"\n" or (not byte and self._begun):
                break
            if not byte:
                return None
            self._begun += byte
        text = self._begun.decode(stream.encoding or "utf-8", "replace")
        self._begun.clear()
        return text.rstrip("\r")

    def forget_what_was_typed(self, stream: TextIO) -> None:
        """On a terminal: drop what was typed before a question was shown, for it cannot be the answer."""
        fd = _descriptor(stream)
        if fd is None or os.name == "nt" or not os.isatty(fd):
            return
        import termios

        self._begun.clear()
        termios.tcflush(fd, termios.TCIFLUSH)


_INPUTS: Final[WeakKeyDictionary[TextIO, LineInput]] = WeakKeyDictionary()


def line_input(stream: TextIO) -> LineInput:
    """The one that all who read from this stream share."""
    return _INPUTS.setdefault(stream, LineInput())


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (OSError, ValueError):  # it lives in memory, or it is closed; reading says which
        return None


async def _byte(fd: int) -> bytes:
    """The next byte; none at the end of the input.  A checkpoint."""
    while True:
        try:
            await trio.lowlevel.wait_readable(fd)
        except PermissionError:
            await trio.lowlevel.checkpoint()  # epoll's word for what is always ready: a file, /dev/null
        try:
            return os.read(fd, 1)
        except BlockingIOError:
            continue  # somebody else has taken it
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return b""  # the terminal is gone
