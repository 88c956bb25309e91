"""A server in a child process that does not outlive its block, nor the process that started it.

Knows the lines that the two exchange, and nothing of models or their protocol.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, cast, final
from urllib.parse import urlsplit

import trio

from .._errors import ConfigError, ProviderError

__all__ = ["ServerProcess", "server_process"]

PROGRAM: Final = str(Path(__file__).with_name("_local_server.py"))

START_LIMIT: Final = 300.0
"""Seconds in which a server must be ready; a large model takes its time to load."""

HEALTH_INTERVAL: Final = 0.05
"""Seconds between two looks at whether it is."""

END_LIMIT: Final = 5.0
"""Seconds in which a process must end that is asked to; then it is killed."""

NOTICE: Final = 1.0
"""Seconds in which the system tells that a process has ended whose connections broke."""

MOST_OUTPUT: Final = 262_144
"""Bytes of a server's own words that are kept."""

SHOWN_OUTPUT: Final = 1_000
"""Characters of them that an error quotes: the last ones."""


@final
class ServerProcess:
    """The process; made by :func:`server_process`.

    Args:
      process: its standard input ends it when that is closed.
      output: where its standard error goes.
      name: the provider's name, for errors.
    """

    def __init__(self, process: trio.Process, output: IO[bytes], name: str) -> None:
        self._process = process
        self._output = output
        self._name = name

    async def begin(self, orders: Mapping[str, object]) -> str:
        """Tell it what to serve, and wait until it does.  Cancelled, it is left as it is.

        Returns:
          The address of the server.

        Raises:
          ConfigError: it cannot serve that.
          ProviderError: it ended instead (``PROVIDER_DISCONNECT``), or it took too long (``TIMEOUT``).
        """
        assert self._process.stdin is not None
        with trio.move_on_after(START_LIMIT):
            with suppress(trio.BrokenResourceError):  # it has ended, which is told below
                await self._process.stdin.send_all(json.dumps(orders).encode() + b"\n")
            told = await self._told()
            if "address" not in told:
                raise ConfigError(f"{told.get('error')}{self._words()}")
            address = str(told["address"])
            while not await _is_healthy(address):
                if self._process.returncode is not None:
                    raise await self._not_started()
                await trio.sleep(HEALTH_INTERVAL)
            return address
        raise ProviderError(
            f"the server of the local model was not ready after {START_LIMIT:.0f} s{self._words()}",
            code="TIMEOUT",
            provider=self._name,
            retryable=False,
        )

    async def how_it_ended(self) -> str | None:
        """How the process ended and what it said last; ``None`` if it still runs.  A checkpoint.

        Whoever saw a connection break may have seen it before the system tells of the end, so this waits a little.
        """
        with trio.move_on_after(NOTICE):
            await self._process.wait()
        code = self._process.returncode
        if code is None:
            return None
        return f"process {self._process.pid} ended {_how(code)}{self._words()}"

    def trim(self) -> None:
        """Forget what it said, if that has become too much."""
        # The process writes to the same open file: its place is moved for both.
        if not self._output.closed and self._output.seek(0, os.SEEK_END) > MOST_OUTPUT:
            self._output.seek(0)
            self._output.truncate()

    async def stop(self) -> None:
        """End the process: gently, then not.  Also when the caller is cancelled; a few seconds at most."""
        process = self._process
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.terminate()
            with trio.move_on_after(END_LIMIT, shield=True):
                await process.wait()
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            with trio.move_on_after(END_LIMIT, shield=True):
                await process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + END_LIMIT):
                    await trio.aclose_forcefully(stream)

    async def _told(self) -> dict[str, object]:
        """The one line that it says."""
        assert self._process.stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            piece = await self._process.stdout.receive_some()
            if not piece:
                raise await self._not_started()
            line += piece
        return cast("dict[str, object]", json.loads(line))

    async def _not_started(self) -> ProviderError:
        ended = await self.how_it_ended() or f"it closed its output{self._words()}"
        return ProviderError(
            f"the server of the local model did not start: {ended}",
            code="PROVIDER_DISCONNECT",
            provider=self._name,
            retryable=False,
        )

    def _words(self) -> str:
        """What it said last, as the end of a sentence."""
        if self._output.closed:  # the block was left under a call
            return ""
        self._output.seek(max(0, self._output.seek(0, os.SEEK_END) - 4 * SHOWN_OUTPUT))
        words = self._output.read().decode("utf-8", "replace").strip("\0 \r\n")
        if len(words) > SHOWN_OUTPUT:
            words = "…" + words[-SHOWN_OUTPUT:]
        return f"; it said last: {words}" if words else ""


@asynccontextmanager
async def server_process(name: str) -> AsyncGenerator[ServerProcess]:
    """A process that waits for :meth:`ServerProcess.begin`, and has ended when the block is left.

    Args:
      name: the provider's name, for errors.
    """
    with TemporaryFile(buffering=0) as output:
        # In a session of its own it does not hear the Ctrl-C that is meant for this process.
        process = await trio.lowlevel.open_process(
            [sys.executable, "-P", PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=output,
            start_new_session=os.name == "posix",
        )
        server = ServerProcess(process, output, name)
        try:
            yield server
        finally:
            await server.stop()  # noqa: ASYNC102  # it shields itself, for as long as a server may take


async def _is_healthy(address: str) -> bool:
    """Whether the server says that it is."""
    place = urlsplit(address)
    assert place.hostname is not None
    assert place.port is not None
    answer = b""
    try:
        async with await trio.open_tcp_stream(place.hostname, place.port) as stream:
            await stream.send_all(f"GET /health HTTP/1.1\r\nhost: {place.netloc}\r\nconnection: close\r\n\r\n".encode())
            while b"\r\n" not in answer and (piece := await stream.receive_some()):
                answer += piece
    except (OSError, trio.BrokenResourceError):
        return False
    return answer.split(b" ", 2)[1:2] == [b"200"]


def _how(code: int) -> str:
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:  # one without a name
        return f"by signal {-code}"
