"""Sessions to explore: several runs one after the other, people who answer now or later, forks and rewinds."""

from __future__ import annotations

import atexit
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from tests.exploration.worlds import SlowStore, quick, slow, slow_listener
from trio_agent import (
    Agent,
    Allow,
    ApprovalRequest,
    Deny,
    InputRequest,
    Retry,
    Run,
    SessionStore,
    ToolContext,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import (
    Delayed,
    ScriptedApproval,
    ScriptedInput,
    ScriptedModel,
    SessionWorld,
    call,
    calls,
    fail,
    say,
)

# ------------------------------------------------------------------------------------------ tools


@tool(requires_approval=True)
async def pay(amount: int) -> str:
    """Pay, once, if a person allows it."""
    await trio.sleep(0.5)
    return f"paid {amount}"


@tool(effect="idempotent")
async def choose(ctx: ToolContext) -> str:
    """Ask a person twice, with a wait between."""
    colour = await ctx.ask("Which colour?")
    await trio.sleep(0.2)
    size = await ctx.ask("Which size?")
    return f"{colour}, {size}"


@tool(effect="idempotent", requires_approval=True, lane="the till")
async def count(ctx: ToolContext) -> str:
    """Count, as often as need be, if a person allows it."""
    ctx.progress(1)
    await trio.sleep(0.3)
    return "counted"


TOOLS = (quick, slow, pay, choose, count)

# ----------------------------------------------------------------------------------------- people


def cashier(request: ApprovalRequest) -> Delayed[Allow | Deny | Exception]:
    """Thinks for a second, and allows all but a payment of nothing."""
    return Delayed(1.0, Deny("That is nothing.") if request.input.get("amount") == 0 else Allow())


def customer(request: InputRequest) -> Delayed[str | Exception]:
    """Thinks for half a second."""
    return Delayed(0.5, "red" if "colour" in request.question else "large")


def later(request: ApprovalRequest | InputRequest) -> Allow | Deny | str:
    """What they have said when they come back."""
    if isinstance(request, ApprovalRequest):
        return Deny("No.") if request.input.get("amount") == 0 else Allow()
    return "red" if "colour" in request.question else "large"


# ----------------------------------------------------------------------------------------- bodies


async def talked(world: SessionWorld) -> None:
    """Three prompts: steered before, between and meanwhile, then forked, configured and rewound."""

    async def follow_up(run: Run) -> None:
        await run.follow_up("and then?")

    await world.steer("be quick")
    await world.prompt("one", follow_up)
    await world.follow_up("what else?")
    end = world.runs[0].events[-1].seq
    if world.agent.store is not None:
        await world.fork(end)
    await world.opened.configure(system="Be brief.")
    await world.prompt("two", lambda _: world.steer("faster"))
    await world.opened.rewind(end)
    await world.steer("once more")
    await world.prompt("three")


async def asked(world: SessionWorld) -> None:
    """Two prompts whose calls need people, who answer while the run waits."""
    await world.prompt("pay", lambda _: world.steer("and count"))
    await world.prompt("go on")


async def suspended(world: SessionWorld) -> None:
    """People who answer later, some of them first; and a prompt for calls that nobody has answered."""
    result = await world.prompt("pay")
    for _ in range(4):
        if result.stop_reason == "suspended":
            result = await world.resume({request.call_id: later(request) for request in result.pending[:2]})
    await world.prompt("again")
    await world.steer("hurry")
    await world.prompt("never mind")


async def queued(world: SessionWorld) -> None:
    """Two prompts at once, of which one waits for its turn; then both are over."""

    async def prompt(text: str) -> None:
        await world.prompt(text)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(prompt, "one")
        nursery.start_soon(prompt, "two")
    await world.opened.wait_for_idle()


# ---------------------------------------------------------------------------------------- scripts


def talking() -> ScriptedModel:
    """An answer with calls, one that fails once, and plain ones."""
    return ScriptedModel(
        calls(call("slow"), call("quick")),
        say("One.", chunks=2, every=0.1),
        say("And then."),
        fail(503),
        call("quick"),
        say("Two."),
        say("Three."),
    )


def asking() -> ScriptedModel:
    """Calls of all kinds, of which some need a permission, and one asks."""
    return ScriptedModel(
        calls(call("pay", amount=5), call("choose"), call("pay", amount=0), call("quick"), call("count")),
        say("Paid."),
        call("count"),
        say("Done."),
    )


def leaving_it() -> ScriptedModel:
    """The same, and calls that nobody will answer."""
    return ScriptedModel(
        calls(call("pay", amount=5), call("choose"), call("pay", amount=0), call("slow"), call("count")),
        say("Paid."),
        calls(call("quick"), call("pay", amount=7)),
        say("Never mind."),
        say("And now."),
    )


def two_answers() -> ScriptedModel:
    return ScriptedModel(call("slow"), say("One."), say("Two."))


# ----------------------------------------------------------------------------------------- worlds

Make = Callable[[], SessionWorld]

_FILES = itertools.count(1)
_FOLDERS: list[Path] = []


def sqlite() -> SQLiteStore:
    """A new and empty database in a folder that goes with the process; no thread."""
    if not _FOLDERS:
        _FOLDERS.append(Path(tempfile.mkdtemp(prefix="explored-")))
        atexit.register(shutil.rmtree, _FOLDERS[0], ignore_errors=True)
    return SQLiteStore(_FOLDERS[0] / f"{next(_FILES)}.db", durability="process", inline=True)


def conversation(
    script: Callable[[], ScriptedModel],
    body: Any,
    store: Callable[[], SessionStore] | None = None,
    people: bool = False,
    on_busy: Any = "refuse",
    **options: Any,
) -> Make:
    """What makes a world.

    Args:
      people: they answer at once; otherwise all that they are asked is suspended.
    """

    def make() -> SessionWorld:
        agent = Agent(
            script(),
            tools=TOOLS,
            max_parallel_tools=2,
            retry=Retry(attempts=3, base=0.5),
            store=None if store is None else store(),
            approval=ScriptedApproval(cashier) if people else suspend,
            input=ScriptedInput(customer) if people else suspend,
            **options,
        )
        return SessionWorld(agent, body, on_busy=on_busy, answer=None if people else later)

    return make


CONVERSATIONS: dict[str, Make] = {
    "talked, volatile": conversation(talking, talked),
    "talked, durable": conversation(talking, talked, SlowStore),
    "talked, in SQLite": conversation(talking, talked, sqlite),
    "asked, volatile": conversation(asking, asked, people=True),
    "asked, durable": conversation(asking, asked, SlowStore, people=True),
    "asked, in SQLite": conversation(asking, asked, sqlite, people=True),
    "suspended, volatile": conversation(leaving_it, suspended),
    "suspended, durable": conversation(leaving_it, suspended, SlowStore),
    "suspended, in SQLite": conversation(leaving_it, suspended, sqlite),
    "queued, with a listener": conversation(two_answers, queued, on_busy="queue", listeners=[slow_listener]),
    "queued, in SQLite": conversation(two_answers, queued, sqlite, on_busy="queue"),
}
"""Two to six runs each."""
