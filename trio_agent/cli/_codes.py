"""The exit codes of the command."""

from __future__ import annotations

from typing import Final

__all__ = ["DONE", "FAILED", "INTERRUPTED", "UNUSABLE"]

DONE: Final = 0
FAILED: Final = 1
UNUSABLE: Final = 2
"""The command line cannot be used, or the extra is missing."""
INTERRUPTED: Final = 130
"""128 and the number of the signal, as shells have it."""
