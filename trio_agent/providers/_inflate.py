"""Takes the compression off a body, piece by piece.

The client could, but when it meets a damaged body its inner generators are dropped half-way, and end later,
somewhere else.  We ask for no compression; this is for what stands in between and compresses all the same.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Final

from .._errors import ProviderError

__all__ = ["MAX_PIECE", "inflater"]

MAX_PIECE: Final = 16 * 2**20
"""Bytes that one piece of a body may grow to."""


def inflater(encoding: str) -> Callable[[bytes], bytes]:
    """What to put each piece of a body through, by its ``content-encoding``.

    It raises :class:`ProviderError` for a piece that is damaged, or that grows too large.

    Raises:
      ProviderError: the encoding is none that can be read.
    """
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return _as_it_is
    if name not in ("gzip", "x-gzip", "deflate"):
        raise ProviderError(f"the body is encoded as {name[:40]!r}, which was not asked for and cannot be read")
    stream = zlib.decompressobj(zlib.MAX_WBITS | 32)  # gzip and zlib tell themselves apart

    def inflate(piece: bytes) -> bytes:
        try:
            plain = stream.decompress(piece, MAX_PIECE)
        except zlib.error as error:
            raise ProviderError(f"the body cannot be decompressed: {error}", code="PROVIDER_DISCONNECT") from error
        if stream.unconsumed_tail:
            raise ProviderError(f"a piece of the body decompresses to more than {MAX_PIECE:,} bytes")
        return plain

    return inflate


def _as_it_is(piece: bytes) -> bytes:
    return piece
