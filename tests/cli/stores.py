"""Sessions as runs leave them: one that has ended, one that waits for a person, one that a crash has cut."""

from __future__ import annotations

from pathlib import Path

import trio

from trio_agent import Agent, ModelProvider, SessionStore, ToolContext, tool
from trio_agent.permissions import suspend
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import ScriptedModel, call, calls, fail, say

TOOLS = '''
import trio
from trio_agent import ToolContext, tool


def log(line):
    with open("log", "a") as file:
        file.write(line + "\\n")


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    log(f"add {a} {b}")
    return a + b


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    log(f"pay {amount}")
    return f"paid {amount}"


@tool(effect="idempotent")
async def order(ctx: ToolContext) -> str:
    """Order."""
    return f"one {await ctx.ask('Which dish?')}"


@tool
async def wait() -> str:
    """Wait for ever."""
    log("wait")
    await trio.sleep_forever()
    return ""
'''

NAMES = ("add", "pay", "order", "wait")


def tool_words() -> list[str]:
    """What names the tools on a command line."""
    return [word for name in NAMES for word in ("-t", f"session_tools:{name}")]


def write_tools(folder: Path) -> None:
    (folder / "session_tools.py").write_text(TOOLS)


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


@tool(effect="idempotent")
async def order(ctx: ToolContext) -> str:
    """Order."""
    return f"one {await ctx.ask('Which dish?')}"


@tool
async def wait() -> str:
    """Wait for ever."""
    await trio.sleep_forever()
    return ""


def agent(model: ModelProvider, store: SessionStore) -> Agent:
    return Agent(model, tools=[add, pay, order, wait], store=store, approval=suspend, input=suspend)


async def ended(store: SessionStore, name: str = "ended") -> None:
    """One that has ended well, after a call."""
    model = ScriptedModel(calls(call("add", a=1, b=2), text="Let me see."), say("Three."))
    async with agent(model, store).session(name) as session:
        await session.prompt("What is 1 + 2?")


async def failed(store: SessionStore, name: str = "failed") -> None:
    async with agent(ScriptedModel(fail(400, "no such luck")), store).session(name) as session:
        await session.prompt("Go.")


async def waiting(store: SessionStore, name: str = "waiting") -> None:
    """One that waits for a permission, and for the answer to a question; ids c1, c2, c3."""
    turn = calls(call("pay", amount=20, id="c1"), call("add", a=1, b=1, id="c2"), call("order", id="c3"))
    async with agent(ScriptedModel(turn), store).session(name) as session:
        result = await session.prompt("Pay and order.")
    assert result.stop_reason == "suspended"


async def crashed(store: SessionStore, name: str = "crashed") -> None:
    """One whose process died in the middle of a turn: c1 has ended, c2 has started, c3 has not."""
    spare = f"{name} before"
    turn = calls(call("add", a=1, b=2, id="c1"), call("wait", id="c2"), call("add", a=3, b=4, id="c3"))
    one_by_one = agent(ScriptedModel(turn), store).replace(max_parallel_tools=1)
    async with one_by_one.session(spare) as session:
        async with session.run("Add and wait.") as run:
            async for event in run:
                if event.kind == "tool_execution_start" and getattr(event, "call_id", "") == "c2":
                    cut_at = event.seq
                    break
    await store.fork(spare, name, at=cut_at)
    await store.delete(spare)


async def made(path: Path, *kinds: str) -> None:
    """A SQLite store with these sessions, the last one written to last."""
    makers = {"ended": ended, "failed": failed, "waiting": waiting, "crashed": crashed}
    async with SQLiteStore(path, durability="process") as store:
        for kind in kinds:
            await makers[kind](store)
