"""What the world outside of a program has seen of it: lines on a pipe, which its death cannot take back."""

from __future__ import annotations

import hashlib
import json
import os
import select
from collections.abc import Iterator
from typing import Final, TypeAlias

Line: TypeAlias = tuple[str, ...]
"""What happened, and its particulars."""

PATIENCE: Final = 120
"""Seconds of silence after which a program is taken to hang; otherwise nothing waits for them."""
_ATOMIC: Final = getattr(select, "PIPE_BUF", 512)
"""Bytes that are written whole or not at all, whoever else writes, and whenever the writer is killed."""


class Outside:
    """The program's end of the pipe; for every one of its threads."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def tell(self, *words: object) -> None:
        line = json.dumps([str(word) for word in words]).encode() + b"\n"
        assert len(line) <= _ATOMIC, f"a line of {len(line)} bytes could be torn"
        os.write(self._pipe, line)


def heard(pipe: int) -> Iterator[Line]:
    """The lines of a program, as they come, until nobody can write any more."""
    rest = b""
    while True:
        if not select.select([pipe], [], [], PATIENCE)[0]:
            raise TimeoutError(f"the program was silent for {PATIENCE} s")
        data = os.read(pipe, 1 << 16)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield tuple(json.loads(line))
    assert not rest, f"a line was torn: {rest!r}"


def digest(text: str) -> str:
    """A text, byte for byte, in a few characters."""
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
