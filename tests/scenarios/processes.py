"""Programs of their own, as the scenarios talk to them: one line at a time, and nothing sleeps.

Knows nothing of what they do; :mod:`tests.scenarios.program` says it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["Other", "other"]

ROOT = Path(__file__).parents[2]


class Other:
    """Another process, and what it has done to the world."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.ran: list[str] = []
        """The ids of the calls that took effect, in order."""
        self.keys: dict[str, str] = {}
        """By call id: the idempotency key."""

    def tell(self, verb: str, said: Any = None) -> None:
        """Have it do something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([verb, said]) + "\n")
        self._process.stdin.flush()

    def hear(self, word: str) -> list[Any]:
        """Listen until it says ``word``; what it says then."""
        for words in self._lines():
            if words[0] == word:
                return words[1:]
        raise AssertionError(f"it ended, with {self._process.wait()}, and never said {word!r}")

    def leave(self) -> None:
        """Have it leave the session, and end well."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert list(self._lines()) == []
        assert self._process.wait() == 0

    def dies(self) -> None:
        """Listen until it is dead."""
        for words in self._lines():
            assert words[0] == "ran", words
        assert self._process.wait() == 9

    def _lines(self) -> Generator[list[Any]]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            words = json.loads(line)
            if words[0] == "ran":
                self.ran.append(words[1])
                self.keys[words[1]] = words[2]
            yield words


@contextmanager
def other(path: Path, play: str, death: str = "never") -> Generator[Other]:
    """A process that has the session open; whatever happens, it does not outlive the block."""
    command = [sys.executable, "-m", "tests.scenarios.program", str(path), play, death]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            program = Other(process)
            program.hear("opened")
            yield program
        finally:
            process.kill()
