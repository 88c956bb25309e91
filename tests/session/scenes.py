"""What the tests of sessions share: a log and the crash that cuts it, listeners that keep what they hear.

Knows nothing of what a test is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import trio

from tests.kernel.fakes import refold, tale
from tests.one_log import Passing
from trio_agent import (
    AgentStart,
    Event,
    Fact,
    Message,
    ToolContext,
    ToolExecutionEnd,
    ToolExecutionStart,
    tool,
)
from trio_agent._core._state import State
from trio_agent.sessions import MemoryStore
from trio_agent.testing import check_history, check_order
from trio_agent.tools import Tool


def said(messages: Iterable[Message]) -> list[str]:
    """Who spoke, and what users said."""
    return [message.text if message.role == "user" else message.role for message in messages]


def statuses(messages: Iterable[Message]) -> dict[str, str]:
    """By call id: the status of its one result."""
    found = [result for message in messages for result in message.results]
    assert len({result.call_id for result in found}) == len(found)
    return {result.call_id: result.status for result in found}


# -------------------------------------------------------------------------------------------- logs


async def log_of(store: MemoryStore, session: str = "s") -> list[Fact]:
    return list(await store.read(session))


async def tale_of(store: MemoryStore, session: str = "s") -> list[str]:
    return tale(await store.read(session))


async def crashed(facts: Sequence[Fact], kept: int | None = None, session: str = "s") -> MemoryStore:
    """A store with what a crash behind fact ``kept`` has left of a log."""
    store = MemoryStore()
    if kept != 0:
        await store.append(session, list(facts)[:kept], expected_head=0)
    return store


async def checked_log(store: MemoryStore, session: str = "s", *, open: bool = False) -> State:
    """What a log adds up to, once it is seen that it stands in order and tells a valid history.

    Args:
      open: its last run need not have ended.
    """
    facts = await log_of(store, session)
    if not open and any(isinstance(fact, AgentStart) for fact in facts):
        check_order(facts, facts_only=True, session=True)
    state = refold(facts)
    visible = list(state.transcript.visible())
    if visible and visible[-1].role == "assistant":
        visible.append(Message("user", "and?"))
    if visible:
        check_history(visible)
    check_calls(facts)
    return state


def check_calls(facts: Iterable[Fact]) -> None:
    """Each call has at most one end; one that runs once at most one start; a second start has the key of the first."""
    ends = [fact.result.call_id for fact in facts if isinstance(fact, ToolExecutionEnd)]
    assert len(set(ends)) == len(ends), ends
    keys: dict[str, str] = {}
    for fact in facts:
        if isinstance(fact, ToolExecutionStart):
            assert fact.call_id not in keys or fact.effect != "once", fact.call_id
            assert keys.setdefault(fact.call_id, fact.idempotency_key) == fact.idempotency_key
    assert len(set(keys.values())) == len(keys), keys


class AnotherDoor(Passing):
    """A store that is another object over the same logs: what another process would have."""


# ------------------------------------------------------------------------------------------- effects


@attrs.define(eq=False)
class World:
    """What tools did to the outside world, in all lives of a session.

    Attributes:
      done: call id and idempotency key of each invocation.
    """

    done: list[tuple[str, str]] = attrs.field(factory=list)

    @property
    def ids(self) -> list[str]:
        return [call_id for call_id, _ in self.done]

    def tool(self, name: str, effect: Any = "once", **options: Any) -> Tool:
        """A tool that says that it was invoked, and works for ``seconds`` of virtual time."""

        async def work(ctx: ToolContext, seconds: float = 0) -> str:
            """Work."""
            self.done.append((ctx.call_id, ctx.idempotency_key))
            await trio.sleep(seconds)
            return f"{name} done"

        return tool(name=name, effect=effect, **options)(work)


# ------------------------------------------------------------------------------------------ listening


def runs_of(events: Iterable[Event]) -> list[str]:
    """The run ids that the events name, each once, in order."""
    return list(dict.fromkeys(event.run_id for event in events))
