"""A log may stop anywhere, also between two facts that were posted at once: what was to come still comes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from trio_agent import (
    Agent,
    AgentEnd,
    AgentResume,
    AgentStart,
    Allow,
    Fact,
    MessageDelivered,
    NotResumable,
    ToolExecutionEnd,
    TurnEnd,
    TurnStart,
    tool,
)
from trio_agent.permissions import suspend
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, call, calls, check_order, say


@tool(requires_approval=True)
async def pay() -> str:
    """Pay."""
    return "paid"


@tool
async def look() -> str:
    """Look."""
    return "seen"


async def log_of(store: MemoryStore) -> Sequence[Fact]:
    return await store.read("s")


async def cut_behind(store: MemoryStore, log: Sequence[Fact]) -> MemoryStore:
    """Another store, as a crash has left it."""
    cut = MemoryStore()
    await cut.append("s", log, expected_head=0)
    return cut


@pytest.mark.parametrize("kind", ["steer", "follow_up"])
async def test_a_message_whose_turn_was_cut_in_its_opening_is_delivered_in_that_turn(
    autojump_clock: MockClock, kind: str
) -> None:
    store = MemoryStore()
    with trio.fail_after(5):
        async with Agent(ScriptedModel(say("One.", delay=1), say("Two.")), store=store).session("s") as session:
            async with session.run("go") as run:
                await trio.sleep(0.5)  # while the model writes its last answer
                await (run.steer("more") if kind == "steer" else run.follow_up("more"))
                await run.wait()
        log = await log_of(store)
        (delivered,) = [number for number, fact in enumerate(log) if isinstance(fact, MessageDelivered)]
        assert isinstance(log[delivered - 1], TurnStart)
        cut = await cut_behind(store, log[:delivered])
        model = ScriptedModel(say("Two."))
        async with Agent(model, store=cut).session("s") as session:
            result = await session.resume()
        after = (await log_of(cut))[delivered:]
    assert result.stop_reason == "stop"
    assert [message.text for message in model.requests[0].messages] == ["go", "One.", "more"]
    assert isinstance(after[0], AgentResume)
    assert not any(isinstance(fact, TurnStart) for fact in after), "it is delivered in the turn that was opened for it"
    check_order(await log_of(cut), facts_only=True, session=True)


async def suspended_log() -> tuple[Sequence[Fact], int]:
    """The log of a suspended run, and the place of its turn's end."""
    store = MemoryStore()
    agent = Agent(ScriptedModel(calls(call("pay"), call("look"))), tools=[pay, look], store=store, approval=suspend)
    async with agent.session("s") as session:
        await session.prompt("go")
    log = await log_of(store)
    (end,) = [number for number, fact in enumerate(log) if isinstance(fact, TurnEnd)]
    return log, end


async def test_an_answer_to_a_run_that_was_cut_behind_its_suspended_turn_is_acted_upon() -> None:
    with trio.fail_after(5):
        log, end = await suspended_log()
        cut = await cut_behind(MemoryStore(), log[: end + 1])
        model = ScriptedModel(say("Done."))
        async with Agent(model, tools=[pay, look], store=cut, approval=suspend).session("s") as session:
            result = await session.resume({"call_1": Allow()})
            with pytest.raises(NotResumable):
                await session.resume()
        whole = await log_of(cut)
    assert result.stop_reason == "stop"
    assert [each.text for message in model.requests[0].messages for each in message.results] == ["paid", "seen"]
    after = whole[end + 1 :]
    assert isinstance(after[0], AgentEnd)
    assert after[0].reason == "suspended"
    assert isinstance(after[1], AgentStart)
    assert after[1].resumes == after[0].run_id
    assert [fact.result.call_id for fact in after if isinstance(fact, ToolExecutionEnd)] == ["call_1"]
    check_order(whole, facts_only=True, session=True)


async def test_without_an_answer_nothing_is_written_there() -> None:
    with trio.fail_after(5):
        log, end = await suspended_log()
        cut = await cut_behind(MemoryStore(), log[: end + 1])
        async with Agent(ScriptedModel(), tools=[pay, look], store=cut).session("s") as session:
            with pytest.raises(NotResumable):
                await session.resume()
        assert len(await log_of(cut)) == end + 1
