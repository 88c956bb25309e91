"""The kernel's side of a benchmark: an agent whose model answers from the script, with no latency."""

from __future__ import annotations

import json

import trio

from trio_agent import (
    Agent,
    CallChunk,
    Finish,
    ModelRequest,
    TextChunk,
    TextDelta,
    ToolExecutionEnd,
    tool,
)
from trio_agent._ports import Emit

from .floor import Seen
from .script import DELTA, TOOLS, next_turn


class Scripted:
    """A provider that answers from the current run's script."""

    name = model = "scripted"
    context_window = None

    async def stream(self, request: ModelRequest, emit: Emit) -> None:
        turn = next_turn()
        for index in range(turn.deltas):
            emit(TextChunk(DELTA))
            if not index & 63:
                await trio.lowlevel.checkpoint()
        if turn.text:
            emit(TextChunk(turn.text))
        for index, call in enumerate(turn.calls):
            emit(CallChunk(index, call.id, call.name, json.dumps(call.arguments)))
        emit(Finish("stop"))


AGENT = Agent(Scripted(), tools=[tool(function) for function in TOOLS.values()], max_turns=10**9)


async def run() -> str:
    """Nobody looks."""
    return (await AGENT.send("go")).text


async def stream(seen: Seen) -> str:
    """Every event is read."""
    async with AGENT.run("go") as run:
        async for event in run:
            if isinstance(event, TextDelta):
                seen(event.text)
            elif isinstance(event, ToolExecutionEnd):
                seen(event.result.call_id)
    return run.result.text
