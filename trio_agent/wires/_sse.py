"""Server-sent events out of bytes, wherever the network cut them; knows nothing of JSON or of models.

Source: "Server-sent events" in the HTML Living Standard, read 2026-11.  Left out: ``id`` and ``retry``,
which only matter to a client that reconnects.  Added, because servers need it: spaces before the first
field of a stream are skipped, and a last event without its blank line still counts (:meth:`end`).
"""

from __future__ import annotations

from typing import Final

import attrs

from .._errors import ProviderError

__all__ = ["EventStreamDecoder", "ServerSentEvent"]

MAX_EVENT: Final = 16 * 1024 * 1024
"""Bytes that one line, and the data of one event, may have."""

BOM: Final = b"\xef\xbb\xbf"


@attrs.frozen
class ServerSentEvent:
    """One event."""

    name: str
    """What its ``event`` field said; empty if it had none."""
    data: str
    """Its data lines, joined by LF.  Bytes that are not UTF-8 are U+FFFD."""


class EventStreamDecoder:
    """Splits a stream into events: the same ones whatever the cuts.

    Lines end with CR, LF or CRLF and with nothing else, so U+2028 and its kind stay inside the data.
    UTF-8 is decoded a whole event at a time.  Comments make no event.

    Args:
      limit: bytes that one line, and the data of one event, may have.
    """

    __slots__ = ("_begun", "_data", "_limit", "_line", "_line_size", "_name", "_size", "_swallow_lf")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._begun = False
        self._swallow_lf = False
        self._line: list[bytes] = []
        self._line_size = 0
        self._name = b""
        self._data: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> list[ServerSentEvent]:
        """The events that ``data`` completes.

        Raises:
          ProviderError: ``PROVIDER_ERROR``: a line or an event is longer than the limit.
        """
        if self._swallow_lf and data:
            # The CR that ended the last piece already ended its line; this LF is the rest of a CRLF.
            self._swallow_lf = False
            data = data.removeprefix(b"\n")
        cut = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not cut:
            self._keep(data)
            return []
        lines, rest = (data, b"") if cut == len(data) else (data[:cut], data[cut:])
        self._swallow_lf = not rest and lines.endswith(b"\r")
        if self._line:
            lines = self._take_line() + lines
        events: list[ServerSentEvent] = []
        self._read(lines, events)
        self._keep(rest)
        return events

    def end(self) -> list[ServerSentEvent]:
        """The connection has ended: the event that was open, if it had any data.

        Its last line need not be ended, so it may be torn: whoever reads the data must find that out.
        """
        events: list[ServerSentEvent] = []
        if self._line:
            self._read(self._take_line() + b"\n", events)
        self._dispatch(events)
        return events

    def _keep(self, rest: bytes) -> None:
        if rest:
            self._line.append(rest)
            self._line_size += len(rest)
            self._check(self._line_size)

    def _take_line(self) -> bytes:
        line = b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        return line

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise ProviderError(f"an event of the stream is longer than {self._limit} bytes", retryable=False)

    def _read(self, lines: bytes, events: list[ServerSentEvent]) -> None:
        """Take whole lines; ``lines`` ends with the end of one."""
        if not self._begun:
            self._begun = True
            lines = lines.removeprefix(BOM).lstrip(b" ")
        if self._data or self._name or b"\r" in lines:
            for line in lines.splitlines():  # of bytes: CR, LF and CRLF only
                self._field(line, events)
            return
        # The common case: whole events, each a single data line.
        *blocks, last = lines.split(b"\n\n")
        for block in blocks:
            if block.startswith(b"data: ") and b"\n" not in block:
                self._check(len(block))
                events.append(ServerSentEvent("", block[6:].decode("utf-8", "replace")))
            else:
                for line in block.split(b"\n"):
                    self._field(line, events)
                self._dispatch(events)
        if last:
            for line in last[:-1].split(b"\n"):
                self._field(line, events)

    def _field(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if not line:
            self._dispatch(events)
            return
        self._check(len(line))
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
            self._check(self._size)
        elif name == b"event":
            self._name = value

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            data = b"\n".join(self._data).decode("utf-8", "replace")
            events.append(ServerSentEvent(self._name.decode("utf-8", "replace"), data))
            self._data.clear()
            self._size = 0
        self._name = b""
