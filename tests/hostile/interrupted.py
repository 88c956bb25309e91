"""A program to be interrupted: it runs an agent into one phase, says so, and tells what became of it.

``python -m tests.hostile.interrupted PHASE once|twice``.  It prints ``ready`` when Ctrl-C may come and, with
``twice``, ``again`` in the middle of the settlement, with a ``+`` if it waits for a line on its input, which
has to be sent after the signal; then one line of JSON.

In most phases ``ready`` is said when every task waits, so that the interrupt lands in the main task; in those
that are called busy it lands in the very code that runs.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any

import attrs
import trio
import trio.testing

from tests.one_log import OneLog
from tests.scenarios.stage import living_tasks
from trio_agent import (
    Agent,
    Event,
    Fact,
    HookContext,
    Message,
    Middleware,
    ModelProvider,
    ModelRequest,
    Retry,
    Run,
    RunResult,
    Tool,
    tool,
    write_fact,
)
from trio_agent.providers import OpenAI
from trio_agent.testing import STALL, Item, ModelServer, ScriptedModel, call, calls, fail, say, stall

TWICE = sys.argv[2:] == ["twice"]


def tell(text: str) -> None:
    print(text, flush=True)


QUIET: list[str] = []
"""What shall be told when every task waits."""


async def herald() -> None:
    """A system task: no interrupt lands in it."""
    while True:
        await trio.testing.wait_all_tasks_blocked(0.01)
        while QUIET:
            tell(QUIET.pop())
        await trio.sleep(0.01)


async def line() -> None:
    """Wait for a line on the input."""
    await trio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)


@attrs.define(eq=False)
class Store(OneLog):
    """A log in memory whose commits take a step each."""

    slow_at: str | None = None

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if any(fact.kind == self.slow_at for fact in facts):
            self.slow_at = None
            QUIET.append("ready+")
            await line()
        return await super().append(session, facts, expected_head=expected_head)


class Again(Middleware):
    """Stands in the middle of the settlement, and asks for the second signal there."""

    async def after_agent(self, ctx: HookContext) -> None:
        if TWICE:
            QUIET.append("again+")
            await line()


class BusyAgain(Middleware):
    """The same, and does not wait there."""

    async def after_agent(self, ctx: HookContext) -> None:
        if TWICE:
            tell("again")
            while True:
                pass


# --- tools ---------------------------------------------------------------------------------------------

RUNNING: list[str] = []
RELEASE = threading.Event()
wanted = 0
"""How many calls are expected."""


def begin(name: str) -> None:
    """A call begins; the last of those that are expected says that all have."""
    RUNNING.append(name)
    if len(RUNNING) == wanted:
        QUIET.append("ready+" if "shielding" in RUNNING else "ready")


@tool
async def hang() -> None:
    begin("hang")
    try:
        await trio.sleep_forever()
    finally:
        RUNNING.remove("hang")


@tool
async def hang_and_release() -> None:
    """Lets the thread go when it is cut itself."""
    begin("hang")
    try:
        await trio.sleep_forever()
    finally:
        RUNNING.remove("hang")
        RELEASE.set()


@tool
def thread() -> str:
    begin("thread")
    RELEASE.wait()
    RUNNING.remove("thread")
    return "the thread is done"


@tool
async def shielding() -> str:
    begin("shielding")
    with trio.CancelScope(shield=True):
        await line()
        if TWICE:
            QUIET.append("again+")
            await line()
    RUNNING.remove("shielding")
    return "done behind a shield"


@tool
async def busy() -> None:
    """Never comes to a checkpoint."""
    RUNNING.append("busy")
    try:
        tell("ready")
        while True:
            pass
    finally:
        RUNNING.remove("busy")


@tool
async def ok() -> str:
    return "fine"


# --- phases --------------------------------------------------------------------------------------------


@attrs.frozen
class Phase:
    """How to get into a phase, and what stands in it."""

    turns: Sequence[Item | Callable[[ModelRequest], Awaitable[Item]]]
    tools: Sequence[Tool] = ()
    wanted: int = 0
    """So many calls begin, and the last says ``ready``."""
    body: Callable[[Run], Awaitable[object]] | None = None
    middleware: Sequence[Middleware] = ()
    listeners: Sequence[Callable[[Event], Awaitable[None]]] = ()
    store: Store | None = None
    settle_timeout: float = 20
    retry: Retry = Retry(base=0)
    server: bool = False
    """The model is behind HTTP."""


def when(told: Callable[[Event], bool]) -> Callable[[Run], Awaitable[object]]:
    """A body that reads, and says ``ready`` at one event."""

    async def body(run: Run) -> None:
        async for event in run:
            if told(event):
                QUIET.append("ready")

    return body


async def told_when_asked(request: ModelRequest) -> Item:
    QUIET.append("ready")
    return STALL


class Waits(Middleware):
    """Waits for ever in one hook of the second turn, or of the end."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    async def _wait(self, hook: str) -> None:
        if hook == self._hook:
            QUIET.append("ready+" if hook == "after_agent" else "ready")
            await (line() if hook == "after_agent" else trio.sleep_forever())

    async def before_model(self, ctx: HookContext) -> None:
        if ctx.turn > 1 or ctx.state.messages[-1].role == "tool":
            await self._wait("before_model")

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        await self._wait("should_stop_after_turn")
        return False

    async def after_agent(self, ctx: HookContext) -> None:
        await self._wait("after_agent")


class BusyHook(Middleware):
    async def before_model(self, ctx: HookContext) -> None:
        tell("ready")
        while True:
            pass


async def busy_listener(event: Event) -> None:
    if event.kind == "turn_start":
        tell("ready")
        while True:
            pass


class BusyStore(Store):
    """Is interrupted in its own code."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        if self.slow_at is not None:
            self.slow_at = None
            tell("ready")
            for _ in range(20_000_000):
                pass
        return await super().append(session, facts, expected_head=expected_head)


async def hung_listener(event: Event) -> None:
    if event.kind == "tool_execution_start":
        QUIET.append("ready")
        await trio.sleep_forever()


async def sleeping_body(run: Run) -> None:
    QUIET.append("ready")
    await trio.sleep_forever()


async def busy_body(run: Run) -> None:
    tell("ready")
    while True:
        pass


HALF = stall(say("Half an answ"))
DELTA = when(lambda event: event.kind == "text_delta")
SECOND = when(lambda event: event.kind == "text_delta" and getattr(event, "text", "") == "again")

PHASES: dict[str, Phase] = {
    "asking": Phase([told_when_asked]),
    "streaming": Phase([HALF], body=DELTA),
    "streaming over http": Phase([HALF], body=DELTA, server=True),
    "backoff": Phase([fail(429, retry_after=50)], body=when(lambda event: event.kind == "retry_scheduled")),
    "retry": Phase([fail(500, after=say("first")), stall(say("again"))], body=SECOND),
    "one tool": Phase([call(hang, id="1")], [hang], wanted=1),
    "two tools": Phase([calls(call(hang, id="1"), call(hang, id="2"))], [hang], wanted=2),
    "done and running": Phase([calls(call(ok, id="1"), call(hang, id="2"), call(hang, id="3"))], [ok, hang], wanted=2),
    "thread that ends": Phase(
        [calls(call(thread, id="1"), call(hang_and_release, id="2"))], [thread, hang_and_release], wanted=2
    ),
    "thread that does not": Phase([call(thread, id="1")], [thread], wanted=1, settle_timeout=0.1),
    "shielding": Phase([calls(call(shielding, id="1"), call(hang, id="2"))], [shielding, hang], wanted=2),
    "busy tool": Phase([call(busy, id="1")], [busy], wanted=1),
    "busy tool beside another": Phase([calls(call(hang, id="1"), call(busy, id="2"))], [hang, busy], wanted=2),
    "before the second turn": Phase([call(ok, id="1")], [ok], middleware=[Waits("before_model")]),
    "after the first turn": Phase([call(ok, id="1")], [ok], middleware=[Waits("should_stop_after_turn")]),
    "at the end": Phase(["All done."], middleware=[Waits("after_agent")]),
    "listener": Phase([call(hang, id="1")], [hang], listeners=[hung_listener], settle_timeout=0.1),
    "body": Phase([call(hang, id="1")], [hang], body=sleeping_body),
    "busy body": Phase([STALL], body=busy_body),
    "busy hook": Phase(["never"], middleware=[BusyHook()]),
    "busy listener": Phase([STALL], listeners=[busy_listener]),
    "busy settlement": Phase([HALF], body=DELTA, middleware=[BusyAgain()]),
    "busy commit": Phase([call(hang, id="1")], [hang], store=BusyStore(slow_at="anything")),
    "commit": Phase([call(hang, id="1")], [hang], store=Store(slow_at="tool_execution_start")),
    "durable": Phase([calls(call(hang, id="1"), call(hang, id="2"))], [hang], wanted=2, store=Store()),
}


# --- the program ---------------------------------------------------------------------------------------


async def interrupted(phase: Phase, model: ModelProvider) -> tuple[dict[str, Any], RunResult]:
    """Run into the phase, and tell what was caught, what was left running, and what the log says."""
    middleware = phase.middleware or [Again()]
    agent = Agent(
        model,
        tools=phase.tools,
        middleware=middleware,
        listeners=phase.listeners,
        store=phase.store,
        retry=phase.retry,
        settle_timeout=phase.settle_timeout,
    )
    trio.lowlevel.spawn_system_task(herald)
    foreign = trio.lowlevel.current_task().child_nurseries[:]
    before = living_tasks(but=foreign)
    run = agent.run("go", session=None if phase.store is None else "s")
    caught = "nothing"
    try:
        async with run:
            await (run.wait() if phase.body is None else phase.body(run))
    except BaseException as error:
        caught = type(error).__name__
    with contextlib.suppress(KeyboardInterrupt):
        # Trio keeps a second interrupt that comes while the block is being left until the next checkpoint.
        await trio.lowlevel.checkpoint()
    log = run.log if phase.store is None else phase.store.facts
    told = {
        "caught": caught,
        "tasks": len(living_tasks(but=foreign) - before),
        "running": list(RUNNING),
        "log": [write_fact(fact) for fact in log],
        "reason": run.result.stop_reason,
    }
    return told, run.result


async def main(phase: Phase) -> None:
    async with AsyncExitStack() as stack:
        server = None
        script = ScriptedModel(*phase.turns)
        model: ModelProvider = script
        if phase.server:
            server = await stack.enter_async_context(ModelServer(script))
            model = await stack.enter_async_context(OpenAI("m", base_url=server.base_url, api_key="k"))
        told, result = await interrupted(phase, model)
        RELEASE.set()
        if server is not None:
            with trio.fail_after(20):
                while server.connections:
                    await trio.lowlevel.checkpoint()
        script.verify()
        told["open"] = script.open
        told["requests"] = len(script.requests)
        again = ScriptedModel("Going on.")
        agent = Agent(again, tools=phase.tools)
        if phase.store is None:
            then = await agent.send([*result.messages, Message("user", "and now?")])
        else:
            then = await agent.replace(store=phase.store).send("and now?", session="s")
            told["durable"] = [write_fact(fact) for fact in phase.store.facts]
        again.verify()
        told["then"] = [then.stop_reason, then.text]
        tell(json.dumps(told))


if __name__ == "__main__":
    wanted = PHASES[sys.argv[1]].wanted
    trio.run(main, PHASES[sys.argv[1]])
