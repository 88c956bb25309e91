"""The exit codes of the command."""

from __future__ import annotations

from typing import Final

__all__ = ["DONE", "FAILED", "INTERRUPTED", "UNUSABLE", "WAITING"]

DONE: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
"""The command line cannot be used, or the extra is missing.  Nothing was done."""
WAITING: Final = 3
"""The session waits for a person's answer."""
INTERRUPTED: Final = 130
"""128 and the number of the signal, as shells have it."""
