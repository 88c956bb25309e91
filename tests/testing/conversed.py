"""A session in which all is well: suspended, resumed with answers, forked, and prompted again."""

from __future__ import annotations

from typing import Any

import trio

from tests.testing.tampered import Store, slow
from trio_agent import Agent, Allow, ApprovalRequest, InputRequest, ToolContext, tool
from trio_agent.permissions import suspend
from trio_agent.testing import ScriptedModel, SessionWorld, call, calls, say


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once."""
    await trio.sleep(1)
    return f"paid {amount}"


@tool(effect="idempotent")
async def choose(ctx: ToolContext) -> str:
    """Ask for a colour."""
    return await ctx.ask("Which colour?")


def answer(request: ApprovalRequest | InputRequest) -> Allow | str:
    """What they have said when they come back."""
    return Allow() if isinstance(request, ApprovalRequest) else "red"


async def left(world: SessionWorld) -> None:
    """One prompt, which is suspended; nobody answers."""
    await world.prompt("Pay.")


async def body(world: SessionWorld) -> None:
    await left(world)
    if world.result.stop_reason == "suspended":
        await world.resume({request.call_id: answer(request) for request in world.result.pending})
    if world.agent.store is not None and world.result.stop_reason == "stop":
        await world.fork(world.runs[-1].events[-1].seq)
    await world.steer("quickly")
    await world.prompt("And then?")


def conversed(**options: Any) -> SessionWorld:
    """Three runs: calls that wait for a permission and an answer, their resumption, and one behind a steer."""
    script = ScriptedModel(
        calls(call("pay", amount=5), call("choose"), call("slow")), say("Paid."), call("slow"), say("Then.")
    )
    options.setdefault("store", Store())
    body_of = options.pop("body", body)
    agent = Agent(script, tools=[pay, choose, slow], approval=suspend, input=suspend, settle_timeout=60, **options)
    return SessionWorld(agent, body_of, answer=answer)


def left_suspended() -> SessionWorld:
    """The first of them alone."""
    return conversed(body=left)
