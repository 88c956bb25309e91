"""``trio-agent run``: one prompt, one model, the tools that are named, and what comes of it.

Keys come from the environment only: a command line is for everyone to see.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final, final
from urllib.parse import urlsplit, urlunsplit

import trio

from .._agent import Agent
from .._errors import ConfigError, Failure, ProviderError
from .._events import Event
from .._kernel._run import Run
from ..providers import HTTPProvider, from_name
from ..tools import Tool
from ._codes import INTERRUPTED
from ._ending import exit_code
from ._interrupt import Interrupts
from ._load import load_tool
from ._summary import fault_in, summary
from ._talk import JsonLines, Talk, note
from ._tally import Tally
from ._words import printable

__all__ = ["KEY", "run_prompt"]

KEY: Final = "TRIO_AGENT_API_KEY"
"""The environment variable whose key is sent to the server at ``--base-url``."""

NO_MODEL: Final = (
    "a model is needed: -m vendor:model, such as -m openai:gpt-4o-mini; "
    "what needs neither a model nor a key is: trio-agent demo"
)


async def run_prompt(
    prompt: str,
    *,
    model: str | None = None,
    tools: Sequence[str] = (),
    base_url: str | None = None,
    json: bool = False,
) -> int:
    """Run one prompt, and take Ctrl-C while it lasts.

    Args:
      prompt: what to say.
      model: ``vendor:model``.
      tools: ``module:tool`` each.
      base_url: of a server to ask instead of the vendor's.
      json: print the events as JSON, one a line, and nothing else on standard output.

    Returns:
      The exit code: 0 if the model stopped by itself, 130 after Ctrl-C, 1 otherwise.

    Raises:
      ConfigError: one of these cannot be used.
      RequestError: the prompt is none that a model could answer.
      OSError: standard output could not be written to; the run was cut and settled.
    """
    if model is None:
        raise ConfigError(NO_MODEL)
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError("PROMPT: it is no text that can be sent, because it is not UTF-8") from error
    found = [load_tool(name) for name in tools]
    key = None if base_url is None else os.environ.get(KEY) or None
    # It has nothing open before its first call.
    provider = from_name(model, base_url=base_url, api_key=key)
    running = _Running(prompt, provider, found, json)
    with Interrupts() as interrupts:
        await running.watch(interrupts)
        return running.report(interrupts, base_url)


@final
class _Running:
    """One run of the command."""

    def __init__(self, prompt: str, provider: HTTPProvider, tools: Sequence[Tool], json: bool) -> None:
        self._provider = provider
        self._tally = Tally()
        self._view = JsonLines() if json else Talk(self._tally, live=sys.stdout.isatty())
        self._run = Agent(provider, tools=tools, listeners=[self._see]).run(prompt)
        self._began = False

    async def watch(self, interrupts: Interrupts) -> None:
        """Run until the end or until it is cut."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._attend, interrupts)
            await interrupts.cut(self._play)
            nursery.cancel_scope.cancel()

    async def _play(self) -> None:
        async with self._provider, self._run as run:
            self._began = True
            await run.wait()

    async def _attend(self, interrupts: Interrupts) -> None:
        """Say so when Ctrl-C is pressed, until cancelled."""
        async for times in interrupts.told:
            text = "Ctrl-C: what runs is cut and settled" if times == 1 else "Ctrl-C once more: still settling"
            self._view.note(text)

    async def _see(self, event: Event) -> None:
        self._tally.see(event)
        self._view.see(event)

    def report(self, interrupts: Interrupts, base_url: str | None) -> int:
        """Say what was not said yet; the exit code."""
        if not self._began:
            note("Interrupted before the run began: nothing was done.")
            return INTERRUPTED
        run = self._run
        messages, stop_reason = run.state.messages, run.result.stop_reason
        fault = fault_in(messages)
        code = exit_code(run, fault, interrupts.times > 0)
        if interrupts.times:
            note("Interrupted. This was done:")
            for line in summary(self._tally, messages, stop_reason, fault):
                note(line)
        else:
            _tell_failure(run, fault, base_url)
        return code


def _tell_failure(run: Run, fault: str | None, base_url: str | None) -> None:
    error = run.result.error
    if error is not None:
        failure = Failure.of(error)
        note(f"error {failure.code}: {printable(failure.message)}")
        if isinstance(error, ProviderError) and base_url is not None:
            note(f"the model was asked at {_shown(base_url)}")
    elif run.result.stop_reason != "stop":
        note(f"the run did not stop by itself: {run.result.stop_reason}")
    if fault is not None:
        note(f"the history is NOT VALID: {fault}")


def _shown(url: str) -> str:
    """The address without what may hold a secret."""
    return urlunsplit(urlsplit(url)._replace(query="", fragment=""))
