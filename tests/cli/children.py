"""The command as a process of its own, whose lines can be waited for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import trio

PATIENCE = 60
"""Seconds after which a test gives up; nothing asserts how long anything takes."""


class Lines:
    """One of a process's streams."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._rest = b""
        self.lines: list[str] = []

    async def until(self, text: str) -> None:
        """Read on until a line holds ``text``."""
        while not any(text in line for line in self.lines):
            if not await self._read():
                raise AssertionError(f"no line holds {text!r}: {self.lines}")

    async def end(self) -> list[str]:
        while await self._read():
            pass
        return self.lines

    async def _read(self) -> bool:
        data = await self._stream.receive_some()
        *whole, self._rest = (self._rest + data).split(b"\n")
        if not data and self._rest:
            whole, self._rest = [self._rest], b""
        self.lines += [line.decode() for line in whole]
        return bool(data)


class Child:
    """``async with Child("demo", cwd=...) as child``; killed if the block is left before it has ended."""

    def __init__(self, *arguments: str, cwd: Path, env: Mapping[str, str] | None = None) -> None:
        self._arguments = arguments
        self._cwd = cwd
        self._env = {**os.environ, **(env or {})}
        self.out: Lines
        self.err: Lines

    async def __aenter__(self) -> Child:
        self.process = await trio.lowlevel.open_process(
            [sys.executable, "-m", "trio_agent", *self._arguments],
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.out, self.err = Lines(self.process.stdout), Lines(self.process.stderr)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        with trio.CancelScope(shield=True):
            if self.process.returncode is None:
                self.process.kill()
                await self.process.wait()
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                await stream.aclose()

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    async def end(self) -> tuple[int, list[str], list[str]]:
        """Its exit code, and the lines of both streams."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.out.end)
            nursery.start_soon(self.err.end)
        return await self.process.wait(), self.out.lines, self.err.lines


async def run_child(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None
) -> tuple[int, list[str], list[str]]:
    with trio.fail_after(PATIENCE):
        async with Child(*arguments, cwd=cwd, env=env) as child:
            return await child.end()
