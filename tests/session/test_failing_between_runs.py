"""A log that fails while something was said between two runs: the next run still tells its events in order."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from trio_agent import Agent, Fact, StoreFailed
from trio_agent.sessions import MemoryStore
from trio_agent.testing import ScriptedModel, check_order, say


class Full(MemoryStore):
    """Takes nothing."""

    async def append(self, session: str, facts: Sequence[Fact], *, expected_head: int) -> int:
        await trio.sleep(1)
        raise StoreFailed("the disk is full")


async def test_nothing_stands_before_a_run_s_first_event_if_a_steer_fails_with_it(
    autojump_clock: trio.abc.Clock,
) -> None:
    refused: list[StoreFailed] = []

    async def steer() -> None:
        with pytest.raises(StoreFailed) as caught:
            await session.steer("quickly")
        refused.append(caught.value)

    with trio.fail_after(60):
        async with Agent(ScriptedModel(say("Hi.")), store=Full()).session("s") as session:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(steer)
                await trio.testing.wait_all_tasks_blocked()
                async with session.run("go") as run:
                    events = run.events()
                    await run.wait()
                told = events.drain()
    assert len(refused) == 1
    assert told[0].kind == "agent_start"
    assert [event.kind for event in told].count("diagnostic") == 1
    check_order(told)
