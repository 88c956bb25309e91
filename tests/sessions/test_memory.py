"""The store in memory keeps the contract, and what it has outlives a session but not the store."""

from __future__ import annotations

import pytest
import trio

from trio_agent import Agent
from trio_agent.sessions import MemoryStore
from trio_agent.testing import Case, ScriptedModel, say, store_contract
from trio_agent.testing._contracts._logbook import notes


@pytest.mark.parametrize("case", store_contract(MemoryStore), ids=str)
def test_it_keeps_the_contract(case: Case) -> None:
    case()


async def test_another_agent_goes_on_with_what_it_has(autojump_clock: trio.testing.MockClock) -> None:
    store = MemoryStore()
    with trio.fail_after(10):
        await Agent(ScriptedModel(say("One.")), store=store).send("first", session="s")
        model = ScriptedModel(say("Two."))
        await Agent(model, store=store).send("second", session="s")
    assert [message.text for message in model.requests[0].messages] == ["first", "One.", "second"]


async def test_two_stores_have_nothing_in_common() -> None:
    one, other = MemoryStore(), MemoryStore()
    await one.append("s", notes(1, 2), expected_head=0)
    assert await other.list() == ()
    assert await other.head("s") == 0


async def test_facts_are_kept_as_they_are() -> None:
    store, facts = MemoryStore(), notes(1, 2)
    await store.append("s", facts, expected_head=0)
    assert all(kept is fact for kept, fact in zip(await store.read("s"), facts, strict=True))
