"""The outside world of ``demo --kill``: a file that remembers each invocation of a tool, whatever a log says.

No transaction takes a line of it back, as none takes back a letter that was sent.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import final

__all__ = ["Outside"]


@final
class Outside:
    """One file, to which processes append."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def mark(self, call_id: str) -> None:
        """Remember that a call is invoked.  It stands there when this returns, and outlives the process."""
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, f"{call_id}\n".encode())
        finally:
            os.close(file)

    def marks(self) -> list[str]:
        """The id of each call that was invoked, as often as it was, in order."""
        try:
            return self._path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
