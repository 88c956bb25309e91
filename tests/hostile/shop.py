"""What the tests of failing stores share: an agent that pays bills, on a disk that others meddle with.

Knows nothing of what goes wrong with the disk.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

import attrs

from trio_agent import (
    Agent,
    AgentResume,
    AgentStart,
    Diagnostic,
    Event,
    Fact,
    MessageEnd,
    RunResult,
    ToolContext,
    ToolExecutionStart,
    read_fact,
    tool,
    write_fact,
)
from trio_agent.sessions import JSONLStore, SQLiteStore
from trio_agent.testing import ScriptedModel, Turn, call, calls, say

StoreName: TypeAlias = Literal["sqlite", "jsonl"]
Door: TypeAlias = Literal["run", "session"]

STORES: Final = get_args(StoreName)
DOORS: Final = get_args(Door)
SESSION: Final = "s"
REAL: Final = 60
"""Seconds on the real clock, where there are threads and other programs; nothing waits for them."""
_FACTS: Final = get_args(Fact)


@attrs.frozen
class Disk:
    """A folder with sessions in it, kept by one kind of store."""

    folder: Path
    kind: StoreName

    def store(self, **options: Any) -> SQLiteStore | JSONLStore:
        """One more store on it, as another program would have one."""
        options = {"durability": "process", "busy_timeout": 0.05, **options}
        if self.kind == "sqlite":
            return SQLiteStore(self.file, **options)
        return JSONLStore(self.file.parent, **options)

    @property
    def file(self) -> Path:
        """Where the session stands."""
        return self.folder / f"{SESSION}.db" if self.kind == "sqlite" else self.folder / f"{SESSION}.jsonl"

    def execute(self, *statements: str) -> None:
        """Change the database as somebody else."""
        with closing(sqlite3.connect(self.file, isolation_level=None)) as db:
            for statement in statements:
                db.execute(statement)

    async def log(self) -> Sequence[str]:
        """What stands there, in its written form, and is not damaged."""
        async with self.store() as store:
            if isinstance(store, SQLiteStore):
                await store.check()
            return [write_fact(fact) for fact in await store.read(SESSION)]


class Shop:
    """An agent on a disk, what it has paid, and what it has shown while its log could be written.

    Args:
      turns: of its model; by default it pays once, and says so.
      store: by default, one of its own.
    """

    def __init__(self, disk: Disk, *turns: Turn, store: Any = None, bill: int = 0) -> None:
        self.disk = disk
        self.paid: list[str] = []
        """The keys of all payments, in order."""
        self.shown: list[Fact] = []
        self._failed = False

        @tool
        async def pay(ctx: ToolContext) -> str:
            """Pay a bill."""
            self.paid.append(ctx.idempotency_key)
            return "Paid. " + "x" * bill

        self.model = ScriptedModel(*(turns or (calls(call("pay")), say("It is paid."))))
        self.store = disk.store() if store is None else store
        self.agent = Agent(self.model, tools=[pay], store=self.store, listeners=[self._hear])

    async def _hear(self, event: Event) -> None:
        if isinstance(event, Diagnostic) and event.code == "STORE_FAILED":
            self._failed = True
            if self.shown and isinstance(self.shown[-1], AgentStart | AgentResume):
                self.shown.pop()  # nothing stands before a run's first event, so it is told even if it was not written
        shown = isinstance(event, _FACTS) and not (isinstance(event, MessageEnd) and event.message.role == "tool")
        if shown and not self._failed:
            self.shown.append(event)  # type: ignore[arg-type]  # it is a fact

    async def go(self, door: Door, input: str = "Pay.") -> RunResult:
        """One prompt, by a run of its own or by a session."""
        if door == "run":
            return await self.agent.send(input, session=SESSION)
        async with self.agent.session(SESSION) as session:
            return await session.prompt(input)

    async def kept(self) -> None:
        """See that what was shown stands in the log, byte for byte."""
        log = await self.disk.log()
        for fact in self.shown:
            assert log[fact.seq - 1 : fact.seq] == [write_fact(fact)], f"{fact.kind} {fact.seq} was shown, and is lost"


async def goes_on(disk: Disk, *, before: Sequence[str], resumes: bool = False) -> Shop:
    """When the cause is gone: what stood there stands there, and another program goes on with it."""
    assert (await disk.log())[: len(before)] == list(before)
    shop = Shop(disk, say("I am here again."))
    async with shop.agent.session(SESSION) as session:
        result = await (session.resume() if resumes else session.prompt("Are you there?"))
        assert result.stop_reason == "stop", result.error
        assert result.text == "I am here again."
    shop.model.verify()
    started = {f.idempotency_key for f in map(read_fact, before) if isinstance(f, ToolExecutionStart)}
    assert not started & set(shop.paid), "it was paid again"
    await shop.store.aclose()
    await shop.kept()
    return shop
