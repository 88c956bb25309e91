"""The program that is killed: it goes on with its session, to the end if it is let.

It tells the outside what it believes to be durable: facts that are shown, and steers that have been accepted.
"""

from __future__ import annotations

import random
import traceback
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

import attrs
import trio

from tests.crashing.outside import Outside, digest
from tests.crashing.script import Dawdling, Person, Steps, model, tools
from trio_agent import (
    Agent,
    Allow,
    Event,
    Fact,
    MessageEnd,
    NotResumable,
    RunResult,
    Session,
    SessionStore,
    ToolExecutionEnd,
    write_fact,
)
from trio_agent.sessions import JSONLStore, SQLiteStore
from trio_agent.testing import EventOrder

StoreName: TypeAlias = Literal["sqlite", "jsonl"]
Durability: TypeAlias = Literal["power", "process"]

SESSION: Final = "the session"
_FACTS: Final = get_args(Fact)


@attrs.frozen
class Disk:
    """Where the session is kept, and in what."""

    folder: Path
    store: StoreName
    durability: Durability

    def open(self, *, inline: bool = False) -> SQLiteStore | JSONLStore:
        """A store of one's own on it.  ``inline``: without threads."""
        if self.store == "sqlite":
            return SQLiteStore(self.folder / "sessions.db", durability=self.durability, inline=inline)
        return JSONLStore(self.folder / "sessions", durability=self.durability, inline=inline)


@attrs.frozen
class Life:
    """How the program lives between two deaths."""

    number: int
    seed: str
    prompts: bool = False
    """It begins with a prompt, which settles what the life before it has left; otherwise it resumes."""


def live(life: Life, disk: Disk, pipe: int) -> int:
    """The whole program; its exit status."""
    outside = Outside(pipe)
    try:
        trio.run(_main, life, disk, outside)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


async def _main(life: Life, disk: Disk, outside: Outside) -> None:
    async with disk.open() as store:
        await _Program(life, store, outside).run()
    outside.tell("done")


class _Program:
    """One life; what it is shown stands in the promised order, or it fails."""

    def __init__(self, life: Life, store: SessionStore, outside: Outside) -> None:
        self._life = life
        self._outside = outside
        self._rng = random.Random(life.seed)
        steps = Steps(self._rng)
        self._agent = Agent(
            model(life.number, outside, steps),
            tools=tools(outside, steps),
            middleware=[Dawdling(steps)],
            approval=Person(outside, steps),
            store=store,
            max_turns=500,
        )
        self._steer_at = {self._rng.randrange(200) for _ in range(4)}
        """After how many ends of calls a steer is sent."""
        self._order = EventOrder(session=True)
        self._ends = 0
        self._steers = 0
        self._wishes, self._granted = trio.open_memory_channel[None](100)

    async def run(self) -> None:
        async with self._agent.session(SESSION) as session:
            session.subscribe(self._watch)
            session.subscribe(self._order)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._steer_as_wished, session)
                with self._wishes:
                    await self._go_on_to_the_end(session, prompts=self._life.prompts)
                self._steer_at.clear()
            await self._steer(session)  # between two runs
            await self._go_on_to_the_end(session)
            self._order.done()

    async def _watch(self, event: Event) -> None:
        """A listener: what it hears is durable."""
        if not isinstance(event, _FACTS) or (isinstance(event, MessageEnd) and event.message.role == "tool"):
            return
        self._outside.tell("fact", event.kind, event.seq, digest(write_fact(event)))
        if isinstance(event, ToolExecutionEnd):
            self._ends += 1
            if self._ends in self._steer_at:
                self._wishes.send_nowait(None)

    async def _steer_as_wished(self, session: Session) -> None:
        async for _ in self._granted:
            await self._steer(session, interrupt=self._rng.random() < 0.3)

    async def _steer(self, session: Session, *, interrupt: bool = False) -> None:
        self._steers += 1
        text = f"Steer {self._life.number}.{self._steers}."
        self._outside.tell("steers", text)
        await session.steer(text, interrupt=interrupt)
        self._outside.tell("steered", text)

    async def _go_on_to_the_end(self, session: Session, *, prompts: bool = False) -> None:
        result = await session.prompt("Go on.") if prompts and session.history() else await self._go_on(session)
        while result is not None:
            assert result.stop_reason in ("stop", "suspended"), f"it ended with {result.stop_reason}: {result.error}"
            result = await self._go_on(session)

    async def _go_on(self, session: Session) -> RunResult | None:
        """One run more; ``None`` if there is nothing left to do."""
        answers = {request.call_id: Allow() for request in session.state.requests}
        try:
            return await session.resume(answers)
        except NotResumable:
            return None if session.history() else await session.prompt("Begin.")
