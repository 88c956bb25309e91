"""A program of its own with a session in a SQLite file: it does what it is told line by line, and tells what it does.

``python -m tests.scenarios.program FILE PLAY DEATH``.  What it tells cannot be taken back, so it is the outside world
that counts what its calls have done.  It dies as by a power cut: behind the effect of a call (``effect:ID``), when the result of
one has been written (``end:ID``), or when the model is asked for the turn behind that (``behind:ID``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

import attrs
import trio

from tests.one_log import Passing
from tests.scenarios.disks import SESSION
from trio_agent import (
    Agent,
    AgentError,
    Allow,
    Answer,
    Deny,
    Event,
    Fact,
    ModelRequest,
    Session,
    ToolContext,
    ToolExecutionEnd,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import SQLiteStore
from trio_agent.testing import Answer as Script
from trio_agent.testing import ScriptedModel, call, calls, say

REAL = 60
"""Seconds on the real clock, after which it gives up; nothing waits for them."""

PLAYS: Mapping[str, Sequence[Sequence[tuple[str, str]]]] = {
    "two turns": [[("1", "charge")], [("2", "charge")]],
    "two safe turns": [[("1", "note")], [("2", "note")]],
    "held": [[("1", "hold")], [("2", "charge")]],
    "a batch": [[("1", "hold"), ("2", "hang")], [("3", "charge")]],
    "a safe batch": [[("1", "hold"), ("2", "note_and_hang")], [("3", "charge")]],
    "approval": [[("1", "gated"), ("2", "charge"), ("3", "boom")]],
}
"""By name: for each turn the calls, their ids and their tools."""


def tell(*words: object) -> None:
    # One write a line: whoever kills this program gets whole lines or none.
    os.write(1, json.dumps(words).encode() + b"\n")


@attrs.define(eq=False)
class Program:
    """What its tools share."""

    play: str
    death: str
    may_end: trio.Event = attrs.field(factory=trio.Event)
    written: trio.Event = attrs.field(factory=trio.Event)
    """The result that the program's death waits for is in the file."""

    def ran(self, context: ToolContext) -> str:
        """The effect of a call."""
        tell("ran", context.call_id, context.idempotency_key)
        if self.death == f"effect:{context.call_id}":
            os._exit(9)
        return f"ran {context.call_id}"

    async def talk(self, request: ModelRequest) -> Script:
        """The next turn of the play that the history has no results of."""
        done = {result.call_id for message in request.messages for result in message.results}
        if self.death in [f"behind:{call_id}" for call_id in done]:
            await self.written.wait()
            os._exit(9)
        for turn in PLAYS[self.play]:
            if not all(call_id in done for call_id, _ in turn):
                return calls(*(call(name, id=call_id) for call_id, name in turn))
        return say("done")

    def agent(self, store: SQLiteStore) -> Agent:
        @tool
        async def charge(context: ToolContext) -> str:
            return self.ran(context)

        @tool(effect="idempotent")
        async def note(context: ToolContext) -> str:
            return self.ran(context)

        @tool
        async def hold(context: ToolContext) -> str:
            text = self.ran(context)
            await self.may_end.wait()
            return text

        @tool
        async def hang(context: ToolContext) -> None:
            self.ran(context)
            await trio.sleep_forever()

        @tool(effect="idempotent")
        async def note_and_hang(context: ToolContext) -> str:
            text = self.ran(context)
            if self.death != "never":
                await trio.sleep_forever()
            return text

        @tool(requires_approval=True)
        async def gated(context: ToolContext) -> str:
            return self.ran(context)

        @tool
        async def boom(context: ToolContext) -> str:
            self.ran(context)
            raise ValueError("boom")

        tools = [charge, note, hold, hang, note_and_hang, gated, boom]
        return Agent(ScriptedModel(self.talk), tools=tools, store=Dying(store, self), approval=suspend)


@attrs.define(eq=False)
class Dying(Passing):
    """Takes the program with it when it has written what it waits for."""

    program: Program

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        head = await self.behind.append(session, facts, expected_head=expected_head)
        for fact in facts:
            if isinstance(fact, ToolExecutionEnd) and self.program.death == f"end:{fact.result.call_id}":
                os._exit(9)
            if isinstance(fact, ToolExecutionEnd) and self.program.death == f"behind:{fact.result.call_id}":
                self.program.written.set()
        return head


async def look(event: Event) -> None:
    """Somebody looks, so that everything is written as soon as it has happened."""


async def orders(stream: trio.abc.ReceiveStream) -> AsyncGenerator[list[Any]]:
    rest = b""
    async for data in stream:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            yield json.loads(line)


async def do(session: Session, verb: str, said: Any) -> None:
    """Prompt or resume, and tell what came of it."""
    try:
        if verb == "prompt":
            result = await session.prompt(said)
        else:
            answers: dict[str, Answer] = {
                each: Allow() if word == "allow" else Deny(word) for each, word in said.items()
            }
            result = await session.resume(answers)
    except AgentError as error:
        tell("refused", error.code, str(error))
        return
    error = result.error
    tell("result", result.stop_reason, error.code if isinstance(error, AgentError) else None, result.text)


async def main(path: str, play: str, death: str) -> None:
    program = Program(play, death)
    with trio.fail_after(REAL):  # whoever hears what this tells does not wait for ever
        async with SQLiteStore(path, durability="process") as store, program.agent(store).session(SESSION) as session:
            session.subscribe(look)
            tell("opened")
            async with trio.lowlevel.FdStream(os.dup(0)) as stdin, trio.open_nursery() as nursery:
                async with aclosing(orders(stdin)) as told:
                    async for verb, said in told:
                        if verb == "go":
                            program.may_end.set()
                        else:
                            nursery.start_soon(do, session, verb, said)


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
