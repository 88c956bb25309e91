"""The ten lines: an agent, a tool, the events of a run.  Offline; for a real model see the README beside this."""

import trio

from trio_agent import Agent, tool
from trio_agent.testing import ScriptedModel, call, say


@tool(effect="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def main() -> None:
    model = ScriptedModel(call(add, a=2, b=40), say("It is 42."))
    async with Agent(model, tools=[add]).run("What is 2 + 40?") as run:
        async for event in run:  # optional; never slows the kernel
            print(event.kind)
    print(run.result.text)


trio.run(main)
