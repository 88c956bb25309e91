"""The kernel's side of the benchmark against other kernels, whose runner and scripts are not part of this project.

Put it beside them as ``adapter_trio_agent.py``; see their README.
"""

from __future__ import annotations

import json

import trio
from common import DELTA, TOOLS, Adapter, Sink, next_turn

from trio_agent import Agent, CallChunk, Finish, TextChunk, TextDelta, ToolExecutionEnd, tool


class Model:
    """Answers from the runner's script, and never reads the history that it is given."""

    name = model = "scripted"
    context_window = None

    async def stream(self, request, emit):
        turn = next_turn()
        for index in range(turn.deltas):
            emit(TextChunk(DELTA))
            if not index & 63:
                await trio.lowlevel.checkpoint()
        if turn.text:
            emit(TextChunk(turn.text))
        for index, call in enumerate(turn.calls):
            emit(CallChunk(index, call.id, call.name, json.dumps(call.args)))
        emit(Finish("stop"))


class TrioAgent(Adapter):
    name = "trio_agent"
    dists = ("trio-agent", "trio")
    imports = "import trio_agent"
    backend = "trio"
    shared = True
    can_cap = True

    def make(self, script, *, max_parallel=None, stream=False):
        tools = [tool(function) for function in TOOLS.values()]
        return Agent(Model(), tools=tools, max_parallel_tools=max_parallel or 10, max_turns=10**9)

    async def run(self, agent):
        return (await agent.send("go")).text

    async def stream(self, agent, sink: Sink):
        async with agent.run("go") as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    sink.delta(event.text)
                elif isinstance(event, ToolExecutionEnd):
                    sink.tool_done(event.result.call_id)
        return run.result.text


ADAPTER = TrioAgent()
