"""``trio-agent demo``: hundreds of tool calls in one turn, over real HTTP, without a key or a network.

The model is a few rules behind a server on loopback; all the rest is what any agent is made of.
"""

from __future__ import annotations

import functools
import math
import os
import sys
from pathlib import Path
from typing import Final, final

import trio
from rich.console import Console

from .._agent import Agent
from .._errors import ConfigError
from .._events import Event
from .._kernel._run import Run
from ..providers import OpenAI
from ..testing import ModelServer
from ._codes import INTERRUPTED
from ._ending import exit_code
from ._files import MAX_FILES, file_tools, wait_of
from ._interrupt import Interrupts
from ._kill import demo_kill
from ._lines import Lines
from ._live import LiveView
from ._rules import MOST_FILES, counting_model
from ._summary import fault_in, summary
from ._tally import Tally
from ._words import printable

__all__ = ["LATENCY", "TEXTS", "demo"]

TEXTS: Final = Path(__file__).parent / "texts"
"""The folder of texts that is shipped with the package."""

TEXTS_CALLS: Final = 240
"""How many calls count them, if nothing else is said: one a line."""

LATENCY: Final = 0.1
"""Seconds that a call waits, on average."""

QUESTION: Final = "How many words do the files of this folder have?"

_say: Final = functools.partial(print, flush=True)


async def demo(
    path: Path | None = None, number: int | None = None, latency: float = LATENCY, *, kill: bool = False
) -> int:
    """Run the demonstration, told on standard output, and take Ctrl-C while it lasts.

    Args:
      path: the folder whose files are counted; ``None``: the one that is shipped.
      number: how many calls; ``None``: one a file, or a few hundred for the folder that is shipped.
      latency: about how many seconds each call waits.
      kill: do it in a worker process that is killed, and in another that resumes; see :func:`demo_kill`.

    Returns:
      The exit code.

    Raises:
      ConfigError: ``path`` is no folder that can be read, or a number cannot be used.
      OSError: standard output could not be written to; the run was cut and settled.
    """
    root = _checked(path, number, latency)
    if path is None and number is None:
        number = TEXTS_CALLS
    if kill:
        return await demo_kill(root, number, latency)
    with Interrupts() as interrupts:
        playing = _Demo(root, number, latency)
        _say(f"Counting the words of the files in {printable(str(root))}.")
        if latency:
            _say(f"Each call waits {0.5 * latency:g} to {1.5 * latency:g} s on purpose, as if its file were far away.")
        await playing.watch(interrupts)
        return playing.report(interrupts)


def _checked(path: Path | None, number: int | None, latency: float) -> Path:
    if number is not None and not 1 <= number <= MAX_FILES:
        raise ConfigError(f"--calls: expected a number from 1 to {MAX_FILES:,}, got {number}")
    if not (0 <= latency < math.inf):
        raise ConfigError(f"--latency: expected a number of seconds >= 0, got {latency}")
    try:
        root = (TEXTS if path is None else path).resolve(strict=True)
        os.scandir(root).close()
    except (OSError, ValueError) as error:
        raise ConfigError(f"PATH: expected a folder that can be read, got {str(path)!r} ({error})") from error
    return root


@final
class _Demo:
    """One demonstration; ``run`` is there once it has begun."""

    def __init__(self, root: Path, number: int | None, latency: float) -> None:
        self._root = root
        self._number = number
        self._latency = latency
        self._tally = Tally()
        console = Console()
        # Not console.is_terminal: variables such as FORCE_COLOR make that true of a pipe.
        on_terminal = sys.stdout.isatty() and not console.is_dumb_terminal
        self._view = LiveView(self._tally, console) if on_terminal else Lines(self._tally, _say)
        self._run: Run | None = None

    async def watch(self, interrupts: Interrupts) -> None:
        """Play it until it ends or is cut, with the view beside it."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._view.attend, interrupts)
                await interrupts.cut(self._play)
                nursery.cancel_scope.cancel()
        finally:
            self._view.end()

    async def _play(self) -> None:
        async with ModelServer(counting_model(self._number)) as server:
            _say(f"The model is a few rules, and answers at {server.base_url}.")
            async with OpenAI("rules-1", base_url=server.base_url) as model:
                agent = Agent(
                    model,
                    tools=file_tools(self._root, self._latency),
                    max_parallel_tools=self._number or MOST_FILES,
                    listeners=[self._see],
                )
                self._view.begin()
                async with agent.run(QUESTION) as run:
                    self._run = run
                    await run.wait()

    async def _see(self, event: Event) -> None:
        self._tally.see(event)
        self._view.see(event)

    def report(self, interrupts: Interrupts) -> int:
        """Say what was done; the exit code."""
        run = self._run
        if run is None:
            _say("Interrupted before the run began: nothing was done.")
            return INTERRUPTED
        messages, stop_reason = run.state.messages, run.result.stop_reason
        fault = fault_in(messages)
        code = exit_code(run, fault, interrupts.times > 0)
        _say()
        if interrupts.times:
            _say("Interrupted. This was done:")
        elif run.result.error is not None:
            _say(printable(str(run.result.error)))
        elif isinstance(self._view, LiveView):
            _say(printable(run.result.text))  # the picture has room for the end of it only
        for line in summary(self._tally, messages, stop_reason, fault, self._waits()):
            _say(line)
        return code

    def _waits(self) -> float | None:
        """How long the calls waited on purpose; ``None`` if they did not, or not all of them to the end."""
        made = [call for turn in self._tally.turns for call in turn.calls if call.name == "read_and_count"]
        statuses = self._tally.statuses
        if not self._latency or not made or statuses["ok"] + statuses["error"] < self._tally.asked:
            return None
        return sum(wait_of(call.input["path"], call.input.get("part", 1), self._latency) for call in made)
