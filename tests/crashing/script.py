"""What the program that is killed has to do: 200 calls in 13 turns, of tools that tell the outside each time they run."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Final

import trio

from tests.crashing.outside import Outside
from trio_agent import (
    Allow,
    ApprovalRequest,
    HookContext,
    Message,
    Middleware,
    ModelRequest,
    Suspend,
    Tool,
    ToolContext,
    tool,
)
from trio_agent.testing import Answer, ScriptedModel, call, calls, say

MANY: Final = ("pay", "note", "look", "send", "crunch", "pay", "look", "book")
"""Tools that a turn of many calls takes in turn."""


def _many(count: int) -> tuple[str, ...]:
    return tuple(MANY[number % len(MANY)] for number in range(count))


TURNS: Final[Sequence[tuple[str, ...]]] = (
    ("pay",),
    _many(40),
    ("sign", "pay", "note", "sign"),
    ("note",),
    _many(24),
    ("release", *_many(8), "release"),
    ("send",),
    _many(62),
    ("release",),
    ("look", "look", "look"),
    ("crunch",),
    _many(48),
    ("sign", "book", "send", "pay"),
)
"""The names of each turn's calls."""

DONE: Final = "All of it is done."
CALLS: Final = sum(map(len, TURNS))
assert CALLS == 200

ONCE: Final = frozenset({"pay", "send", "book", "sign", "release"})
IDEMPOTENT: Final = frozenset({"note", "crunch"})


class Steps:
    """Makes whatever there is to do take some time: each step lets every other task run."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def __call__(self, most: int) -> None:
        for _ in range(self._rng.randrange(most)):
            await trio.lowlevel.checkpoint()


class Dawdling(Middleware):
    """Takes its time between turns."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps

    async def before_model(self, ctx: HookContext) -> None:
        await self._steps(8)

    async def should_stop_after_turn(self, ctx: HookContext) -> bool:
        await self._steps(8)
        return False


def model(life: int, outside: Outside, steps: Steps) -> ScriptedModel:
    """Goes on with the script wherever the history has come to.

    The ids and the inputs of its calls tell in which life of the program it has made them: an answer that was lost in a
    crash is made anew, and is another one.
    """

    async def answer(request: ModelRequest) -> Answer:
        turn = asked(request.messages)
        outside.tell("model", turn)
        await steps(20)
        if turn == len(TURNS):
            return say(DONE, chunks=3)
        names = enumerate(TURNS[turn])
        each = [call(name, n=index, life=life, id=f"{turn}.{index}.{life}") for index, name in names]
        return calls(*each, text=f"Turn {turn} of the script.")

    return ScriptedModel(answer, chunk=40)


def asked(messages: Iterable[Message]) -> int:
    """How many turns of the script have made their calls."""
    return sum(bool(message.calls) for message in messages)


def tools(outside: Outside, steps: Steps) -> list[Tool]:
    """The tools; each invocation is told first."""

    async def ran(name: str, n: int, life: int, ctx: ToolContext) -> str:
        outside.tell("ran", name, ctx.call_id, ctx.idempotency_key, n, life)
        await steps(4)
        return f"{name} {n}"

    def ran_in_a_thread(name: str, n: int, life: int, ctx: ToolContext) -> str:
        outside.tell("ran", name, ctx.call_id, ctx.idempotency_key, n, life)
        return f"{name} {n}"

    @tool
    async def pay(n: int, life: int, ctx: ToolContext) -> str:
        """Pay a bill."""
        return await ran("pay", n, life, ctx)

    @tool(lane="the book")
    async def book(n: int, life: int, ctx: ToolContext) -> str:
        """Write into the book, one entry after the other."""
        return await ran("book", n, life, ctx)

    @tool
    def send(n: int, life: int, ctx: ToolContext) -> str:
        """Send a letter."""
        return ran_in_a_thread("send", n, life, ctx)

    @tool(effect="idempotent")
    async def note(n: int, life: int, ctx: ToolContext) -> str:
        """Take a note under the key of its call."""
        return await ran("note", n, life, ctx)

    @tool(effect="idempotent")
    def crunch(n: int, life: int, ctx: ToolContext) -> str:
        """Compute something, and keep it under the key of its call."""
        return ran_in_a_thread("crunch", n, life, ctx)

    @tool(effect="pure")
    async def look(n: int, life: int, ctx: ToolContext) -> str:
        """Look something up."""
        return await ran("look", n, life, ctx)

    @tool(requires_approval=True)
    async def sign(n: int, life: int, ctx: ToolContext) -> str:
        """Sign a contract, if somebody allows it at once."""
        return await ran("sign", n, life, ctx)

    @tool(requires_approval=True)
    async def release(n: int, life: int, ctx: ToolContext) -> str:
        """Release a product, when somebody has allowed it later."""
        return await ran("release", n, life, ctx)

    return [pay, book, send, note, crunch, look, sign, release]


class Person:
    """Allows what it is asked: at once, or later."""

    def __init__(self, outside: Outside, steps: Steps) -> None:
        self._outside = outside
        self._steps = steps

    async def __call__(self, request: ApprovalRequest) -> Allow | Suspend:
        self._outside.tell("asked", request.call_id)
        await self._steps(8)
        return Suspend() if request.name == "release" else Allow()
