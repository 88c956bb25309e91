"""The command on a pseudo-terminal, where a person types."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio


class Terminal:
    """The command on a pseudo-terminal of its own."""

    def __init__(self, *arguments: str, cwd: Path, term: str = "xterm-256color") -> None:
        self._arguments = arguments
        self._term = term
        self._cwd = cwd
        self._text = b""
        self._seen = 0

    @property
    def text(self) -> str:
        return self._text.decode(errors="replace").replace("\r\n", "\n")

    async def __aenter__(self) -> Terminal:
        self._ours, theirs = os.openpty()
        os.set_blocking(self._ours, False)
        try:
            self.process = await trio.lowlevel.open_process(
                [sys.executable, "-m", "trio_agent", *self._arguments],
                cwd=self._cwd,
                env={**os.environ, "TERM": self._term, "COLUMNS": "100", "LINES": "40"},
                stdin=theirs,
                stdout=theirs,
                stderr=subprocess.STDOUT,
            )
        finally:
            os.close(theirs)
        return self

    async def __aexit__(self, *_: object) -> None:
        with trio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
        os.close(self._ours)

    def type(self, line: str) -> None:
        """Type a line, or press Ctrl-D."""
        os.write(self._ours, line.encode())

    async def until(self, text: str) -> None:
        """Read on until ``text`` has come, behind what was waited for before."""
        while text not in self.text[self._seen :]:
            if not await self._read():
                raise AssertionError(f"{text!r} never came: {self.text}")
        self._seen = self.text.index(text, self._seen) + len(text)

    async def end(self) -> int:
        while await self._read():
            pass
        return await self.process.wait()

    async def _read(self) -> bool:
        await trio.lowlevel.wait_readable(self._ours)
        try:
            data = os.read(self._ours, 65_536)
        except OSError:  # how Linux says that the other side is closed
            return False
        self._text += data
        return bool(data)
