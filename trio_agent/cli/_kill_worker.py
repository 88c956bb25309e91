"""A worker of ``demo --kill``: a process that plays the demonstration in a session, or goes on with it.

Knows nothing of its end: it is killed, or it is done.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import trio

from .._agent import Agent
from .._ports import ToolContext
from ..permissions._line_input import line_input
from ..providers import OpenAI
from ..sessions import SQLiteStore
from ..testing import ModelServer
from ..tools import Tool, tool
from ._codes import DONE, FAILED
from ._files import count_part, list_texts, wait_of
from ._outside import Outside
from ._rules import counting_model

__all__ = ["AT_ONCE", "MARKS", "SESSION", "STORE_FILE", "work"]

SESSION: Final = "demo"
STORE_FILE: Final = "sessions.db"
MARKS: Final = "invocations"
"""Names in the folder of a demonstration."""

AT_ONCE: Final = 20
"""Calls that run at once."""

QUESTION: Final = "How many words do the files of this folder have?"


async def work(folder: Path, root: Path, number: int, latency: float, hold: int | None) -> int:
    """Play the demonstration, or, if ``hold`` is ``None``, go on with the one that was killed.

    Ends, too, when standard input ends: then whoever started it is gone.

    Args:
      folder: where the session and the marks are kept.
      root: the folder whose files are counted.
      number: how many calls count them.
      latency: about how many seconds each call waits.
      hold: from this invocation on, calls wait for ever, so that some run when the process is killed.

    Returns:
      The exit code.
    """
    code = FAILED
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_leave_with_the_parent, nursery.cancel_scope)
        async with (
            ModelServer(counting_model(number)) as server,
            OpenAI("rules-1", base_url=server.base_url) as model,
            # A killed process is survived without waiting for the disk.
            SQLiteStore(folder / STORE_FILE, durability="process") as store,
        ):
            tools = _tools(root, Outside(folder / MARKS), latency, hold)
            agent = Agent(model, tools=tools, store=store, max_parallel_tools=AT_ONCE)
            async with agent.session(SESSION) as session:
                result = await (session.resume() if hold is None else session.prompt(QUESTION))
                code = DONE if result.stop_reason == "stop" else FAILED
        nursery.cancel_scope.cancel()
    return code


async def _leave_with_the_parent(scope: trio.CancelScope) -> None:
    if os.name == "nt":  # a pipe cannot be waited for there
        await trio.sleep_forever()
    await line_input(sys.stdin).line(sys.stdin)
    scope.cancel()


def _tools(root: Path, outside: Outside, latency: float, hold: int | None) -> list[Tool]:
    invoked = 0

    @tool(effect="pure")
    def list_files(limit: int) -> dict[str, Any]:  # Any: JSON
        """List the files of the folder."""
        return list_texts(root, limit)

    @tool(effect="once")
    async def read_and_count(ctx: ToolContext, path: str, part: int = 1, parts: int = 1) -> dict[str, Any]:
        """Count the words of a text file, or of one part of it, and leave a mark in the outside world."""
        nonlocal invoked
        invoked += 1
        outside.mark(ctx.call_id)
        print(flush=True)  # whoever waits for the mark may look now
        if hold is not None and invoked >= hold:
            await trio.sleep_forever()
        await trio.sleep(wait_of(path, part, latency))
        return count_part(root, path, part, parts)

    return [list_files, read_and_count]
