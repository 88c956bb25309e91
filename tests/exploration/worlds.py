"""Worlds to explore: runs of three to six turns that use all of the kernel, and small ones for pairs of cuts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import trio

from trio_agent import (
    Agent,
    Block,
    Event,
    Fact,
    HookContext,
    Message,
    Middleware,
    PreparedCall,
    Retry,
    Tool,
    ToolContext,
    ToolExecutionStart,
    ToolResult,
    TurnStart,
    tool,
)
from trio_agent.codecs import JSONCodec
from trio_agent.sessions import MemoryStore
from trio_agent.testing import RunWorld, ScriptedModel, call, calls, cut, fail, say

# ------------------------------------------------------------------------------------------ tools


@tool(effect="pure")
async def quick() -> str:
    """Return at once."""
    return "quick"


async def _slow(ctx: ToolContext) -> str:
    """Work for two seconds, and say so."""
    ctx.progress("half")
    await trio.sleep(1)
    ctx.emit("note", {"a": 1})
    await trio.sleep(1)
    return "slow"


slow = tool(name="slow")(_slow)
exclusive = tool(name="exclusive", exclusive=True)(_slow)
laned = tool(name="laned", lane="the file")(_slow)


@tool
async def boom() -> str:
    """Fail after half a second."""
    await trio.sleep(0.5)
    raise ValueError("boom")


@tool
async def nested() -> str:
    """Work in two tasks of its own."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep, 0.7)
        nursery.start_soon(trio.sleep, 0.3)
    return "nested"


@tool
async def failing_group() -> str:
    """Fail in two tasks at once."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(boom.handler)
        nursery.start_soon(boom.handler)
    raise AssertionError


@tool(timeout=0.8)
async def timed() -> str:
    """Take longer than it may."""
    await trio.sleep_forever()
    raise AssertionError


@tool
async def hanging() -> str:
    """Never return."""
    await trio.sleep_forever()
    raise AssertionError


@tool
async def stubborn() -> str:
    """Do what must not be cut in half, for one second."""
    with trio.CancelScope(shield=True):
        await trio.sleep(1)
    return "stubborn"


@tool
def threaded(ctx: ToolContext) -> str:
    """Work in a thread."""
    ctx.progress("in a thread")
    return "threaded"


TOOLS: Sequence[Tool] = (
    quick,
    slow,
    exclusive,
    laned,
    boom,
    nested,
    failing_group,
    timed,
    hanging,
    stubborn,
    threaded,
)

# -------------------------------------------------------------------------------- stores, hooks, listeners


@attrs.define(eq=False)
class SlowStore(MemoryStore):
    """A log in memory whose appends take time."""

    delay: float = 0.01

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        written = list(facts)
        await trio.sleep(self.delay)
        return await super().append(session, written, expected_head=expected_head)


class Slowly(Middleware):
    """Every hook, each with a wait in it."""

    async def before_agent(self, ctx: HookContext) -> None:
        await trio.sleep(0.01)

    async def after_agent(self, ctx: HookContext) -> None:
        await trio.sleep(0.01)

    async def before_model(self, ctx: HookContext) -> None:
        await trio.sleep(0.01)

    async def transform_context(self, ctx: HookContext, messages: Sequence[Message]) -> Sequence[Message]:
        await trio.sleep(0.01)
        return messages

    async def wrap_model_call(self, ctx: HookContext, request: Any, emit: Any, call_next: Any) -> None:
        await trio.sleep(0.01)
        await call_next(request, emit)
        await trio.sleep(0.01)

    async def before_tool_call(self, ctx: HookContext, call: PreparedCall) -> Block | None:
        await trio.sleep(0.01)
        return Block("not today") if call.call.name == "boom" else None

    async def wrap_tool_call(self, ctx: HookContext, call: PreparedCall, call_next: Any) -> ToolResult:
        result: ToolResult = await call_next(call)
        await trio.sleep(0.01)
        return result

    async def after_tool_result(self, ctx: HookContext, result: ToolResult) -> None:
        await trio.sleep(0.01)

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        await trio.sleep(0.01)
        return False


async def slow_listener(event: Event) -> None:
    await trio.sleep(0.001)


# ----------------------------------------------------------------------------------------- bodies


async def steered(world: RunWorld) -> None:
    """The holder steers, follows up, and waits."""
    await world.steer("faster")
    await world.follow_up("and then?")
    await world.run.wait()


async def listened(world: RunWorld) -> None:
    """The same with a slow listener."""
    world.subscribe(slow_listener)
    await steered(world)


async def meddled(world: RunWorld) -> None:
    """The holder cuts one call, steers with an interrupt, steers twice more, and reads what happens."""
    turns, started = 0, list[str]()
    async for event in world.run:
        if isinstance(event, TurnStart):
            turns += 1
            if turns == 2:
                await world.steer("look here")
                await world.steer("and here")
        if isinstance(event, ToolExecutionStart):
            started.append(event.call_id)
            if len(started) == 2:
                world.run.cancel_call(started[0])
            if len(started) == 4:
                await world.steer("stop that", interrupt=True)
    await world.run.wait()


# ---------------------------------------------------------------------------------------- scripts


def everything() -> ScriptedModel:
    """Five turns and a retry: parallel, refused, timing out, laned and exclusive calls."""
    return ScriptedModel(
        calls(call("quick"), call("slow"), call("boom"), call("nope"), call("timed"), text="First."),
        fail(500, after=say("Half an answ")),
        calls(call("laned"), call("exclusive"), call("laned"), call("nested"), call("quick")),
        calls(call("stubborn"), call("failing_group"), call("slow")),
        say("All done.", chunks=3, every=0.1),
        say("Followed up."),
        say("More."),
    )


def meddling() -> ScriptedModel:
    """Calls that hang until somebody cuts them."""
    return ScriptedModel(
        calls(call("hanging"), call("quick"), call("slow")),
        calls(call("hanging"), call("hanging"), call("laned"), call("laned")),
        say("Looked."),
        say("And here."),
        say("Stopped."),
    )


def threads() -> ScriptedModel:
    """Three turns of calls that run in threads, beside others."""
    return ScriptedModel(
        calls(call("threaded"), call("quick"), call("threaded")),
        calls(call("threaded")),
        say("Threaded."),
    )


def small() -> ScriptedModel:
    """Three turns, four calls, a retry: small enough for pairs."""
    return ScriptedModel(
        calls(call("slow"), call("quick"), call("boom")), fail(429), call("slow"), say("Done.", chunks=2, every=0.1)
    )


def unsteady() -> ScriptedModel:
    """Three failures of three kinds, between them calls."""
    return ScriptedModel(
        fail(503, after=call("slow")),
        fail(429, retry_after=2),
        calls(call("slow"), call("quick")),
        cut(say("Half")),
        say("Whole."),
        say("Followed up."),
        say("More."),
    )


# ----------------------------------------------------------------------------------------- worlds

Make = Callable[[], RunWorld]


CALLED = '{"type":"tool_calls","calls":[{"name":"slow","input":{}},{"name":"quick","input":{}}]}'
ANSWERED = '{"type":"final","output":{"n":%s}}'


def in_json() -> ScriptedModel:
    """Turns of a model without tool calling: broken JSON, calls, an output that does not fit, and one that does."""
    return ScriptedModel(
        say('{"type":"tool_calls","calls":[{"name":"slow"', every=0.1, chunks=2),
        say(CALLED, every=0.1, chunks=3),
        fail(503, after=say("{")),
        say(ANSWERED % '"many"', every=0.1, chunks=2),
        say(ANSWERED % 3, every=0.1, chunks=2),
        say(ANSWERED % '"more"', every=0.1, chunks=2),
        say(ANSWERED % 4, every=0.1, chunks=2),
        repeat_last=True,
    )


OUTPUT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def world(script: Callable[[], ScriptedModel] = everything, body: Any = steered, **options: Any) -> Make:
    """What makes a world; ``store`` and ``middleware`` are made anew each time."""
    store, middleware = options.pop("store", None), options.pop("middleware", None)

    def make() -> RunWorld:
        own = dict(options)
        if store is not None:
            own["store"] = store()
        if middleware is not None:
            own["middleware"] = [middleware()]
        agent = Agent(script(), tools=TOOLS, max_parallel_tools=2, retry=Retry(attempts=3, base=0.5), **own)
        return RunWorld(agent, body=body)

    return make


WORLDS: dict[str, Make] = {
    "volatile": world(),
    "with hooks": world(middleware=Slowly),
    "with a listener": world(body=listened),
    "durable": world(store=SlowStore),
    "durable, with a listener": world(body=listened, store=SlowStore),
    "durable, with hooks": world(store=SlowStore, middleware=Slowly),
    "meddled with": world(meddling, meddled),
    "meddled with, durable": world(meddling, meddled, store=SlowStore),
    "durable, typed, in JSON": world(in_json, store=SlowStore, codec=JSONCodec(), output=OUTPUT),
    "unsteady": world(unsteady),
    "unsteady, with all": world(unsteady, listened, store=SlowStore, middleware=Slowly),
}
"""Three to six turns each."""

THREADED = world(threads, None)

SMALL: dict[str, Make] = {
    "volatile": world(small, None),
    "durable": world(small, None, store=SlowStore),
    "with a listener": world(small, None, listeners=[slow_listener]),
}
"""For pairs of cuts."""
