"""The command line as a table: which verbs there are, what they take, and what a bad one is told.

Each verb is a function in a file of its own; this only reads the words.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import trio
from cyclopts import App, CycloptsError, Parameter

from .._errors import ConfigError, RequestError
from ._codes import DONE, UNUSABLE
from ._demo import LATENCY, demo
from ._run import run_prompt

__all__ = ["app", "call"]


def _version() -> str:
    try:
        return importlib.metadata.version("trio_agent")
    except importlib.metadata.PackageNotFoundError:
        return "unknown: it runs from a folder and is not installed"


app = App(name="trio-agent", help="An agent kernel for Trio: see it work, or run one prompt.", version=_version)


def call(arguments: Sequence[str]) -> int:
    """Do what the words of a command line say.

    Returns:
      The exit code; 2 if they cannot be used, which was said on standard error.

    Raises:
      KeyboardInterrupt: Ctrl-C, while nothing was under way.
      OSError: standard output could not be written to.
    """
    try:
        command, bound, _ = app.parse_args(list(arguments), exit_on_error=False, print_error=True)
    except CycloptsError:
        return UNUSABLE
    try:
        code = command(*bound.args, **bound.kwargs)
    except (ConfigError, RequestError) as error:
        print(f"trio-agent: {error.message}", file=sys.stderr)
        return UNUSABLE
    return code if isinstance(code, int) else DONE


@app.command(name="demo")
def _demo(
    path: Path | None = None,
    /,
    *,
    calls: int | None = None,
    latency: float = LATENCY,
) -> int:
    """Count the words of the files in a folder by hundreds of tool calls in one turn.

    Needs no key and no network: the model is a few rules behind a server on loopback. Ctrl-C at any moment leaves a
    valid history, and says what was done.

    Parameters
    ----------
    path
        The folder. By default a folder of texts that comes with the package.
    calls
        How many calls; by default one a file. Fewer files than calls are counted in parts.
    latency
        About how many seconds each call waits on purpose, as if its file were far away.
    """
    _spare_loopback()
    return trio.run(functools.partial(demo, path, calls, latency))


def _spare_loopback() -> None:
    """Have this process ask loopback directly: a proxy would look for the model's server on itself."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


@app.command(name="run")
def _run(
    prompt: str,
    /,
    *,
    model: Annotated[str | None, Parameter(name=["--model", "-m"])] = None,
    tool: Annotated[list[str] | None, Parameter(name=["--tool", "-t"], negative="")] = None,
    base_url: str | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Run one prompt: the answer on standard output, what else happens on standard error.

    Parameters
    ----------
    prompt
        What to say.
    model
        The model, as vendor:model, such as openai:gpt-4o-mini. Its key comes from the environment: OPENAI_API_KEY.
    tool
        A tool or a function, as module:tool; may be given several times.
    base_url
        A server to ask instead of the vendor's, such as http://localhost:11434/v1 with -m openai:MODEL. If it wants a
        key, that is TRIO_AGENT_API_KEY of the environment.
    json
        Print each event as a line of JSON, and nothing else.
    """
    return trio.run(functools.partial(run_prompt, prompt, model=model, tools=tool or (), base_url=base_url, json=json))
