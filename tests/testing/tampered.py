"""A run in which all is well, and what somebody may do to its traces so that a law must speak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import attrs
import trio

from trio_agent import Agent, Fact, Message, Retry, SessionConflict, ToolResult, tool
from trio_agent._facts import Stamped, stamp
from trio_agent.sessions import MemoryStore
from trio_agent.testing import RunWorld, ScriptedModel, Trial, call, calls, fail, replay, say

UNTOUCHED: Final = "untouched"
ABORTED: Final = "abort(0):after:40"
CANCELLED: Final = "cancel:after:40"
"""Cut while the first calls run."""

F = TypeVar("F", bound=Stamped)
Tamper = Callable[[Trial[Any]], object]  # Any: of a run, or of a session


@tool
async def slow() -> str:
    """Work for a second."""
    await trio.sleep(1)
    return "slow"


@tool(lane="a file")
async def laned() -> str:
    """Work for a second, one after the other."""
    await trio.sleep(1)
    return "laned"


@tool(exclusive=True)
async def alone() -> str:
    """Work for a second, alone."""
    await trio.sleep(1)
    return "alone"


@tool
async def boom() -> str:
    """Fail."""
    raise LookupError("boom")


@attrs.define(eq=False)
class Store(MemoryStore):
    """A log in memory, which may be closed."""

    closed: bool = False

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.sleep(0.01)
        if self.closed:
            raise SessionConflict("somebody else has written")
        return await super().append(session, facts, expected_head=expected_head)


async def listen(event: object) -> None:
    await trio.sleep(0.001)


async def body(world: RunWorld) -> None:
    await world.steer("faster")
    await world.follow_up("and then?")
    await world.follow_up("and then??")
    await world.run.wait()


def make(**options: Any) -> RunWorld:
    """Five turns with seven calls of all kinds, a retry, a steer, two follow-ups, a listener and a store."""
    script = ScriptedModel(
        calls(call("slow"), call("slow"), call("boom"), call("nope"), text="First."),
        fail(429, retry_after=1),
        calls(call("laned"), call("laned"), call("alone")),
        say("Done.", chunks=2),
        say("Then."),
        say("Then, then."),
    )
    options.setdefault("store", Store())
    agent = Agent(
        script,
        tools=[slow, laned, alone, boom],
        max_parallel_tools=2,
        settle_timeout=60,
        listeners=[listen],
        retry=Retry(attempts=3),
        **options,
    )
    return RunWorld(agent, body=body)


def volatile() -> RunWorld:
    """The same without a store."""
    return make(store=None)


def played(token: str = "untouched", world: Callable[[], Any] = make) -> Trial[Any]:
    """One trial of it."""
    return replay(token, world, type(world()).play)


# ------------------------------------------------------------------------------------- tampering


def changed(fact: F, **changes: Any) -> F:
    """The fact with other words and the same stamp."""
    other = attrs.evolve(fact, **changes)  # type: ignore[misc]  # every fact is an attrs class
    stamp(other, fact.seq, fact.time, fact.place)
    return other


def log_of(trial: Trial[Any]) -> list[Fact]:
    """The log, to be written in."""
    assert trial.world.store is not None
    return trial.world.store.facts[trial.world.session]


def rewrite(kind: type[Any], which: int = 0, **changes: Any) -> Tamper:
    """Change one fact of the log."""

    def tamper(trial: Trial[Any]) -> None:
        log = log_of(trial)
        number = [number for number, fact in enumerate(log) if isinstance(fact, kind)][which]
        log[number] = changed(log[number], **changes)

    return tamper


def drop(kind: type[Any], which: int = 0, *, shown: bool = False) -> Tamper:
    """Take one fact out of the log, or one event out of what was shown."""

    def tamper(trial: Trial[Any]) -> None:
        told: list[Any] = trial.world.runs[0].events if shown else log_of(trial)
        del told[[number for number, each in enumerate(told) if isinstance(each, kind)][which]]

    return tamper


def double(kind: type[Any], which: int = 0, *, shown: bool = False) -> Tamper:
    """Tell one thing twice."""

    def tamper(trial: Trial[Any]) -> None:
        told: list[Any] = trial.world.runs[0].events if shown else log_of(trial)
        number = [number for number, each in enumerate(told) if isinstance(each, kind)][which]
        told.insert(number, told[number])

    return tamper


def result(**changes: Any) -> Tamper:
    """Change the result of the run."""

    def tamper(trial: Trial[Any]) -> None:
        trial.world.runs[0].ended = attrs.evolve(trial.world.result, **changes)

    return tamper


def messages(change: Callable[[list[Message]], object]) -> Tamper:
    """Change the messages of the result."""

    def tamper(trial: Trial[Any]) -> None:
        found = list(trial.world.result.messages)
        change(found)
        result(messages=tuple(found))(trial)

    return tamper


def results(change: Callable[[list[ToolResult]], object], which: int = 0) -> Tamper:
    """Change the results of one turn, as the result of the run tells them."""

    def change_one(found: list[Message]) -> None:
        number = [number for number, message in enumerate(found) if message.results][which]
        blocks = list(found[number].results)
        change(blocks)
        found[number] = attrs.evolve(found[number], content=tuple(blocks))

    return messages(change_one)


def on(change: Callable[[RunWorld], object]) -> Tamper:
    return lambda trial: change(trial.world)


def swap(kind: type[Any], one: int, other: int) -> Tamper:
    """Exchange two facts of the log."""

    def tamper(trial: Trial[Any]) -> None:
        log = log_of(trial)
        a, b = ([n for n, fact in enumerate(log) if isinstance(fact, kind)][which] for which in (one, other))
        log[a], log[b] = log[b], log[a]

    return tamper


def show(make_event: Callable[[], Any], place: int = -1) -> Tamper:
    """Show one event more; by default before the last."""

    def tamper(trial: Trial[Any]) -> None:
        event, events = make_event(), trial.world.runs[0].events
        stamp(event, events[-1].seq, events[-1].time, events[-1].place)
        events.insert(place, event)

    return tamper


def write(make_fact: Callable[[Any], Any], kind: type[Any]) -> Tamper:
    """Write one fact more, with the stamp of the first of a kind, and behind it."""

    def tamper(trial: Trial[Any]) -> None:
        log = log_of(trial)
        number = next(number for number, fact in enumerate(log) if isinstance(fact, kind))
        model = log[number]
        fact = make_fact(model)
        stamp(fact, model.seq, model.time, model.place)
        log.insert(number + 1, fact)

    return tamper


@attrs.frozen
class Case:
    """One way to break a law, and what the law says then."""

    law: str
    complaint: str
    tamper: Tamper
    token: str = UNTOUCHED
    world: Callable[[], Any] = make
