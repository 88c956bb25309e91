"""Lines out of bytes, wherever the network cut them: LF and CRLF end one, and nothing else does."""

from __future__ import annotations

from .._errors import ProviderError
from ._sse import MAX_EVENT

__all__ = ["LineDecoder"]


class LineDecoder:
    """Splits newline-delimited JSON into lines: the same ones whatever the cuts.

    UTF-8 is decoded a whole line at a time; bytes that are none are U+FFFD.

    Args:
      limit: bytes that one line may have.
    """

    __slots__ = ("_limit", "_parts", "_size")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def receive(self, data: bytes) -> list[str]:
        """The lines that ``data`` completes.

        Raises:
          ProviderError: ``PROVIDER_ERROR``: a line is longer than the limit.
        """
        *whole, rest = data.split(b"\n")
        lines: list[str] = []
        for line in whole:
            self._keep(line)
            lines += self.end()
        self._keep(rest)
        return lines

    def end(self) -> list[str]:
        """The line that is open, if it has anything: at the end of a connection it may be torn."""
        line = b"".join(self._parts).removesuffix(b"\r")
        self._parts.clear()
        self._size = 0
        return [line.decode("utf-8-sig", "replace")] if line else []

    def _keep(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self._size += len(part)
            if self._size > self._limit:
                raise ProviderError(f"a line of the stream is longer than {self._limit} bytes", retryable=False)
