"""Answers that are logged while they are written: in batches, whole, and only where it was asked for."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import trio
from trio.testing import MockClock

from tests.kernel.fakes import Watched
from trio_agent import Agent, Fact, MessageDraft, MessageEnd, Retry
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, cut, say, think

LONG = "Once upon a time there was a kernel. " * 200


def drafted(log: Iterable[Fact]) -> dict[str, str]:
    """By message: all of its drafts, joined."""
    found: dict[str, str] = {}
    for fact in log:
        if isinstance(fact, MessageDraft):
            found[fact.message_id] = found.get(fact.message_id, "") + fact.text
    return found


@pytest.mark.parametrize("watched", [True, False])
async def test_the_drafts_of_an_answer_add_up_to_it(autojump_clock: MockClock, watched: bool) -> None:
    agent = Agent(ScriptedModel(say(LONG, chunks=100)), log_stream=True)
    with trio.fail_after(100):
        async with agent.run("Tell me a story.") as run:
            if watched:
                async for _ in run:
                    pass
            await run.wait()
    (end,) = [fact for fact in run.log if isinstance(fact, MessageEnd)]
    drafts = [fact for fact in run.log if isinstance(fact, MessageDraft)]
    assert drafted(run.log) == {end.message.id: LONG}
    assert 1 < len(drafts) <= len(LONG) // 2_000 + 2
    assert all(draft.seq < end.seq for draft in drafts)


async def test_reasoning_is_drafted_apart(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(think("Hm.") + say("So.")), log_stream=True)
    with trio.fail_after(100):
        async with agent.run("go") as run:
            await run.wait()
    (draft,) = [fact for fact in run.log if isinstance(fact, MessageDraft)]
    assert (draft.reasoning, draft.text) == ("Hm.", "So.")


async def test_nothing_is_drafted_unless_it_was_asked_for(autojump_clock: MockClock) -> None:
    with trio.fail_after(100):
        async with Watched(Agent(ScriptedModel(say(LONG)))) as watched:
            await watched.run.wait()
    assert not drafted(watched.log)


async def test_what_was_shown_of_a_slow_answer_is_in_the_log_when_it_is_cut(autojump_clock: MockClock) -> None:
    store = MemoryStore()
    slow = say("one two three four", chunks=["one ", "two ", "three ", "four"], every=0.4)
    agent = Agent(ScriptedModel(slow), store=store, log_stream=True)
    with trio.fail_after(100):
        async with agent.run("go", session="s") as run:
            async for event in run:
                if event.kind == "message_draft":
                    break
            durable = await store.read("s")
            assert list(drafted(durable).values()) == ["one two three "]  # while the answer is still being written


async def test_the_drafts_of_an_attempt_that_failed_are_those_of_another_message(autojump_clock: MockClock) -> None:
    agent = Agent(ScriptedModel(cut(say("half")), say("whole")), log_stream=True, retry=Retry(attempts=2))
    with trio.fail_after(100):
        async with agent.run("go") as run:
            await run.wait()
    assert sorted(drafted(run.log).values()) == ["half", "whole"]
